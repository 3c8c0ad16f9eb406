"""The coupled baselines: every node prefills and decodes, as vLLM 0.5.1 did. Standard library only.

A node goes from iteration to iteration. What an iteration holds depends on the batching:

plain
    Whole prompts come first: while one waits and fits, the iteration computes prompts, as many as
    `max_batched_tokens` allows, and decode waits. Otherwise it gives every sequence a token.
prefix caching
    The same, but a prompt's leading blocks that are still in GPU memory are not computed again.
chunked prefill
    Every iteration gives every sequence a token and fills up with a chunk of prompts, so that it
    holds `chunk_tokens` tokens in all.

A prompt is admitted when there is room for its whole context, its answer included; so nothing is
ever preempted. Those behind it wait. Requests go to the node with the fewest requests.

Prefix caching counts whole blocks: what sequences in the batch use is kept, what nobody uses any
more stays until its room is needed, least recently used first. Blocks of a prompt can be hit once
it is computed. Answers are not cached.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from mooncake_companion.costs import (
    batch_prefill_seconds,
    decode_cost,
    mixed_seconds,
    prefill_cost,
    prefill_seconds,
)
from mooncake_companion.parameters import require_positive
from mooncake_companion.simulator.cache_tiers import NodeCache
from mooncake_companion.simulator.clock import Clock, Order
from mooncake_companion.simulator.cluster import Deployment
from mooncake_companion.simulator.reference import Record, Request, tbt_seconds
from mooncake_companion.simulator.scheduler import NO_NODE, Candidate


class Batching(StrEnum):
    """What an iteration of a coupled node holds."""

    PLAIN = "plain"
    PREFIX_CACHING = "prefix_caching"
    CHUNKED_PREFILL = "chunked_prefill"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoupledCluster(Deployment):
    """Nodes that each prefill and decode.

    Parameters
    ----------
    node, model, calibration, first_interval_counts
        As of every `Deployment`.
    nodes : int
    batching : Batching
    chunk_tokens : int
        Tokens of an iteration with chunked prefill. The paper does not state it; 2,048 is an
        assumption, larger than vLLM's own default of 512.
    max_batched_tokens : int
        Prompt tokens that one iteration computes at most without chunks; one prompt is always
        let in. The default is vLLM's for a context of 131,072 tokens.
    max_sequences : int
        Requests that a node works on at once; others wait. The default is vLLM's own; 1 serves them
        one by one.
    host_overlaps : bool
        Whether the host works on the sequences while the GPUs compute. vLLM does so since its
        release 0.6.0 (asynchronous output processing); the paper ran 0.5.1.
    """

    nodes: int
    batching: Batching = Batching.PLAIN
    chunk_tokens: int = 2048
    max_batched_tokens: int = 131_072
    max_sequences: int = 256
    host_overlaps: bool = False

    def __post_init__(self) -> None:
        require_positive(self, "nodes", "chunk_tokens", "max_batched_tokens", "max_sequences")
        self.require_fit()


class CoupledRun(NamedTuple):
    """The outcome of a replay: a `Record` for each request, and counters."""

    records: list[Record]
    counters: dict[str, int]


def replay_coupled(requests: Sequence[Request], cluster: CoupledCluster, *, block_tokens: int) -> CoupledRun:
    """Send a trace through coupled nodes.

    Parameters
    ----------
    requests : sequence of Request
        In order of arrival. None is larger than a node's memory.
    cluster : CoupledCluster
    block_tokens : int
        Tokens in a full block.
    """
    path = _CoupledPath(requests, cluster, block_tokens)
    for index, request in enumerate(requests):
        path.clock.at(request.arrival_s, Order.ARRIVE, index, partial(path.arrive, index))
    path.clock.run()
    counters = {
        "evictions": sum(node.cache.evictions for node in path.nodes),
        "decode_steps": sum(node.steps for node in path.nodes),
    }
    return CoupledRun(path.records, counters)


class _Chunk(NamedTuple):
    """Prompt tokens `first` to `last` of a request, computed in one iteration."""

    request: int
    first: int
    last: int


@dataclass(slots=True, kw_only=True)
class _Node:
    """A node: who waits, whose prompt is begun, the batch, and its memory in tokens or blocks."""

    waiting: deque[int] = field(default_factory=deque)
    begun: _Chunk | None = None
    tokens_left: dict[int, int] = field(default_factory=dict)
    context_tokens: int = 0
    admitted: int = 0
    reserved: int = 0
    running: bool = False
    outstanding: int = 0
    steps: int = 0
    cache: NodeCache
    used_blocks: int = 0


class _CoupledPath:
    """All state of one replay."""

    def __init__(self, requests: Sequence[Request], cluster: CoupledCluster, block_tokens: int) -> None:
        self.clock = Clock()
        self.records = [Record() for _ in requests]
        self._requests = requests
        self._cluster = cluster
        self._block_tokens = block_tokens
        self._blocks = cluster.vram_tokens // block_tokens
        self.nodes = [_Node(cache=NodeCache([self._blocks])) for _ in range(cluster.nodes)]
        self._prefill = prefill_cost(cluster.node, cluster.model, cluster.calibration)
        self._decode = decode_cost(
            cluster.node, cluster.model, cluster.calibration, overlapping=cluster.host_overlaps
        )
        self._hits: dict[int, int] = {}

    def arrive(self, index: int) -> None:
        """Queue a request at the node with the fewest."""
        number = min(range(len(self.nodes)), key=lambda k: self.nodes[k].outstanding)
        node = self.nodes[number]
        self.records[index].decode_node = number
        node.outstanding += 1
        node.waiting.append(index)
        if not node.running:
            node.running = True
            self.clock.at(self.clock.now_s, Order.START, number, partial(self._iterate, number))

    def _iterate(self, number: int) -> None:
        """Begin the next iteration, if there is anything to do."""
        node = self.nodes[number]
        chunks = self._plan(node)
        if not chunks and not node.tokens_left:
            node.running = False
            return
        decodes = self._cluster.batching is Batching.CHUNKED_PREFILL or not chunks
        for chunk in chunks:
            if chunk.first == self._choice(chunk.request).local_tokens:
                self.records[chunk.request].start_s = self.clock.now_s
        end_s = self.clock.now_s + self._seconds(node, chunks, decodes)
        self.clock.at(end_s, Order.STEP, number, partial(self._end, number, chunks, decodes))

    def _plan(self, node: _Node) -> list[_Chunk]:
        if self._cluster.batching is Batching.CHUNKED_PREFILL:
            return self._plan_chunks(node)
        chunks: list[_Chunk] = []
        tokens = 0
        while node.waiting and self._fits(node, node.waiting[0]):
            index = node.waiting[0]
            computed = self._requests[index].input_tokens - self._cached_tokens(node, index)
            if chunks and tokens + computed > self._cluster.max_batched_tokens:
                break
            tokens += computed
            chunks.append(self._admit(node, node.waiting.popleft()))
        return chunks

    def _plan_chunks(self, node: _Node) -> list[_Chunk]:
        chunks: list[_Chunk] = []
        room = self._cluster.chunk_tokens - len(node.tokens_left)
        while room > 0:
            if node.begun is None:
                if not node.waiting or not self._fits(node, node.waiting[0]):
                    break
                node.begun = self._admit(node, node.waiting.popleft())
            prompt = node.begun
            last = min(prompt.last, prompt.first + room)
            chunks.append(_Chunk(prompt.request, prompt.first, last))
            room -= last - prompt.first
            node.begun = None if last == prompt.last else _Chunk(prompt.request, last, prompt.last)
        return chunks

    def _seconds(self, node: _Node, chunks: Sequence[_Chunk], decodes: bool) -> float:
        tokens = sum(chunk.last - chunk.first for chunk in chunks)
        pairs = sum(chunk.last * chunk.last - chunk.first * chunk.first for chunk in chunks)
        if not decodes:
            return float(batch_prefill_seconds(*self._prefill, tokens, pairs))
        begun = sum(chunk.first == self._choice(chunk.request).local_tokens for chunk in chunks)
        batch = len(node.tokens_left), node.context_tokens
        return float(mixed_seconds(*self._prefill, *self._decode, *batch, tokens, pairs, begun))

    def _end(self, number: int, chunks: Sequence[_Chunk], decodes: bool) -> None:
        node = self.nodes[number]
        if decodes:
            node.steps += 1
            for index in list(node.tokens_left):
                self._give_token(node, index)
        for chunk in chunks:
            if chunk.last == self._requests[chunk.request].input_tokens:
                self._end_prefill(node, chunk.request)
        self._iterate(number)

    def _give_token(self, node: _Node, index: int) -> None:
        record, now_s = self.records[index], self.clock.now_s
        record.intervals_s.append(now_s - record.last_token_s)
        record.last_token_s = now_s
        node.context_tokens += 1
        node.tokens_left[index] -= 1
        if not node.tokens_left[index]:
            del node.tokens_left[index]
            request = self._requests[index]
            node.context_tokens -= request.input_tokens + request.output_tokens - 1
            self._finish(node, index)

    def _end_prefill(self, node: _Node, index: int) -> None:
        request, record = self._requests[index], self.records[index]
        record.first_token_s = record.last_token_s = record.join_s = self.clock.now_s
        self._keep_blocks(node, index)
        if request.output_tokens == 1:
            self._finish(node, index)
        else:
            node.tokens_left[index] = request.output_tokens - 1
            node.context_tokens += request.input_tokens

    def _finish(self, node: _Node, index: int) -> None:
        record = self.records[index]
        record.finish_s = self.clock.now_s
        record.tbt_s = tbt_seconds(record.intervals_s, self._cluster.first_interval_counts)
        node.outstanding -= 1
        node.admitted -= 1
        if self._cluster.batching is not Batching.PREFIX_CACHING:
            node.reserved -= self._tokens(index)
            return
        blocks = self._requests[index].blocks
        node.reserved -= self._answer_blocks(index)
        for block in blocks:
            node.cache.unpin(block)
            node.used_blocks -= not node.cache.users(block)

    # Memory: tokens, or with prefix caching whole blocks

    def _tokens(self, index: int) -> int:
        return self._requests[index].input_tokens + self._requests[index].output_tokens

    def _answer_blocks(self, index: int) -> int:
        return -(-self._tokens(index) // self._block_tokens) - len(self._requests[index].blocks)

    def _leading_hits(self, node: _Node, index: int) -> int:
        if self._cluster.batching is not Batching.PREFIX_CACHING:
            return 0
        hits = 0
        for block in self._requests[index].blocks:
            if block not in node.cache:
                break
            hits += 1
        return hits

    def _cached_tokens(self, node: _Node, index: int) -> int:
        held = self._leading_hits(node, index) * self._block_tokens
        return min(held, self._requests[index].input_tokens - 1)

    def _fits(self, node: _Node, index: int) -> bool:
        if node.admitted >= self._cluster.max_sequences:
            return False
        if self._cluster.batching is not Batching.PREFIX_CACHING:
            return node.reserved + self._tokens(index) <= self._cluster.vram_tokens
        blocks, hits = self._requests[index].blocks, self._leading_hits(node, index)
        idle_hits = sum(not node.cache.users(block) for block in blocks[:hits])
        wanted = idle_hits + len(blocks) - hits + self._answer_blocks(index)
        return node.used_blocks + node.reserved + wanted <= self._blocks

    def _admit(self, node: _Node, index: int) -> _Chunk:
        """Reserve memory; the whole rest of the prompt as a chunk."""
        node.admitted += 1
        request, hits = self._requests[index], self._leading_hits(node, index)
        cached_tokens = self._cached_tokens(node, index)
        prefill_s = prefill_seconds(*self._prefill, request.input_tokens, cached_tokens)
        self.records[index].choice = Candidate(
            node=self.records[index].decode_node,
            local_tokens=cached_tokens,
            vram_tokens=cached_tokens,
            ssd_tokens=0,
            fetched_tokens=0,
            source_node=NO_NODE,
            transfer_s=0.0,
            queue_s=self.clock.now_s - request.arrival_s,
            prefill_s=prefill_s,
            busy_s=prefill_s,
        )
        if self._cluster.batching is not Batching.PREFIX_CACHING:
            node.reserved += self._tokens(index)
            return _Chunk(index, cached_tokens, request.input_tokens)
        self._hits[index] = hits
        self._use(node, request.blocks[:hits])
        node.reserved += len(request.blocks) - hits + self._answer_blocks(index)
        while len(node.cache) + node.reserved > self._blocks:
            node.cache.evict()
        return _Chunk(index, cached_tokens, request.input_tokens)

    def _keep_blocks(self, node: _Node, index: int) -> None:
        """What the prompt's prefill has computed can be hit from now on, and is in use."""
        if self._cluster.batching is not Batching.PREFIX_CACHING:
            return
        computed = self._requests[index].blocks[self._hits[index] :]
        node.reserved -= len(computed)
        for block in reversed(computed):
            if block not in node.cache:
                node.cache.keep(block)
        self._use(node, computed)

    def _use(self, node: _Node, blocks: Sequence[int]) -> None:
        for block in reversed(blocks):
            node.used_blocks += not node.cache.users(block)
            node.cache.pin(block)
            node.cache.touch(block)

    def _choice(self, index: int) -> Candidate:
        choice = self.records[index].choice
        assert choice is not None, f"request {index} was never admitted"
        return choice
