"""LRU caches and their index, against a naive model and laws."""

from hypothesis import given
from hypothesis import strategies as st

from mooncake_companion.simulator.cache_tiers import CachePool, LruCache

# Prefixes drawn from a small tree: block 10 * k + depth follows block 10 * k + depth - 1.
prefixes = st.builds(
    lambda root, length: [10 * root + depth for depth in range(length)],
    st.integers(0, 4),
    st.integers(1, 6),
)
stores = st.lists(st.tuples(st.integers(0, 2), prefixes), max_size=40)


def naive_lru(operations, capacity, shared_recency=False):
    """Per node a list of blocks, oldest first: the definition, slowly."""
    held = [[], [], []]
    for node, blocks in operations:
        for block in reversed(blocks):
            for others in held:
                if shared_recency and block in others:
                    others.append(others.pop(others.index(block)))
            if block in held[node]:
                held[node].remove(block)
            elif len(held[node]) == capacity:
                if not capacity:
                    continue
                held[node].pop(0)
            if capacity:
                held[node].append(block)
    return held


@given(stores, st.integers(0, 8), st.booleans())
def test_pool_holds_what_a_naive_lru_holds(operations, capacity, shared_recency):
    pool = CachePool(3, capacity, shared_recency=shared_recency)
    for node, blocks in operations:
        pool.store(node, blocks)
    held = naive_lru(operations, capacity, shared_recency)
    for node in range(3):
        assert len(pool.caches[node]) == len(held[node]) <= capacity
        assert all(block in pool.caches[node] for block in held[node])
    for block in range(50):
        assert pool.holders(block) == sum(1 << node for node in range(3) if block in held[node])


@given(stores, st.integers(0, 8), prefixes)
def test_leading_hits_are_runs_without_a_gap(operations, capacity, blocks):
    pool = CachePool(3, capacity)
    for node, stored in operations:
        pool.store(node, stored)
    for node, hits in enumerate(pool.leading_hits(blocks)):
        assert all(block in pool.caches[node] for block in blocks[:hits])
        assert hits == len(blocks) or blocks[hits] not in pool.caches[node]


@given(stores, st.integers(1, 8))
def test_blocks_in_use_are_never_evicted(operations, capacity):
    pool = CachePool(3, capacity)
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
        cache, count = CachePool(3, capacity), 0
        for node, blocks in operations:
            count += cache.leading_hits(blocks)[node]
            cache.store(node, blocks)
        hits.append(count)
    assert hits == sorted(hits)


def test_of_one_requests_blocks_the_deepest_goes_first():
    pool = CachePool(1, 3)
    pool.store(0, [1, 2, 3])
    pool.store(0, [9])
    assert pool.leading_hits([1, 2, 3]) == [2]


def test_a_full_cache_of_pinned_blocks_stores_nothing():
    cache = LruCache(1)
    assert cache.insert(1) == (True, None)
    cache.pin(1)
    assert cache.insert(2) == (False, None)
    cache.unpin(1)
    assert cache.insert(2) == (True, 1)
