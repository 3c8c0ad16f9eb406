"""The compiled replays against the plain ones, which are the specification."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooncake_companion.errors import InputError
from mooncake_companion.simulator.eviction import POLICIES, replay
from mooncake_companion.simulator.replay_fast import hits_by_capacity

rows = st.one_of(
    st.lists(st.integers(0, 12), max_size=60),
    st.lists(st.sampled_from([-5, 0, 7, 10**9, 10**18]), max_size=20),
    st.builds(
        lambda seed, blocks, accesses: (
            (np.random.default_rng(seed).random(accesses) ** 2 * blocks).astype(np.int64).tolist()
        ),
        st.integers(0, 2**32),
        st.integers(1, 200),
        st.integers(1, 1500),
    ),
)


@pytest.mark.parametrize("policy", POLICIES)
@given(blocks=rows, capacities=st.lists(st.integers(0, 60), max_size=3))
def test_hits_are_those_of_the_plain_replay(policy, blocks, capacities):
    depths = [block % 7 for block in blocks]
    hits = hits_by_capacity(policy, blocks, capacities, depths)
    assert hits.dtype == np.int64
    assert hits.tolist() == [replay(policy, blocks, capacity, depths) for capacity in capacities]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("capacity", [1, 100, 1_000])
def test_hits_on_many_accesses_are_those_of_the_plain_replay(policy, capacity):
    rng = np.random.default_rng(1)
    blocks = (rng.random(20_000) ** 3 * 4_000).astype(np.int64)
    depths = rng.integers(30, size=4_000)[blocks]
    (hits,) = hits_by_capacity(policy, blocks, [capacity], depths)
    assert hits == replay(policy, blocks.tolist(), capacity, depths.tolist())


def test_what_cannot_be_is_refused():
    with pytest.raises(InputError, match=r"mru.*known: lru, lfu"):
        hits_by_capacity("mru", [1], [1])
    with pytest.raises(InputError, match="capacities_blocks"):
        hits_by_capacity("fifo", [1], [-1])
    with pytest.raises(InputError, match="depths has 1 entries for 2"):
        hits_by_capacity("length-aware", [1, 2], [1], [0])
