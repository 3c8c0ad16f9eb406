"""Caches just at a limit: ties, marks, watermarks, leases and tiers that are exactly full, by hand.

What the policies do on the whole is compared with their definitions in `test_eviction`.
"""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooncake_companion.errors import InputError
from mooncake_companion.simulator.cache_tiers import CachePool, Held, NodeCache, Tier
from mooncake_companion.simulator.eviction import (
    ANY_USE,
    POLICIES,
    STORE,
    BatchEviction,
    LengthAware,
    Use,
    make_policy,
    never_pinned,
    next_uses,
    replay,
    replay_store,
)


def filled(name, blocks, capacity=None):
    """A policy that was given blocks, one after the other."""
    cache = make_policy(name, len(blocks) if capacity is None else capacity)
    for block in blocks:
        cache.admit(block)
    return cache


def order_of(cache, is_pinned=never_pinned):
    """All blocks that may go, in the order in which they do."""
    return list(iter(lambda: cache.evict(is_pinned), None))


# All policies


def test_names_are_those_that_presets_and_chapters_use():
    assert [*POLICIES] == [
        "lru",
        "lfu",
        "fifo",
        "sieve",
        "s3-fifo",
        "length-aware",
        "length-aware-keeping-late",
        "belady",
    ]
    assert STORE == "store"
    assert not LengthAware.keeps_late_blocks


def test_a_use_says_nothing_unless_told():
    assert Use() == ANY_USE == (0.0, 0, math.inf)
    assert not never_pinned(7)


@pytest.mark.parametrize("name", [*POLICIES, STORE])
def test_a_cache_knows_its_size(name):
    assert make_policy(name, 7).capacity_blocks == 7
    assert make_policy(name, 0).capacity_blocks == 0
    with pytest.raises(InputError, match=r"^capacity_blocks must not be negative, got -1$"):
        make_policy(name, -1)


def test_an_unknown_policy_is_refused_whatever_the_size():
    words = r"^unknown eviction policy 'mru'; known: lru, lfu, fifo, .*, belady, store$"
    with pytest.raises(InputError, match=words):
        replay("mru", [1], 0)
    with pytest.raises(InputError, match=r"^policy 'store' needs times; use replay_store$"):
        replay("store", [1], 0)


@pytest.mark.parametrize("name", [*POLICIES, STORE])
def test_what_is_not_held_can_be_discarded(name):
    cache = filled(name, [1, 2])
    cache.discard(3)
    cache.discard(1)
    cache.discard(1)
    assert (len(cache), 1 in cache, 2 in cache) == (1, False, True)


@pytest.mark.parametrize("name", POLICIES)
def test_a_discarded_block_comes_back_as_a_new_one(name):
    cache = filled(name, [1, 2, 3])
    cache.touch(1)
    cache.discard(1)
    cache.admit(1)
    assert order_of(cache) == [2, 3, 1]


@pytest.mark.parametrize("name", POLICIES)
def test_pinned_blocks_stay_until_they_are_not(name):
    cache = filled(name, [1, 2, 3, 4])
    assert order_of(cache, {1, 3}.__contains__) == [2, 4]
    assert cache.evict({1, 3}.__contains__) is None
    assert order_of(cache) == [1, 3]
    assert cache.evict() is None


@pytest.mark.parametrize("name", POLICIES)
def test_nothing_has_to_go_while_there_is_room(name):
    assert list(filled(name, [1, 2, 3]).surplus(1e9)) == []


@pytest.mark.parametrize("name", [*POLICIES])
def test_without_depths_every_block_is_a_first_one(name):
    blocks = [3, 1, 2, 3, 4, 1, 5, 2, 3]
    assert replay(name, blocks, 3) == replay(name, blocks, 3, [0] * len(blocks))


def test_next_uses_by_hand():
    assert next_uses([]) == []
    assert next_uses([7, 8, 7, 7, 9, 8]) == [2, 5, 3, math.inf, math.inf, math.inf]


# What is touched


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("fifo", [1, 2, 3, 4]),
        ("lru", [3, 4, 2, 1]),
        ("lfu", [3, 4, 1, 2]),  # once, once, twice, three times
        ("length-aware", [3, 4, 1, 2]),
    ],
)
def test_order_after_touches(name, order):
    cache = filled(name, [1, 2, 3, 4])
    for block in (2, 2, 1):
        cache.touch(block)
    assert order_of(cache) == order


def test_lfu_takes_the_least_recent_of_equals():
    cache = filled("lfu", [1, 2, 3])
    for block in (2, 1, 3):
        cache.touch(block)
    assert order_of(cache) == [2, 1, 3]


@pytest.mark.parametrize(
    ("name", "order"), [("length-aware", [3, 2, 4, 1]), ("length-aware-keeping-late", [2, 4, 3, 1])]
)
def test_length_aware_decides_by_count_then_depth_then_recency(name, order):
    """Block 1 was used twice; 2 and 4 are equally deep, 3 is deeper. The depth is that at admission."""
    cache = make_policy(name, 4)
    for block, depth in ((1, 9), (2, 1), (3, 5), (4, 1)):
        cache.admit(block, Use(depth=depth))
    cache.touch(1, Use(depth=0))
    assert order_of(cache) == order


def test_a_touch_keeps_a_blocks_depth():
    cache = make_policy("length-aware", 2)
    cache.admit(1, Use(depth=1))
    cache.admit(2, Use(depth=2))
    for block in (1, 2):
        cache.touch(block, Use(depth=0))
    assert order_of(cache) == [2, 1]


def test_belady_takes_the_farthest_and_of_those_never_used_again_the_first():
    cache = make_policy("belady", 4)
    for block, next_use in ((1, 10.0), (2, math.inf), (3, 20.0), (4, math.inf)):
        cache.admit(block, Use(next_use=next_use))
    cache.touch(1, Use(next_use=30.0))
    assert order_of(cache) == [2, 4, 1, 3]


@pytest.mark.parametrize("name", ["lfu", "length-aware", "belady", STORE])
def test_ranks_that_no_longer_hold_take_no_memory(name):
    cache = filled(name, range(10), capacity=100)
    for _ in range(1000):
        cache.touch(3)
    assert len(cache._heap) <= 2 * 10 + 64
    for block in range(10):
        cache.discard(block)
    cache.admit(99)
    for _ in range(1000):
        cache.touch(99)
    assert len(cache._heap) <= 2 * 1 + 64
    assert len(cache) == 1


@pytest.mark.parametrize("name", ["lfu", "length-aware"])
def test_order_survives_the_removal_of_old_ranks(name):
    cache = filled(name, [1, 2, 3, 4])
    for _ in range(200):
        cache.touch(2)
    cache.touch(1)
    assert order_of(cache, {4}.__contains__) == [3, 1, 2]
    assert order_of(cache) == [4]


# SIEVE and S3-FIFO


def test_sieves_hand_stays_where_it_took_a_block():
    """Zhang et al., Figure 1: marks are taken on the way, and new blocks come in behind the hand."""
    cache = filled("sieve", [1, 2, 3, 4])
    for block in (1, 3):
        cache.touch(block)
    assert cache.evict() == 2, "1 was marked; the hand stands at 3"
    cache.admit(5)
    assert cache.evict() == 4, "3 was marked"
    assert cache.evict() == 5, "the hand went on"
    assert order_of(cache) == [1, 3]


def test_sieves_hand_goes_on_when_its_block_is_discarded():
    cache = filled("sieve", [1, 2, 3, 4])
    assert cache.evict() == 1
    cache.discard(2)
    assert cache.evict() == 3
    cache.discard(4)
    cache.admit(6)
    assert order_of(cache) == [6]


def test_sieves_hand_starts_again_at_the_oldest():
    cache = filled("sieve", [1, 2, 3])
    cache.touch(1)
    assert [cache.evict(), cache.evict()] == [2, 3]
    cache.admit(4)
    cache.touch(1)
    assert cache.evict() == 4, "1 is spared again, as the hand was past the newest"
    assert order_of(cache) == [1]


def test_sieve_spares_all_once_if_all_are_marked():
    cache = filled("sieve", [1, 2, 3])
    for block in (1, 2, 3):
        cache.touch(block)
    assert order_of(cache) == [1, 2, 3]


def test_sieve_passes_a_pinned_block_and_leaves_its_mark():
    cache = filled("sieve", [1, 2, 3])
    for block in (1, 2):
        cache.touch(block)
    assert cache.evict({1}.__contains__) == 3, "2 has lost its mark on the way"
    assert order_of(cache) == [2, 1], "1 still had its"


class NaiveS3Fifo:
    """S3-FIFO with plain lists, oldest first, and counts in a dictionary."""

    def __init__(self, capacity):
        self.capacity, self.room = capacity, capacity // 10
        self.small, self.main, self.ghost, self.uses = [], [], [], {}

    def take_from_small(self):
        while self.small:
            block = self.small.pop(0)
            if self.uses[block] < 2:
                self.ghost.append(block)
                return True
            self.main.append(block)
            self.uses[block] = 0
        return False

    def take_from_main(self):
        while self.main:
            block = self.main.pop(0)
            if self.uses[block] == 0:
                return True
            self.main.append(block)
            self.uses[block] = min(self.uses[block], 3) - 1
        return False

    def make_room(self):
        if len(self.main) > self.capacity - self.room:
            assert self.take_from_main() or self.take_from_small()
        else:
            assert self.take_from_small() or self.take_from_main()

    def hits(self, block):
        if block in self.small or block in self.main:
            self.uses[block] += 1
            return True
        if len(self.small) + len(self.main) == self.capacity:
            self.make_room()
        self.uses[block] = 0
        if block in self.ghost:
            self.ghost.remove(block)
            self.main.append(block)
        else:
            (self.main if len(self.small) >= self.room else self.small).append(block)
        del self.ghost[: max(0, len(self.ghost) - self.capacity * 9 // 10)]
        return False


def naive_s3_fifo(blocks, capacity):
    cache = NaiveS3Fifo(capacity)
    return sum(cache.hits(block) for block in blocks)


@given(st.lists(st.integers(0, 30), max_size=300), st.sampled_from([1, 5, 10, 11, 20]))
def test_s3_fifo_does_as_it_is_described(blocks, capacity):
    assert replay("s3-fifo", blocks, capacity) == naive_s3_fifo(blocks, capacity)


@given(st.integers(0, 2**32), st.sampled_from([10, 20, 30]))
def test_s3_fifo_does_so_where_few_blocks_are_hot(seed, capacity):
    rng = random.Random(seed)
    blocks = [rng.randrange(5) if rng.random() < 0.5 else rng.randrange(60) for _ in range(400)]
    assert replay("s3-fifo", blocks, capacity) == naive_s3_fifo(blocks, capacity)


def s3_fifo(capacity=20):
    """Full: 2 blocks in the small queue, 0 and 1, and the others in the main one."""
    return filled("s3-fifo", range(capacity))


def test_s3_fifo_gives_up_either_queue_where_the_other_cannot():
    """Of a main queue above its share all is in use; then what is discarded is gone from its queue."""
    cache = s3_fifo()
    assert cache.evict() == 0
    cache.admit(100)
    assert cache.evict() == 1
    cache.admit(0)  # is remembered: 19 in the main queue, and 100 in the small one
    assert cache.evict({0, *range(2, 20), 100}.__contains__) is None
    assert cache.evict({0, *range(2, 20)}.__contains__) == 100
    cache = s3_fifo()
    cache.discard(0)
    assert (0 in cache, len(cache)) == (False, 19)
    assert cache.evict() == 1


def test_s3_fifo_moves_what_was_used_twice_and_not_what_was_used_once():
    cache = s3_fifo()
    cache.touch(0)
    assert cache.evict() == 0
    cache = s3_fifo()
    cache.touch(0)
    cache.touch(0)
    assert cache.evict() == 1
    assert 0 in cache


@pytest.mark.parametrize("uses", [1, 2, 3, 4, 9])
def test_s3_fifos_main_queue_spares_a_block_for_each_use_and_three_times_at_most(uses):
    cache = filled("s3-fifo", range(5))  # no small queue
    for _ in range(uses):
        cache.touch(0)
    gone = []
    for new in range(100, 130):
        gone.append(cache.evict())
        cache.admit(new)
    assert gone.index(0) == 4 * min(uses, 3), "four others go in each round"


@pytest.mark.parametrize(("others", "remembered"), [(17, True), (18, False)])
def test_s3_fifo_remembers_as_many_as_its_main_queue_is_long(others, remembered):
    """Of 20: 18. Block 0 leaves the small queue, then others do; one that is remembered comes in main."""
    cache = s3_fifo()
    for new in range(100, 101 + others):
        assert cache.evict() is not None
        cache.admit(new)
    assert (0 in cache._ghost) == remembered
    assert len(cache._ghost) == min(others + 1, 18)


# The released store's rule


def store_of(blocks, capacity=100, **settings):
    store = BatchEviction(capacity, **settings)
    for block in range(blocks):
        store.admit(block, Use(now_s=1.0))
    return store


def test_the_stores_own_settings():
    store = BatchEviction(100)
    assert (store.watermark, store.ratio, store.lease_ttl_s) == (0.90, 0.05, 10.0)
    assert make_policy(STORE, 100).lease_ttl_s == 10.0
    assert make_policy(STORE, 100, lease_ttl_s=3.0).lease_ttl_s == 3.0


def test_at_the_watermark_nothing_goes():
    assert not store_of(90).is_above_watermark()
    assert list(store_of(90).surplus(9.0)) == []
    assert store_of(91).is_above_watermark()


@pytest.mark.parametrize(("blocks", "gone"), [(91, 6), (95, 10), (100, 15)])
def test_a_batch_grows_with_what_is_above_the_watermark(blocks, gone):
    """ceil(91 · 0.06), ceil(95 · 0.10), ceil(100 · 0.15)."""
    store = store_of(blocks)
    assert store.surplus(1.0) == list(range(gone))
    assert len(store) == blocks - gone


def test_other_shares_than_the_released_ones():
    assert store_of(60, watermark=0.5, ratio=0.25).surplus(1.0) == list(range(21))  # ceil(60 · 0.35)


def test_a_lease_that_ends_now_protects_no_longer():
    store = store_of(95, lease_ttl_s=4.0)
    store.touch(0, Use(now_s=2.0))
    assert 0 not in store_of(95).surplus(0.5), "put later than that"
    assert store.surplus(5.9)[0] == 1
    for block in range(200, 211):
        store.admit(block, Use(now_s=6.5))
    assert store.surplus(6.5)[:2] == [11, 12], "the earliest lease first"
    assert 0 in store
    store = store_of(91, lease_ttl_s=4.0)
    for block in range(91):
        store.touch(block, Use(now_s=2.0))
    assert list(store.surplus(5.999)) == []
    assert store.surplus(6.0) == [0, 1, 2, 3, 4, 5]


def test_an_earlier_read_does_not_shorten_a_lease():
    store = store_of(91)
    for block in range(91):
        store.touch(block, Use(now_s=50.0))
        store.touch(block, Use(now_s=20.0))
    assert list(store.surplus(59.0)) == []
    assert len(store.surplus(60.0)) == 6


def test_of_equal_leases_the_one_that_was_set_first():
    store = store_of(91, lease_ttl_s=0.0)
    store.touch(0, Use(now_s=1.0))
    assert store.surplus(1.0) == [1, 2, 3, 4, 5, 6]


def test_a_replay_of_the_store_by_hand():
    """Ten blocks, evicted when all ten are there; the read of a prompt ends at the first that is missing."""
    store = BatchEviction(10, lease_ttl_s=0.0)
    requests = [(0.0, [0, 1, 2]), (1.0, [0, 1, 2, 3]), (2.0, [0, 9, 2])]
    assert replay_store(store, requests) == 0 + 3 + 1
    assert len(store) == 5
    assert replay_store(store, [(3.0, [20, 21, 22, 23, 24])]) == 0
    # The tenth passed the watermark: ceil(10 · 0.15) go, 1 and 3, which were read or put at 1 s.
    assert (1 in store, 2 in store, 3 in store, 24 in store) == (False, False, True, True)


def test_a_replayed_read_is_made_when_it_is():
    """Block 0 is read at 100 s and leased until 110; of ten at 105 s, two others go."""
    store = BatchEviction(10, lease_ttl_s=10.0)
    assert replay_store(store, [(0.0, [0]), (100.0, [0]), (105.0, list(range(1, 10)))]) == 1
    assert [block for block in range(10) if block not in store] == [1, 2]


def test_a_put_into_a_full_store_fails():
    """All leases last: nothing can go, and the last block finds no room."""
    store = BatchEviction(2, watermark=2.0)
    assert replay_store(store, [(0.0, [1, 2, 3]), (0.0, [1, 2, 3])]) == 2
    assert (len(store), 3 in store) == (2, False)


# One node


def test_tiers_are_numbered_from_the_fastest():
    assert [*Tier] == [Tier.VRAM, Tier.DRAM, Tier.SSD] == [0, 1, 2]


@pytest.mark.parametrize("make", [NodeCache, lambda *args, **more: CachePool(1, *args, **more).caches[0]])
def test_a_nodes_tiers_are_as_asked_for(make):
    cache = make([3, 0, 5])
    assert [type(tier).__name__ for tier in cache.tiers] == ["Lru"] * 3
    assert [tier.capacity_blocks for tier in cache.tiers] == [3, 0, 5]
    assert [tier.lease_ttl_s for tier in make([3, 5], STORE).tiers] == [10.0, 10.0]
    assert [tier.lease_ttl_s for tier in make([3], STORE, lease_ttl_s=2.0).tiers] == [2.0]
    assert (cache.demotions, cache.promotions, cache.evictions, len(cache)) == ([0] * 3, [0] * 3, 0, 0)


def test_a_block_is_in_use_until_all_its_users_are_done():
    cache = NodeCache([2])
    cache.keep(1)
    assert cache.users(1) == cache.users(2) == 0
    cache.pin(1)
    cache.pin(1)
    assert cache.users(1) == 2
    cache.unpin(1)
    assert cache.users(1) == 1
    with pytest.raises(AssertionError, match="block 1 is in use"):
        cache.drop(1)
    cache.unpin(1)
    cache.drop(1)
    assert (1 in cache, len(cache), cache.evictions) == (False, 0, 0)
    with pytest.raises(AssertionError, match="block 1 is not held"):
        cache.pin(1)


def test_every_use_is_noted_wherever_the_block_is():
    """At the top, below it, lifted, and where it cannot be lifted."""
    cache = NodeCache([1, 1])
    cache.keep(1, Use(now_s=1.0))
    cache.keep(2, Use(now_s=2.0))
    assert [cache.last_use(block).now_s for block in (1, 2)] == [1.0, 2.0]
    cache.touch(1, Use(now_s=3.0))
    assert (cache.tier(1), cache.last_use(1).now_s) == (1, 3.0)
    cache.keep(2, Use(now_s=4.0))
    assert cache.last_use(2).now_s == 4.0
    cache.pin(2)
    cache.keep(1, Use(now_s=5.0))
    assert (cache.tier(1), cache.last_use(1).now_s) == (1, 5.0)
    cache.unpin(2)
    cache.keep(1, Use(now_s=6.0))
    assert (cache.tier(1), cache.tier(2)) == (0, 1)
    assert [cache.last_use(block).now_s for block in (1, 2)] == [6.0, 4.0]
    assert (cache.demotions, cache.promotions) == ([0, 2], [0, 1])


def test_a_block_that_cannot_be_lifted_counts_as_used_where_it_is():
    cache = NodeCache([1, 2])
    for block in (1, 2, 3):
        cache.keep(block)
    cache.pin(3)
    cache.keep(1)
    cache.unpin(3)
    assert cache.evict() == 2, "1 was used since"


def test_a_touched_block_is_the_last_to_fall():
    cache = NodeCache([2])
    for block in (1, 2):
        cache.keep(block)
    cache.touch(1)
    assert cache.keep(3) == [2]


def tiers_of_belady():
    """Two tiers of three blocks: 3, 4 and 1 above 6, 5 and 2, in the order in which they would go."""
    cache = NodeCache([3, 3], "belady")
    for block, next_use in ((4, 10.0), (5, 20.0), (6, 30.0), (1, 10.0), (2, 20.0), (3, 30.0)):
        cache.keep(block, Use(next_use=next_use))
    return cache


@pytest.mark.parametrize("use", ["touch", "keep"])
def test_a_policy_that_looks_ahead_is_told_of_every_use(use):
    """Block 3, which is needed last, is needed first; then block 6, which cannot be lifted."""
    cache = tiers_of_belady()
    assert [order_of(tier) for tier in cache.tiers] == [[3, 4, 1], [6, 5, 2]]
    cache = tiers_of_belady()
    getattr(cache, use)(3, Use(next_use=5.0))
    assert order_of(cache.tiers[0]) == [4, 1, 3]
    cache = tiers_of_belady()
    for block in (1, 3, 4):
        cache.pin(block)
    getattr(cache, use)(6, Use(next_use=5.0))
    assert order_of(cache.tiers[1]) == [5, 2, 6]


def test_every_lift_is_counted():
    cache = NodeCache([1, 2])
    for block in (1, 2, 3, 1, 2, 3):
        cache.keep(block)
    assert (cache.promotions, cache.demotions) == ([0, 3], [0, 5])


def test_to_make_room_at_the_bottom_the_next_block_of_the_last_tier_goes():
    cache = NodeCache([1, 2, 0])
    for block in (1, 2, 3):
        cache.keep(block)
    cache.pin(1)
    assert (cache.evict(), cache.evictions) == (2, 1)
    assert cache.evict() is None, "1 is in use, and 3 is not at the bottom"
    assert (2 in cache, 1 in cache, 3 in cache, len(cache), cache.evictions) == (False, True, True, 2, 1)
    assert NodeCache([0, 0]).evict() is None


def test_without_any_room_nothing_is_kept():
    cache = NodeCache([0, 0, 0])
    assert cache.keep(1) == []
    assert (len(cache), list(cache)) == (0, [])


def test_what_falls_makes_room_all_the_way_down():
    """Through the middle tier left out; a pinned block at the bottom stays, so the next one leaves."""
    cache = NodeCache([1, 0, 2])
    for block in (1, 2, 3):
        assert cache.keep(block) == []
    assert [cache.tier(block) for block in (1, 2, 3)] == [2, 2, 0]
    cache.pin(1)
    assert cache.keep(4) == [2]
    cache.pin(3)
    assert cache.keep(5) == [4], "no room below: what was taken out of the top leaves the node"
    assert [cache.tier(block) for block in (1, 3, 5)] == [2, 2, 0]
    assert (cache.demotions, cache.evictions) == ([0, 0, 3], 2)


def test_a_block_keeps_its_last_use_when_it_falls():
    """By the length-aware policy, the deeper goes: what fell still knows how deep it is."""
    cache = NodeCache([1, 2], "length-aware")
    for block, depth in ((1, 5), (2, 9), (3, 0)):
        cache.keep(block, Use(depth=depth))
    assert cache.keep(4, Use(depth=7)) == [2]
    assert cache.last_use(1) == Use(depth=5)


def test_the_stores_rule_in_tiers_moves_a_batch_down():
    """Ten blocks pass the watermark: two go down, and of ten there again two leave."""
    cache = NodeCache([10, 10], STORE, lease_ttl_s=0.0)
    for block in range(10):
        assert cache.keep(block, Use(now_s=1.0)) == []
    assert [len(tier) for tier in cache.tiers] == [8, 2]
    assert cache.demotions == [0, 2]
    gone = [block for new in range(10, 18) for block in cache.keep(new, Use(now_s=2.0))]
    assert gone == [0, 1]
    assert (cache.demotions, cache.evictions) == ([0, 10], 2)
    assert [len(tier) for tier in cache.tiers] == [8, 8]


def test_the_stores_rule_in_tiers_leaves_alone_what_is_in_use():
    """Of ten blocks nine can go: ceil(9 · 0.15) of them do, and not the one that was put first."""
    cache = NodeCache([10], STORE, lease_ttl_s=0.0)
    cache.keep(0, Use(now_s=1.0))
    cache.pin(0)
    gone = [block for new in range(1, 10) for block in cache.keep(new, Use(now_s=1.0))]
    assert gone == [1, 2]
    assert 0 in cache


# All nodes


def pool_with(stored, capacities=(0, 4, 0), nodes=3, **settings):
    pool = CachePool(nodes, capacities, **settings)
    for node, blocks in stored:
        pool.store(node, blocks)
    return pool


def test_leading_hits_by_hand():
    pool = pool_with([(0, [1, 2, 3]), (2, [2, 3]), (2, [1])])
    assert pool.leading_hits([1, 2, 3, 4]) == [3, 0, 3]
    assert pool.leading_hits([2, 9, 3]) == [1, 0, 1]
    assert pool.leading_hits([]) == [0, 0, 0]
    assert pool.holders(2) == 0b101
    assert pool.holders(9) == 0


def test_what_a_node_holds_by_tier():
    """Block 4 is on SSD between two in DRAM: what is reached without it is less than the run."""
    pool = CachePool(2, [1, 2, 3])
    pool.store(1, [3, 4])
    pool.store(1, [1, 2])
    pool.store(1, [2])
    assert [pool.caches[1].tier(block) for block in (1, 2, 3, 4)] == [1, 0, 1, 2]
    assert pool.held([1, 2, 4, 3]) == [Held(0), Held(4, 1, 1, memory_blocks=2, memory_vram_blocks=1)]
    assert pool.held([4, 2]) == [Held(0), Held(2, 1, 1, memory_blocks=0, memory_vram_blocks=0)]
    assert pool.held([1, 2, 3]) == [Held(0), Held(3, 1, 0, memory_blocks=3, memory_vram_blocks=1)]
    assert Held(0) == (0, 0, 0, 0, 0)


def test_counters_are_those_of_all_nodes():
    """One block a tier: each that comes in pushes the others down by one."""
    pool = pool_with([(0, [1, 2, 3]), (1, [1, 2, 3, 4]), (1, [4])], (1, 1, 1))
    assert pool.evictions == 0 + 2 + 0, "4, then 3"
    assert [pool.moves(tier) for tier in Tier] == [(0, 0), (2 + 4, 0), (1 + 3, 0)]
    pool.store(1, [2])
    pool.store(0, [2])
    assert pool.evictions == 2
    assert [pool.moves(tier) for tier in Tier] == [(0, 0), (3 + 5, 1), (1 + 4, 1)]


def test_what_one_node_evicts_others_keep():
    pool = pool_with([(0, [1, 2]), (1, [1, 2]), (0, [3, 4])], (0, 2, 0))
    assert [pool.holders(block) for block in (1, 2, 3)] == [0b10, 0b10, 0b01]


def test_only_what_a_node_holds_and_nobody_uses_is_dropped():
    pool = pool_with([(0, [1, 2, 3]), (1, [1])])
    pool.pin(0, [2])
    assert pool.drop(0, [1, 2, 3, 9]) == 2
    assert [pool.holders(block) for block in (1, 2, 3, 9)] == [0b10, 0b01, 0, 0]
    pool.unpin(0, [2])
    assert pool.drop(0, [2]) == 1
    assert len(pool.caches[0]) == 0
    assert pool.drop(0, []) == 0


def test_of_what_is_touched_the_head_is_last():
    pool = pool_with([(0, [1, 2]), (0, [3, 4])])
    pool.touch(0, [1, 2], [Use(5.0), Use(6.0)])
    assert [pool.caches[0].last_use(block).now_s for block in (1, 2)] == [5.0, 6.0]
    assert [pool.caches[0].evict() for _ in range(4)] == [4, 3, 2, 1]


def test_every_stored_block_has_its_own_use():
    pool = CachePool(1, [0, 3, 0])
    pool.store(0, [1, 2], [Use(5.0, 0), Use(5.0, 1)])
    assert [pool.caches[0].last_use(block) for block in (1, 2)] == [Use(5.0, 0), Use(5.0, 1)]
    pool.store(0, [1])
    assert pool.caches[0].last_use(1) == ANY_USE


@pytest.mark.parametrize("shared", [False, True])
def test_with_shared_recency_a_use_counts_wherever_the_block_is(shared):
    pool = pool_with([(0, [1]), (0, [2]), (1, [1])], (0, 2, 0), shared_recency=shared)
    pool.store(0, [3])
    assert [block in pool.caches[0] for block in (1, 2)] == ([True, False] if shared else [False, True])
    assert CachePool(1, [1])._shared_recency is False


def test_shared_recency_touches_nobody_else():
    """Node 2 holds another block, and node 0 is the one that stores."""
    pool = pool_with([(2, [7]), (0, [1]), (1, [1])], shared_recency=True)
    pool.store(0, [1], [Use(9.0)])
    assert [pool.caches[node].last_use(1).now_s for node in (0, 1)] == [9.0, 9.0]
    assert pool.caches[2].last_use(7) == ANY_USE
