"""The reference engine: the disaggregated serving path as a discrete-event model in plain Python.

It is the specification. It favours being read over being fast, steps token by token, and imports
only the standard library, so that it also runs in a browser.

What happens to a request:

1. It arrives. Conductor sees every prefill node's queue and cached prefix and picks one
   (`scheduler`), and the decode node with the smallest KV cache; or it is rejected (`overload`).
2. What its node lacks of the prefix is fetched from the node that has it in memory, while it waits
   its turn. Conductor's choice is carried out as decided: blocks that appear between decision and
   start are not reused (FAST'25, section 3.2: a prefill node is told which blocks to reuse).
3. The node computes the rest, first come, first served; or a pipeline of nodes does, in chunks.
   Then the first token is out, and all blocks are kept in the node's caches, where others find
   them. A block counts as used when its use ends, then and there; one that was fetched has been
   used at its source and, when it arrives, on its new node too.
4. The KV cache flows to the decode node's DRAM, layer by layer during the prefill or after it, and
   is loaded into GPU memory from there.
5. It joins the batch at the next step boundary at which there is room for its whole context, its
   answer included; so nothing is ever preempted. Those behind it wait. Each step gives every
   sequence of the batch one token.
6. Where answers return (`Cluster.return_answers`), the blocks that the answer completed then flow back
   to the prefill node, if it holds all full blocks of the prompt when the flow begins; until the flow
   ends these are not evicted. Then prompt and answer count as used there.

Stated simplifications:

- A prefill has its node's host link and SSD to itself, and one that needs a prefix from another
  node waits for all of it. Moving blocks down to SSD takes no time.
- Conductor estimates a transfer as if it had the network to itself, and a prefill as if a pipeline
  were empty behind its first stage; it does not see that a node without work may still wait for a
  fetch. What pipeline stages hand on takes time, but no share of the links.
- The stream to the decode node is one flow from the prefill's first instant, at whatever rate the
  links give: it may run ahead of the computation, and the blocks it reads are not pinned. DRAM on
  decode nodes is without bound, and nothing holds prefill back when streams pile up.
- The answer's length is known to the decode node when it makes room. A request with a single token
  done with its prefill and never loads a decode node.
- What returns are whole blocks, though the node may have the start of the first one. It returns over
  the network alone: reading it out of GPU memory takes no time, and it stays no longer in the batch.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import NamedTuple

from mooncake_companion.costs import (
    decode_cost,
    decode_seconds,
    longest_handover_seconds,
    pipeline_seconds,
    prefill_cost,
    prefill_seconds,
    with_tier_seconds,
)
from mooncake_companion.simulator import pipeline
from mooncake_companion.simulator.cache_tiers import CachePool, Held, Tier
from mooncake_companion.simulator.clock import Clock, Order
from mooncake_companion.simulator.cluster import Cluster
from mooncake_companion.simulator.eviction import Use
from mooncake_companion.simulator.overload import (
    Admission,
    DecodeLoad,
    Limits,
    is_full,
    mean_load,
    predicted_load,
)
from mooncake_companion.simulator.scheduler import (
    Candidate,
    DecodeCandidate,
    Estimates,
    PrefillView,
    Prefix,
    candidates,
    choose,
    choose_decode,
)
from mooncake_companion.simulator.transfer import Transfers, link_capacities

_FETCH, _STREAM, _LOAD, _RETURN, _TRANSFERS = range(5)
"""Numbers of a request's transfers, for ties: request * _TRANSFERS + which."""


class Outcome(IntEnum):
    """What became of a request."""

    FINISHED = 0
    REJECTED_AT_ARRIVAL = 1
    REJECTED_AFTER_PREFILL = 2


class Request(NamedTuple):
    """One line of a trace.

    Parameters
    ----------
    arrival_s : float
        Seconds from the trace's start; requests come in order of arrival.
    input_tokens, output_tokens : int
        Prompt and answer; the prefill makes the answer's first token.
    blocks : sequence of int
        Ids of the prompt's blocks; each stands for its whole prefix.
    answer : sequence of int
        Ids of the full blocks behind those of the prompt that the answer completes, if they return.
    """

    arrival_s: float
    input_tokens: int
    output_tokens: int
    blocks: Sequence[int]
    answer: Sequence[int] = ()


@dataclass(slots=True, kw_only=True)
class Record:
    """What a run notes of one request; times are NaN and nodes -1 where it never came that far."""

    outcome: Outcome = Outcome.FINISHED
    choice: Candidate | None = None
    choices: list[Candidate] = field(default_factory=list)
    decode_choices: list[DecodeCandidate] = field(default_factory=list)
    decode_node: int = -1
    migrated_blocks: int = 0
    fetched_s: float = float("nan")
    start_s: float = float("nan")
    first_token_s: float = float("nan")
    last_token_s: float = float("nan")
    streamed_s: float = float("nan")
    loaded_s: float = float("nan")
    join_s: float = float("nan")
    finish_s: float = float("nan")
    tbt_s: float = float("nan")
    intervals_s: list[float] = field(default_factory=list)


class Run(NamedTuple):
    """The outcome of a replay: a `Record` for each request, and counters.

    ``sent_bytes`` has the links in the order of `Transfers`, prefill instances before decode nodes.
    """

    records: list[Record]
    counters: dict[str, int]
    sent_bytes: list[int]


def tbt_seconds(intervals_s: Sequence[float], first_counts: bool) -> float:
    """TBT of a request: mean of the longest ceil(n / 10) of the n intervals that count; NaN without any.

    The first interval, from the first token to the second, may be left out.

    >>> tbt_seconds([1.0, 2.0, 3.0] + [0.5] * 10, first_counts=True)
    2.5
    """
    counting = intervals_s if first_counts else intervals_s[1:]
    if not counting:
        return float("nan")
    longest = -(-len(counting) // 10)
    return sum(sorted(counting)[-longest:]) / longest


def _next_asked(requests: Sequence[Request]) -> list[list[float]]:
    """For each block of each request, which request asks for it next; infinite if none does."""
    following: dict[int, float] = {}
    found: list[list[float]] = []
    for index in range(len(requests) - 1, -1, -1):
        found.append([following.get(block, math.inf) for block in requests[index].blocks])
        following.update(dict.fromkeys(requests[index].blocks, index))
    return found[::-1]


def replay(
    requests: Sequence[Request],
    cluster: Cluster,
    *,
    block_tokens: int,
    draws: Sequence[float],
    recorded: Collection[int] = (),
    probe_s: Sequence[float] = (),
    probe: Callable[[float, CachePool], None] = lambda _now_s, _caches: None,
) -> Run:
    """Send a trace through a cluster.

    Parameters
    ----------
    requests : sequence of Request
        In order of arrival; those of one instant are decided in this order. None is larger than
        a decode node's memory.
    cluster : Cluster
    block_tokens : int
        Tokens in a full block.
    draws : sequence of float
        One uniform number in [0, 1) a request, for random routing.
    recorded : collection of int
        Requests for which every candidate is kept that Conductor weighed.
    probe_s : sequence of float
        Times at which `probe` is shown the caches, after all else of that instant.
    probe : callable
        Given the time and the `CachePool`, which it must not change.
    """
    path = _ServingPath(requests, cluster, block_tokens, draws, recorded)
    for index, request in enumerate(requests):
        path.clock.at(request.arrival_s, Order.ARRIVE, index, partial(path.arrive, index))
    for number, time_s in enumerate(probe_s):
        path.clock.at(time_s, Order.PROBE, number, partial(probe, time_s, path.caches))
    path.clock.run()
    return Run(path.records, path.counters(), path.transfers.sent_bytes)


@dataclass(slots=True, kw_only=True)
class _Prefiller:
    """A prefill node or pipeline: when its stages are done, whether the first is, and who waits."""

    ends_s: list[float]
    busy: bool = False
    queue: deque[int] = field(default_factory=deque)
    queued_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class _Decoder:
    """A decode node: its batch, who is loaded and waits for room, and what is on its way."""

    stepping: bool = False
    tokens_left: dict[int, int] = field(default_factory=dict)  # of the batch, in order of joining
    context_tokens: int = 0
    reserved_tokens: int = 0
    waiting: deque[int] = field(default_factory=deque)
    assigned_sequences: int = 0
    assigned_tokens: int = 0
    present: DecodeLoad = field(default_factory=lambda: DecodeLoad(0, 0))
    decodes: dict[int, tuple[float, int]] = field(default_factory=dict)
    steps: int = 0


class _ServingPath:
    """All state of one replay; two can live side by side."""

    def __init__(
        self,
        requests: Sequence[Request],
        cluster: Cluster,
        block_tokens: int,
        draws: Sequence[float],
        recorded: Collection[int],
    ) -> None:
        instances = cluster.prefill_instances
        self.clock = Clock()
        self.caches = CachePool(
            instances,
            cluster.tier_blocks(block_tokens),
            cluster.eviction,
            lease_ttl_s=cluster.lease_ttl_s,
            shared_recency=cluster.shared_recency,
        )
        self.transfers = Transfers(
            self.clock,
            link_capacities(
                cluster.instance_widths, cluster.network_bytes_per_s, cluster.node.host_to_device_bytes_per_s
            ),
        )
        self.prefillers = [_Prefiller(ends_s=[0.0] * cluster.pipeline_nodes) for _ in range(instances)]
        self.decoders = [_Decoder() for _ in range(cluster.decode_nodes)]
        self.records = [Record() for _ in requests]
        self._requests = requests
        self._cluster = cluster
        self._block_tokens = block_tokens
        self._draws = draws
        self._recorded = recorded
        self._prefill_cost = prefill_cost(cluster.node, cluster.model, cluster.calibration)
        self._step_s = partial(decode_seconds, *decode_cost(cluster.node, cluster.model, cluster.calibration))
        self._limits = Limits(self._step_s, cluster.tbt_limit_s, cluster.vram_tokens)
        self._held: dict[int, list[int]] = {}
        self._fetching: set[int] = set()
        self._streamed: set[int] = set()
        self._asked: Counter[int] = Counter()  # block -> requests so far, if anything migrates
        self._next_asked = _next_asked(requests) if cluster.eviction == "belady" else None

    def counters(self) -> dict[str, int]:
        """What was counted so far."""
        to_dram, from_dram = self.caches.moves(Tier.DRAM)
        to_ssd, from_ssd = self.caches.moves(Tier.SSD)
        return {
            "evictions": self.caches.evictions,
            "demoted_to_dram": to_dram,
            "demoted_to_ssd": to_ssd,
            "promoted_from_dram": from_dram,
            "promoted_from_ssd": from_ssd,
            "decode_steps": sum(node.steps for node in self.decoders),
        }

    # Conductor

    def arrive(self, index: int) -> None:
        """Let Conductor decide, then give the request to its nodes."""
        request, record = self._requests[index], self.records[index]
        if self._cluster.replicate_after_uses > 1:
            self._asked.update(request.blocks)
        choices = candidates(
            self._view(request, self.caches.held(request.blocks)),
            Estimates(prefill_s=self._prefill_s, transfer_s=self._transfer_s),
            balancing_threshold=self._cluster.fetch_threshold,
        )
        choice = choose(self._cluster.routing, choices, self._draws[index], self._cluster.shortlist_nodes)
        decode_choices = self._decode_candidates(request)
        record.choice, record.decode_node = choice, choose_decode(decode_choices).node
        if index in self._recorded:
            record.choices, record.decode_choices = choices, decode_choices
        if self._rejects_at_arrival(request, choice):
            record.outcome = Outcome.REJECTED_AT_ARRIVAL
            return
        if request.output_tokens > 1:
            self._assign(index, choice)
        self._hold(index, choice.node, request.blocks[: self._blocks_of(choice.local_tokens)])
        self._fetch(index, choice)
        prefiller = self.prefillers[choice.node]
        prefiller.queue.append(index)
        prefiller.queued_s += choice.busy_s
        self._start_prefill(choice.node)

    def _view(self, request: Request, held: Sequence[Held]) -> PrefillView:
        now_s = self.clock.now_s

        def tokens(blocks: int) -> int:
            return min(blocks * self._block_tokens, request.input_tokens - 1)

        return PrefillView(
            input_tokens=request.input_tokens,
            prefixes=[
                Prefix(
                    tokens(h.blocks),
                    tokens(h.vram_blocks),
                    min(tokens(h.ssd_blocks), tokens(h.blocks) - tokens(h.vram_blocks)),
                )
                for h in held
            ],
            memory_prefixes=[Prefix(tokens(h.memory_blocks), tokens(h.memory_vram_blocks)) for h in held],
            queue_s=[max(0.0, node.ends_s[0] - now_s) + node.queued_s for node in self.prefillers],
        )

    def _blocks_of(self, tokens: int) -> int:
        return -(-tokens // self._block_tokens)

    def _prefill_s(self, input_tokens: int, prefix: Prefix) -> tuple[float, float]:
        overhead_s, token_s, pair_s = self._prefill_cost
        stages = self._cluster.pipeline_nodes
        compute_s = prefill_seconds(*self._prefill_cost, input_tokens, prefix.tokens)
        if stages == 1:
            prefill_s = self._with_tiers(compute_s, input_tokens, prefix)
            return prefill_s, prefill_s
        handover_s = longest_handover_seconds(
            token_s,
            pair_s,
            self._cluster.hop_token_s,
            stages,
            input_tokens,
            prefix.tokens,
            self._cluster.pipeline_chunk_tokens,
        )
        whole_s, first_stage_s = pipeline_seconds(compute_s, overhead_s, handover_s, stages)
        return (
            self._with_tiers(whole_s, input_tokens, prefix),
            self._with_tiers(first_stage_s, input_tokens, prefix),
        )

    def _with_tiers(self, compute_s: float, input_tokens: int, prefix: Prefix) -> float:
        moves_s = self._moves_s(input_tokens, prefix)
        return float(with_tier_seconds(compute_s, *moves_s, self._cluster.layerwise))

    def _moves_s(self, input_tokens: int, prefix: Prefix) -> tuple[float, float, float]:
        """Seconds to read from SSD, to load from DRAM and to store there."""
        return (
            prefix.ssd_tokens * self._cluster.ssd_token_s,
            (prefix.tokens - prefix.vram_tokens) * self._cluster.host_link_token_s,
            (input_tokens - prefix.tokens) * self._cluster.host_link_token_s,
        )

    def _transfer_s(self, tokens: int) -> float:
        size_bytes = tokens * self._cluster.model.kv_bytes_per_token
        bytes_per_s = self._cluster.pipeline_nodes * self._cluster.network_bytes_per_s
        return self._cluster.transfer_startup_s + size_bytes / bytes_per_s

    def _decode_candidates(self, request: Request) -> list[DecodeCandidate]:
        choices = []
        for node, decoder in enumerate(self.decoders):
            batch = decoder.assigned_sequences + 1, decoder.assigned_tokens + request.input_tokens
            choices.append(DecodeCandidate(node, *batch, self._step_s(*batch)))
        return choices

    def _rejects_at_arrival(self, request: Request, choice: Candidate) -> bool:
        admission = self._cluster.admission
        if admission is Admission.NONE:
            return False
        if choice.ttft_s > self._cluster.ttft_limit_s:
            return True
        if admission is Admission.BASELINE or request.output_tokens == 1:
            return False
        if admission is Admission.PREDICTIVE:
            joined_s, decode_s = self.clock.now_s + choice.ttft_s, self._cluster.predicted_decode_s
            loads = [
                predicted_load(list(node.decodes.values()), joined_s, decode_s) for node in self.decoders
            ]
        else:
            loads = [node.present for node in self.decoders]
        return is_full(mean_load(loads), request.input_tokens + request.output_tokens, self._limits)

    def _assign(self, index: int, choice: Candidate) -> None:
        request, decoder = self._requests[index], self.decoders[self.records[index].decode_node]
        decoder.assigned_sequences += 1
        decoder.assigned_tokens += request.input_tokens
        tokens = request.input_tokens + request.output_tokens
        decoder.decodes[index] = (self.clock.now_s + choice.ttft_s, tokens)

    def _release(self, index: int) -> None:
        request, decoder = self._requests[index], self.decoders[self.records[index].decode_node]
        decoder.assigned_sequences -= 1
        decoder.assigned_tokens -= request.input_tokens
        del decoder.decodes[index]

    # Prefill

    def _fetch(self, index: int, choice: Candidate) -> None:
        if not choice.fetched_tokens:
            return
        local = self._blocks_of(choice.local_tokens)
        reused = self._requests[index].blocks[: self._blocks_of(choice.reused_tokens)]
        missing = reused[local:]
        hot = self._hot_blocks(missing)
        self.records[index].migrated_blocks = len(missing) - hot
        self.caches.pin(choice.source_node, missing)
        self._fetching.add(index)

        def arrived() -> None:
            uses = self._uses(index, len(reused))
            self.caches.unpin(choice.source_node, missing)
            self.caches.touch(choice.source_node, missing[:hot], uses[local : local + hot])
            self.caches.drop(choice.source_node, missing[hot:])
            self.caches.store(choice.node, reused, uses)
            self._hold(index, choice.node, missing)
            self._fetching.discard(index)
            self.records[index].fetched_s = self.clock.now_s
            self._start_prefill(choice.node)

        size_bytes = choice.fetched_tokens * self._cluster.model.kv_bytes_per_token
        self._send(index, _FETCH, choice.source_node, choice.node, size_bytes, arrived)

    def _hot_blocks(self, blocks: Sequence[int]) -> int:
        """How many of the leading blocks were asked for often enough to be replicated."""
        least = self._cluster.replicate_after_uses
        if least == 1:
            return len(blocks)
        return next((k for k, block in enumerate(blocks) if self._asked[block] < least), len(blocks))

    def _uses(self, index: int, blocks: int) -> list[Use]:
        """The use that is made now of each of a request's first blocks."""
        following = self._next_asked[index] if self._next_asked else [math.inf] * blocks
        now_s = self.clock.now_s
        return [Use(now_s, depth, following[depth]) for depth in range(blocks)]

    def _hold(self, index: int, node: int, blocks: Sequence[int]) -> None:
        """Pin what the node has of a prefix until the request's prefill ends."""
        held = [block for block in blocks if block in self.caches.caches[node]]
        self.caches.pin(node, held)
        self._held.setdefault(index, []).extend(held)

    def _start_prefill(self, node: int) -> None:
        """Start the first in the queue if the node is free and the request's prefix is there."""
        prefiller = self.prefillers[node]
        if prefiller.busy or not prefiller.queue or prefiller.queue[0] in self._fetching:
            return
        index = prefiller.queue.popleft()
        choice = self._choice(index)
        prefiller.busy = True
        prefiller.queued_s = prefiller.queued_s - choice.busy_s if prefiller.queue else 0.0
        self.records[index].start_s = self.clock.now_s
        if self._cluster.pipeline_nodes == 1:
            prefiller.ends_s[0] = self.clock.now_s + choice.prefill_s
        else:
            self._advance_pipeline(index, choice)
            free = len(self.prefillers) + node
            self.clock.at(prefiller.ends_s[0], Order.PREFILL, free, partial(self._free, node))
        self.clock.at(prefiller.ends_s[-1], Order.PREFILL, node, partial(self._end_prefill, index))
        if self._cluster.kv_streaming and self._requests[index].output_tokens > 1:
            self._stream(index)

    def _advance_pipeline(self, index: int, choice: Candidate) -> None:
        request, ends_s, now_s = self._requests[index], self.prefillers[choice.node].ends_s, self.clock.now_s
        prefix = Prefix(choice.reused_tokens, choice.vram_tokens, choice.ssd_tokens)
        read_s, load_s, store_s = self._moves_s(request.input_tokens, prefix)
        layerwise = self._cluster.layerwise
        pipeline.advance(
            ends_s,
            now_s if layerwise else now_s + (read_s + load_s),
            *self._prefill_cost,
            self._cluster.hop_token_s,
            request.input_tokens,
            prefix.tokens,
            self._cluster.pipeline_chunk_tokens,
        )
        moved_s = now_s + max(read_s, load_s, store_s)
        for stage, end_s in enumerate(ends_s):
            ends_s[stage] = max(end_s, moved_s) if layerwise else end_s + store_s

    def _free(self, node: int) -> None:
        """The first stage of a pipeline can take up the next request."""
        self.prefillers[node].busy = False
        self._start_prefill(node)

    def _end_prefill(self, index: int) -> None:
        request, record, choice = self._requests[index], self.records[index], self._choice(index)
        record.first_token_s = record.last_token_s = self.clock.now_s
        self.caches.store(choice.node, request.blocks, self._uses(index, len(request.blocks)))
        self.caches.unpin(choice.node, self._held.pop(index))
        if request.output_tokens == 1:
            record.finish_s = self.clock.now_s
        elif self._rejects_after_prefill(index):
            record.outcome = Outcome.REJECTED_AFTER_PREFILL
            self._release(index)
        else:
            self._enter_decoder(index)
        if self._cluster.pipeline_nodes == 1:
            self._free(choice.node)

    def _rejects_after_prefill(self, index: int) -> bool:
        if self._cluster.admission is Admission.NONE:
            return False
        request, decoder = self._requests[index], self.decoders[self.records[index].decode_node]
        return is_full(decoder.present, request.input_tokens + request.output_tokens, self._limits)

    # Transfer to the decode node

    def _enter_decoder(self, index: int) -> None:
        request, decoder = self._requests[index], self.decoders[self.records[index].decode_node]
        tokens = request.input_tokens + request.output_tokens
        decoder.present = DecodeLoad(decoder.present.sequences + 1, decoder.present.tokens + tokens)
        decoder.decodes[index] = (self.clock.now_s, tokens)
        if not self._cluster.kv_streaming:
            self._stream(index)
        elif index in self._streamed:
            self._load(index)

    def _stream(self, index: int) -> None:
        record = self.records[index]
        target = len(self.prefillers) + record.decode_node

        def arrived() -> None:
            self._streamed.add(index)
            record.streamed_s = self.clock.now_s
            if record.first_token_s == record.first_token_s and record.outcome is Outcome.FINISHED:
                self._load(index)

        self._send(index, _STREAM, self._choice(index).node, target, self._kv_bytes(index), arrived)

    def _load(self, index: int) -> None:
        node = self.records[index].decode_node

        def loaded() -> None:
            self.records[index].loaded_s = self.clock.now_s
            decoder = self.decoders[node]
            decoder.waiting.append(index)
            if not decoder.stepping:
                decoder.stepping = True
                self.clock.at(self.clock.now_s, Order.STEP, node, partial(self._boundary, node))

        number = index * _TRANSFERS + _LOAD
        self.transfers.load(number, len(self.prefillers) + node, self._kv_bytes(index), loaded)

    def _send(
        self, index: int, which: int, source: int, target: int, size_bytes: int, arrived: Callable[[], None]
    ) -> None:
        number = index * _TRANSFERS + which
        begin = partial(self.transfers.send, number, source, target, size_bytes, arrived)
        if self._cluster.transfer_startup_s:
            begin_s = self.clock.now_s + self._cluster.transfer_startup_s
            self.clock.at(begin_s, Order.TRANSFER, number, begin)
        else:
            begin()

    def _return(self, index: int) -> None:
        """Send the answer's blocks back, unless what stands before them is gone."""
        request, node = self._requests[index], self._choice(index).node
        prompt = request.blocks[: request.input_tokens // self._block_tokens]
        if self.caches.leading_hits(prompt)[node] < len(prompt):
            return
        self.caches.pin(node, prompt)

        def arrived() -> None:
            run = [*prompt, *request.answer]
            self.caches.store(node, run, self._uses(index, len(run)))
            self.caches.unpin(node, prompt)

        size_bytes = len(request.answer) * self._block_tokens * self._cluster.model.kv_bytes_per_token
        source = len(self.prefillers) + self.records[index].decode_node
        self.transfers.send(index * _TRANSFERS + _RETURN, source, node, size_bytes, arrived)

    def _kv_bytes(self, index: int) -> int:
        return self._requests[index].input_tokens * self._cluster.model.kv_bytes_per_token

    # Decode

    def _boundary(self, node: int) -> None:
        """Let those who are done leave and those who fit join; then take the next step."""
        decoder = self.decoders[node]
        self._join(decoder)
        if not decoder.tokens_left:
            decoder.stepping = False
            return
        step_s = self._step_s(len(decoder.tokens_left), decoder.context_tokens)
        end_s = self.clock.now_s + step_s
        decoder.steps += 1
        self.clock.at(end_s, Order.STEP, node, partial(self._end_step, node))

    def _join(self, decoder: _Decoder) -> None:
        while decoder.waiting:
            request = self._requests[decoder.waiting[0]]
            tokens = request.input_tokens + request.output_tokens
            if decoder.reserved_tokens + tokens > self._cluster.vram_tokens:
                return
            index = decoder.waiting.popleft()
            decoder.reserved_tokens += tokens
            decoder.context_tokens += request.input_tokens
            decoder.tokens_left[index] = request.output_tokens - 1
            self.records[index].join_s = self.clock.now_s

    def _end_step(self, node: int) -> None:
        decoder, now_s = self.decoders[node], self.clock.now_s
        for index in list(decoder.tokens_left):
            record = self.records[index]
            record.intervals_s.append(now_s - record.last_token_s)
            record.last_token_s = now_s
            decoder.context_tokens += 1
            decoder.tokens_left[index] -= 1
            if not decoder.tokens_left[index]:
                self._finish(decoder, index)
        self._boundary(node)

    def _finish(self, decoder: _Decoder, index: int) -> None:
        request = self._requests[index]
        tokens = request.input_tokens + request.output_tokens
        del decoder.tokens_left[index]
        decoder.reserved_tokens -= tokens
        decoder.context_tokens -= tokens - 1
        decoder.present = DecodeLoad(decoder.present.sequences - 1, decoder.present.tokens - tokens)
        record = self.records[index]
        record.finish_s = self.clock.now_s
        record.tbt_s = tbt_seconds(record.intervals_s, self._cluster.first_interval_counts)
        self._release(index)
        if request.answer:
            begin_s = self.clock.now_s + self._cluster.transfer_startup_s
            number = index * _TRANSFERS + _RETURN
            self.clock.at(begin_s, Order.TRANSFER, number, partial(self._return, index))

    def _choice(self, index: int) -> Candidate:
        choice = self.records[index].choice
        assert choice is not None, f"request {index} was never decided"
        return choice
