"""The coupled baselines, compiled; twin of `simulator.coupled`.

Iterations that only decode are walked ahead as in `decoders`; one with prompts in it is an event.
"""

from typing import Any, NamedTuple

import numpy as np

from mooncake_companion.costs import (
    batch_prefill_seconds,
    decode_cost,
    mixed_seconds,
    prefill_cost,
    prefill_seconds,
)
from mooncake_companion.simulator.coupled import Batching, CoupledCluster
from mooncake_companion.simulator.fast import caches as kv
from mooncake_companion.simulator.fast import decoders as batches
from mooncake_companion.simulator.fast import events as heap
from mooncake_companion.simulator.fast import shelves as order
from mooncake_companion.simulator.fast.compiling import compiled

_prefill_seconds = compiled(prefill_seconds)
_batch_prefill_seconds = compiled(batch_prefill_seconds)
_mixed_seconds = compiled(mixed_seconds)

_DECODING, _PREFILLING, _MIXED = range(3)
_PLAIN, _PREFIX_CACHING, _CHUNKED = range(3)
_BATCHINGS = {
    Batching.PLAIN: _PLAIN,
    Batching.PREFIX_CACHING: _PREFIX_CACHING,
    Batching.CHUNKED_PREFILL: _CHUNKED,
}

NODE = np.dtype(
    [
        ("phase", np.int64),
        ("first_chunk", np.int64),
        ("last_chunk", np.int64),
        ("begun", np.int64),
        ("admitted", np.int64),
        ("used_blocks", np.int64),
    ]
)
"""What the iteration holds: the list of its prompts, through their ``next_in_queue``; the prompt that
chunks have begun; how many requests are worked on; the blocks in use."""
SETTING = np.dtype(
    [
        ("batching", np.int64),
        ("block_tokens", np.int64),
        ("blocks", np.int64),
        ("vram_tokens", np.int64),
        ("chunk_tokens", np.int64),
        ("max_batched_tokens", np.int64),
        ("max_sequences", np.int64),
        ("first_counts", np.bool_),
    ]
)


class World(NamedTuple):
    """Everything but what may have to grow; ``prefill`` are the coefficients of `prefill_seconds`."""

    setting: Any
    prefill: Any
    requests: Any
    arrived: Any
    blocks: Any
    nodes: Any
    caches: kv.Caches
    scratch_s: Any


def replay(
    cluster: CoupledCluster, block_tokens: int, requests: np.ndarray, block_ids: np.ndarray
) -> dict[str, int]:
    """Send a trace through coupled nodes and note in `requests` what becomes of them.

    Parameters and counters are those of `engine.replay`; there are no links.
    """
    longest_tokens = int(requests["output_tokens"].max(initial=1))
    world = _new_world(cluster, block_tokens, requests, block_ids, longest_tokens)
    cost = decode_cost(cluster.node, cluster.model, cluster.calibration, overlapping=cluster.host_overlaps)
    decoders = batches.new_decoders(cluster.nodes, len(requests), longest_tokens, cost)
    events = heap.new_events(4 * cluster.nodes + 64)
    while not _run(world, events, decoders):
        events = heap.with_room(events, 64)
        decoders = batches.with_room(decoders)
    return {
        "evictions": kv.counters(world.caches)["evictions"],
        "decode_steps": int(decoders.nodes["step"].sum()),
    }


def _new_world(
    cluster: CoupledCluster,
    block_tokens: int,
    requests: np.ndarray,
    block_ids: np.ndarray,
    longest_tokens: int,
) -> World:
    blocks = cluster.vram_tokens // block_tokens
    setting, nodes = np.zeros(1, SETTING), np.zeros(cluster.nodes, NODE)
    nodes["first_chunk"] = nodes["last_chunk"] = nodes["begun"] = -1
    setting["batching"] = _BATCHINGS[cluster.batching]
    setting["block_tokens"], setting["blocks"] = block_tokens, blocks
    setting["vram_tokens"] = cluster.vram_tokens
    setting["chunk_tokens"] = cluster.chunk_tokens
    setting["max_batched_tokens"] = cluster.max_batched_tokens
    setting["max_sequences"] = cluster.max_sequences
    setting["first_counts"] = cluster.first_interval_counts
    cost = prefill_cost(cluster.node, cluster.model, cluster.calibration)
    kept = blocks if cluster.batching is Batching.PREFIX_CACHING else 0
    return World(
        setting=setting,
        prefill=tuple(float(seconds) for seconds in cost),
        requests=requests,
        arrived=np.zeros(1, np.int64),
        blocks=block_ids.astype(np.int32),
        nodes=nodes,
        caches=kv.new_caches(cluster.nodes, (kept, 0, 0), int(block_ids.max(initial=-1)) + 1),
        scratch_s=np.zeros(longest_tokens + 1),
    )


@compiled
def _run(world, events, decoders):  # type: ignore[no-untyped-def]
    """Go on until all is done, or until the heap or a batch needs more room."""
    requests, arrived = world.requests, world.arrived
    while arrived[0] < len(requests) or events.size[0]:
        if _lacks_room(events, decoders):
            return False
        coming = arrived[0]
        if coming < len(requests) and _comes_first(events, requests[coming].arrival_s):
            arrived[0] += 1
            _arrive(world, events, decoders, requests[coming].arrival_s, coming)
            continue
        now_s, order, number, version = heap.pop(events)
        if order == heap.START:
            _iterate(world, events, decoders, now_s, number)
        elif decoders.nodes[number].version == version:
            _end(world, decoders, now_s, number)
            _iterate(world, events, decoders, now_s, number)
    return True


@compiled
def _lacks_room(events, decoders):  # type: ignore[no-untyped-def]
    if events.size[0] + 4 > len(events.heap):
        return True
    if not events.size[0]:
        return False
    number = events.heap[0].rank & ((1 << heap.NUMBER_BITS) - 1)
    return decoders.nodes[number].present_sequences > decoders.batch.shape[1]


@compiled
def _comes_first(events, arrival_s):  # type: ignore[no-untyped-def]
    if not events.size[0] or arrival_s < events.heap[0].time_s:
        return True
    return arrival_s == events.heap[0].time_s and events.heap[0].rank >> heap.NUMBER_BITS == heap.START


@compiled
def _arrive(world, events, decoders, now_s, index):  # type: ignore[no-untyped-def]
    number = 0
    for other in range(len(decoders.nodes)):
        if decoders.nodes[other].present_sequences < decoders.nodes[number].present_sequences:
            number = other
    node, request = decoders.nodes[number], world.requests[index]
    request.prefill_node = number
    request.decode_node = number
    node.present_sequences += 1
    decoders.next_waiting[index] = -1
    behind = node.last_waiting
    node.last_waiting = index
    if behind >= 0:
        decoders.next_waiting[behind] = index
    else:
        node.first_waiting = index
    if not node.stepping:
        node.stepping = True
        heap.push(events, now_s, heap.START, number, 0)
    elif behind < 0 and world.nodes[number].phase == _DECODING:
        boundary = batches.boundary_from(decoders, number, np.nextafter(now_s, np.inf))
        if boundary < node.change:
            batches.expect(decoders, events, number, boundary, batches.end_of(decoders, number, boundary))


@compiled
def _iterate(world, events, decoders, now_s, number):  # type: ignore[no-untyped-def]
    """Begin the next iteration, if there is anything to do."""
    node, state, chunked = decoders.nodes[number], world.nodes[number], world.setting[0].batching == _CHUNKED
    state.first_chunk = -1
    state.last_chunk = -1
    if chunked:
        tokens, pairs, begun = _plan_chunks(world, decoders, now_s, number)
    else:
        tokens, pairs, begun = _plan(world, decoders, now_s, number)
    if state.first_chunk < 0:
        state.phase = _DECODING
        if node.sequences:
            batches.walk(decoders, events, number, now_s)
        else:
            node.stepping = False
    elif chunked:
        state.phase = _MIXED
        end_s = now_s + _mixed_seconds(
            *world.prefill, *decoders.cost, node.sequences, node.context_tokens, tokens, pairs, begun
        )
        batches.expect(decoders, events, number, node.step, end_s)
    else:
        state.phase = _PREFILLING
        end_s = now_s + _batch_prefill_seconds(*world.prefill, tokens, pairs)
        batches.expect(decoders, events, number, node.step, end_s)


@compiled
def _plan(world, decoders, now_s, number):  # type: ignore[no-untyped-def]
    """Whole prompts, as many as fit; their tokens, pairs and number."""
    node, tokens, pairs, count = decoders.nodes[number], 0, 0, 0
    while node.first_waiting >= 0:
        index = node.first_waiting
        request = world.requests[index]
        hits = _leading_hits(world, number, request)
        if not _fits(world, decoders, number, request, hits):
            break
        cached = min(hits * world.setting[0].block_tokens, request.input_tokens - 1)
        computed = request.input_tokens - cached
        if count and tokens + computed > world.setting[0].max_batched_tokens:
            break
        _admit(world, decoders, now_s, number, index, hits, cached)
        _append_chunk(world, number, index)
        request.done_tokens = request.input_tokens
        tokens += computed
        pairs += request.input_tokens * request.input_tokens - cached * cached
        count += 1
    return tokens, pairs, count


@compiled
def _plan_chunks(world, decoders, now_s, number):  # type: ignore[no-untyped-def]
    """Chunks up to the iteration's length; their tokens and pairs, and how many prompts begin."""
    node, state = decoders.nodes[number], world.nodes[number]
    room, tokens, pairs, begun = world.setting[0].chunk_tokens - node.sequences, 0, 0, 0
    while room > 0:
        if state.begun < 0:
            index = node.first_waiting
            if index < 0 or not _fits(world, decoders, number, world.requests[index], 0):
                break
            _admit(world, decoders, now_s, number, index, 0, 0)
            state.begun = index
            begun += 1
        request = world.requests[state.begun]
        last = min(request.input_tokens, request.done_tokens + room)
        tokens += last - request.done_tokens
        pairs += last * last - request.done_tokens * request.done_tokens
        room -= last - request.done_tokens
        request.done_tokens = last
        _append_chunk(world, number, state.begun)
        if last == request.input_tokens:
            state.begun = -1
    return tokens, pairs, begun


@compiled
def _append_chunk(world, number, index):  # type: ignore[no-untyped-def]
    state = world.nodes[number]
    world.requests[index].next_in_queue = -1
    if state.last_chunk >= 0:
        world.requests[state.last_chunk].next_in_queue = index
    else:
        state.first_chunk = index
    state.last_chunk = index


@compiled
def _end(world, decoders, now_s, number):  # type: ignore[no-untyped-def]
    """Give out the iteration's tokens: one each in decode, the first to whose prompt is done."""
    node, state = decoders.nodes[number], world.nodes[number]
    if state.phase == _DECODING:
        batches.advance(decoders, number)
    elif state.phase == _MIXED:
        node.step += 1
        node.context_tokens += node.sequences
        batches.note_end(decoders, number, now_s)
    while node.sequences and decoders.batch[number, 0].last_step == node.step:
        index = batches.leave(decoders, number)
        request = world.requests[index]
        node.context_tokens -= request.input_tokens + request.output_tokens - 1
        request.tbt_s = batches.tbt_seconds(
            decoders, number, request, world.setting[0].first_counts, world.scratch_s
        )
        _finish(world, decoders, now_s, number, request)
    index = state.first_chunk
    while index >= 0:
        after = world.requests[index].next_in_queue
        if world.requests[index].done_tokens == world.requests[index].input_tokens:
            _end_prefill(world, decoders, now_s, number, index)
        index = after


@compiled
def _end_prefill(world, decoders, now_s, number, index):  # type: ignore[no-untyped-def]
    node, request = decoders.nodes[number], world.requests[index]
    request.first_token_s = now_s
    request.join_s = now_s
    _keep_blocks(world, decoders, number, request)
    if request.output_tokens == 1:
        _finish(world, decoders, now_s, number, request)
    else:
        node.context_tokens += request.input_tokens
        batches.join(decoders, number, index, node.step + request.output_tokens - 1)


@compiled
def _finish(world, decoders, now_s, number, request):  # type: ignore[no-untyped-def]
    node, caches = decoders.nodes[number], world.caches
    request.finish_s = now_s
    node.present_sequences -= 1
    world.nodes[number].admitted -= 1
    if world.setting[0].batching != _PREFIX_CACHING:
        node.reserved_tokens -= request.input_tokens + request.output_tokens
        return
    node.reserved_tokens -= _answer_blocks(world, request)
    for place in range(request.first_block, request.last_block):
        entry = kv.find(caches, number, world.blocks[place])
        caches.shelves.entries[entry].pins -= 1
        if not caches.shelves.entries[entry].pins:
            world.nodes[number].used_blocks -= 1


# Memory: tokens, or with prefix caching whole blocks


@compiled
def _answer_blocks(world, request):  # type: ignore[no-untyped-def]
    block_tokens = world.setting[0].block_tokens
    whole = (request.input_tokens + request.output_tokens + block_tokens - 1) // block_tokens
    return whole - (request.last_block - request.first_block)


@compiled
def _leading_hits(world, number, request):  # type: ignore[no-untyped-def]
    if world.setting[0].batching != _PREFIX_CACHING:
        return 0
    place = request.first_block
    while place < request.last_block and kv.find(world.caches, number, world.blocks[place]) >= 0:
        place += 1
    return place - request.first_block


@compiled
def _fits(world, decoders, number, request, hits):  # type: ignore[no-untyped-def]
    node, setting, caches = decoders.nodes[number], world.setting[0], world.caches
    if world.nodes[number].admitted >= setting.max_sequences:
        return False
    if setting.batching != _PREFIX_CACHING:
        tokens = request.input_tokens + request.output_tokens
        return node.reserved_tokens + tokens <= setting.vram_tokens
    wanted = request.last_block - request.first_block - hits + _answer_blocks(world, request)
    for place in range(request.first_block, request.first_block + hits):
        if not caches.shelves.entries[kv.find(caches, number, world.blocks[place])].pins:
            wanted += 1
    return world.nodes[number].used_blocks + node.reserved_tokens + wanted <= setting.blocks


@compiled
def _admit(world, decoders, now_s, number, index, hits, cached):  # type: ignore[no-untyped-def]
    """Take the first of those who wait, and reserve its memory."""
    node, request, setting = decoders.nodes[number], world.requests[index], world.setting[0]
    node.first_waiting = decoders.next_waiting[index]
    if node.first_waiting < 0:
        node.last_waiting = -1
    world.nodes[number].admitted += 1
    request.start_s = now_s
    request.local_tokens = cached
    request.vram_tokens = cached
    request.done_tokens = cached
    request.local_blocks = hits
    request.prefill_s = _prefill_seconds(*world.prefill, request.input_tokens, cached)
    if setting.batching != _PREFIX_CACHING:
        node.reserved_tokens += request.input_tokens + request.output_tokens
        return
    _use(world, number, request.first_block, request.first_block + hits)
    computed = request.last_block - request.first_block - hits
    node.reserved_tokens += computed + _answer_blocks(world, request)
    while world.caches.nodes[number].held + node.reserved_tokens > setting.blocks:
        kv.evict(world.caches, number)


@compiled
def _keep_blocks(world, decoders, number, request):  # type: ignore[no-untyped-def]
    """What the prompt's prefill has computed can be hit from now on, and is in use."""
    if world.setting[0].batching != _PREFIX_CACHING:
        return
    first = request.first_block + request.local_blocks
    decoders.nodes[number].reserved_tokens -= request.last_block - first
    for place in range(request.last_block - 1, first - 1, -1):
        if kv.find(world.caches, number, world.blocks[place]) < 0:
            kv.keep(world.caches, number, world.blocks[place], -1, 0.0, 0, np.inf)
    _use(world, number, first, request.last_block)


@compiled
def _use(world, number, first, last):  # type: ignore[no-untyped-def]
    caches = world.caches
    for place in range(last - 1, first - 1, -1):
        entry = kv.find(caches, number, world.blocks[place])
        if not caches.shelves.entries[entry].pins:
            world.nodes[number].used_blocks += 1
        caches.shelves.entries[entry].pins += 1
        order.touch(caches.shelves, entry, 0.0, 0, np.inf)
