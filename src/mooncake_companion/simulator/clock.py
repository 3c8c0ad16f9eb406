"""Simulated time: a heap of events with a written order for those of one instant."""

import heapq
import itertools
from collections.abc import Callable
from enum import IntEnum


class Order(IntEnum):
    """What goes first among the events of one instant; within one kind, the lower number does.

    The number is the request's for arrivals and transfers and the node's for the others.
    """

    TRANSFER = 0  # a transfer starts or ends: blocks and KV caches appear
    PREFILL = 1  # a prefill ends: its node is free
    STEP = 2  # a decode step ends: tokens appear, sequences leave and join
    ARRIVE = 3  # a request arrives and Conductor decides, seeing what all the above left
    START = 4  # a coupled node that was idle takes up all that has arrived
    PROBE = 5  # someone looks on


class Clock:
    """Calls events by time, then `Order`, then number: same input, same run."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._events: list[tuple[float, Order, int, int, Callable[[], None]]] = []
        self._age = itertools.count()

    def at(self, time_s: float, order: Order, number: int, act: Callable[[], None]) -> None:
        """Have `act` called at `time_s`, in seconds from the trace's start.

        Raises
        ------
        ValueError
            If `time_s` lies in the past, or is no number.
        """
        if not time_s >= self.now_s:  # also refuses NaN
            raise ValueError(f"event at {time_s} s, but the clock shows {self.now_s} s")
        heapq.heappush(self._events, (time_s, order, number, next(self._age), act))

    def run(self) -> None:
        """Call events until none is left."""
        while self._events:
            self.now_s, _, _, _, act = heapq.heappop(self._events)
            act()
