"""Where KV blocks are kept: one LRU cache in each node's DRAM, and an index over all of them.

A block id stands for its whole prefix, so what a request can reuse on a node is the leading run
of its blocks that the node holds.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence


class LruCache:
    """Blocks of one node, least recently used first; blocks in use are never evicted.

    Parameters
    ----------
    capacity_blocks : int
        Most blocks held at once; 0 keeps nothing.
    """

    def __init__(self, capacity_blocks: int) -> None:
        self.capacity_blocks = capacity_blocks
        self._pins: OrderedDict[int, int] = OrderedDict()  # block -> users, oldest first

    def __len__(self) -> int:
        return len(self._pins)

    def __contains__(self, block: int) -> bool:
        return block in self._pins

    def touch(self, block: int) -> None:
        """Make a held block the most recently used one."""
        self._pins.move_to_end(block)

    def pin(self, block: int) -> None:
        """Keep a held block until it is unpinned as often as it was pinned."""
        self._pins[block] += 1

    def unpin(self, block: int) -> None:
        """Undo one `pin`."""
        assert self._pins[block] > 0, f"block {block} is not pinned"
        self._pins[block] -= 1

    def users(self, block: int) -> int:
        """How often a held block is pinned."""
        return self._pins[block]

    def evict(self) -> int | None:
        """Let go of the least recently used block that is not pinned; None if there is none."""
        evicted = next((old for old, users in self._pins.items() if not users), None)
        if evicted is not None:
            del self._pins[evicted]
        return evicted

    def insert(self, block: int) -> tuple[bool, int | None]:
        """Add a block that is not held, as the most recently used one.

        Returns
        -------
        stored : bool
            False if there is no room because every block held is in use.
        evicted : int or None
            The block that had to go.
        """
        evicted = None
        if len(self._pins) >= self.capacity_blocks:
            evicted = self.evict()
            if evicted is None:
                return False, None
        self._pins[block] = 0
        return True, evicted


class CachePool:
    """The nodes' caches with one index: block to the set of nodes that hold it.

    Parameters
    ----------
    nodes : int
        How many nodes there are.
    capacity_blocks : int
        Capacity of each, in blocks.
    shared_recency : bool
        Whether a block that is stored on one node counts as used now on all nodes that hold it.
    """

    def __init__(self, nodes: int, capacity_blocks: int, *, shared_recency: bool = False) -> None:
        self.caches = [LruCache(capacity_blocks) for _ in range(nodes)]
        self.evictions = 0
        self._shared_recency = shared_recency
        self._holders: dict[int, int] = {}  # block -> nodes, one bit each
        self._everyone = (1 << nodes) - 1

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

    def pin(self, node: int, blocks: Sequence[int]) -> None:
        """Hold on to blocks that are about to be read, and count them as used now."""
        cache = self.caches[node]
        for block in reversed(blocks):
            cache.pin(block)
            cache.touch(block)

    def unpin(self, node: int, blocks: Iterable[int]) -> None:
        """Let go of blocks that have been read."""
        for block in blocks:
            self.caches[node].unpin(block)

    def store(self, node: int, blocks: Sequence[int]) -> None:
        """Keep a prefix on a node, as far as there is room; blocks held already count as used.

        The head goes in last, here as in `pin`: of one request's blocks the deepest is evicted
        first, since a block without the blocks before it is of no use.
        """
        cache = self.caches[node]
        for block in reversed(blocks):
            if self._shared_recency:
                self._touch_everywhere(block)
            if block in cache:
                cache.touch(block)
                continue
            stored, evicted = cache.insert(block)
            if evicted is not None:
                self.evictions += 1
                self._forget(node, evicted)
            if stored:
                self._holders[block] = self._holders.get(block, 0) | 1 << node

    def _touch_everywhere(self, block: int) -> None:
        for node, cache in enumerate(self.caches):
            if self.holders(block) >> node & 1:
                cache.touch(block)

    def _forget(self, node: int, block: int) -> None:
        left = self._holders[block] & ~(1 << node)
        if left:
            self._holders[block] = left
        else:
            del self._holders[block]
