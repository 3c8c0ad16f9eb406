"""The fast engine's loop; each step is the twin of one of `reference`, named alike."""

from typing import Any, NamedTuple

import numpy as np

from mooncake_companion.costs import decode_cost, prefill_cost, prefill_seconds, with_host_link_seconds
from mooncake_companion.simulator.cluster import Cluster
from mooncake_companion.simulator.fast import caches as lru
from mooncake_companion.simulator.fast import decoders as batches
from mooncake_companion.simulator.fast import events as heap
from mooncake_companion.simulator.fast import flows as transfers
from mooncake_companion.simulator.fast.compiling import compiled
from mooncake_companion.simulator.overload import Admission
from mooncake_companion.simulator.reference import Outcome
from mooncake_companion.simulator.scheduler import Routing

_prefill_seconds = compiled(prefill_seconds)
_with_host_link_seconds = compiled(with_host_link_seconds)

_FETCH, _STREAM, _LOAD, _TRANSFERS = range(4)
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
        ("join_s", np.float64),
        ("finish_s", np.float64),
        ("tbt_s", np.float64),
        ("prefill_s", np.float64),
        ("decode_at_s", np.float64),
        ("local_tokens", np.int64),
        ("fetched_tokens", np.int64),
        ("prefill_node", np.int64),
        ("source_node", np.int64),
        ("decode_node", np.int64),
        ("outcome", np.int64),
        ("fetch_from", np.int64),
        ("fetch_to", np.int64),
        ("next_in_queue", np.int64),
        ("next_decode", np.int64),
        ("last_decode", np.int64),
        ("held_blocks", np.int64),
        ("done_tokens", np.int64),
        ("fetching", np.bool_),
        ("streamed", np.bool_),
    ]
)
"""A request: its line of the trace (``first_block`` to ``last_block`` of the block ids), what the run
notes of it, and its place in the lists of its nodes. The coupled engine uses some of the fields."""
_NEVER = ("fetched_s", "start_s", "first_token_s", "join_s", "finish_s", "tbt_s", "prefill_s")
_NOWHERE = ("prefill_node", "source_node", "decode_node", "next_in_queue", "next_decode", "last_decode")
PREFILLER = np.dtype(
    [
        ("busy", np.bool_),
        ("busy_until_s", np.float64),
        ("queued_s", np.float64),
        ("first", np.int64),
        ("last", np.int64),
        ("hits", np.int64),
    ]
)
"""A prefill node: at work until when, who waits, and what it holds of the request at hand."""
SETTING = np.dtype(
    [
        ("block_tokens", np.int64),
        ("kv_bytes", np.int64),
        ("vram_tokens", np.int64),
        ("rule", np.int64),
        ("threshold", np.float64),
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
        ("layerwise", np.bool_),
    ]
)
"""A `Cluster` as plain numbers."""


class World(NamedTuple):
    """Everything but what may have to grow: heap, batches and flows.

    ``arrived`` counts the requests that have come; ``pinned`` is over the trace's blocks;
    ``first_decode`` over decode nodes, the list of the requests given to each; ``scratch_s`` is
    room for one request's intervals.
    """

    setting: Any
    requests: Any
    arrived: Any
    blocks: Any
    pinned: Any
    prefillers: Any
    caches: lru.Caches
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
    cluster: Cluster, block_tokens: int, requests: np.ndarray, block_ids: np.ndarray
) -> tuple[dict[str, int], np.ndarray]:
    """Send a trace through a cluster and note in `requests` what becomes of them.

    Parameters
    ----------
    cluster : Cluster
    block_tokens : int
    requests : array of `REQUEST`
    block_ids : array of int64
        Ids count up from 0, so that an array over all ids is small.

    Returns
    -------
    counters : dict of int
        ``evictions`` and ``decode_steps``.
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
    nodes = cluster.prefill_nodes + cluster.decode_nodes
    flows = transfers.new_flows(
        64,
        len(requests) * _TRANSFERS,
        nodes,
        cluster.network_bytes_per_s,
        cluster.node.host_to_device_bytes_per_s,
    )
    events = heap.new_events(4 * nodes + 64)
    while not _run(world, events, decoders, flows):
        events = heap.with_room(events, _pushes_at_once(flows))
        flows = transfers.with_room(flows)
        decoders = batches.with_room(decoders)
    counters = {
        "evictions": int(world.caches.evictions[0]),
        "decode_steps": int(decoders.nodes["step"].sum()),
    }
    return counters, flows.links["sent_bytes"]


def _new_world(
    cluster: Cluster, block_tokens: int, requests: np.ndarray, block_ids: np.ndarray, longest_tokens: int
) -> World:
    prefillers = np.zeros(cluster.prefill_nodes, PREFILLER)
    prefillers["first"] = prefillers["last"] = -1
    return World(
        setting=_setting(cluster, block_tokens),
        requests=requests,
        arrived=np.zeros(1, np.int64),
        blocks=np.array(block_ids, np.int64),
        pinned=np.zeros(len(block_ids), np.bool_),
        prefillers=prefillers,
        caches=lru.new_caches(
            cluster.prefill_nodes,
            cluster.cache_tokens_per_node // block_tokens,
            int(block_ids.max(initial=-1)) + 1,
        ),
        first_decode=np.full(cluster.decode_nodes, -1, np.int64),
        scratch_s=np.zeros(longest_tokens + 1),
    )


def _setting(cluster: Cluster, block_tokens: int) -> np.ndarray:
    setting = np.zeros(1, SETTING)
    values = {
        "block_tokens": block_tokens,
        "kv_bytes": cluster.model.kv_bytes_per_token,
        "vram_tokens": cluster.vram_tokens,
        "rule": _RULES.get(cluster.routing, _CACHE_AWARE),
        "threshold": cluster.fetch_threshold,
        "startup_s": cluster.transfer_startup_s,
        "network_bytes_per_s": cluster.network_bytes_per_s,
        "streaming": cluster.kv_streaming,
        "admission": _ADMISSIONS[cluster.admission],
        "ttft_limit_s": cluster.ttft_limit_s,
        "tbt_limit_s": cluster.tbt_limit_s,
        "decode_s": cluster.predicted_decode_s,
        "host_link_token_s": cluster.host_link_token_s,
        "layerwise": cluster.layerwise,
        **prefill_cost(cluster.node, cluster.model, cluster.calibration)._asdict(),
    }
    for name, value in values.items():
        setting[name] = value
    return setting


@compiled
def _run(world, events, decoders, flows):  # type: ignore[no-untyped-def]
    """Go on until all is done, or until the heap, the flows or a batch need more room."""
    requests, arrived = world.requests, world.arrived
    while arrived[0] < len(requests) or events.size[0]:
        if _lacks_room(events, decoders, flows):
            return False
        coming = arrived[0]
        if coming < len(requests) and (
            not events.size[0] or requests[coming].arrival_s < events.heap[0].time_s
        ):
            arrived[0] += 1
            _arrive(world, events, decoders, flows, requests[coming].arrival_s, coming)
            continue
        now_s, order, number, payload = heap.pop(events)
        if order == heap.TRANSFER:
            _transfer(world, events, decoders, flows, now_s, number, payload)
        elif order == heap.PREFILL:
            _end_prefill(world, events, decoders, flows, now_s, payload)
        elif decoders.nodes[number].version == payload:
            _change_batch(world, events, decoders, now_s, number)
    return True


@compiled
def _pushes_at_once(flows):  # type: ignore[no-untyped-def]
    """No event pushes more: thrice a new end for every flow, and a few of its own."""
    return 3 * flows.count[0] + 16


@compiled
def _lacks_room(events, decoders, flows):  # type: ignore[no-untyped-def]
    if events.size[0] + _pushes_at_once(flows) > len(events.heap):
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
    lru.leading_hits(world.caches, world.blocks, request.first_block, request.last_block, world.prefillers)
    ttft_s = _choose(world, request, now_s)
    request.decode_node = batches.least_loaded(decoders)
    if _rejects_at_arrival(world, decoders, request, now_s, ttft_s):
        request.outcome = _REJECTED_AT_ARRIVAL
        return
    if request.output_tokens > 1:
        _assign(world, decoders, index, now_s + ttft_s)
    node = world.prefillers[request.prefill_node]
    held = node.hits
    first = request.first_block
    lru.pin(world.caches, request.prefill_node, world.blocks, first, first + held, world.pinned)
    if request.fetched_tokens:
        _fetch(world, events, flows, now_s, index, held, world.prefillers[request.source_node].hits)
    if node.last >= 0:
        world.requests[node.last].next_in_queue = index
    else:
        node.first = index
    node.last = index
    node.queued_s += request.prefill_s
    _start_prefill(world, events, flows, now_s, request.prefill_node)


@compiled
def _choose(world, request, now_s):  # type: ignore[no-untyped-def]
    """`scheduler.candidates` and `scheduler.choose` in one pass; the estimated TTFT."""
    setting, nodes = world.setting[0], world.prefillers
    last = request.input_tokens - 1
    best_tokens, best_node = -1, -1
    for number in range(len(nodes)):
        held_tokens = min(nodes[number].hits * setting.block_tokens, last)
        if held_tokens > best_tokens:
            best_tokens, best_node = held_tokens, number
    drawn = int(request.draw * len(nodes))
    fetching, least, least_ttft_s = np.isfinite(setting.threshold), np.inf, np.inf
    for number in range(len(nodes)):
        if setting.rule == _RANDOM and number != drawn:
            continue
        local_tokens, fetched_tokens, transfer_s = (
            min(nodes[number].hits * setting.block_tokens, last),
            0,
            0.0,
        )
        if fetching and best_tokens > local_tokens * setting.threshold:
            fetched_tokens = best_tokens - local_tokens
            size_bytes = fetched_tokens * setting.kv_bytes
            transfer_s = setting.startup_s + size_bytes / setting.network_bytes_per_s
        queue_s = max(0.0, nodes[number].busy_until_s - now_s) + nodes[number].queued_s
        prefill_s = _prefill_s(setting, request.input_tokens, local_tokens + fetched_tokens)
        ttft_s = transfer_s + queue_s + prefill_s
        measure = queue_s if setting.rule == _LOAD_BALANCING else ttft_s
        if measure < least:
            least, least_ttft_s = measure, ttft_s
            request.prefill_node = number
            request.source_node = best_node if fetched_tokens else -1
            request.local_tokens = local_tokens
            request.fetched_tokens = fetched_tokens
            request.prefill_s = prefill_s
    return least_ttft_s


@compiled
def _prefill_s(setting, input_tokens, cached_tokens):  # type: ignore[no-untyped-def]
    compute_s = _prefill_seconds(
        setting.overhead_s, setting.token_s, setting.pair_s, input_tokens, cached_tokens
    )
    load_s = cached_tokens * setting.host_link_token_s
    store_s = (input_tokens - cached_tokens) * setting.host_link_token_s
    return _with_host_link_seconds(compute_s, load_s, store_s, setting.layerwise)


@compiled
def _rejects_at_arrival(world, decoders, request, now_s, ttft_s):  # type: ignore[no-untyped-def]
    setting, node = world.setting[0], decoders.nodes[request.decode_node]
    if setting.admission == _NONE:
        return False
    if ttft_s > setting.ttft_limit_s:
        return True
    if setting.admission == _BASELINE or request.output_tokens == 1:
        return False
    sequences, tokens = node.present_sequences, node.present_tokens
    if setting.admission == _PREDICTIVE:
        sequences, tokens = _predicted_load(world, request.decode_node, now_s + ttft_s)
    return _is_full(world, decoders, sequences, tokens, request)


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
def _fetch(world, events, flows, now_s, index, held, best):  # type: ignore[no-untyped-def]
    """The prompt's blocks from `held` to `best` are pinned at the source until they have arrived."""
    request = world.requests[index]
    request.fetching = True
    request.fetch_from = request.first_block + held
    request.fetch_to = request.first_block + best
    lru.pin(
        world.caches,
        request.source_node,
        world.blocks,
        request.fetch_from,
        request.fetch_to,
        world.pinned,
    )
    _send(world, events, flows, now_s, index, _FETCH)


@compiled
def _end_fetch(world, events, flows, now_s, index):  # type: ignore[no-untyped-def]
    request = world.requests[index]
    caches, blocks, pinned, node = world.caches, world.blocks, world.pinned, request.prefill_node
    lru.unpin(caches, request.source_node, blocks, request.fetch_from, request.fetch_to, pinned)
    lru.store(caches, node, blocks, request.first_block, request.fetch_to)
    lru.pin(caches, node, blocks, request.fetch_from, request.fetch_to, pinned)
    request.fetching = False
    request.fetched_s = now_s
    _start_prefill(world, events, flows, now_s, request.prefill_node)


@compiled
def _start_prefill(world, events, flows, now_s, number):  # type: ignore[no-untyped-def]
    node = world.prefillers[number]
    index = node.first
    if node.busy or index < 0 or world.requests[index].fetching:
        return
    request = world.requests[index]
    node.first = request.next_in_queue
    node.queued_s = node.queued_s - request.prefill_s if node.first >= 0 else 0.0
    if node.first < 0:
        node.last = -1
    node.busy = True
    node.busy_until_s = now_s + request.prefill_s
    request.start_s = now_s
    heap.push(events, node.busy_until_s, heap.PREFILL, number, index)
    if world.setting[0].streaming and request.output_tokens > 1:
        _send(world, events, flows, now_s, index, _STREAM)


@compiled
def _end_prefill(world, events, decoders, flows, now_s, index):  # type: ignore[no-untyped-def]
    request = world.requests[index]
    request.first_token_s = now_s
    world.prefillers[request.prefill_node].busy = False
    caches, blocks, node = world.caches, world.blocks, request.prefill_node
    lru.unpin(caches, node, blocks, request.first_block, request.last_block, world.pinned)
    lru.store(caches, node, blocks, request.first_block, request.last_block)
    if request.output_tokens == 1:
        request.finish_s = now_s
    elif _rejects_after_prefill(world, decoders, request):
        request.outcome = _REJECTED_AFTER_PREFILL
        _release(world, decoders, request)
    else:
        _enter_decoder(world, events, decoders, flows, now_s, index)
    _start_prefill(world, events, flows, now_s, request.prefill_node)


@compiled
def _rejects_after_prefill(world, decoders, request):  # type: ignore[no-untyped-def]
    if world.setting[0].admission != _BASELINE:
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
    elif request.streamed:
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
    else:
        first, second = 2 * nodes + target, 3 * nodes
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
            batches.wait(decoders, events, request.decode_node, index, now_s)
        else:
            request.streamed = True
            if not np.isnan(request.first_token_s) and not request.outcome:
                _begin(world, events, flows, now_s, index, _LOAD)


# Decode


@compiled
def _change_batch(world, events, decoders, now_s, number):  # type: ignore[no-untyped-def]
    """Take the steps that were walked; let those who are done leave and those who fit join."""
    node = decoders.nodes[number]
    batches.advance(decoders, number)
    while node.sequences and decoders.batch[number, 0].last_step == node.step:
        _finish(world, decoders, now_s, number, batches.leave(decoders, number))
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
def _finish(world, decoders, now_s, number, index):  # type: ignore[no-untyped-def]
    request, node = world.requests[index], decoders.nodes[number]
    node.reserved_tokens -= _tokens(request)
    node.context_tokens -= _tokens(request) - 1
    node.present_sequences -= 1
    node.present_tokens -= _tokens(request)
    request.finish_s = now_s
    request.tbt_s = batches.tbt_seconds(decoders, number, request.output_tokens, world.scratch_s)
    _release(world, decoders, request)
