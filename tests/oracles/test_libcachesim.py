"""Every eviction policy against libCacheSim, a cache simulator written by others.

Equal misses are asked for, not near ones: the policies' definitions are the same down to what
goes first among equals. S3-FIFO is compared with the authors' present version of it, with its own
defaults. libCacheSim needs 20 blocks for S3-FIFO: its small queue must hold more than one.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooncake_companion import traces
from mooncake_companion.errors import CompanionError
from mooncake_companion.simulator.eviction import replay
from mooncake_companion.simulator.replay_fast import hits_by_capacity

libcachesim = pytest.importorskip("libcachesim", reason="libCacheSim has no build for this system")

CLASSES = {
    "lru": libcachesim.LRU,
    "fifo": libcachesim.FIFO,
    "lfu": libcachesim.LFU,
    "sieve": libcachesim.Sieve,
    "s3-fifo": libcachesim.S3FIFO,
    "belady": libcachesim.Belady,
}
TRACES = ("conversation", "synthetic")
CAPACITIES = (1_000, 3_000, 10_000, 30_000, 100_000)

RECORD = np.dtype([("time_s", "<u4"), ("block", "<u8"), ("size", "<u4"), ("next_access", "<i8")])


def next_accesses(blocks):
    """For each access the index of the next one to the same block; the highest int64 if there is none."""
    order = np.argsort(blocks, kind="stable")
    again = blocks[order[:-1]] == blocks[order[1:]]
    following = np.full(len(blocks), np.iinfo(np.int64).max)
    following[order[:-1][again]] = order[1:][again]
    return following


def write_records(blocks, path):
    """In libCacheSim's oracleGeneral format: every block of size 1, and when it comes next."""
    records = np.zeros(len(blocks), dtype=RECORD)
    records["time_s"] = np.arange(len(blocks))
    records["block"] = blocks
    records["size"] = 1
    records["next_access"] = next_accesses(blocks)
    records.tofile(path)


def their_hits(policy, path, accesses, capacity):
    reader = libcachesim.TraceReader(str(path), libcachesim.TraceType.ORACLE_GENERAL_TRACE)
    miss_ratio, _ = CLASSES[policy](capacity, hashpower=18).process_trace(reader)
    misses = miss_ratio * accesses
    assert abs(misses - round(misses)) < 1e-3
    return accesses - round(misses)


@pytest.fixture(scope="module", params=TRACES)
def sequence(request, tmp_path_factory):
    """A trace's blocks in order, and the file that libCacheSim reads."""
    try:
        trace = traces.load(request.param, download=False)
    except CompanionError as reason:
        pytest.skip(str(reason))
    path = tmp_path_factory.mktemp("records") / f"{trace.name}.oracleGeneral"
    write_records(trace.block_ids, path)
    return trace.block_ids, path


@pytest.mark.slow
@pytest.mark.parametrize("capacity", CAPACITIES)
@pytest.mark.parametrize("policy", CLASSES)
def test_a_trace_has_the_same_misses(sequence, policy, capacity):
    blocks, path = sequence
    ours = replay(policy, blocks.tolist(), capacity)
    assert ours == their_hits(policy, path, len(blocks), capacity)


@pytest.mark.parametrize("policy", CLASSES)
def test_the_compiled_replay_has_the_same_misses(sequence, policy):
    blocks, path = sequence
    ours = hits_by_capacity(policy, blocks, CAPACITIES).tolist()
    assert ours == [their_hits(policy, path, len(blocks), capacity) for capacity in CAPACITIES]


skewed = st.builds(
    lambda seed, blocks, accesses, skew: (
        np.random.default_rng(seed).random(accesses) ** skew * blocks
    ).astype(np.int64),
    st.integers(0, 2**32),
    st.integers(20, 200),
    st.integers(1, 2000),
    st.sampled_from([1.0, 2.0, 4.0]),
)


@pytest.mark.parametrize("policy", CLASSES)
@settings(max_examples=50)
@given(blocks=skewed, capacity=st.integers(20, 60))
def test_random_accesses_have_the_same_misses(policy, blocks, capacity):
    cache = CLASSES[policy](capacity, hashpower=12)
    theirs = sum(
        cache.get(
            libcachesim.Request(
                obj_id=block,
                obj_size=1,
                op=libcachesim.ReqOp.OP_GET,
                clock_time=time,
                next_access_vtime=following,
            )
        )
        for time, (block, following) in enumerate(
            zip(blocks.tolist(), next_accesses(blocks).tolist(), strict=True)
        )
    )
    assert replay(policy, blocks.tolist(), capacity) == theirs
