"""The heap of events, in one array; the same order of one instant as `simulator.clock`.

Arrivals are not in it: they come sorted.
"""

from typing import Any, NamedTuple

import numpy as np

from mooncake_companion.simulator.fast.compiling import compiled

TRANSFER, PREFILL, STEP, ARRIVE, START = range(5)
NUMBER_BITS = 56

EVENT = np.dtype([("time_s", np.float64), ("rank", np.int64), ("payload", np.int64)])
"""``rank`` packs order and number; ``payload`` is the handler's."""


class Events(NamedTuple):
    """A binary heap: `EVENT` records, and how many there are, shape (1,)."""

    heap: Any
    size: Any


def new_events(capacity: int) -> Events:
    """An empty heap."""
    return Events(np.empty(capacity, EVENT), np.zeros(1, np.int64))


def with_room(events: Events, more: int) -> Events:
    """The same heap with room for `more` events."""
    held = int(events.size[0])
    if held + more <= len(events.heap):
        return events
    heap = np.empty(2 * (held + more), EVENT)
    heap[:held] = events.heap[:held]
    return Events(heap, events.size)


@compiled
def push(events, time_s, order, number, payload):  # type: ignore[no-untyped-def]
    """Add an event."""
    heap, rank = events.heap, (order << NUMBER_BITS) + number
    place = events.size[0]
    events.size[0] = place + 1
    while place:
        parent = (place - 1) >> 1
        if heap[parent].time_s < time_s or (heap[parent].time_s == time_s and heap[parent].rank <= rank):
            break
        heap[place] = heap[parent]
        place = parent
    heap[place].time_s = time_s
    heap[place].rank = rank
    heap[place].payload = payload


@compiled
def pop(events):  # type: ignore[no-untyped-def]
    """Take the first event: its time, order, number and payload."""
    heap = events.heap
    time_s, rank, payload = heap[0].time_s, heap[0].rank, heap[0].payload
    last = events.size[0] - 1
    events.size[0] = last
    moved_s, moved_rank = heap[last].time_s, heap[last].rank
    place = 0
    while True:
        child = 2 * place + 1
        if child >= last:
            break
        if child + 1 < last and _goes_first(heap[child + 1], heap[child].time_s, heap[child].rank):
            child += 1
        if not _goes_first(heap[child], moved_s, moved_rank):
            break
        heap[place] = heap[child]
        place = child
    heap[place] = heap[last]
    return time_s, rank >> NUMBER_BITS, rank & ((1 << NUMBER_BITS) - 1), payload


@compiled
def _goes_first(event, time_s, rank):  # type: ignore[no-untyped-def]
    return event.time_s < time_s or (event.time_s == time_s and event.rank < rank)
