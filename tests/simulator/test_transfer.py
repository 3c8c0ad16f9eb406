"""Max–min fair sharing, by hand and by its definition."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooncake_companion.simulator.transfer import fair_rates


def shared(flows, capacities):
    """Rates of flows, pairs of links; the last capacity is that of the unbounded link."""
    users = [sum(link in flow for flow in flows) for link in range(len(capacities))]
    rates = [-1.0] * len(flows)
    fair_rates([f[0] for f in flows], [f[1] for f in flows], list(capacities), users, rates)
    return rates


def test_by_hand():
    """Two flows leave link 0; the third shares link 3 with the second and takes what that leaves."""
    assert shared([(0, 2), (0, 3), (1, 3)], [6.0, 100.0, 100.0, 10.0, math.inf]) == [3.0, 3.0, 7.0]
    assert shared([(0, 4), (0, 2)], [6.0, 9.0, 1.0, 9.0, math.inf]) == [5.0, 1.0]


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(3, 6)), max_size=12),
    st.lists(st.floats(0.5, 100), min_size=6, max_size=6),
)
def test_every_flow_has_a_full_link_on_which_none_gets_more(flows, bounded):
    capacities = [*bounded, math.inf]
    rates = shared(flows, capacities)
    load = [sum(r for f, r in zip(flows, rates, strict=True) if link in f) for link in range(7)]
    assert all(used <= capacity * (1 + 1e-9) for used, capacity in zip(load, capacities, strict=True))
    for flow, rate in zip(flows, rates, strict=True):
        full = [link for link in flow if load[link] >= capacities[link] * (1 - 1e-9)]
        assert any(
            rate >= (1 - 1e-9) * max(r for f, r in zip(flows, rates, strict=True) if link in f)
            for link in full
        )


def test_no_flow_is_no_trouble():
    assert shared([], [1.0, math.inf]) == pytest.approx([])
