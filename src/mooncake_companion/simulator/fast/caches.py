"""LRU caches of all nodes and the index of holders, in arrays; twin of `simulator.cache_tiers`.

An entry is one block on one node: node k owns the entries from k * capacity on. Entries of a node
form a list from the oldest to the newest; entries of a block form a list of its holders.
"""

from typing import Any, NamedTuple

import numpy as np

from mooncake_companion.simulator.fast.compiling import compiled

ENTRY = np.dtype(
    [
        ("block", np.int32),
        ("node", np.int32),
        ("older", np.int32),
        ("newer", np.int32),
        ("next_holder", np.int32),
        ("last_holder", np.int32),
        ("pins", np.int32),
        ("", np.int32),
    ]
)
NODE = np.dtype(
    [
        ("oldest", np.int32),
        ("newest", np.int32),
        ("free", np.int32),
        ("fresh", np.int32),
        ("held", np.int64),
    ]
)
"""``free``: a list, through ``newer``, of entries given back; ``fresh``: how many were ever taken."""


class Caches(NamedTuple):
    """All caches: `ENTRY` records; `NODE` records; the first entry of each block; capacity and evictions.

    ``shared_recency``: whether what is stored on one node counts as used on all that hold it.
    """

    entries: Any
    nodes: Any
    holder: Any
    capacity: Any
    evictions: Any
    shared_recency: Any


def new_caches(nodes: int, capacity: int, blocks: int, *, shared_recency: bool = False) -> Caches:
    """Empty caches for block ids below `blocks`; none can need room for more than all of them."""
    capacity = min(capacity, blocks)
    entries = np.zeros(nodes * capacity, ENTRY)
    entries["node"] = np.repeat(np.arange(nodes), capacity)
    ends = np.zeros(nodes, NODE)
    ends["oldest"] = ends["newest"] = ends["free"] = -1
    return Caches(
        entries,
        ends,
        np.full(blocks, -1, np.int32),
        np.array([capacity], np.int64),
        np.zeros(1, np.int64),
        np.array([shared_recency]),
    )


@compiled
def find(caches, node, block):  # type: ignore[no-untyped-def]
    """The entry of a block on a node, or -1."""
    entries = caches.entries
    entry = caches.holder[block]
    while entry >= 0 and entries[entry].node != node:
        entry = entries[entry].next_holder
    return entry


@compiled
def leading_hits(caches, blocks, first, last, nodes):  # type: ignore[no-untyped-def]
    """For each node, how many of the blocks from `first` on it holds without a gap, into its ``hits``."""
    entries, holder = caches.entries, caches.holder
    for node in range(len(nodes)):
        nodes[node].hits = 0
    for depth in range(last - first):
        found = False
        entry = holder[blocks[first + depth]]
        while entry >= 0:
            node = entries[entry].node
            if nodes[node].hits == depth:
                nodes[node].hits = depth + 1
                found = True
            entry = entries[entry].next_holder
        if not found:
            return


@compiled
def _unlink(caches, node, entry):  # type: ignore[no-untyped-def]
    entries, nodes = caches.entries, caches.nodes
    older, newer = entries[entry].older, entries[entry].newer
    if older >= 0:
        entries[older].newer = newer
    else:
        nodes[node].oldest = newer
    if newer >= 0:
        entries[newer].older = older
    else:
        nodes[node].newest = older


@compiled
def _append(caches, node, entry):  # type: ignore[no-untyped-def]
    entries, nodes = caches.entries, caches.nodes
    newest = nodes[node].newest
    entries[entry].older = newest
    entries[entry].newer = -1
    if newest >= 0:
        entries[newest].newer = entry
    else:
        nodes[node].oldest = entry
    nodes[node].newest = entry


@compiled
def touch(caches, node, entry):  # type: ignore[no-untyped-def]
    """Make an entry its node's most recently used one."""
    if caches.nodes[node].newest != entry:
        _unlink(caches, node, entry)
        _append(caches, node, entry)


@compiled
def drop_oldest(caches, node):  # type: ignore[no-untyped-def]
    """Let go of a node's least recently used block that is not in use; whether there was one."""
    entries = caches.entries
    entry = caches.nodes[node].oldest
    while entry >= 0 and entries[entry].pins:
        entry = entries[entry].newer
    if entry < 0:
        return False
    _unlink(caches, node, entry)
    after, before = entries[entry].next_holder, entries[entry].last_holder
    if before >= 0:
        entries[before].next_holder = after
    else:
        caches.holder[entries[entry].block] = after
    if after >= 0:
        entries[after].last_holder = before
    entries[entry].newer = caches.nodes[node].free
    caches.nodes[node].free = entry
    caches.nodes[node].held -= 1
    caches.evictions[0] += 1
    return True


@compiled
def insert(caches, node, block):  # type: ignore[no-untyped-def]
    """Add a block that the node does not hold, as the most recently used one."""
    entries, entry = caches.entries, np.int64(caches.nodes[node].free)
    if entry >= 0:
        caches.nodes[node].free = entries[entry].newer
    else:
        entry = node * caches.capacity[0] + caches.nodes[node].fresh
        caches.nodes[node].fresh += 1
    caches.nodes[node].held += 1
    other = caches.holder[block]
    entries[entry].block = block
    entries[entry].next_holder = other
    entries[entry].last_holder = -1
    if other >= 0:
        entries[other].last_holder = entry
    caches.holder[block] = entry
    _append(caches, node, entry)


@compiled
def _touch_everywhere(caches, block):  # type: ignore[no-untyped-def]
    entry = caches.holder[block]
    while entry >= 0:
        touch(caches, caches.entries[entry].node, entry)
        entry = caches.entries[entry].next_holder


@compiled
def store(caches, node, blocks, first, last):  # type: ignore[no-untyped-def]
    """Keep the blocks from `first` to `last` on a node as far as there is room, their head last."""
    for place in range(last - 1, first - 1, -1):
        if caches.shared_recency[0]:
            _touch_everywhere(caches, blocks[place])
        entry = find(caches, node, blocks[place])
        if entry >= 0:
            touch(caches, node, entry)
        elif caches.nodes[node].held < caches.capacity[0] or drop_oldest(caches, node):
            insert(caches, node, blocks[place])


@compiled
def pin(caches, node, blocks, first, last, pinned):  # type: ignore[no-untyped-def]
    """Pin those of the blocks from `first` to `last` that the node holds, and note which in `pinned`.

    Their head is touched last.
    """
    for place in range(last - 1, first - 1, -1):
        entry = find(caches, node, blocks[place])
        if entry >= 0:
            caches.entries[entry].pins += 1
            pinned[place] = True
            touch(caches, node, entry)


@compiled
def unpin(caches, node, blocks, first, last, pinned):  # type: ignore[no-untyped-def]
    """Undo `pin`."""
    for place in range(first, last):
        if pinned[place]:
            caches.entries[find(caches, node, blocks[place])].pins -= 1
            pinned[place] = False
