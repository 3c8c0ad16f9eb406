"""The fast engine's loop; each step is the twin of one of `reference`, named alike."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from mooncake_companion.costs import (
    decode_cost,
    longest_handover_seconds,
    pipeline_seconds,
    prefill_cost,
    prefill_seconds,
    with_tier_seconds,
)
from mooncake_companion.simulator import pipeline
from mooncake_companion.simulator.cluster import Cluster
from mooncake_companion.simulator.fast import caches as kv
from mooncake_companion.simulator.fast import decoders as batches
from mooncake_companion.simulator.fast import events as heap
from mooncake_companion.simulator.fast import flows as transfers
from mooncake_companion.simulator.fast import shelves as order
from mooncake_companion.simulator.fast.compiling import compiled, inlined
from mooncake_companion.simulator.overload import Admission
from mooncake_companion.simulator.reference import Outcome
from mooncake_companion.simulator.scheduler import Routing
from mooncake_companion.simulator.transfer import link_capacities

_prefill_seconds = compiled(prefill_seconds)
_with_tier_seconds = compiled(with_tier_seconds)
_longest_handover_seconds = compiled(longest_handover_seconds)
_pipeline_seconds = compiled(pipeline_seconds)
_advance = compiled(pipeline.advance)

_FETCH, _STREAM, _LOAD, _RETURN, _TRANSFERS = range(5)
_BEGIN = -1  # in place of a version: the start-up of a transfer is over
_RANDOM, _LOAD_BALANCING, _CACHE_AWARE = range(3)
_RULES = {Routing.RANDOM: _RANDOM, Routing.LOAD_BALANCING: _LOAD_BALANCING}
_NONE, _BASELINE, _EARLY, _PREDICTIVE = range(4)
_ADMISSIONS = {
    Admission.NONE: _NONE,
    Admission.BASELINE: _BASELINE,
    Admission.EARLY: _EARLY,
    Admission.PREDICTIVE: _PREDICTIVE,
}
_REJECTED_AT_ARRIVAL = int(Outcome.REJECTED_AT_ARRIVAL)
_REJECTED_AFTER_PREFILL = int(Outcome.REJECTED_AFTER_PREFILL)

REQUEST = np.dtype(
    [
        ("arrival_s", np.float64),
        ("input_tokens", np.int64),
        ("output_tokens", np.int64),
        ("first_block", np.int64),
        ("last_block", np.int64),
        ("draw", np.float64),
        ("fetched_s", np.float64),
        ("start_s", np.float64),
        ("first_token_s", np.float64),
        ("streamed_s", np.float64),
        ("loaded_s", np.float64),
        ("join_s", np.float64),
        ("finish_s", np.float64),
        ("tbt_s", np.float64),
        ("prefill_s", np.float64),
        ("busy_s", np.float64),
        ("decode_at_s", np.float64),
        ("next_in_queue", np.int64),
        ("next_decode", np.int64),
        ("last_decode", np.int64),
        ("first_answer", np.int64),
        ("local_tokens", np.int32),
        ("vram_tokens", np.int32),
        ("ssd_tokens", np.int32),
        ("fetched_tokens", np.int32),
        ("prefill_node", np.int32),
        ("source_node", np.int32),
        ("decode_node", np.int32),
        ("outcome", np.int32),
        ("local_blocks", np.int32),
        ("reused_blocks", np.int32),
        ("migrated_blocks", np.int32),
        ("done_tokens", np.int32),
        ("fetching", np.bool_),
    ]
)
"""A request: its line of the trace (``first_block`` to ``last_block`` of the block ids), what the run
notes of it, and its place in the lists of its nodes; ``first_answer`` is where among the block ids those
of its answer begin, if they return, or -1. The coupled engine uses some of the fields."""
_NEVER = (
    "fetched_s",
    "start_s",
    "first_token_s",
    "streamed_s",
    "loaded_s",
    "join_s",
    "finish_s",
    "tbt_s",
    "prefill_s",
)
_NOWHERE = (
    "prefill_node",
    "source_node",
    "decode_node",
    "next_in_queue",
    "next_decode",
    "last_decode",
    "first_answer",
)
PREFILLER = np.dtype(
    [
        ("busy", np.bool_),
        ("queued_s", np.float64),
        ("first", np.int64),
        ("last", np.int64),
        ("blocks", np.int64),
        ("vram_blocks", np.int64),
        ("ssd_blocks", np.int64),
        ("memory_blocks", np.int64),
        ("memory_vram_blocks", np.int64),
    ]
)
"""A prefill instance: whether its first stage is at work, who waits, and what it holds of the request at
hand (as `cache_tiers.Held`)."""
SETTING = np.dtype(
    [
        ("block_tokens", np.int64),
        ("kv_bytes", np.int64),
        ("vram_tokens", np.int64),
        ("rule", np.int64),
        ("threshold", np.float64),
        ("shortlist", np.int64),
        ("startup_s", np.float64),
        ("network_bytes_per_s", np.float64),
        ("streaming", np.bool_),
        ("admission", np.int64),
        ("ttft_limit_s", np.float64),
        ("tbt_limit_s", np.float64),
        ("decode_s", np.float64),
        ("overhead_s", np.float64),
        ("token_s", np.float64),
        ("pair_s", np.float64),
        ("host_link_token_s", np.float64),
        ("ssd_token_s", np.float64),
        ("layerwise", np.bool_),
        ("stages", np.int64),
        ("chunk_tokens", np.int64),
        ("hop_token_s", np.float64),
        ("replicate_after", np.int64),
        ("first_counts", np.bool_),
    ]
)
"""A `Cluster` as plain numbers."""


class World(NamedTuple):
    """Everything but what may have to grow: heap, batches and flows.

    ``arrived`` counts the requests that have come. ``pinned`` is over the trace's blocks: the entry of
    each, if the request holds on to it; so is ``next_asked``, the next request with the block, if
    that matters. ``asked`` counts over block ids the requests so far, if that matters. ``ends_s``
    has the stages of each prefill instance; ``first_decode`` over decode nodes the list of the
    requests given to each; ``scratch_s`` is room for one request's intervals.
    """

    setting: Any
    requests: Any
    arrived: Any
    blocks: Any
    pinned: Any
    next_asked: Any
    asked: Any
    prefillers: Any
    ends_s: Any
    caches: kv.Caches
    first_decode: Any
    scratch_s: Any


_PIECE = 4096
"""Records filled at a time: so many stay in the processor's cache while all their columns are written."""


def new_requests(columns: dict[str, np.ndarray]) -> np.ndarray:
    """`REQUEST` records of a trace before it is run."""
    blank = np.zeros(1, REQUEST)
    for name in _NEVER:
        blank[name] = np.nan
    for name in _NOWHERE:
        blank[name] = -1
    requests = np.empty(len(columns["arrival_s"]), REQUEST)
    for first in range(0, len(requests), _PIECE):
        piece = requests[first : first + _PIECE]
        piece[:] = blank
        for name, column in columns.items():
            piece[name] = column[first : first + _PIECE]
    return requests


def replay(
    cluster: Cluster,
    block_tokens: int,
    requests: np.ndarray,
    block_ids: np.ndarray,
    *,
    probe_s: Sequence[float] = (),
    probe: Callable[[kv.Caches, np.ndarray], None] = lambda _caches, _block_ids: None,
) -> tuple[dict[str, int], np.ndarray]:
    """Send a trace through a cluster and note in `requests` what becomes of them.

    Parameters
    ----------
    cluster : Cluster
    block_tokens : int
    requests : array of `REQUEST`
    block_ids : array of int64
        Those of the prompts, and of answers that return. They count up from 0, so that an array over
        all ids is small.
    probe_s : sequence of float
        Times, in ascending order, at which `probe` is shown the caches, after all else of that instant.
    probe : callable
        Given the caches and `block_ids`, as they have them.

    Returns
    -------
    counters : dict of int
        Those of `Result` but for the bytes.
    sent_bytes : array of int64, shape (links,)
    """
    longest_tokens = int(requests["output_tokens"].max(initial=1))
    world = _new_world(cluster, block_tokens, requests, block_ids, longest_tokens)
    decoders = batches.new_decoders(
        cluster.decode_nodes,
        len(requests),
        longest_tokens,
        decode_cost(cluster.node, cluster.model, cluster.calibration),
    )
    widths = cluster.instance_widths
    links = link_capacities(widths, cluster.network_bytes_per_s, cluster.node.host_to_device_bytes_per_s)
    flows = transfers.new_flows(64, len(requests) * _TRANSFERS, links)
    events = heap.new_events(4 * len(widths) + 64)
    for until_s in (*probe_s, np.inf):
        while not _run(world, events, decoders, flows, until_s):
            decoders = batches.with_room(decoders)
            events = heap.with_room(events, _pushes_at_once(decoders, flows))
            flows = transfers.with_room(flows)
        if until_s < np.inf:
            probe(world.caches, world.blocks)
    counters = {
        **kv.counters(world.caches),
        "decode_steps": int(decoders.nodes["step"].sum()),
    }
    return counters, flows.links["sent_bytes"]


def _new_world(
    cluster: Cluster, block_tokens: int, requests: np.ndarray, block_ids: np.ndarray, longest_tokens: int
) -> World:
    instances, ids = cluster.prefill_instances, int(block_ids.max(initial=-1)) + 1
    prefillers = np.zeros(instances, PREFILLER)
    prefillers["first"] = prefillers["last"] = -1
    return World(
        setting=_setting(cluster, block_tokens),
        requests=requests,
        arrived=np.zeros(1, np.int64),
        blocks=block_ids.astype(np.int32),
        pinned=np.full(len(block_ids), -1, np.int32),
        next_asked=_next_asked(requests, block_ids) if cluster.eviction == "belady" else np.zeros(1),
        asked=np.zeros(ids if cluster.replicate_after_uses > 1 else 1, np.int32),
        prefillers=prefillers,
        ends_s=np.zeros((instances, cluster.pipeline_nodes)),
        caches=kv.new_caches(
            instances,
            cluster.tier_blocks(block_tokens),
            ids,
            cluster.eviction,
            cluster.lease_ttl_s,
            shared_recency=cluster.shared_recency,
        ),
        first_decode=np.full(cluster.decode_nodes, -1, np.int64),
        scratch_s=np.zeros(longest_tokens + 1),
    )


def _next_asked(requests: np.ndarray, block_ids: np.ndarray) -> np.ndarray:
    """For each block of each request, which request asks for it next; infinite if none does."""
    asked_by = np.repeat(np.arange(len(requests)), requests["last_block"] - requests["first_block"])
    by_block = np.argsort(block_ids, kind="stable")
    again = block_ids[by_block[:-1]] == block_ids[by_block[1:]]
    following = np.full(len(block_ids), np.inf)
    following[by_block[:-1][again]] = asked_by[by_block[1:][again]]
    return following


def _setting(cluster: Cluster, block_tokens: int) -> np.ndarray:
    setting = np.zeros(1, SETTING)
    values = {
        "block_tokens": block_tokens,
        "kv_bytes": cluster.model.kv_bytes_per_token,
        "vram_tokens": cluster.vram_tokens,
        "rule": _RULES.get(cluster.routing, _CACHE_AWARE),
        "threshold": cluster.fetch_threshold,
        "shortlist": cluster.shortlist_nodes,
        "startup_s": cluster.transfer_startup_s,
        "network_bytes_per_s": cluster.network_bytes_per_s,
        "streaming": cluster.kv_streaming,
        "admission": _ADMISSIONS[cluster.admission],
        "ttft_limit_s": cluster.ttft_limit_s,
        "tbt_limit_s": cluster.tbt_limit_s,
        "decode_s": cluster.predicted_decode_s,
        "host_link_token_s": cluster.host_link_token_s,
        "ssd_token_s": cluster.ssd_token_s,
        "layerwise": cluster.layerwise,
        "stages": cluster.pipeline_nodes,
        "chunk_tokens": cluster.pipeline_chunk_tokens,
        "hop_token_s": cluster.hop_token_s,
        "replicate_after": cluster.replicate_after_uses,
        "first_counts": cluster.first_interval_counts,
        **prefill_cost(cluster.node, cluster.model, cluster.calibration)._asdict(),
    }
    for name, value in values.items():
        setting[name] = value
    return setting


@compiled
def _run(world, events, decoders, flows, until_s):  # type: ignore[no-untyped-def]
    """Go on until all up to a time is done, or until the heap, the flows or a batch need more room."""
    requests, arrived = world.requests, world.arrived
    while arrived[0] < len(requests) or events.size[0]:
        if _lacks_room(events, decoders, flows):
            return False
        coming = arrived[0]
        if coming < len(requests) and (
            not events.size[0] or requests[coming].arrival_s < events.heap[0].time_s
        ):
            if requests[coming].arrival_s > until_s:
                return True
            arrived[0] += 1
            _arrive(world, events, decoders, flows, requests[coming].arrival_s, coming)
            continue
        if events.heap[0].time_s > until_s:
            return True
        now_s, kind, number, payload = heap.pop(events)
        if kind == heap.TRANSFER:
            _transfer(world, events, decoders, flows, now_s, number, payload)
        elif kind == heap.PREFILL:
            if number < len(world.prefillers):
                _end_prefill(world, events, decoders, flows, now_s, payload)
            else:
                _free(world, events, flows, now_s, number - len(world.prefillers))
        elif decoders.nodes[number].version == payload:
            _change_batch(world, events, decoders, now_s, number)
    return True


@compiled
def _pushes_at_once(decoders, flows):  # type: ignore[no-untyped-def]
    """No event pushes more: thrice a new end for every flow, a return for a batch, and a few of its own."""
    return 3 * flows.count[0] + decoders.batch.shape[1] + 16


@compiled
def _lacks_room(events, decoders, flows):  # type: ignore[no-untyped-def]
    if events.size[0] + _pushes_at_once(decoders, flows) > len(events.heap):
        return True
    if flows.count[0] + transfers.STARTS_AT_ONCE > len(flows.flows):
        return True
    if events.heap[0].rank >> heap.NUMBER_BITS != heap.STEP or not events.size[0]:
        return False
    number = events.heap[0].rank & ((1 << heap.NUMBER_BITS) - 1)
    return decoders.nodes[number].present_sequences > decoders.batch.shape[1]


# Conductor


@compiled
def _arrive(world, events, decoders, flows, now_s, index):  # type: ignore[no-untyped-def]
    request = world.requests[index]
    if world.setting[0].replicate_after > 1:
        for place in range(request.first_block, request.last_block):
            world.asked[world.blocks[place]] += 1
    kv.leading_hits(world.caches, world.blocks, request.first_block, request.last_block, world.prefillers)
    ttft_s = _choose(world, request, now_s)
    request.decode_node = batches.least_loaded(decoders)
    if _rejects_at_arrival(world, decoders, request, now_s, ttft_s):
        request.outcome = _REJECTED_AT_ARRIVAL
        return
    if request.output_tokens > 1:
        _assign(world, decoders, index, now_s + ttft_s)
    node, first = world.prefillers[request.prefill_node], request.first_block
    request.local_blocks = _blocks_of(world, request.local_tokens)
    request.reused_blocks = _blocks_of(world, request.local_tokens + request.fetched_tokens)
    held = first + request.local_blocks
    kv.pin(world.caches, request.prefill_node, world.blocks, first, held, world.pinned)
    if request.fetched_tokens:
        _fetch(world, events, flows, now_s, index)
    if node.last >= 0:
        world.requests[node.last].next_in_queue = index
    else:
        node.first = index
    node.last = index
    node.queued_s += request.busy_s
    _start_prefill(world, events, flows, now_s, request.prefill_node)


@compiled
def _blocks_of(world, tokens):  # type: ignore[no-untyped-def]
    block_tokens = world.setting[0].block_tokens
    return (tokens + block_tokens - 1) // block_tokens


@compiled
def _choose(world, request, now_s):  # type: ignore[no-untyped-def]
    """`scheduler.candidates` and `scheduler.choose` in one pass; the estimated TTFT."""
    setting, nodes = world.setting[0], world.prefillers
    best_tokens, best_node = -1, -1
    for number in range(len(nodes)):
        in_memory = nodes[number].memory_blocks if nodes[number].ssd_blocks else nodes[number].blocks
        if _tokens_of(setting, request, in_memory) > best_tokens:
            best_tokens, best_node = _tokens_of(setting, request, in_memory), number
    drawn = int(request.draw * len(nodes))
    fetching, least, least_ttft_s = np.isfinite(setting.threshold), np.inf, np.inf
    for number in range(len(nodes)):
        if setting.rule == _RANDOM and number != drawn:
            continue
        if setting.rule == _CACHE_AWARE and setting.shortlist and not _is_listed(world, number, now_s):
            continue
        tokens, vram_tokens, ssd_tokens, prefill_s, busy_s = _local(setting, request, nodes[number])
        fetched_tokens, transfer_s = 0, 0.0
        if fetching and best_tokens > tokens * setting.threshold:
            fetched_tokens = best_tokens - tokens
            size_bytes = fetched_tokens * setting.kv_bytes
            transfer_s = setting.startup_s + size_bytes / (setting.stages * setting.network_bytes_per_s)
            prefill_s, busy_s = _prefill_s(
                setting, request.input_tokens, best_tokens, vram_tokens, ssd_tokens
            )
        queue_s = _queue_s(world, number, now_s)
        ttft_s = transfer_s + queue_s + prefill_s
        measure = queue_s if setting.rule == _LOAD_BALANCING else ttft_s
        if measure < least:
            least, least_ttft_s = measure, ttft_s
            request.prefill_node = number
            request.source_node = best_node if fetched_tokens else -1
            request.local_tokens = tokens
            request.vram_tokens = vram_tokens
            request.ssd_tokens = ssd_tokens
            request.fetched_tokens = fetched_tokens
            request.prefill_s = prefill_s
            request.busy_s = busy_s
    return least_ttft_s


@inlined
def _queue_s(world, number, now_s):  # type: ignore[no-untyped-def]
    return max(0.0, world.ends_s[number, 0] - now_s) + world.prefillers[number].queued_s


@compiled
def _is_listed(world, number, now_s):  # type: ignore[no-untyped-def]
    """Whether a node is among those with the shortest queues; of equal ones the lower come first."""
    queue_s, shorter = _queue_s(world, number, now_s), 0
    for other in range(len(world.prefillers)):
        other_s = _queue_s(world, other, now_s)
        shorter += other_s < queue_s or (other_s == queue_s and other < number)
    return shorter < world.setting[0].shortlist


@inlined
def _tokens_of(setting, request, blocks):  # type: ignore[no-untyped-def]
    return min(blocks * setting.block_tokens, request.input_tokens - 1)


@compiled
def _local(setting, request, held):  # type: ignore[no-untyped-def]
    """What a node reuses of its own, by tier, and the prefill with it; twin of `scheduler._local`."""
    tokens = _tokens_of(setting, request, held.blocks)
    vram_tokens = _tokens_of(setting, request, held.vram_blocks)
    if not held.ssd_blocks:
        prefill_s, busy_s = _prefill_s(setting, request.input_tokens, tokens, vram_tokens, 0)
        return tokens, vram_tokens, 0, prefill_s, busy_s
    memory_tokens = _tokens_of(setting, request, held.memory_blocks)
    memory_vram_tokens = _tokens_of(setting, request, held.memory_vram_blocks)
    memory_s, memory_busy_s = _prefill_s(setting, request.input_tokens, memory_tokens, memory_vram_tokens, 0)
    ssd_tokens = min(_tokens_of(setting, request, held.ssd_blocks), tokens - vram_tokens)
    whole_s, whole_busy_s = _prefill_s(setting, request.input_tokens, tokens, vram_tokens, ssd_tokens)
    if whole_s <= memory_s:
        return tokens, vram_tokens, ssd_tokens, whole_s, whole_busy_s
    return memory_tokens, memory_vram_tokens, 0, memory_s, memory_busy_s


@compiled
def _prefill_s(setting, input_tokens, cached_tokens, vram_tokens, ssd_tokens):  # type: ignore[no-untyped-def]
    """Seconds of a prefill, and of them those in which its node can begin no other."""
    compute_s = _prefill_seconds(
        setting.overhead_s, setting.token_s, setting.pair_s, input_tokens, cached_tokens
    )
    read_s, load_s, store_s = _moves_s(setting, input_tokens, cached_tokens, vram_tokens, ssd_tokens)
    if setting.stages == 1:
        prefill_s = _with_tier_seconds(compute_s, read_s, load_s, store_s, setting.layerwise)
        return prefill_s, prefill_s
    handover_s = _longest_handover_seconds(
        setting.token_s,
        setting.pair_s,
        setting.hop_token_s,
        setting.stages,
        input_tokens,
        cached_tokens,
        setting.chunk_tokens,
    )
    whole_s, first_stage_s = _pipeline_seconds(compute_s, setting.overhead_s, handover_s, setting.stages)
    return (
        _with_tier_seconds(whole_s, read_s, load_s, store_s, setting.layerwise),
        _with_tier_seconds(first_stage_s, read_s, load_s, store_s, setting.layerwise),
    )


@compiled
def _moves_s(setting, input_tokens, cached_tokens, vram_tokens, ssd_tokens):  # type: ignore[no-untyped-def]
    return (
        ssd_tokens * setting.ssd_token_s,
        (cached_tokens - vram_tokens) * setting.host_link_token_s,
        (input_tokens - cached_tokens) * setting.host_link_token_s,
    )


@compiled
def _rejects_at_arrival(world, decoders, request, now_s, ttft_s):  # type: ignore[no-untyped-def]
    setting = world.setting[0]
    if setting.admission == _NONE:
        return False
    if ttft_s > setting.ttft_limit_s:
        return True
    if setting.admission == _BASELINE or request.output_tokens == 1:
        return False
    nodes, sequences, tokens = decoders.nodes, 0, 0
    for number in range(len(nodes)):
        if setting.admission == _PREDICTIVE:
            more_sequences, more_tokens = _predicted_load(world, number, now_s + ttft_s)
        else:
            more_sequences, more_tokens = nodes[number].present_sequences, nodes[number].present_tokens
        sequences += more_sequences
        tokens += more_tokens
    return _is_full(world, decoders, sequences / len(nodes), tokens / len(nodes), request)


@compiled
def _predicted_load(world, node, at_s):  # type: ignore[no-untyped-def]
    sequences, tokens, index = 0, 0, world.first_decode[node]
    while index >= 0:
        request = world.requests[index]
        if request.decode_at_s <= at_s and at_s < request.decode_at_s + world.setting[0].decode_s:
            sequences += 1
            tokens += _tokens(request)
        index = request.next_decode
    return sequences, tokens


@compiled
def _is_full(world, decoders, sequences, tokens, request):  # type: ignore[no-untyped-def]
    tokens += _tokens(request)
    if tokens > world.setting[0].vram_tokens:
        return True
    return batches.step_seconds(decoders, sequences + 1, tokens) > world.setting[0].tbt_limit_s


@compiled
def _tokens(request):  # type: ignore[no-untyped-def]
    return request.input_tokens + request.output_tokens


@compiled
def _assign(world, decoders, index, decode_at_s):  # type: ignore[no-untyped-def]
    request = world.requests[index]
    node = decoders.nodes[request.decode_node]
    node.assigned_sequences += 1
    node.assigned_tokens += request.input_tokens
    first = world.first_decode[request.decode_node]
    request.decode_at_s = decode_at_s
    request.next_decode = first
    if first >= 0:
        world.requests[first].last_decode = index
    world.first_decode[request.decode_node] = index


@compiled
def _release(world, decoders, request):  # type: ignore[no-untyped-def]
    node = decoders.nodes[request.decode_node]
    node.assigned_sequences -= 1
    node.assigned_tokens -= request.input_tokens
    if request.last_decode >= 0:
        world.requests[request.last_decode].next_decode = request.next_decode
    else:
        world.first_decode[request.decode_node] = request.next_decode
    if request.next_decode >= 0:
        world.requests[request.next_decode].last_decode = request.last_decode


# Prefill


@compiled
def _fetch(world, events, flows, now_s, index):  # type: ignore[no-untyped-def]
    """The blocks that are lacking are pinned at the source until they have arrived."""
    request = world.requests[index]
    request.fetching = True
    first = request.first_block + request.local_blocks
    last = request.first_block + request.reused_blocks
    request.migrated_blocks = last - first - _hot_blocks(world, first, last)
    kv.pin(world.caches, request.source_node, world.blocks, first, last, world.pinned)
    _send(world, events, flows, now_s, index, _FETCH)


@compiled
def _hot_blocks(world, first, last):  # type: ignore[no-untyped-def]
    least = world.setting[0].replicate_after
    if least == 1:
        return last - first
    place = first
    while place < last and world.asked[world.blocks[place]] >= least:
        place += 1
    return place - first


@compiled
def _end_fetch(world, events, flows, now_s, index):  # type: ignore[no-untyped-def]
    request = world.requests[index]
    first = request.first_block + request.local_blocks
    last = request.first_block + request.reused_blocks
    hot = last - request.migrated_blocks
    kv.unpin(world.caches, first, last, world.pinned)
    for place in range(hot - 1, first - 1, -1):
        depth, next_use = place - request.first_block, _next_use(world, place)
        order.touch(world.caches.shelves, world.pinned[place], now_s, depth, next_use)
    for place in range(hot, last):
        kv.drop(world.caches, world.pinned[place])
    for place in range(first, last):
        world.pinned[place] = -1
    _store(world, now_s, request, request.first_block, last, 0)
    kv.pin(world.caches, request.prefill_node, world.blocks, first, last, world.pinned)
    request.fetching = False
    request.fetched_s = now_s
    _start_prefill(world, events, flows, now_s, request.prefill_node)


@inlined
def _next_use(world, place):  # type: ignore[no-untyped-def]
    return world.next_asked[place] if len(world.next_asked) > 1 else np.inf


@compiled
def _store(world, now_s, request, first, last, depth_of_first):  # type: ignore[no-untyped-def]
    """Keep a request's blocks from `first` to `last` on its node as far as there is room, their head last.

    Those that it holds on to are known already; the others have to be looked for.
    """
    caches, node = world.caches, np.int64(request.prefill_node)
    for place in range(last - 1, first - 1, -1):
        block, entry = world.blocks[place], np.int64(world.pinned[place])
        if entry < 0:
            entry = kv.find(caches, node, block)
        depth, next_use = depth_of_first + place - first, _next_use(world, place)
        if caches.ladder[0].shared_recency:
            kv.touch_elsewhere(caches, node, block, now_s, depth, next_use)
        kv.keep(caches, node, block, entry, now_s, depth, next_use)


@compiled
def _start_prefill(world, events, flows, now_s, number):  # type: ignore[no-untyped-def]
    node = world.prefillers[number]
    index = node.first
    if node.busy or index < 0 or world.requests[index].fetching:
        return
    request = world.requests[index]
    node.first = request.next_in_queue
    node.queued_s = node.queued_s - request.busy_s if node.first >= 0 else 0.0
    if node.first < 0:
        node.last = -1
    node.busy = True
    request.start_s = now_s
    stages = world.setting[0].stages
    if stages == 1:
        world.ends_s[number, 0] = now_s + request.prefill_s
    else:
        _advance_pipeline(world, now_s, request, world.ends_s[number])
        heap.push(events, world.ends_s[number, 0], heap.PREFILL, len(world.prefillers) + number, 0)
    heap.push(events, world.ends_s[number, stages - 1], heap.PREFILL, number, index)
    if world.setting[0].streaming and request.output_tokens > 1:
        _send(world, events, flows, now_s, index, _STREAM)


@compiled
def _advance_pipeline(world, now_s, request, ends_s):  # type: ignore[no-untyped-def]
    setting, cached_tokens = world.setting[0], request.local_tokens + request.fetched_tokens
    read_s, load_s, store_s = _moves_s(
        setting, request.input_tokens, cached_tokens, request.vram_tokens, request.ssd_tokens
    )
    _advance(
        ends_s,
        now_s if setting.layerwise else now_s + (read_s + load_s),
        setting.overhead_s,
        setting.token_s,
        setting.pair_s,
        setting.hop_token_s,
        request.input_tokens,
        cached_tokens,
        setting.chunk_tokens,
    )
    moved_s = now_s + max(read_s, load_s, store_s)
    for stage in range(len(ends_s)):
        ends_s[stage] = max(ends_s[stage], moved_s) if setting.layerwise else ends_s[stage] + store_s


@compiled
def _free(world, events, flows, now_s, number):  # type: ignore[no-untyped-def]
    """The first stage can take up the next request."""
    world.prefillers[number].busy = False
    _start_prefill(world, events, flows, now_s, number)


@compiled
def _end_prefill(world, events, decoders, flows, now_s, index):  # type: ignore[no-untyped-def]
    request = world.requests[index]
    request.first_token_s = now_s
    _store(world, now_s, request, request.first_block, request.last_block, 0)
    kv.unpin(world.caches, request.first_block, request.first_block + request.reused_blocks, world.pinned)
    if request.output_tokens == 1:
        request.finish_s = now_s
    elif _rejects_after_prefill(world, decoders, request):
        request.outcome = _REJECTED_AFTER_PREFILL
        _release(world, decoders, request)
    else:
        _enter_decoder(world, events, decoders, flows, now_s, index)
    if world.setting[0].stages == 1:
        _free(world, events, flows, now_s, request.prefill_node)


@compiled
def _rejects_after_prefill(world, decoders, request):  # type: ignore[no-untyped-def]
    if world.setting[0].admission == _NONE:
        return False
    node = decoders.nodes[request.decode_node]
    return _is_full(world, decoders, node.present_sequences, node.present_tokens, request)


# Transfers


@compiled
def _enter_decoder(world, events, decoders, flows, now_s, index):  # type: ignore[no-untyped-def]
    request = world.requests[index]
    decoders.nodes[request.decode_node].present_sequences += 1
    decoders.nodes[request.decode_node].present_tokens += _tokens(request)
    request.decode_at_s = now_s
    if not world.setting[0].streaming:
        _send(world, events, flows, now_s, index, _STREAM)
    elif not np.isnan(request.streamed_s):
        _begin(world, events, flows, now_s, index, _LOAD)


@compiled
def _send(world, events, flows, now_s, index, which):  # type: ignore[no-untyped-def]
    startup_s = world.setting[0].startup_s
    if startup_s:
        heap.push(events, now_s + startup_s, heap.TRANSFER, index * _TRANSFERS + which, _BEGIN)
    else:
        _begin(world, events, flows, now_s, index, which)


@compiled
def _begin(world, events, flows, now_s, index, which):  # type: ignore[no-untyped-def]
    request, nodes = world.requests[index], len(flows.links) // 3
    target, tokens = len(world.prefillers) + request.decode_node, request.input_tokens
    if which == _FETCH:
        first, second, tokens = request.source_node, nodes + request.prefill_node, request.fetched_tokens
    elif which == _STREAM:
        first, second = request.prefill_node, nodes + target
    elif which == _LOAD:
        first, second = 2 * nodes + target, 3 * nodes
    else:
        if not _holds_prompt(world, request):
            return
        first, second = target, nodes + request.prefill_node
        tokens = _answered_blocks(world, request) * world.setting[0].block_tokens
    size_bytes = tokens * world.setting[0].kv_bytes
    transfers.start(flows, events, now_s, index * _TRANSFERS + which, first, second, size_bytes)


@compiled
def _transfer(world, events, decoders, flows, now_s, number, version):  # type: ignore[no-untyped-def]
    index, which = number // _TRANSFERS, number % _TRANSFERS
    request = world.requests[index]
    if version == _BEGIN:
        _begin(world, events, flows, now_s, index, which)
    elif transfers.is_current(flows, number, version):
        transfers.end(flows, events, now_s, number)
        if which == _FETCH:
            _end_fetch(world, events, flows, now_s, index)
        elif which == _LOAD:
            request.loaded_s = now_s
            batches.wait(decoders, events, request.decode_node, index, now_s)
        elif which == _RETURN:
            _end_return(world, now_s, request)
        else:
            request.streamed_s = now_s
            if not np.isnan(request.first_token_s) and not request.outcome:
                _begin(world, events, flows, now_s, index, _LOAD)


@compiled
def _prompt_end(world, request):  # type: ignore[no-untyped-def]
    """Where a request's full blocks end."""
    return request.first_block + request.input_tokens // world.setting[0].block_tokens


@compiled
def _answered_blocks(world, request):  # type: ignore[no-untyped-def]
    block_tokens = world.setting[0].block_tokens
    return (_tokens(request) - 1) // block_tokens - request.input_tokens // block_tokens


@compiled
def _holds_prompt(world, request):  # type: ignore[no-untyped-def]
    """Pin all full blocks of a prompt on the node that prefilled it, or none if one is gone."""
    first, last = request.first_block, _prompt_end(world, request)
    for place in range(first, last):
        if kv.find(world.caches, request.prefill_node, world.blocks[place]) < 0:
            return False
    kv.pin(world.caches, request.prefill_node, world.blocks, first, last, world.pinned)
    return True


@compiled
def _end_return(world, now_s, request):  # type: ignore[no-untyped-def]
    first, last = request.first_block, _prompt_end(world, request)
    answer, blocks = request.first_answer, _answered_blocks(world, request)
    _store(world, now_s, request, answer, answer + blocks, last - first)
    _store(world, now_s, request, first, last, 0)
    kv.unpin(world.caches, first, last, world.pinned)


# Decode


@compiled
def _change_batch(world, events, decoders, now_s, number):  # type: ignore[no-untyped-def]
    """Take the steps that were walked; let those who are done leave and those who fit join."""
    node = decoders.nodes[number]
    batches.advance(decoders, number)
    while node.sequences and decoders.batch[number, 0].last_step == node.step:
        _finish(world, events, decoders, now_s, number, batches.leave(decoders, number))
    while node.first_waiting >= 0:
        index = node.first_waiting
        request = world.requests[index]
        if node.reserved_tokens + _tokens(request) > world.setting[0].vram_tokens:
            break
        node.first_waiting = decoders.next_waiting[index]
        if node.first_waiting < 0:
            node.last_waiting = -1
        node.reserved_tokens += _tokens(request)
        node.context_tokens += request.input_tokens
        request.join_s = now_s
        batches.join(decoders, number, index, node.step + request.output_tokens - 1)
    if node.sequences:
        batches.walk(decoders, events, number, now_s)
    else:
        node.stepping = False


@compiled
def _finish(world, events, decoders, now_s, number, index):  # type: ignore[no-untyped-def]
    request, node = world.requests[index], decoders.nodes[number]
    node.reserved_tokens -= _tokens(request)
    node.context_tokens -= _tokens(request) - 1
    node.present_sequences -= 1
    node.present_tokens -= _tokens(request)
    request.finish_s = now_s
    request.tbt_s = batches.tbt_seconds(
        decoders, number, request, world.setting[0].first_counts, world.scratch_s
    )
    _release(world, decoders, request)
    if request.first_answer >= 0:
        begin_s = now_s + world.setting[0].startup_s
        heap.push(events, begin_s, heap.TRANSFER, index * _TRANSFERS + _RETURN, _BEGIN)
