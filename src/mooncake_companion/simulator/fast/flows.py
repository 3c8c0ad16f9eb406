"""Transfers in arrays; twin of `simulator.transfer`, whose `fair_rates` it compiles."""

from typing import Any, NamedTuple

import numpy as np

from mooncake_companion.simulator.fast.compiling import compiled
from mooncake_companion.simulator.fast.events import TRANSFER, push
from mooncake_companion.simulator.transfer import fair_rates

_fair_rates = compiled(fair_rates)

FLOW = np.dtype(
    [
        ("number", np.int64),
        ("first", np.int64),
        ("second", np.int64),
        ("size_bytes", np.int64),
        ("left_bytes", np.float64),
        ("rate", np.float64),
        ("since_s", np.float64),
        ("version", np.int64),
    ]
)
"""A transfer under way over two links; ``version`` is that of its end event."""
LINK = np.dtype(
    [
        ("capacity", np.float64),
        ("users", np.int64),
        ("sent_bytes", np.int64),
        ("reached", np.bool_),
    ]
)


class Flows(NamedTuple):
    """`FLOW` records, oldest first, their count, `LINK` records, and scratch for sharing.

    ``place`` has each transfer's place by its number, or -1.
    """

    flows: Any
    count: Any
    place: Any
    links: Any
    spare: Any
    users: Any
    members: Any
    firsts: Any
    seconds: Any
    rates: Any


def new_flows(
    capacity: int,
    transfers: int,
    capacities: list[float],
) -> Flows:
    """No flow, room for `capacity`, numbers below `transfers`; links as of `transfer.link_capacities`."""
    links = np.zeros(len(capacities), LINK)
    links["capacity"] = capacities
    return Flows(
        flows=np.zeros(capacity, FLOW),
        count=np.zeros(1, np.int64),
        place=np.full(transfers, -1, np.int32),
        links=links,
        spare=np.zeros(len(capacities)),
        users=np.zeros(len(capacities), np.int64),
        members=np.zeros(capacity, np.int64),
        firsts=np.zeros(capacity, np.int64),
        seconds=np.zeros(capacity, np.int64),
        rates=np.zeros(capacity),
    )


STARTS_AT_ONCE = 2
"""One event starts at most two transfers: the end of a prefill its load, and the next one's stream."""


def with_room(state: Flows) -> Flows:
    """The same flows with room for those that one event may start."""
    count = int(state.count[0])
    if count + STARTS_AT_ONCE <= len(state.flows):
        return state
    room = 2 * count + STARTS_AT_ONCE
    flows = np.zeros(room, FLOW)
    flows[:count] = state.flows[:count]
    scratch = {name: np.zeros(room, np.int64) for name in ("members", "firsts", "seconds")}
    return state._replace(flows=flows, rates=np.zeros(room), **scratch)


@compiled
def start(state, events, now_s, number, first, second, size_bytes):  # type: ignore[no-untyped-def]
    """Begin a transfer over two links."""
    place = state.count[0]
    state.count[0] = place + 1
    state.place[number] = place
    flow = state.flows[place]
    flow.number = number
    flow.first = first
    flow.second = second
    flow.size_bytes = size_bytes
    flow.left_bytes = float(size_bytes)
    flow.rate = 0.0
    flow.since_s = now_s
    flow.version = 0
    state.links[first].users += 1
    state.links[second].users += 1
    _share(state, events, now_s, first, second)


@compiled
def is_current(state, number, version):  # type: ignore[no-untyped-def]
    """Whether an end event is still right: the transfer goes on and its rate has not changed."""
    place = state.place[number]
    return place >= 0 and state.flows[place].version == version


@compiled
def end(state, events, now_s, number):  # type: ignore[no-untyped-def]
    """Take a transfer out; the later ones move up."""
    flows, place = state.flows, state.place[number]
    first, second = flows[place].first, flows[place].second
    for link in (first, second):
        state.links[link].users -= 1
        state.links[link].sent_bytes += flows[place].size_bytes
    state.place[number] = -1
    last = state.count[0] - 1
    state.count[0] = last
    for later in range(place, last):
        flows[later] = flows[later + 1]
        state.place[flows[later].number] = later
    if state.links[first].users or state.links[second].users:
        _share(state, events, now_s, first, second)


@compiled
def _share(state, events, now_s, first, second):  # type: ignore[no-untyped-def]
    """Give the flows that a change on two links can reach their fair rates."""
    flows, links = state.flows, state.links
    count = _reach(state, first, second)
    for member in range(count):
        flow = flows[state.members[member]]
        for link in (flow.first, flow.second):
            state.spare[link] = links[link].capacity
            state.users[link] = links[link].users
        state.firsts[member] = flow.first
        state.seconds[member] = flow.second
        state.rates[member] = -1.0
    _fair_rates(state.firsts, state.seconds, state.spare, state.users, state.rates[:count])
    for member in range(count):
        flow, rate = flows[state.members[member]], state.rates[member]
        if rate != flow.rate:
            flow.left_bytes -= flow.rate * (now_s - flow.since_s)
            flow.rate = rate
            flow.since_s = now_s
            flow.version += 1
            push(events, now_s + max(flow.left_bytes, 0.0) / rate, TRANSFER, flow.number, flow.version)


@compiled
def _reach(state, first, second):  # type: ignore[no-untyped-def]
    """Collect, oldest first, the flows connected with two links; the unbounded link connects none."""
    flows, links, unbounded = state.flows, state.links, len(state.links) - 1
    links[first].reached = True
    links[second].reached = second != unbounded
    found, before = 0, -1
    while found != before:
        before, found = found, 0
        for place in range(state.count[0]):
            one, other = flows[place].first, flows[place].second
            if links[one].reached or links[other].reached:
                links[one].reached = True
                links[other].reached = other != unbounded
                state.members[found] = place
                found += 1
    for member in range(found):
        flow = flows[state.members[member]]
        links[flow.first].reached = False
        links[flow.second].reached = False
    links[first].reached = False
    links[second].reached = False
    return found
