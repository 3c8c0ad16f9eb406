"""What goes when a cache is full: eviction policies, the released store's batch rule among them.

A policy orders the blocks of one cache; the cache itself decides when a block must go, and which
blocks are in use and have to stay (pinned). All policies have one contract, `Policy`, and are
looked up by name in `POLICIES`; `replay` counts the hits of one of them on a sequence of blocks.

Only the standard library is imported, so that all of this also runs in a browser.
"""

import heapq
import itertools
import math
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from mooncake_companion.errors import InputError

IsPinned = Callable[[int], bool]
"""Tells whether a block is in use, so that it has to stay."""


def never_pinned(block: int) -> bool:
    """No block is in use."""
    del block
    return False


class Use(NamedTuple):
    """One access to a block, with what policies may want to know of it.

    Parameters
    ----------
    now_s : float
        When, in seconds; only the store's leases look at it.
    depth : int
        Blocks before it in its prefix; only the length-aware policies look at it.
    next_use : float
        When the block is accessed next, on any scale that grows with time; infinite if never again.
        Only Belady's optimum looks at it.
    """

    now_s: float = 0.0
    depth: int = 0
    next_use: float = math.inf


ANY_USE = Use()
"""For policies that look at none of it."""


class Policy(ABC):
    """The order in which one cache gives up its blocks.

    The cache calls `touch` for each access to a block that it holds, and `admit` for each block
    that it takes in; before that it makes room with `evict`, and after it asks with `surplus` what
    else has to go. A policy never drops a block by itself.

    Parameters
    ----------
    capacity_blocks : int
        Most blocks that the cache holds; S3-FIFO divides it among its queues.
    """

    def __init__(self, capacity_blocks: int) -> None:
        if capacity_blocks < 0:
            raise InputError(f"capacity_blocks must not be negative, got {capacity_blocks}")
        self.capacity_blocks = capacity_blocks

    @abstractmethod
    def __len__(self) -> int:
        """Number of blocks held."""

    @abstractmethod
    def __contains__(self, block: object) -> bool:
        """Whether a block is held; this does not count as an access."""

    @abstractmethod
    def admit(self, block: int, use: Use = ANY_USE) -> None:
        """Take in a block that is not held."""

    @abstractmethod
    def touch(self, block: int, use: Use = ANY_USE) -> None:
        """Note an access to a held block."""

    @abstractmethod
    def evict(self, is_pinned: IsPinned = never_pinned) -> int | None:
        """Give up a block and tell which; None if there is none that may go."""

    def surplus(self, now_s: float, is_pinned: IsPinned = never_pinned) -> Sequence[int]:
        """Give up what has to go although there is room; nothing, but for the store's rule."""
        del now_s, is_pinned
        return ()

    @abstractmethod
    def discard(self, block: int) -> None:
        """Drop a block if it is held, for another reason than a lack of room."""


class Fifo(Policy):
    """First in, first out: the block that was admitted first goes first."""

    def __init__(self, capacity_blocks: int) -> None:
        super().__init__(capacity_blocks)
        self._queue: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._queue)

    def __contains__(self, block: object) -> bool:
        return block in self._queue

    def admit(self, block: int, use: Use = ANY_USE) -> None:
        """Put the block last in the queue."""
        del use
        self._queue[block] = None

    def touch(self, block: int, use: Use = ANY_USE) -> None:
        """Do nothing: only the admission counts."""
        del block, use

    def evict(self, is_pinned: IsPinned = never_pinned) -> int | None:
        """Give up the first block of the queue that is not pinned."""
        victim = _first_unpinned(self._queue, is_pinned)
        if victim is not None:
            del self._queue[victim]
        return victim

    def discard(self, block: int) -> None:
        """Take the block out of the queue."""
        self._queue.pop(block, None)


class Lru(Fifo):
    """Least recently used: the block whose last access is longest ago goes first."""

    def touch(self, block: int, use: Use = ANY_USE) -> None:
        """Put the block last in the queue again."""
        del use
        self._queue.move_to_end(block)


class _Ranked(Policy):
    """The block of least rank goes first; a rank changes only when its block is accessed.

    Ranks wait in a heap. A new rank leaves the old one in it, to be passed over when it comes up.
    """

    def __init__(self, capacity_blocks: int) -> None:
        super().__init__(capacity_blocks)
        self._rank: dict[int, tuple[Any, ...]] = {}
        self._heap: list[tuple[tuple[Any, ...], int]] = []
        self._serial = itertools.count()

    def __len__(self) -> int:
        return len(self._rank)

    def __contains__(self, block: object) -> bool:
        return block in self._rank

    def evict(self, is_pinned: IsPinned = never_pinned) -> int | None:
        """Give up the block of least rank that is not pinned."""
        victim, passed = None, []
        while self._heap and victim is None:
            rank, block = entry = heapq.heappop(self._heap)
            if self._rank.get(block) is not rank:
                continue
            if is_pinned(block):
                passed.append(entry)
            else:
                victim = block
        for entry in passed:
            heapq.heappush(self._heap, entry)
        if victim is not None:
            self.discard(victim)
        return victim

    def discard(self, block: int) -> None:
        """Forget the block and its rank."""
        self._rank.pop(block, None)

    def _set_rank(self, block: int, rank: tuple[Any, ...]) -> None:
        self._rank[block] = rank
        heapq.heappush(self._heap, (rank, block))
        if len(self._heap) > 2 * len(self._rank) + 64:  # mostly ranks that no longer hold
            self._heap = [(rank, block) for block, rank in self._rank.items()]
            heapq.heapify(self._heap)


class Lfu(_Ranked):
    """Least frequently used: the block with the fewest accesses goes first.

    Accesses are counted from the admission on, which is the first; an evicted block's count is
    forgotten. Among equals the least recently used goes first.
    """

    def admit(self, block: int, use: Use = ANY_USE) -> None:
        """Count the first access."""
        del use
        self._set_rank(block, (1, next(self._serial)))

    def touch(self, block: int, use: Use = ANY_USE) -> None:
        """Count one more access."""
        del use
        self._set_rank(block, (self._rank[block][0] + 1, next(self._serial)))


class LengthAware(_Ranked):
    """Length-aware LFU: among the blocks with the fewest accesses, the deepest goes first.

    arXiv 2407.00079, section 4.2, has one phrase for the LengthAwareCache of its Table 1: like
    LFU, but prioritising blocks that occur later in requests. It leaves open whether these are
    prioritised for eviction or for being kept, and what goes first among equals otherwise. Here
    frequency comes first, counted as in `Lfu`; then the deepest block goes (a block is of no use
    without those before it); then the least recently used. With `keeps_late_blocks` the block
    nearest to the prompt's start goes instead, which is the other reading.
    """

    keeps_late_blocks = False

    def admit(self, block: int, use: Use = ANY_USE) -> None:
        """Count the first access, and remember the block's depth."""
        position = use.depth if self.keeps_late_blocks else -use.depth
        self._set_rank(block, (1, position, next(self._serial)))

    def touch(self, block: int, use: Use = ANY_USE) -> None:
        """Count one more access."""
        del use
        count, position, _ = self._rank[block]
        self._set_rank(block, (count + 1, position, next(self._serial)))


class LengthAwareKeepingLate(LengthAware):
    """Length-aware LFU as read the other way: among equals the block nearest to the start goes."""

    keeps_late_blocks = True


class Belady(_Ranked):
    """Belady's optimum: the block whose next access is farthest ahead goes first.

    No policy that admits every miss hits more on one cache, if each `Use` tells the truth about
    the next one. `next_uses` works that out for a plain sequence.
    """

    def admit(self, block: int, use: Use = ANY_USE) -> None:
        """Note when the block is needed next."""
        self.touch(block, use)

    def touch(self, block: int, use: Use = ANY_USE) -> None:
        """Note when the block is needed next."""
        self._set_rank(block, (-use.next_use, next(self._serial)))


class BatchEviction(_Ranked):
    """The rule of the released Mooncake Store: evict early, and many blocks at once.

    The store's master wakes every 10 ms and evicts when more than a share w of the capacity is
    used. Its target is the share max(r, used - w + r) of the blocks whose lease has ended,
    rounded up; those with the earliest lease go, all at once (`surplus`). A put sets the block's
    lease to now, a read to now + TTL unless it is later already: near LRU, not LRU. When the cache
    is full none is evicted for a put, which fails.

    Source: `mooncake-store/src/master_service.cpp` of kvcache-ai/Mooncake, commit 3b5a594, and
    experiments with release 0.3.13.post1. Left out: replicas, soft pins (and with them the lower
    of the store's two targets), and the time until the evictor wakes, which is the caller's.

    Parameters
    ----------
    capacity_blocks : int
    watermark : float
        w, a share of the capacity.
    ratio : float
        r, the least share of the evictable blocks that goes.
    lease_ttl_s : float
        Seconds for which a read protects a block.
    """

    def __init__(
        self,
        capacity_blocks: int,
        *,
        watermark: float = 0.90,
        ratio: float = 0.05,
        lease_ttl_s: float = 10.0,
    ) -> None:
        super().__init__(capacity_blocks)
        self.watermark = watermark
        self.ratio = ratio
        self.lease_ttl_s = lease_ttl_s

    def admit(self, block: int, use: Use = ANY_USE) -> None:
        """Take in a block with a lease that has ended."""
        self._set_rank(block, (use.now_s, next(self._serial)))

    def touch(self, block: int, use: Use = ANY_USE) -> None:
        """Renew the block's lease, as a read or an existence check does."""
        lease_s = max(self._rank[block][0], use.now_s + self.lease_ttl_s)
        self._set_rank(block, (lease_s, next(self._serial)))

    def evict(self, is_pinned: IsPinned = never_pinned) -> int | None:
        """Refuse: a full store fails the put."""
        del is_pinned
        return None

    def is_above_watermark(self) -> bool:
        """Whether the evictor has something to do when it wakes."""
        return len(self) > self.watermark * self.capacity_blocks

    def surplus(self, now_s: float, is_pinned: IsPinned = never_pinned) -> Sequence[int]:
        """Evict one batch if the watermark is passed.

        Parameters
        ----------
        now_s : float
            A lease that ends after this protects its block.
        is_pinned : callable
            Blocks that stay in any case; they do not count as evictable.

        Returns
        -------
        sequence of int
            The blocks evicted, earliest lease first.
        """
        if not self.is_above_watermark():
            return ()
        evictable = [
            (rank, block) for block, rank in self._rank.items() if rank[0] <= now_s and not is_pinned(block)
        ]
        used = len(self) / self.capacity_blocks
        target = max(self.ratio, used - self.watermark + self.ratio)
        victims = heapq.nsmallest(math.ceil(len(evictable) * target), evictable)
        for _, block in victims:
            self.discard(block)
        return [block for _, block in victims]


class Sieve(Policy):
    """SIEVE: a hand moves from old to new, spares the blocks accessed since it passed, takes the rest.

    Zhang et al., NSDI'24: one queue in the order of admission, one mark a block. The hand stays
    where it took a block, and starts again at the oldest after the newest. A pinned block is
    passed and keeps its mark.
    """

    def __init__(self, capacity_blocks: int) -> None:
        super().__init__(capacity_blocks)
        self._marked: dict[int, bool] = {}
        self._newer: dict[int | None, int | None] = {None: None}  # None stands before the oldest ...
        self._older: dict[int | None, int | None] = {None: None}  # ... and after the newest
        self._hand: int | None = None

    def __len__(self) -> int:
        return len(self._marked)

    def __contains__(self, block: object) -> bool:
        return block in self._marked

    def admit(self, block: int, use: Use = ANY_USE) -> None:
        """Add the block as the newest one, without a mark."""
        del use
        newest = self._older[None]
        self._newer[newest] = self._older[None] = block
        self._older[block], self._newer[block] = newest, None
        self._marked[block] = False

    def touch(self, block: int, use: Use = ANY_USE) -> None:
        """Mark the block."""
        del use
        self._marked[block] = True

    def evict(self, is_pinned: IsPinned = never_pinned) -> int | None:
        """Move the hand to the next block without a mark, and give that up."""
        hand = self._hand
        for _ in range(2 * len(self._marked) + 1):  # the first time round marks are taken away
            if hand is None:
                hand = self._newer[None]
            if hand is None:
                return None
            if not is_pinned(hand):
                if not self._marked[hand]:
                    self._hand = hand
                    self.discard(hand)
                    return hand
                self._marked[hand] = False
            hand = self._newer[hand]
        return None

    def discard(self, block: int) -> None:
        """Take the block out of the queue; the hand, if there, goes on to the next."""
        if block not in self._marked:
            return
        older, newer = self._older.pop(block), self._newer.pop(block)
        self._newer[older], self._older[newer] = newer, older
        if self._hand == block:
            self._hand = newer
        del self._marked[block]


class S3Fifo(Policy):
    """S3-FIFO: a small queue lets through what is used again, a main one gives second chances.

    Yang et al., SOSP'23. A tenth of the capacity is the small queue, the rest the main one, and
    as many ids as the main queue is long are remembered after they left the small one. A block
    that is remembered is admitted to the main queue, any other to the small one. While the main
    queue is not above its share, the oldest of the small one goes; but with `THRESHOLD` accesses
    since its admission it moves to the main queue instead. There the oldest goes; but one that
    was accessed goes round once more for each access, three times at most.

    While the cache fills, blocks that find the small queue full are admitted to the main one. This
    is not in the paper; it is what the authors' own simulator does today. A pinned block is
    passed over and keeps its place.
    """

    SMALL_SHARE = 0.1
    GHOST_SHARE = 0.9
    THRESHOLD = 2
    ROUNDS = 3

    def __init__(self, capacity_blocks: int) -> None:
        super().__init__(capacity_blocks)
        self._small_blocks = int(capacity_blocks * self.SMALL_SHARE)
        self._ghost_blocks = int(capacity_blocks * self.GHOST_SHARE)
        self._small: OrderedDict[int, int] = OrderedDict()  # block -> accesses
        self._main: OrderedDict[int, int] = OrderedDict()
        self._ghost: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._small) + len(self._main)

    def __contains__(self, block: object) -> bool:
        return block in self._small or block in self._main

    def admit(self, block: int, use: Use = ANY_USE) -> None:
        """Put the block into the main queue if it is remembered, else into the small one."""
        del use
        if block in self._ghost:
            del self._ghost[block]
            self._main[block] = 0
        elif len(self._small) >= self._small_blocks:
            self._main[block] = 0
        else:
            self._small[block] = 0
        # Only now: room made for a block must not make its own id forgotten.
        while len(self._ghost) > self._ghost_blocks:
            self._ghost.popitem(last=False)

    def touch(self, block: int, use: Use = ANY_USE) -> None:
        """Count an access."""
        del use
        queue = self._small if block in self._small else self._main
        queue[block] += 1

    def evict(self, is_pinned: IsPinned = never_pinned) -> int | None:
        """Give up a block of the small queue, or of the main one when that is above its share."""
        if len(self._main) > self.capacity_blocks - self._small_blocks:
            return _first(self._evict_main(is_pinned), lambda: self._evict_small(is_pinned))
        return _first(self._evict_small(is_pinned), lambda: self._evict_main(is_pinned))

    def discard(self, block: int) -> None:
        """Take the block out of its queue, without remembering it."""
        self._small.pop(block, None)
        self._main.pop(block, None)

    def _evict_small(self, is_pinned: IsPinned) -> int | None:
        while (block := _first_unpinned(self._small, is_pinned)) is not None:
            if self._small.pop(block) < self.THRESHOLD:
                self._ghost[block] = None
                return block
            self._main[block] = 0
        return None

    def _evict_main(self, is_pinned: IsPinned) -> int | None:
        while (block := _first_unpinned(self._main, is_pinned)) is not None:
            accesses = self._main.pop(block)
            if not accesses:
                return block
            self._main[block] = min(accesses, self.ROUNDS) - 1
        return None


def _first_unpinned(blocks: Iterable[int], is_pinned: IsPinned) -> int | None:
    return next((block for block in blocks if not is_pinned(block)), None)


def _first(block: int | None, otherwise: Callable[[], int | None]) -> int | None:
    return otherwise() if block is None else block


POLICIES: dict[str, type[Policy]] = {
    "lru": Lru,
    "lfu": Lfu,
    "fifo": Fifo,
    "sieve": Sieve,
    "s3-fifo": S3Fifo,
    "length-aware": LengthAware,
    "length-aware-keeping-late": LengthAwareKeepingLate,
    "belady": Belady,
}
"""Those that evict one block when its room is needed."""
STORE = "store"
"""Name of `BatchEviction`, which is not such a one."""


def make_policy(name: str, capacity_blocks: int, *, lease_ttl_s: float = 10.0) -> Policy:
    """Give a policy by its name, in `POLICIES` or `STORE`, for one cache.

    Parameters
    ----------
    name : str
    capacity_blocks : int
    lease_ttl_s : float
        Of the store's rule.

    Raises
    ------
    InputError
        For an unknown name or a negative capacity.
    """
    if name == STORE:
        return BatchEviction(capacity_blocks, lease_ttl_s=lease_ttl_s)
    if name not in POLICIES:
        raise InputError(f"unknown eviction policy {name!r}; known: {', '.join(POLICIES)}, {STORE}")
    return POLICIES[name](capacity_blocks)


def next_uses(blocks: Sequence[int]) -> list[float]:
    """For each access of a sequence the index of the next one to the same block; infinite if none.

    >>> next_uses([7, 8, 7])
    [2, inf, inf]
    """
    following: dict[int, float] = {}
    found: list[float] = []
    for time in range(len(blocks) - 1, -1, -1):
        found.append(following.get(blocks[time], math.inf))
        following[blocks[time]] = time
    return found[::-1]


def replay(
    policy: str, blocks: Sequence[int], capacity_blocks: int, depths: Sequence[int] | None = None
) -> int:
    """Count the hits of one cache on a plain sequence of blocks.

    Every access counts, wherever in a request it stands, and every miss is admitted.

    Parameters
    ----------
    policy : str
        Name in `POLICIES`.
    blocks : sequence of int, shape (accesses,)
        Ids in the order of access.
    capacity_blocks : int
        Most blocks held at once; 0 keeps nothing.
    depths : sequence of int, shape (accesses,), optional
        For each access, the number of blocks before it in its request; for `LengthAware`.

    Returns
    -------
    int
        Accesses that found their block.

    Raises
    ------
    InputError
        For an unknown policy, a negative capacity, or not as many depths as accesses.

    Examples
    --------
    >>> replay("lru", [1, 2, 3, 1, 2], capacity_blocks=2), replay("belady", [1, 2, 3, 1, 2], 2)
    (0, 1)
    """
    if policy == STORE:
        raise InputError(f"policy {STORE!r} needs times; use replay_store")
    cache = make_policy(policy, capacity_blocks)
    if not capacity_blocks:
        return 0
    if depths is None:
        depths = [0] * len(blocks)
    elif len(depths) != len(blocks):
        raise InputError(f"depths has {len(depths)} entries for {len(blocks)} accesses")
    hits = 0
    for block, depth, next_use in zip(blocks, depths, next_uses(blocks), strict=True):
        use = Use(depth=depth, next_use=next_use)
        if block in cache:
            hits += 1
            cache.touch(block, use)
        else:
            if len(cache) >= capacity_blocks:
                cache.evict()
            cache.admit(block, use)
    return hits


def replay_store(store: BatchEviction, requests: Iterable[tuple[float, Sequence[int]]]) -> int:
    """Count leading hits when requests use a store one after the other.

    A request asks for its blocks from the start until the first that is missing, then puts all of
    them; a put of a block that is held changes nothing. Whenever the watermark is passed, the
    evictor is waited for.

    Parameters
    ----------
    store : BatchEviction
    requests : iterable of (float, sequence of int)
        Seconds from the trace's start, and block ids.

    Returns
    -------
    int
        Blocks found, over all requests.
    """
    hits = 0
    for now_s, blocks in requests:
        use = Use(now_s=now_s)
        for block in blocks:
            if block not in store:
                break
            store.touch(block, use)
            hits += 1
        for block in blocks:
            if block not in store and len(store) < store.capacity_blocks:
                store.admit(block, use)
            store.surplus(now_s)
    return hits
