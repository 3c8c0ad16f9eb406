"""Eviction policies against their definitions, the laws of caches, and the released store."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mooncake_companion
from mooncake_companion import traces
from mooncake_companion.errors import CompanionError, InputError
from mooncake_companion.simulator.eviction import (
    POLICIES,
    BatchEviction,
    Use,
    make_policy,
    replay,
    replay_store,
)

accesses = st.lists(st.integers(0, 12), max_size=60)
capacities = st.integers(0, 8)
ONLINE = [name for name in POLICIES if name != "belady"]


def slow_hits(blocks, capacity, victim):
    """Hits of a cache whose `victim` looks at all past accesses: the definition, slowly."""
    held, hits = [], 0
    for now, block in enumerate(blocks):
        if block in held:
            hits += 1
        elif capacity:
            if len(held) == capacity:
                held.remove(victim(held, blocks, now))
            held.append(block)
    return hits


def last_use(block, blocks, now):
    return max(time for time in range(now) if blocks[time] == block)


def oldest(held, blocks, now):
    return held[0]


def least_recent(held, blocks, now):
    return min(held, key=lambda block: last_use(block, blocks, now))


@given(accesses, capacities)
def test_fifo_evicts_the_oldest(blocks, capacity):
    assert replay("fifo", blocks, capacity) == slow_hits(blocks, capacity, oldest)


@given(accesses, capacities)
def test_lru_evicts_the_least_recently_used(blocks, capacity):
    assert replay("lru", blocks, capacity) == slow_hits(blocks, capacity, least_recent)


def slow_frequency_hits(blocks, capacity, depths, sign):
    """LFU by the definition; among equals by depth times `sign`, then the least recently used."""
    held, hits = {}, 0  # block -> [accesses, depth, last access]
    for now, (block, depth) in enumerate(zip(blocks, depths, strict=True)):
        if block in held:
            hits += 1
            held[block][0] += 1
        elif not capacity:
            continue
        else:
            if len(held) == capacity:
                del held[min(held, key=lambda b: (held[b][0], sign * held[b][1], held[b][2]))]
            held[block] = [1, depth, now]
        held[block][2] = now
    return hits


@given(accesses, capacities)
def test_lfu_evicts_the_least_frequently_used(blocks, capacity):
    assert replay("lfu", blocks, capacity) == slow_frequency_hits(blocks, capacity, blocks, 0)


@pytest.mark.parametrize(("name", "sign"), [("length-aware", -1), ("length-aware-keeping-late", 1)])
@given(blocks=accesses, capacity=capacities)
def test_length_aware_decides_among_equals_by_depth(name, sign, blocks, capacity):
    depths = [block % 4 for block in blocks]
    assert replay(name, blocks, capacity, depths) == slow_frequency_hits(blocks, capacity, depths, sign)


def slow_sieve_hits(blocks, capacity):
    """SIEVE with a plain list, oldest first, and the hand as an index."""
    queue, marked, hand, hits = [], set(), 0, 0
    for block in blocks:
        if block in queue:
            hits += 1
            marked.add(block)
        elif capacity:
            if len(queue) == capacity:
                hand %= len(queue)
                while queue[hand] in marked:
                    marked.remove(queue[hand])
                    hand = (hand + 1) % len(queue)
                del queue[hand]
                if hand == len(queue):  # past the newest: start again at the oldest
                    hand = 0
            queue.append(block)
    return hits


@given(accesses, capacities)
def test_sieve_spares_what_was_used_since_the_hand_passed(blocks, capacity):
    assert replay("sieve", blocks, capacity) == slow_sieve_hits(blocks, capacity)


@functools.cache
def most_hits(blocks, capacity, held=frozenset()):
    """Most hits that any choice of victims reaches, by trying all."""
    if not blocks:
        return 0
    block, rest = blocks[0], blocks[1:]
    if block in held:
        return 1 + most_hits(rest, capacity, held)
    if len(held) < capacity:
        return most_hits(rest, capacity, held | {block})
    return max(most_hits(rest, capacity, held - {victim} | {block}) for victim in held)


@given(st.lists(st.integers(0, 4), max_size=12), st.integers(1, 3))
def test_no_choice_of_victims_hits_more_than_belady(blocks, capacity):
    assert replay("belady", blocks, capacity) == most_hits(tuple(blocks), capacity)


@pytest.mark.parametrize("name", ONLINE)
@given(blocks=accesses, capacity=capacities)
def test_belady_bounds_every_policy(name, blocks, capacity):
    assert replay(name, blocks, capacity) <= replay("belady", blocks, capacity)


@pytest.mark.parametrize("name", POLICIES)
@given(blocks=accesses)
def test_with_room_for_all_only_first_accesses_miss(name, blocks):
    distinct = len(set(blocks))
    assert replay(name, blocks, distinct + 1) == len(blocks) - distinct


@pytest.mark.parametrize("name", ["lru", "belady"])
@given(blocks=accesses)
def test_a_larger_cache_never_hits_less(name, blocks):
    hits = [replay(name, blocks, capacity) for capacity in range(10)]
    assert hits == sorted(hits)


operations = st.lists(
    st.tuples(st.sampled_from(["access", "access", "evict", "discard"]), st.integers(0, 12)), max_size=60
)


@pytest.mark.parametrize("name", POLICIES)
@given(operations=operations, capacity=st.integers(1, 8), pinned=st.sets(st.integers(0, 12)))
def test_a_policy_holds_what_it_was_given_and_never_evicts_a_pinned_block(name, operations, capacity, pinned):
    held = set()
    cache = make_policy(name, capacity)

    def evict():
        victim = cache.evict(pinned.__contains__)
        assert (victim is None) == (held <= pinned)
        assert victim is None or victim in held - pinned
        held.discard(victim)
        return victim is not None

    for kind, block in operations:
        if kind == "evict":
            evict()
        elif kind == "discard":
            cache.discard(block)
            held.discard(block)
        elif block in held:
            cache.touch(block)
        elif len(held) < capacity or evict():
            cache.admit(block, Use(depth=block % 4, next_use=block % 5))
            held.add(block)
        assert len(cache) == len(held)
        assert {block for block in range(13) if block in cache} == held


@pytest.mark.parametrize("name", POLICIES)
def test_every_block_can_be_evicted(name):
    cache = make_policy(name, 20)
    for block in range(20):
        cache.admit(block)
    assert {cache.evict() for _ in range(20)} == set(range(20))
    assert cache.evict() is None
    assert len(cache) == 0


def test_a_pinned_block_keeps_its_place():
    cache = make_policy("lru", 3)
    for block in (1, 2, 3):
        cache.admit(block)
    assert cache.evict({1}.__contains__) == 2
    assert cache.evict() == 1


def test_s3_fifo_remembers_what_left_the_small_queue():
    """20 blocks: 2 in the small queue, 18 in the main one, 18 remembered."""
    cache = make_policy("s3-fifo", 20)
    for block in range(20):
        cache.admit(block)  # 0 and 1 are small; the rest finds the small queue full
    assert cache.evict() == 0
    cache.admit(100)
    assert cache.evict() == 1
    cache.admit(0)  # is remembered, so it goes to the main queue: 19 there, above its share
    assert cache.evict() == 2
    cache.admit(101)
    assert cache.evict() == 100


def test_what_cannot_be_is_refused():
    with pytest.raises(InputError, match=r"mru.*known: lru, lfu"):
        make_policy("mru", 3)
    with pytest.raises(InputError, match="capacity_blocks"):
        make_policy("lru", -1)
    with pytest.raises(InputError, match="replay_store"):
        replay("store", [1], 1)
    with pytest.raises(InputError, match="depths has 1 entries for 2"):
        replay("length-aware", [1, 2], 1, [0])


def test_policies_need_nothing_but_the_standard_library():
    code = (
        "import sys, mooncake_companion.simulator.eviction\n"
        "print(*{name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names))"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(mooncake_companion.__file__).parents[1])}
    run = subprocess.run([sys.executable, "-Sc", code], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    assert set(run.stdout.split()) - {"__main__", "__mp_main__"} == {"mooncake_companion"}


# The released store.


@pytest.fixture(scope="module")
def requests():
    """Times and blocks of the conversation trace's requests."""
    try:
        trace = traces.load("conversation", download=False)
    except CompanionError as reason:
        pytest.skip(str(reason))
    if trace.origin != "released":
        pytest.skip("the released conversation trace is not on this machine; set MOONCAKE_TRACES")
    return [(time_s, trace.blocks_of(i).tolist()) for i, time_s in enumerate(trace.arrival_s.tolist())]


@pytest.mark.parametrize(
    ("first", "capacity", "measured"),
    [
        (2_000, 1_024, 0.0388),
        (2_000, 4_096, 0.0785),
        (2_000, 8_192, 0.1636),
        (2_000, 16_384, 0.2375),
        (2_000, 32_768, 0.2875),
        (12_031, 32_768, 0.3224),
    ],
)
def test_batch_eviction_hits_as_the_released_store_did(requests, first, capacity, measured):
    """Measured with release 0.3.13.post1, operation by operation, with leases of 0 s."""
    blocks = sum(len(each) for _, each in requests[:first])
    assert blocks == {2_000: 54_559, 12_031: 288_500}[first]
    hits = replay_store(BatchEviction(capacity, lease_ttl_s=0.0), requests[:first])
    assert round(hits / blocks, 4) == measured


def test_the_smallest_store_evicts_as_often_as_the_released_one(requests):
    class Counting(BatchEviction):
        batches = 0

        def surplus(self, now_s, **kwargs):
            batch = super().surplus(now_s, **kwargs)
            self.batches += bool(batch)
            return batch

    store = Counting(1_024, lease_ttl_s=0.0)
    replay_store(store, requests[:2_000])
    assert store.batches == 1_096


def full_store(**settings):
    store = BatchEviction(100, **settings)
    for block in range(91):
        store.admit(block, Use(now_s=0.0))
    return store


def test_a_batch_is_the_stated_share_of_what_can_go():
    store = full_store()
    assert store.surplus(0.0) == [0, 1, 2, 3, 4, 5]  # ceil(91 * (0.91 - 0.90 + 0.05))
    assert not store.surplus(0.0)


def test_a_lease_protects_until_it_ends():
    store = full_store(lease_ttl_s=10.0)
    for block in range(3):
        store.touch(block, Use(now_s=1.0))
    assert store.surplus(2.0)[:2] == [3, 4]
    for block in range(91, 97):
        store.admit(block, Use(now_s=10.9))
    assert store.surplus(10.9)[:2] == [9, 10]
    for block in range(97, 103):
        store.admit(block, Use(now_s=20.0))
    assert store.surplus(20.0)[:2] == [15, 16]
    assert all(block in store for block in range(3)), "they were read at 1 s, later than the others were put"


def test_if_all_that_is_older_is_leased_fresh_puts_go_at_once():
    store = BatchEviction(10)
    for block in range(9):
        store.admit(block, Use(now_s=0.0))
        store.touch(block, Use(now_s=0.0))
    store.admit(9, Use(now_s=1.0))
    assert store.surplus(1.0) == [9]


def test_a_full_store_evicts_nothing_for_a_put():
    assert full_store().evict() is None


def test_a_second_put_refreshes_nothing():
    store = BatchEviction(100)
    replay_store(store, [(0.0, [0]), (1.0, [7, 0])] + [(1.0, [7, k]) for k in range(1, 91)])
    assert 0 not in store, "its put at 1 s, behind a miss, was no read"


def test_a_block_in_use_does_not_count_as_evictable():
    store = full_store()
    assert store.surplus(0.0, set(range(81)).__contains__) == [81]  # ceil(10 * 0.06)
