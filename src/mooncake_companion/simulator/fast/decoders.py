"""Decode nodes in arrays: batches that are walked from change to change.

Each node keeps a log of when its steps ended, in a ring that is longer than any answer, and ahead
of it as far as the next sequence's last token. A change of the batch cuts what was walked ahead.
"""

from typing import Any, NamedTuple

import numpy as np

from mooncake_companion.costs import decode_seconds
from mooncake_companion.simulator.fast.compiling import compiled
from mooncake_companion.simulator.fast.events import STEP, push

_decode_seconds = compiled(decode_seconds)

NODE = np.dtype(
    [
        ("stepping", np.bool_),
        ("step", np.int64),
        ("change", np.int64),
        ("walked", np.int64),
        ("version", np.int64),
        ("sequences", np.int64),
        ("context_tokens", np.int64),
        ("reserved_tokens", np.int64),
        ("assigned_sequences", np.int64),
        ("assigned_tokens", np.int64),
        ("present_sequences", np.int64),
        ("present_tokens", np.int64),
        ("first_waiting", np.int64),
        ("last_waiting", np.int64),
    ]
)
"""``step``: steps done. ``change``: the step after which the batch is looked at, by the event of
``version``. ``walked``: the step up to which the log reaches. ``assigned``: given to the node and
not done. ``present``: of these, those with their first token. The two last: a list of requests."""
SEQUENCE = np.dtype([("last_step", np.int64), ("request", np.int64)])


class Decoders(NamedTuple):
    """All decode nodes.

    `NODE` records; the ends of steps, in seconds, shape (nodes, ring); the batches as heaps of
    `SEQUENCE` records, shape (nodes, room); who waits behind each request; the coefficients of a step.
    """

    nodes: Any
    ends_s: Any
    batch: Any
    next_waiting: Any
    cost: Any


def new_decoders(nodes: int, requests: int, longest_output_tokens: int, cost: tuple[float, ...]) -> Decoders:
    """Idle nodes for answers of at most so many tokens."""
    ring = 1 << (2 * longest_output_tokens + 4).bit_length()
    states = np.zeros(nodes, NODE)
    states["first_waiting"] = states["last_waiting"] = -1
    return Decoders(
        nodes=states,
        ends_s=np.zeros((nodes, ring)),
        batch=np.zeros((nodes, 64), SEQUENCE),
        next_waiting=np.full(requests, -1, np.int64),
        cost=tuple(float(seconds) for seconds in cost),
    )


def with_room(decoders: Decoders) -> Decoders:
    """The same nodes with room for all that are present at any of them in its batch."""
    room, present = decoders.batch.shape[1], int(decoders.nodes["present_sequences"].max())
    if present <= room:
        return decoders
    batch = np.zeros((len(decoders.nodes), 2 * present), SEQUENCE)
    batch[:, :room] = decoders.batch
    return decoders._replace(batch=batch)


@compiled
def step_seconds(decoders, sequences, context_tokens):  # type: ignore[no-untyped-def]
    """Length of a step."""
    return _decode_seconds(*decoders.cost, sequences, context_tokens)


@compiled
def least_loaded(decoders):  # type: ignore[no-untyped-def]
    """The node whose KV cache would be smallest with all that it was given."""
    best = 0
    for number in range(len(decoders.nodes)):
        if decoders.nodes[number].assigned_tokens < decoders.nodes[best].assigned_tokens:
            best = number
    return best


@compiled
def wait(decoders, events, number, request, now_s):  # type: ignore[no-untyped-def]
    """Queue a request whose KV cache has been loaded; it joins at the next boundary with room."""
    node = decoders.nodes[number]
    decoders.next_waiting[request] = -1
    behind = node.last_waiting
    node.last_waiting = request
    if behind >= 0:
        decoders.next_waiting[behind] = request  # whoever is first joins first, at its boundary
        return
    node.first_waiting = request
    if not node.stepping:
        node.stepping = True
        expect(decoders, events, number, node.step, now_s)
        return
    boundary = boundary_from(decoders, number, now_s)
    if boundary < node.change:
        expect(decoders, events, number, boundary, end_of(decoders, number, boundary))


@compiled
def end_of(decoders, number, step):  # type: ignore[no-untyped-def]
    """When a logged step ended or will end."""
    return decoders.ends_s[number, step & (decoders.ends_s.shape[1] - 1)]


@compiled
def expect(decoders, events, number, change, time_s):  # type: ignore[no-untyped-def]
    """Have the batch looked at after step `change`, and no longer when it was expected before."""
    node = decoders.nodes[number]
    node.change = change
    node.version += 1
    push(events, time_s, STEP, number, node.version)


@compiled
def boundary_from(decoders, number, time_s):  # type: ignore[no-untyped-def]
    """The first walked step that ends at `time_s` or later."""
    low, high = decoders.nodes[number].step + 1, decoders.nodes[number].walked
    while low < high:
        middle = (low + high) // 2
        if end_of(decoders, number, middle) >= time_s:
            high = middle
        else:
            low = middle + 1
    return low


@compiled
def advance(decoders, number):  # type: ignore[no-untyped-def]
    """Take the steps up to the change that is due."""
    node = decoders.nodes[number]
    node.context_tokens += node.sequences * (node.change - node.step)
    node.step = node.change


@compiled
def note_end(decoders, number, now_s):  # type: ignore[no-untyped-def]
    """Log that the step just done ended now."""
    step = decoders.nodes[number].step
    decoders.ends_s[number, step & (decoders.ends_s.shape[1] - 1)] = now_s


@compiled
def walk(decoders, events, number, now_s):  # type: ignore[no-untyped-def]
    """Log the steps to come until the first sequence of the batch has its last token."""
    node, ends_s = decoders.nodes[number], decoders.ends_s[number]
    ring, end_s = len(ends_s) - 1, now_s
    sequences, context_tokens = node.sequences, node.context_tokens
    last = decoders.batch[number, 0].last_step
    overhead_s, weights_s, arithmetic_s, overlapped_s, serial_s, context_token_s = decoders.cost
    for step in range(node.step + 1, last + 1):
        end_s += _decode_seconds(
            overhead_s,
            weights_s,
            arithmetic_s,
            overlapped_s,
            serial_s,
            context_token_s,
            sequences,
            context_tokens,
        )
        context_tokens += sequences
        ends_s[step & ring] = end_s
    node.walked = last
    expect(decoders, events, number, last, end_s)


@compiled
def join(decoders, number, request, last_step):  # type: ignore[no-untyped-def]
    """Put a sequence into the batch's heap."""
    batch, place = decoders.batch[number], decoders.nodes[number].sequences
    decoders.nodes[number].sequences = place + 1
    while place:
        parent = (place - 1) >> 1
        if batch[parent].last_step <= last_step:
            break
        batch[place] = batch[parent]
        place = parent
    batch[place].last_step = last_step
    batch[place].request = request


@compiled
def leave(decoders, number):  # type: ignore[no-untyped-def]
    """Take the sequence whose last token comes first out of the batch's heap."""
    batch, last = decoders.batch[number], decoders.nodes[number].sequences - 1
    decoders.nodes[number].sequences = last
    first, moved_step, place = batch[0].request, batch[last].last_step, 0
    while True:
        child = 2 * place + 1
        if child >= last:
            break
        if child + 1 < last and batch[child + 1].last_step < batch[child].last_step:
            child += 1
        if moved_step <= batch[child].last_step:
            break
        batch[place] = batch[child]
        place = child
    batch[place] = batch[last]
    return first


@compiled
def tbt_seconds(decoders, number, request, first_counts, scratch):  # type: ignore[no-untyped-def]
    """TBT of a request that has just had its last token; NaN without an interval that counts."""
    intervals = request.output_tokens - 1 if first_counts else request.output_tokens - 2
    if intervals < 1:
        return np.nan
    ends_s, first = decoders.ends_s[number], decoders.nodes[number].step - intervals + 1
    ring = len(ends_s) - 1
    before_s = request.first_token_s if first_counts else ends_s[(first - 1) & ring]
    for interval in range(intervals):
        end_s = ends_s[(first + interval) & ring]
        scratch[interval] = end_s - before_s
        before_s = end_s
    counted = (intervals + 9) // 10
    _longest_first(scratch, intervals, counted)
    total = 0.0
    for place in range(counted):
        total += scratch[place]
    return total / counted


@compiled
def _longest_first(values, size, wanted):  # type: ignore[no-untyped-def]
    """Move the `wanted` largest of the first `size` values to the front: Hoare's selection."""
    low, high = 0, size - 1
    while low < high:
        pivot = values[(low + high) // 2]
        left, right = low, high
        while left <= right:
            while values[left] > pivot:
                left += 1
            while values[right] < pivot:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left += 1
                right -= 1
        if wanted - 1 <= right:
            high = right
        elif wanted - 1 >= left:
            low = left
        else:
            return
