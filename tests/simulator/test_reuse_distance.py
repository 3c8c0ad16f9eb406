"""Stack distances against a plain stack, and the hit curve against replays."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooncake_companion import traces
from mooncake_companion.errors import CompanionError, InputError
from mooncake_companion.simulator.eviction import replay
from mooncake_companion.simulator.reuse_distance import lru_hit_curve, reuse_distances

# Short rows, and long ones that fill several words of 64 bits.
rows = st.one_of(
    st.lists(st.integers(0, 12), max_size=60),
    st.lists(st.sampled_from([-5, 0, 7, 10**9, 10**18]), max_size=20),
    st.builds(
        lambda seed, blocks, accesses: np.random.default_rng(seed).integers(blocks, size=accesses).tolist(),
        st.integers(0, 2**32),
        st.integers(1, 400),
        st.integers(1, 1500),
    ),
)


def stack_distances(blocks):
    """Mattson's definition: the depth of each block in a stack with the latest on top."""
    stack, distances = [], []
    for block in blocks:
        distances.append(stack.index(block) if block in stack else -1)
        if block in stack:
            stack.remove(block)
        stack.insert(0, block)
    return distances


@given(rows)
def test_distances_are_those_of_a_plain_stack(blocks):
    distances = reuse_distances(blocks)
    assert distances.dtype == np.int64
    assert distances.tolist() == stack_distances(blocks)


@given(rows)
def test_the_curve_counts_the_distances_below_each_capacity(blocks):
    distances = np.array(stack_distances(blocks), dtype=np.int64)
    curve = lru_hit_curve(blocks)
    assert len(curve) == len(set(blocks)) + 1
    assert curve.tolist() == [
        int(np.sum((distances >= 0) & (distances < capacity))) for capacity in range(len(curve))
    ]


@given(st.lists(st.integers(0, 12), max_size=60))
def test_the_curve_is_what_replays_give(blocks):
    assert lru_hit_curve(blocks).tolist() == [
        replay("lru", blocks, capacity) for capacity in range(len(set(blocks)) + 1)
    ]


@given(rows)
def test_only_equality_of_ids_matters(blocks):
    renamed = [2 * block + 1 for block in blocks]
    assert reuse_distances(renamed).tolist() == reuse_distances(blocks).tolist()


@pytest.mark.parametrize("dtype", [np.int32, np.uint64, np.int64])
def test_any_kind_of_whole_number_will_do(dtype):
    assert reuse_distances(np.array([3, 4, 3], dtype=dtype)).tolist() == [-1, -1, 1]


def test_input_is_left_alone():
    blocks = np.array([3, 4, 3, 3])
    blocks.flags.writeable = False
    assert lru_hit_curve(blocks).tolist() == [0, 1, 2]


@pytest.mark.parametrize("blocks", [[0.5, 1.0], [[1, 2], [3, 4]], ["a"]])
def test_other_input_is_refused(blocks):
    with pytest.raises(InputError, match="row of whole numbers"):
        reuse_distances(blocks)


@pytest.mark.parametrize("name", ["conversation", "synthetic"])
def test_a_trace_s_curve_is_what_replays_give(name):
    try:
        blocks = traces.load(name, download=False).block_ids
    except CompanionError as reason:
        pytest.skip(str(reason))
    curve = lru_hit_curve(blocks)
    assert curve[-1] == len(blocks) - len(np.unique(blocks))
    for capacity in (1, 100, 3_000, 30_000):
        assert curve[capacity] == replay("lru", blocks.tolist(), capacity)


def test_the_simulator_comes_without_numba():
    code = "import sys, mooncake_companion, mooncake_companion.simulator; print('numba' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
