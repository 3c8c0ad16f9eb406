"""Transfers: flows that share the nodes' links, max–min fair. Standard library only.

Each node, or instance of several, has three links: egress and ingress of its network, and host to
device. A flow takes one or two of them. Progressive filling: the link that can give least to each of
its flows gives them that; what they leave free elsewhere is shared by the rest; and so on.
"""

import math
from collections.abc import Callable, MutableSequence, Sequence

from mooncake_companion.simulator.clock import Clock, Order


def fair_rates(
    firsts: Sequence[int],
    seconds: Sequence[int],
    spare: MutableSequence[float],
    users: MutableSequence[int],
    rates: MutableSequence[float],
) -> None:
    """Share links among flows, max–min fair.

    Parameters
    ----------
    firsts, seconds : sequence of int, shape (flows,)
        The two links of each flow; one that needs only one names a link of infinite capacity.
    spare : mutable sequence of float, shape (links,)
        Capacity of each link, in bytes/s; used up by the call.
    users : mutable sequence of int, shape (links,)
        Flows of each link; counted down by the call.
    rates : mutable sequence of float, shape (flows,)
        All negative; receives the rates, in bytes/s.

    Notes
    -----
    Written so that lists and compiled arrays go through the same arithmetic in the same order.
    """
    for _ in range(len(rates)):
        narrowest, least = -1, math.inf
        for flow in range(len(rates)):
            if rates[flow] < 0:
                for link in (firsts[flow], seconds[flow]):
                    if spare[link] / users[link] < least:
                        narrowest, least = link, spare[link] / users[link]
        if narrowest < 0:
            return
        for flow in range(len(rates)):
            if rates[flow] < 0 and (firsts[flow] == narrowest or seconds[flow] == narrowest):
                rates[flow] = least
                for link in (firsts[flow], seconds[flow]):
                    spare[link] -= least
                    users[link] -= 1


def link_capacities(
    widths: Sequence[int], network_bytes_per_s: float, host_to_device_bytes_per_s: float
) -> list[float]:
    """Capacity of every link, in bytes/s: egress, ingress, host to device, and one without bound.

    Instance k of n has the links k, n + k and 2 n + k; link 3 n is the unbounded one. An instance of
    several nodes (its width) has the links of all of them together.
    """
    network = [width * network_bytes_per_s for width in widths]
    return [*network, *network, *(width * host_to_device_bytes_per_s for width in widths), math.inf]


class Flow:
    """One transfer under way; its rate is constant since `since_s`."""

    def __init__(
        self, number: int, links: tuple[int, int], size_bytes: int, done: Callable[[], None]
    ) -> None:
        self.number = number
        self.links = links
        self.size_bytes = size_bytes
        self.done = done
        self.left_bytes = float(size_bytes)
        self.rate = 0.0
        self.since_s = 0.0
        self.end_s = 0.0


class Transfers:
    """All flows of a cluster.

    Parameters
    ----------
    clock : Clock
    capacities : sequence of float
        Of all links, as of `link_capacities`, in bytes/s.
    """

    def __init__(self, clock: Clock, capacities: Sequence[float]) -> None:
        self._clock = clock
        self._nodes = len(capacities) // 3
        self._capacities = capacities
        self._flows: list[Flow] = []
        self.sent_bytes = [0] * len(self._capacities)

    def send(self, number: int, source: int, target: int, size_bytes: int, done: Callable[[], None]) -> None:
        """Start moving bytes from a node to another one; `done` is called when they are there."""
        self._start(Flow(number, (source, self._nodes + target), size_bytes, done))

    def load(self, number: int, node: int, size_bytes: int, done: Callable[[], None]) -> None:
        """Start moving bytes from a node's DRAM to its GPUs."""
        self._start(Flow(number, (2 * self._nodes + node, 3 * self._nodes), size_bytes, done))

    def _start(self, flow: Flow) -> None:
        flow.since_s = self._clock.now_s
        self._flows.append(flow)
        self._share()

    def _share(self) -> None:
        """Give every flow its fair rate; one whose rate changes gets a new end."""
        now_s = self._clock.now_s
        users = [0] * len(self._capacities)
        for flow in self._flows:
            for link in flow.links:
                users[link] += 1
        rates = [-1.0] * len(self._flows)
        firsts, seconds = [f.links[0] for f in self._flows], [f.links[1] for f in self._flows]
        fair_rates(firsts, seconds, list(self._capacities), users, rates)
        for flow, rate in zip(self._flows, rates, strict=True):
            if rate != flow.rate:
                flow.left_bytes -= flow.rate * (now_s - flow.since_s)
                flow.rate, flow.since_s = rate, now_s
                flow.end_s = now_s + max(flow.left_bytes, 0.0) / rate
                self._expect(flow)

    def _expect(self, flow: Flow) -> None:
        end_s = flow.end_s

        def end() -> None:
            if flow in self._flows and flow.end_s == end_s:  # else its rate has changed since
                self._flows.remove(flow)
                for link in flow.links:
                    self.sent_bytes[link] += flow.size_bytes
                self._share()
                flow.done()

        self._clock.at(end_s, Order.TRANSFER, flow.number, end)
