"""Tiers and the index of holders, against a naive model and laws."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooncake_companion.simulator.cache_tiers import CachePool, NodeCache, Tier
from mooncake_companion.simulator.eviction import POLICIES, STORE, Use

# Prefixes drawn from a small tree: block 10 * k + depth follows block 10 * k + depth - 1.
prefixes = st.builds(
    lambda root, length: [10 * root + depth for depth in range(length)],
    st.integers(0, 4),
    st.integers(1, 6),
)
stores = st.lists(st.tuples(st.integers(0, 2), prefixes), max_size=40)


def naive_lru(operations, capacity):
    """Per node a list of blocks, oldest first: the definition, slowly."""
    held = [[], [], []]
    for node, blocks in operations:
        for block in reversed(blocks):
            if block in held[node]:
                held[node].remove(block)
            elif len(held[node]) == capacity:
                if not capacity:
                    continue
                held[node].pop(0)
            if capacity:
                held[node].append(block)
    return held


@given(stores, st.integers(0, 8))
def test_pool_holds_what_a_naive_lru_holds(operations, capacity):
    pool = CachePool(3, [0, capacity, 0])
    for node, blocks in operations:
        pool.store(node, blocks)
    held = naive_lru(operations, capacity)
    for node in range(3):
        assert len(pool.caches[node]) == len(held[node]) <= capacity
        assert all(block in pool.caches[node] for block in held[node])
    for block in range(50):
        assert pool.holders(block) == sum(1 << node for node in range(3) if block in held[node])


@given(stores, st.integers(0, 8), prefixes)
def test_leading_hits_are_runs_without_a_gap(operations, capacity, blocks):
    pool = CachePool(3, [0, capacity, 0])
    for node, stored in operations:
        pool.store(node, stored)
    for node, hits in enumerate(pool.leading_hits(blocks)):
        assert all(block in pool.caches[node] for block in blocks[:hits])
        assert hits == len(blocks) or blocks[hits] not in pool.caches[node]


@given(stores, st.integers(1, 8))
def test_blocks_in_use_are_never_evicted(operations, capacity):
    pool = CachePool(3, [0, capacity, 0])
    pool.store(0, [100, 101][:capacity])
    used = [100, 101][:capacity]
    pool.pin(0, used)
    for node, blocks in operations:
        pool.store(node, blocks)
    assert all(block in pool.caches[0] for block in used)
    pool.unpin(0, used)
    pool.store(0, list(range(200, 200 + capacity)))
    assert not any(block in pool.caches[0] for block in used)


@given(stores)
def test_a_larger_cache_never_hits_less(operations):
    hits = []
    for capacity in range(12):
        cache, count = CachePool(3, [0, capacity, 0]), 0
        for node, blocks in operations:
            count += cache.leading_hits(blocks)[node]
            cache.store(node, blocks)
        hits.append(count)
    assert hits == sorted(hits)


def test_of_one_requests_blocks_the_deepest_goes_first():
    pool = CachePool(1, [0, 3, 0])
    pool.store(0, [1, 2, 3])
    pool.store(0, [9])
    assert pool.leading_hits([1, 2, 3]) == [2]


def test_a_full_cache_of_pinned_blocks_keeps_no_more():
    cache = NodeCache([1])
    assert cache.keep(1) == []
    cache.pin(1)
    assert cache.keep(2) == []
    assert 2 not in cache
    cache.unpin(1)
    assert cache.keep(2) == [1]


# Tiers

operations = st.lists(
    st.tuples(st.sampled_from(["store", "store", "store", "touch", "pin", "unpin", "drop"]), prefixes),
    max_size=60,
)
tier_sizes = st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 7))


@pytest.mark.parametrize("eviction", [*POLICIES, STORE])
@given(operations=operations, capacities=tier_sizes)
def test_no_tier_is_ever_overfull_and_each_block_is_in_one(eviction, operations, capacities):
    pool, pinned = CachePool(1, capacities, eviction, lease_ttl_s=2.0), []
    cache = pool.caches[0]
    for now, (kind, blocks) in enumerate(operations):
        held = [block for block in blocks if block in cache]
        uses = [Use(now, depth, now + depth) for depth in range(len(blocks))]
        if kind == "store":
            pool.store(0, blocks, uses)
        elif kind == "touch":
            pool.touch(0, held, uses[: len(held)])
        elif kind == "pin":
            pool.pin(0, held)
            pinned.append(held)
        elif kind == "unpin" and pinned:
            pool.unpin(0, pinned.pop())
        elif kind == "drop":
            pool.drop(0, blocks)
        for tier, capacity in enumerate(capacities):
            there = [block for block in cache if cache.tier(block) == tier]
            assert len(cache.tiers[tier]) == len(there) <= capacity
            assert all(block in cache.tiers[tier] for block in there)
        assert all(block in cache for run in pinned for block in run)
        assert all(pool.holders(block) == (block in cache) for block in range(50))


def naive_tiers(operations, capacities):
    """LRU in tiers: one list a tier, oldest first; what falls out of one goes to the next."""
    tiers = [[] for _ in capacities]
    for blocks in operations:
        for block in reversed(blocks):
            for tier in tiers:
                if block in tier:
                    tier.remove(block)
            fallen = block
            for tier, capacity in zip(tiers, capacities, strict=True):
                if capacity:
                    tier.append(fallen)
                    if len(tier) <= capacity:
                        break
                    fallen = tier.pop(0)
    return tiers


@given(st.lists(prefixes, max_size=40), tier_sizes)
def test_what_falls_out_of_a_tier_goes_to_the_next(stored, capacities):
    pool = CachePool(1, capacities)
    for blocks in stored:
        pool.store(0, blocks)
    cache, tiers = pool.caches[0], naive_tiers(stored, capacities)
    for tier, held in enumerate(tiers):
        assert {block for block in cache if cache.tier(block) == tier} == set(held)


@given(st.lists(prefixes, max_size=40), tier_sizes)
def test_lru_tiers_hold_what_one_lru_of_their_size_holds(stored, capacities):
    tiered, flat = CachePool(1, capacities), CachePool(1, [sum(capacities)])
    for blocks in stored:
        tiered.store(0, blocks)
        flat.store(0, blocks)
    assert set(tiered.caches[0]) == set(flat.caches[0])
    assert tiered.evictions == flat.evictions


def test_a_use_lifts_a_block_and_what_it_displaces_falls():
    pool = CachePool(1, [1, 1, 2])
    pool.store(0, [1, 2, 3, 4])
    assert [pool.caches[0].tier(block) for block in (1, 2, 3, 4)] == [
        Tier.VRAM,
        Tier.DRAM,
        Tier.SSD,
        Tier.SSD,
    ]
    assert pool.held([1, 2, 3, 4]) == [(4, 1, 2, 2, 1)]
    pool.store(0, [4])
    assert [pool.caches[0].tier(block) for block in (4, 1, 2, 3)] == [
        Tier.VRAM,
        Tier.DRAM,
        Tier.SSD,
        Tier.SSD,
    ]
    assert pool.moves(Tier.DRAM) == (4, 0)
    assert pool.moves(Tier.SSD) == (3, 1)


def test_a_block_in_use_does_not_fall():
    pool = CachePool(1, [1, 1, 0])
    pool.store(0, [1])
    pool.pin(0, [1])
    pool.store(0, [2])
    assert 2 not in pool.caches[0]
    pool.unpin(0, [1])
    pool.store(0, [2])
    assert (pool.caches[0].tier(2), pool.caches[0].tier(1)) == (Tier.VRAM, Tier.DRAM)
