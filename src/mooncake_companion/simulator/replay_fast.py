"""The replays of `eviction`, compiled: the same hits, for one cache without pinned blocks.

`eviction` is the specification; the kernels are those of the fast engine. LRU needs no replay at all:
`reuse_distance` gives its hits at every capacity.
"""

from collections.abc import Sequence

import numpy as np

from mooncake_companion.errors import InputError
from mooncake_companion.simulator.eviction import POLICIES
from mooncake_companion.simulator.fast import caches as kv
from mooncake_companion.simulator.fast.compiling import compiled
from mooncake_companion.simulator.reuse_distance import Ints, dense_labels, lru_hit_curve


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
    labels, blocks = dense_labels(block_ids)
    ids = labels.astype(np.int32)
    positions = np.zeros(len(ids), np.int64) if depths is None else np.asarray(depths, dtype=np.int64)
    next_uses = _next_uses(ids) if policy == "belady" else np.full(len(ids), np.inf)
    return np.array(
        [
            _hits(kv.new_caches(1, (capacity, 0, 0), blocks, policy), ids, positions, next_uses)
            for capacity in capacities.tolist()
        ],
        np.int64,
    )


def _next_uses(ids: np.ndarray) -> np.ndarray:
    """For each access the index of the next one to the same block; infinite if there is none."""
    order = np.argsort(ids, kind="stable")
    again = ids[order[:-1]] == ids[order[1:]]
    following = np.full(len(ids), np.inf)
    following[order[:-1][again]] = order[1:][again]
    return following


@compiled
def _hits(caches, ids, depths, next_uses):  # type: ignore[no-untyped-def]
    hits = 0
    for access in range(len(ids)):
        entry = kv.find(caches, 0, ids[access])
        hits += entry >= 0
        kv.keep(caches, 0, ids[access], entry, 0.0, depths[access], next_uses[access])
    return hits
