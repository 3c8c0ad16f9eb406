"""The replays of `eviction`, compiled: the same hits, for one cache without pinned blocks.

`eviction` is the specification; each kernel here follows the class of the same name there. LRU
needs no replay at all: `reuse_distance` gives its hits at every capacity.
"""

import heapq
from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from mooncake_companion.errors import InputError
from mooncake_companion.simulator.eviction import POLICIES, S3Fifo
from mooncake_companion.simulator.reuse_distance import Ints, dense_labels, lru_hit_curve

_NEVER = 2**62  # after every access


def hits_by_capacity(
    policy: str,
    block_ids: Sequence[int] | Ints,
    capacities_blocks: Sequence[int] | Ints,
    depths: Sequence[int] | Ints | None = None,
) -> Ints:
    """Hits of one cache on a plain sequence of blocks, for several capacities.

    Parameters
    ----------
    policy : str
        Name in `eviction.POLICIES`.
    block_ids : array of int, shape (accesses,)
        Ids in the order of access; every access counts and every miss is admitted.
    capacities_blocks : array of int, shape (capacities,)
        Most blocks held at once.
    depths : array of int, shape (accesses,), optional
        For each access, the number of blocks before it in its request; for the length-aware ones.

    Returns
    -------
    array of int64, shape (capacities,)

    Raises
    ------
    InputError
        For an unknown policy, a negative capacity, or not as many depths as accesses.

    Examples
    --------
    >>> hits_by_capacity("belady", [1, 2, 3, 1, 2], [1, 2, 3]).tolist()
    [0, 1, 2]
    """
    if policy not in POLICIES:
        raise InputError(f"unknown eviction policy {policy!r}; known: {', '.join(POLICIES)}")
    if depths is not None and len(depths) != len(block_ids):
        raise InputError(f"depths has {len(depths)} entries for {len(block_ids)} accesses")
    capacities = np.asarray(capacities_blocks, dtype=np.int64)
    if (capacities < 0).any():
        raise InputError(f"capacities_blocks must not be negative, got {capacities.min()}")
    if policy == "lru":
        curve = lru_hit_curve(block_ids)
        return curve[np.minimum(capacities, len(curve) - 1)]
    ids, labels = dense_labels(block_ids)
    return np.array(
        [_hits(policy, ids, labels, c, depths) if c else 0 for c in capacities.tolist()], np.int64
    )


def _hits(
    policy: str, ids: npt.NDArray[Any], labels: int, capacity: int, depths: Sequence[int] | Ints | None
) -> int:
    if policy == "fifo":
        return int(_fifo(ids, labels, capacity))
    if policy == "sieve":
        return int(_sieve(ids, labels, capacity))
    if policy == "s3-fifo":
        small, ghost = int(capacity * S3Fifo.SMALL_SHARE), int(capacity * S3Fifo.GHOST_SHARE)
        return int(_s3_fifo(ids, labels, capacity, small, ghost, S3Fifo.THRESHOLD, S3Fifo.ROUNDS))
    if policy == "belady":
        return int(_ranked(ids, labels, capacity, False, -_next_accesses(ids)))
    positions = np.zeros(len(ids), dtype=np.int64)
    if policy.startswith("length-aware") and depths is not None:
        keeps_late = policy == "length-aware-keeping-late"
        positions = np.asarray(depths, dtype=np.int64) * (1 if keeps_late else -1)
    return int(_ranked(ids, labels, capacity, True, positions))


def _next_accesses(ids: npt.NDArray[Any]) -> Ints:
    """For each access the index of the next one to the same block."""
    order = np.argsort(ids, kind="stable")
    again = ids[order[:-1]] == ids[order[1:]]
    following = np.full(len(ids), _NEVER, dtype=np.int64)
    following[order[:-1][again]] = order[1:][again]
    return following


@numba.njit(cache=True)
def _fifo(ids, labels, capacity):  # type: ignore[no-untyped-def]
    held = np.zeros(labels, dtype=np.bool_)
    queue = np.empty(len(ids), dtype=np.int64)
    first = last = hits = 0
    for block in ids:
        if held[block]:
            hits += 1
            continue
        if last - first == capacity:
            held[queue[first]] = False
            first += 1
        held[block] = True
        queue[last] = block
        last += 1
    return hits


@numba.njit(cache=True)
def _sieve(ids, labels, capacity):  # type: ignore[no-untyped-def]
    """One more entry, the last, stands before the oldest and after the newest block."""
    end = labels
    newer = np.full(labels + 1, end, dtype=np.int64)
    older = np.full(labels + 1, end, dtype=np.int64)
    held = np.zeros(labels, dtype=np.bool_)
    marked = np.zeros(labels, dtype=np.bool_)
    hand = end
    count = hits = 0
    for block in ids:
        if held[block]:
            hits += 1
            marked[block] = True
            continue
        if count == capacity:
            if hand == end:
                hand = newer[end]
            while marked[hand]:
                marked[hand] = False
                hand = newer[hand]
                if hand == end:
                    hand = newer[end]
            held[hand] = False
            count -= 1
            newer[older[hand]] = newer[hand]
            older[newer[hand]] = older[hand]
            hand = newer[hand]
        newest = older[end]
        newer[newest] = older[end] = block
        older[block] = newest
        newer[block] = end
        held[block] = True
        count += 1
    return hits


@numba.njit(cache=True)
def _ranked(ids, labels, capacity, counts_accesses, positions):  # type: ignore[no-untyped-def]
    """LFU and the length-aware policies; without counts the position alone, Belady's optimum."""
    stamp = np.full(labels, -1, dtype=np.int64)  # of the rank that holds; -1 if the block is not held
    accesses = np.zeros(labels, dtype=np.int64)
    place = np.zeros(labels, dtype=np.int64)
    heap = [(np.int64(0), np.int64(0), np.int64(0), np.int64(0)) for _ in range(0)]
    count = hits = 0
    for time in range(len(ids)):
        block = ids[time]
        if stamp[block] >= 0:
            hits += 1
            if not counts_accesses:
                place[block] = positions[time]
        else:
            if count == capacity:
                _, _, since, victim = heapq.heappop(heap)
                while stamp[victim] != since:
                    _, _, since, victim = heapq.heappop(heap)
                stamp[victim] = -1
                accesses[victim] = 0
                count -= 1
            count += 1
            place[block] = positions[time]
        if counts_accesses:
            accesses[block] += 1
        stamp[block] = time
        heapq.heappush(heap, (accesses[block], place[block], np.int64(time), np.int64(block)))
    return hits


_SMALL, _MAIN = 1, 2


@numba.njit(cache=True)
def _s3_fifo(ids, labels, capacity, small_blocks, ghost_blocks, threshold, rounds):  # type: ignore[no-untyped-def] # noqa: C901
    """The queues are rings; what is remembered is a row of ids, with a stamp for those that count."""
    where = np.zeros(labels, dtype=np.int8)
    accesses = np.zeros(labels, dtype=np.int64)
    stamp = np.full(labels, -1, dtype=np.int64)
    ring = capacity + 1
    small, main = np.empty(ring, dtype=np.int64), np.empty(ring, dtype=np.int64)
    small_first = small_count = main_first = main_count = 0
    ghost = np.empty(len(ids), dtype=np.int64)
    ghost_first = ghost_last = ghost_count = 0
    hits = 0
    for block in ids:
        if where[block]:
            hits += 1
            accesses[block] += 1
            continue
        remembered = stamp[block] >= 0
        if remembered:
            stamp[block] = -1
            ghost_count -= 1
        room = small_count + main_count < capacity
        from_small = main_count <= capacity - small_blocks
        while not room and from_small and small_count:
            victim = small[small_first]
            small_first = (small_first + 1) % ring
            small_count -= 1
            if accesses[victim] < threshold:
                room = True
                where[victim] = 0
                ghost[ghost_last] = victim
                stamp[victim] = ghost_last
                ghost_last += 1
                ghost_count += 1
            else:
                where[victim] = _MAIN
                accesses[victim] = 0
                main[(main_first + main_count) % ring] = victim
                main_count += 1
        while not room:
            victim = main[main_first]
            main_first = (main_first + 1) % ring
            if accesses[victim]:
                accesses[victim] = min(accesses[victim], rounds) - 1
                main[(main_first + main_count - 1) % ring] = victim
            else:
                room = True
                where[victim] = 0
                main_count -= 1
        while ghost_count > ghost_blocks:
            oldest = ghost[ghost_first]
            if stamp[oldest] == ghost_first:
                stamp[oldest] = -1
                ghost_count -= 1
            ghost_first += 1
        accesses[block] = 0
        if remembered or small_count >= small_blocks:
            where[block] = _MAIN
            main[(main_first + main_count) % ring] = block
            main_count += 1
        else:
            where[block] = _SMALL
            small[(small_first + small_count) % ring] = block
            small_count += 1
    return hits
