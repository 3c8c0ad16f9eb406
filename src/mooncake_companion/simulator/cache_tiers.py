"""Where KV blocks are kept: tiers of memory on each node, and one index over all nodes.

A block id stands for its whole prefix, so what a request can reuse on a node is the leading run
of its blocks that the node holds. Standard library only.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from mooncake_companion.simulator.eviction import ANY_USE, Use, make_policy


class Tier(IntEnum):
    """Kinds of memory of a node, the fastest first."""

    VRAM = 0
    DRAM = 1
    SSD = 2


class NodeCache:
    """Blocks of one node, each in one tier; blocks in use are neither dropped nor moved down.

    A block comes in at the top, the fastest tier with any room at all. What has to make room for it
    falls to the next tier, where it makes room in turn; out of the last one it leaves the node. A
    use lifts a block to the top again.

    Parameters
    ----------
    capacities_blocks : sequence of int
        Most blocks in each tier, fastest first; 0 leaves a tier out.
    eviction : str
        Policy of every tier, in `eviction.POLICIES` or ``"store"``.
    lease_ttl_s : float
        Of the store's rule.
    """

    def __init__(
        self, capacities_blocks: Sequence[int], eviction: str = "lru", *, lease_ttl_s: float = 10.0
    ) -> None:
        self.tiers = [make_policy(eviction, blocks, lease_ttl_s=lease_ttl_s) for blocks in capacities_blocks]
        self.demotions = [0] * len(self.tiers)
        self.promotions = [0] * len(self.tiers)
        self.evictions = 0
        self._used = [tier for tier, blocks in enumerate(capacities_blocks) if blocks]
        self._place: dict[int, int] = {}  # block -> tier
        self._last: dict[int, Use] = {}
        self._pins: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._place)

    def __contains__(self, block: object) -> bool:
        return block in self._place

    def __iter__(self) -> Iterator[int]:
        return iter(self._place)

    def tier(self, block: int) -> int:
        """The tier that a held block is in."""
        return self._place[block]

    def last_use(self, block: int) -> Use:
        """The latest access to a held block."""
        return self._last[block]

    def users(self, block: int) -> int:
        """How often a block is pinned."""
        return self._pins.get(block, 0)

    def pin(self, block: int) -> None:
        """Keep a held block until it is unpinned as often as it was pinned."""
        assert block in self._place, f"block {block} is not held"
        self._pins[block] = self._pins.get(block, 0) + 1

    def unpin(self, block: int) -> None:
        """Undo one `pin`."""
        self._pins[block] -= 1
        if not self._pins[block]:
            del self._pins[block]

    def touch(self, block: int, use: Use = ANY_USE) -> None:
        """Note that a held block was read, and leave it where it is."""
        self._last[block] = use
        self.tiers[self._place[block]].touch(block, use)

    def keep(self, block: int, use: Use = ANY_USE) -> list[int]:
        """Note a use of a block and hold it at the top from now on, as far as there is room.

        Returns
        -------
        list of int
            Blocks that had to leave the node.
        """
        gone: list[int] = []
        held = self._place.get(block)
        if held is not None:
            self._last[block] = use
        if not self._used:
            return gone
        top = self._used[0]
        if held == top:
            self.tiers[top].touch(block, use)
            return gone
        has_room, fallen = self._make_room(top)
        if has_room:
            if held is not None:
                self.tiers[held].discard(block)
                self.promotions[held] += 1
            self._enter(block, top, use)
            if fallen is not None:
                self._fall(fallen, top, use.now_s, gone)
            self._thin_out(top, use.now_s, gone)
        elif held is not None:
            self.tiers[held].touch(block, use)
        return gone

    def drop(self, block: int) -> None:
        """Let go of a held block that nobody uses."""
        assert block not in self._pins, f"block {block} is in use"
        self.tiers[self._place.pop(block)].discard(block)
        del self._last[block]

    def evict(self) -> int | None:
        """Let the next block leave the node to make room at the bottom; None if none may go."""
        gone = self.tiers[self._used[-1]].evict(self._is_pinned) if self._used else None
        if gone is not None:
            self._forget(gone)
        return gone

    def _is_pinned(self, block: int) -> bool:
        return block in self._pins

    def _make_room(self, tier: int) -> tuple[bool, int | None]:
        """Whether one more block fits into a tier, and the one that was taken out of it for that."""
        policy = self.tiers[tier]
        if len(policy) < policy.capacity_blocks:
            return True, None
        fallen = policy.evict(self._is_pinned)
        return fallen is not None, fallen

    def _enter(self, block: int, tier: int, use: Use) -> None:
        self.tiers[tier].admit(block, use)
        self._place[block] = tier
        self._last[block] = use

    def _fall(self, block: int, tier: int, now_s: float, gone: list[int]) -> None:
        """Put a block that was taken out of a tier into the next one, or let it go."""
        below = next((lower for lower in self._used if lower > tier), None)
        has_room, fallen = (False, None) if below is None else self._make_room(below)
        if below is None or not has_room:
            self._forget(block)
            gone.append(block)
            return
        self.demotions[below] += 1
        self._enter(block, below, self._last[block])
        if fallen is not None:
            self._fall(fallen, below, now_s, gone)
        self._thin_out(below, now_s, gone)

    def _thin_out(self, tier: int, now_s: float, gone: list[int]) -> None:
        for fallen in self.tiers[tier].surplus(now_s, self._is_pinned):
            self._fall(fallen, tier, now_s, gone)

    def _forget(self, block: int) -> None:
        del self._place[block], self._last[block]
        self.evictions += 1


class Held(NamedTuple):
    """What one node holds of the start of a prompt, in blocks.

    Parameters
    ----------
    blocks : int
        Leading run, in whatever tier.
    vram_blocks, ssd_blocks : int
        Of these, in the fastest and in the slowest tier.
    memory_blocks : int
        Leading run without any block on SSD.
    memory_vram_blocks : int
        Of these, in VRAM.
    """

    blocks: int
    vram_blocks: int = 0
    ssd_blocks: int = 0
    memory_blocks: int = 0
    memory_vram_blocks: int = 0


class CachePool:
    """The nodes' caches with one index: block to the set of nodes that hold it.

    Parameters
    ----------
    nodes : int
        How many nodes there are.
    capacities_blocks : sequence of int
        Capacity of the tiers of each, in blocks.
    eviction, lease_ttl_s
        As of `NodeCache`.
    shared_recency : bool
        Whether a block that is stored on one node counts as used on all that hold it.
    """

    def __init__(
        self,
        nodes: int,
        capacities_blocks: Sequence[int],
        eviction: str = "lru",
        *,
        lease_ttl_s: float = 10.0,
        shared_recency: bool = False,
    ) -> None:
        self._shared_recency = shared_recency
        self.caches = [NodeCache(capacities_blocks, eviction, lease_ttl_s=lease_ttl_s) for _ in range(nodes)]
        self._holders: dict[int, int] = {}  # block -> nodes, one bit each
        self._everyone = (1 << nodes) - 1

    @property
    def evictions(self) -> int:
        """Blocks that had to leave a node for want of room."""
        return sum(cache.evictions for cache in self.caches)

    def moves(self, tier: Tier) -> tuple[int, int]:
        """Blocks that fell into a tier, and that were lifted out of it."""
        return (
            sum(cache.demotions[tier] for cache in self.caches),
            sum(cache.promotions[tier] for cache in self.caches),
        )

    def holders(self, block: int) -> int:
        """The nodes that hold a block, bit k for node k."""
        return self._holders.get(block, 0)

    def leading_hits(self, blocks: Sequence[int]) -> list[int]:
        """For each node, how many of the leading `blocks` it holds without a gap."""
        hits = [len(blocks)] * len(self.caches)
        alive = self._everyone
        for depth, block in enumerate(blocks):
            lost = alive & ~self._holders.get(block, 0)
            alive ^= lost
            while lost:
                lowest = lost & -lost
                hits[lowest.bit_length() - 1] = depth
                lost ^= lowest
            if not alive:
                break
        return hits

    def held(self, blocks: Sequence[int]) -> list[Held]:
        """For each node, what it holds of the leading `blocks`, by tier."""
        return [
            self._held(cache, blocks[:hits])
            for cache, hits in zip(self.caches, self.leading_hits(blocks), strict=True)
        ]

    @staticmethod
    def _held(cache: NodeCache, run: Sequence[int]) -> Held:
        tiers = [cache.tier(block) for block in run]
        memory = tiers.index(Tier.SSD) if Tier.SSD in tiers else len(run)
        return Held(
            blocks=len(run),
            vram_blocks=tiers.count(Tier.VRAM),
            ssd_blocks=tiers.count(Tier.SSD),
            memory_blocks=memory,
            memory_vram_blocks=tiers[:memory].count(Tier.VRAM),
        )

    def pin(self, node: int, blocks: Iterable[int]) -> None:
        """Hold on to blocks that are about to be read."""
        for block in blocks:
            self.caches[node].pin(block)

    def unpin(self, node: int, blocks: Iterable[int]) -> None:
        """Let go of blocks that have been read."""
        for block in blocks:
            self.caches[node].unpin(block)

    def touch(self, node: int, blocks: Sequence[int], uses: Sequence[Use]) -> None:
        """Note that blocks that a node holds were read there, the head last."""
        for block, use in zip(reversed(blocks), reversed(uses), strict=True):
            self.caches[node].touch(block, use)

    def store(self, node: int, blocks: Sequence[int], uses: Sequence[Use] | None = None) -> None:
        """Keep a prefix on a node, as far as there is room; blocks held already count as used.

        The head goes in last: of one request's blocks the deepest is evicted first, since a block
        without the blocks before it is of no use.
        """
        cache = self.caches[node]
        for block, use in zip(reversed(blocks), reversed(uses or [ANY_USE] * len(blocks)), strict=True):
            if self._shared_recency:
                self._touch_elsewhere(node, block, use)
            for gone in cache.keep(block, use):
                self._forget(node, gone)
            if block in cache:
                self._holders[block] = self._holders.get(block, 0) | 1 << node

    def _touch_elsewhere(self, node: int, block: int, use: Use) -> None:
        others = self.holders(block) & ~(1 << node)
        while others:
            lowest = others & -others
            self.caches[lowest.bit_length() - 1].touch(block, use)
            others ^= lowest

    def drop(self, node: int, blocks: Iterable[int]) -> int:
        """Let a node give up those of some blocks that it holds and nobody uses; how many that were."""
        cache, dropped = self.caches[node], 0
        for block in blocks:
            if block in cache and not cache.users(block):
                cache.drop(block)
                self._forget(node, block)
                dropped += 1
        return dropped

    def _forget(self, node: int, block: int) -> None:
        left = self.holders(block) & ~(1 << node)
        if left:
            self._holders[block] = left
        else:
            self._holders.pop(block, None)  # a block may go as soon as it came in
