"""The hit ratio of an LRU cache at every capacity at once, from one pass over the accesses.

LRU keeps the C blocks used last, whatever C is (Mattson et al., IBM Systems Journal 1970). So an
access hits exactly the caches with more blocks than its stack distance: the number of distinct
other blocks accessed since the same block was. The distances are counted with one bit an access,
set for the latest access of each block, and a Fenwick tree over words of 64 bits.

All bits are set beforehand, those of accesses to come too. So a first access changes nothing, and
another one clears a single bit: what lies between an access and the block's previous one is the
number of distinct blocks so far, less the bits up to there. Bits and tree take 3/16 of a byte an
access (54 kB for the conversation trace), so that they stay in the processor's nearest caches; the
table of latest accesses, which is larger, is read and written once an access.
"""

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from mooncake_companion.errors import InputError

Ints = npt.NDArray[np.int64]

_ALL = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_MOST_ACCESSES = 2**30  # more would not fit the tree's 32 bits
_SPARSE = 8
"""Ids are used as indices up to so many times the number of accesses."""


def reuse_distances(block_ids: Sequence[int] | Ints) -> Ints:
    """Stack distance of each access.

    Parameters
    ----------
    block_ids : array of int, shape (accesses,)
        Ids in the order of access; they need not be dense, but dense ones are faster.

    Returns
    -------
    array of int64, shape (accesses,)
        Distinct other blocks accessed since the last access to the same block; -1 if there was
        none. An LRU cache hits if it holds more blocks than this.

    Examples
    --------
    >>> reuse_distances([7, 8, 9, 7, 7]).tolist()
    [-1, -1, -1, 2, 0]
    """
    ids, labels = dense_labels(block_ids)
    distances = np.empty(len(ids), dtype=np.int64)
    _measure(ids, _never(labels), *_all_set(len(ids)), distances)
    return distances


def lru_hit_curve(block_ids: Sequence[int] | Ints) -> Ints:
    """Hits of an LRU cache by its capacity.

    Every access counts and every miss is admitted, as in `eviction.replay`.

    Parameters
    ----------
    block_ids : array of int, shape (accesses,)
        Ids in the order of access; they need not be dense, but dense ones are faster.

    Returns
    -------
    array of int64, shape (distinct blocks + 1,)
        Entry c is the number of hits with room for c blocks; more room than for all distinct
        blocks gives no more hits.

    Examples
    --------
    >>> lru_hit_curve([7, 8, 9, 7, 7]).tolist()
    [0, 1, 1, 2]
    """
    ids, labels = dense_labels(block_ids)
    counts = np.zeros(min(labels, len(ids)), dtype=np.int64)
    distinct = _count(ids, _never(labels), *_all_set(len(ids)), counts)
    curve = np.zeros(distinct + 1, dtype=np.int64)
    np.cumsum(counts[:distinct], out=curve[1:])
    return curve


def dense_labels(block_ids: Sequence[int] | Ints) -> tuple[npt.NDArray[Any], int]:
    """Give each id a number fit to be an index: itself, if there are not too many.

    Returns
    -------
    labels : array of int64, shape (accesses,)
    count : int
        All labels are below this.

    Raises
    ------
    InputError
        If these are not whole numbers in one row, or too many.
    """
    ids: npt.NDArray[Any] = np.ascontiguousarray(block_ids)
    if not len(ids):
        return np.zeros(0, dtype=np.int64), 0
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise InputError(f"block_ids must be a row of whole numbers, got {ids.dtype} of shape {ids.shape}")
    if len(ids) > _MOST_ACCESSES:
        raise InputError(f"block_ids has {len(ids)} accesses; at most {_MOST_ACCESSES} are counted")
    highest = int(ids.max())
    if int(ids.min()) < 0 or highest >= _SPARSE * len(ids):
        distinct, ids = np.unique(ids, return_inverse=True)
        highest = len(distinct) - 1
    return ids.astype(np.int64, copy=False), highest + 1


def _never(labels: int) -> npt.NDArray[np.int32]:
    """A table of latest accesses in which there are none yet."""
    return np.full(labels, -1, dtype=np.int32)


def _all_set(accesses: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32]]:
    """One bit an access, all set, and their Fenwick tree: entry i counts the last (i & -i) words."""
    words = (accesses + 63) // 64
    index = np.arange(words, dtype=np.int32)
    return np.full(words, _ALL), 64 * (index & -index)


@numba.njit("int64(uint64)", cache=True, inline="always")
def _popcount(word):  # type: ignore[no-untyped-def]
    """Number of bits set; the compiler knows the pattern and puts one instruction here."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@numba.njit(cache=True, inline="always")
def _take(bits, tree, time):  # type: ignore[no-untyped-def]
    """Clear the bit of an access; gives how many were set before it."""
    word, bit = time >> 6, np.uint64(time & 63)
    here = bits[word]
    before = _popcount(here & ((np.uint64(1) << bit) - np.uint64(1)))
    bits[word] = here ^ (np.uint64(1) << bit)
    at = word
    while at > 0:
        before += tree[at]
        at &= at - 1
    at = word + 1
    while at < len(tree):
        tree[at] -= 1
        at += at & -at
    return before


@numba.njit(cache=True)
def _measure(ids, latest, bits, tree, distances):  # type: ignore[no-untyped-def]
    distinct = 0
    for time in range(len(ids)):
        block = ids[time]
        previous = latest[block]
        latest[block] = time
        if previous < 0:
            distances[time] = -1
            distinct += 1
        else:
            distances[time] = distinct - 1 - _take(bits, tree, np.int64(previous))


@numba.njit(cache=True)
def _count(ids, latest, bits, tree, counts):  # type: ignore[no-untyped-def]
    """Count how often each distance occurs, without keeping the distances."""
    distinct = 0
    for time in range(len(ids)):
        block = ids[time]
        previous = latest[block]
        latest[block] = time
        if previous < 0:
            distinct += 1
        else:
            counts[distinct - 1 - _take(bits, tree, np.int64(previous))] += 1
    return distinct
