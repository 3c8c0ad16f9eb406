"""The nodes' caches and the index of holders, in arrays; twin of `simulator.cache_tiers`.

An entry is one block on one node: each node owns a run of them. Entries of a block form a list of its
holders; how those of one tier of a node are ordered is the business of `shelves`.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from mooncake_companion.simulator.cache_tiers import Tier
from mooncake_companion.simulator.eviction import STORE
from mooncake_companion.simulator.fast import shelves as order
from mooncake_companion.simulator.fast.compiling import compiled, inlined

_TIERS, _DRAM, _SSD = order.TIERS, int(Tier.DRAM), int(Tier.SSD)

NODE = np.dtype([("free", np.int32), ("fresh", np.int32), ("held", np.int64)])
"""``free``: a list, through ``newer``, of entries given back; ``fresh``: how many were ever taken."""
LADDER = np.dtype(
    [
        ("room", np.int64),
        ("shared_recency", np.bool_),
        ("top", np.int64),
        ("below", np.int64, order.TIERS),
        ("above", np.int64, order.TIERS),
        ("evictions", np.int64),
        ("demotions", np.int64, order.TIERS),
        ("promotions", np.int64, order.TIERS),
        ("batch", np.int64, (order.TIERS, 2)),
    ]
)
"""What every node has: entries, the first tier that is used, the next one below and above each, or -1.
Beside it counters, and how far the store's rule is in the batch of each tier."""


class Caches(NamedTuple):
    """All caches: entries on shelves, `NODE` records, and the first entry of each block.

    ``victims`` is scratch for the store's batches, by tier; ``ladder`` is one `LADDER`.
    """

    shelves: order.Shelves
    nodes: Any
    holder: Any
    victims: Any
    ladder: Any


def new_caches(
    nodes: int,
    capacities: tuple[int, ...],
    blocks: int,
    eviction: str = "lru",
    lease_ttl_s: float = 10.0,
    *,
    shared_recency: bool = False,
) -> Caches:
    """Empty caches for block ids below `blocks`; no tier can need room for more than all of them.

    There is an entry more than all tiers hold: a block comes in before the one that has to go has left.
    """
    room = min(sum(capacities), blocks) + 1
    entries = np.zeros(nodes * room, order.ENTRY)
    entries["node"] = np.repeat(np.arange(nodes), room)
    ends = np.zeros(nodes, NODE)
    ends["free"] = -1
    ladder = _new_ladder(capacities, room)
    ladder["shared_recency"] = shared_recency
    most = min(max(capacities), blocks) if eviction == STORE else 1
    return Caches(
        shelves=order.new_shelves(nodes, entries, capacities, blocks, eviction, lease_ttl_s),
        nodes=ends,
        holder=np.full(blocks, -1, np.int32),
        victims=np.zeros((_TIERS, most), np.int64),
        ladder=ladder,
    )


def _new_ladder(capacities: tuple[int, ...], room: int) -> np.ndarray:
    ladder, used = np.zeros(1, LADDER), [tier for tier in range(_TIERS) if capacities[tier]]
    ladder["room"] = room
    ladder["top"] = min(used, default=-1)
    for tier in range(_TIERS):
        ladder["below"][0, tier] = min((other for other in used if other > tier), default=-1)
        ladder["above"][0, tier] = max((other for other in used if other < tier), default=-1)
    return ladder


def counters(caches: Caches) -> dict[str, int]:
    """What was counted, in blocks, under the names of `Result`."""
    count = caches.ladder[0]
    return {
        "evictions": int(count["evictions"]),
        "demoted_to_dram": int(count["demotions"][_DRAM]),
        "demoted_to_ssd": int(count["demotions"][_SSD]),
        "promoted_from_dram": int(count["promotions"][_DRAM]),
        "promoted_from_ssd": int(count["promotions"][_SSD]),
    }


@inlined
def find(caches, node, block):  # type: ignore[no-untyped-def]
    """The entry of a block on a node, or -1."""
    entries = caches.shelves.entries
    entry = np.int64(caches.holder[block])
    while entry >= 0 and entries[entry].node != node:
        entry = np.int64(entries[entry].next_holder)
    return entry


@compiled
def count_holders(caches, blocks, counts):  # type: ignore[no-untyped-def]
    """Note in `counts` how many nodes hold each of the blocks."""
    entries = caches.shelves.entries
    for place in range(len(blocks)):
        entry, found = np.int64(caches.holder[blocks[place]]), 0
        while entry >= 0:
            found += 1
            entry = np.int64(entries[entry].next_holder)
        counts[place] = found


@compiled
def leading_hits(caches, blocks, first, last, nodes):  # type: ignore[no-untyped-def]
    """For each node, what it holds of the blocks from `first` on without a gap; see `cache_tiers.Held`.

    ``memory_blocks`` and ``memory_vram_blocks`` are right only if there are ``ssd_blocks``.
    """
    entries, holder = caches.shelves.entries, caches.holder
    for number in range(len(nodes)):
        node = nodes[number]
        node.blocks = 0
        node.vram_blocks = 0
        node.ssd_blocks = 0
    for depth in range(last - first):
        found = False
        entry = holder[blocks[first + depth]]
        while entry >= 0:
            node = nodes[entries[entry].node]
            if node.blocks == depth:
                node.blocks = depth + 1
                found = True
                tier = entries[entry].tier
                if tier == _SSD:
                    if not node.ssd_blocks:
                        node.memory_blocks = depth
                        node.memory_vram_blocks = node.vram_blocks
                    node.ssd_blocks += 1
                elif tier != _DRAM:
                    node.vram_blocks += 1
            entry = entries[entry].next_holder
        if not found:
            return


@inlined
def pin(caches, node, blocks, first, last, pinned):  # type: ignore[no-untyped-def]
    """Pin those of the blocks from `first` to `last` that the node holds, and note their entries."""
    for place in range(first, last):
        entry = find(caches, node, blocks[place])
        if entry >= 0:
            caches.shelves.entries[entry].pins += 1
            order.put_off(caches.shelves, entry)
        pinned[place] = entry


@inlined
def unpin(caches, first, last, pinned):  # type: ignore[no-untyped-def]
    """Undo `pin`; the entries stay noted."""
    for place in range(first, last):
        if pinned[place] >= 0:
            caches.shelves.entries[pinned[place]].pins -= 1


@inlined
def keep(caches, node, block, entry, now_s, depth, next_use):  # type: ignore[no-untyped-def]
    """Note a use of a block and hold it in the top tier; `entry` is its own on the node, or -1."""
    shelves, top = caches.shelves, caches.ladder[0].top
    if top < 0:
        return
    if entry >= 0 and shelves.entries[entry].tier == top:
        order.touch(shelves, entry, now_s, depth, next_use)
        return
    shelf, fallen = node * _TIERS + top, -1
    if order.is_full(shelves, shelf):
        fallen = order.victim(shelves, shelf)
        if fallen < 0:
            if entry >= 0:
                order.touch(shelves, entry, now_s, depth, next_use)
            return
    if entry >= 0:
        caches.ladder[0].promotions[shelves.entries[entry].tier] += 1
        order.remove(shelves, entry)
    else:
        entry = _take(caches, node, block)
    order.enter(shelves, shelf, entry, now_s, depth, next_use)
    if fallen >= 0:
        _fall(caches, node, fallen, top)
    if order.evicts_batches(shelves):
        _thin_out(caches, node, top, now_s)


@compiled
def touch_elsewhere(caches, node, block, now_s, depth, next_use):  # type: ignore[no-untyped-def]
    """Note a use of a block on all nodes that hold it but this one."""
    entry = caches.holder[block]
    while entry >= 0:
        if caches.shelves.entries[entry].node != node:
            order.touch(caches.shelves, entry, now_s, depth, next_use)
        entry = caches.shelves.entries[entry].next_holder


@compiled
def release(caches, entry):  # type: ignore[no-untyped-def]
    """Give back an entry that is on no shelf any more."""
    entries, node = caches.shelves.entries, caches.nodes[caches.shelves.entries[entry].node]
    after, before = entries[entry].next_holder, entries[entry].last_holder
    if before >= 0:
        entries[before].next_holder = after
    else:
        caches.holder[entries[entry].block] = after
    if after >= 0:
        entries[after].last_holder = before
    entries[entry].block = -1
    entries[entry].newer = node.free
    node.free = entry
    node.held -= 1


@compiled
def evict(caches, node):  # type: ignore[no-untyped-def]
    """Let the next block leave a node that has a single tier."""
    entry = order.victim(caches.shelves, node * _TIERS + caches.ladder[0].top)
    if entry >= 0:
        caches.ladder[0].evictions += 1
        release(caches, entry)


@compiled
def drop(caches, entry):  # type: ignore[no-untyped-def]
    """Let go of a block unless it is in use."""
    if not caches.shelves.entries[entry].pins:
        order.remove(caches.shelves, entry)
        release(caches, entry)


@compiled
def _take(caches, node, block):  # type: ignore[no-untyped-def]
    """An entry for a block that the node does not hold, on no shelf yet."""
    entries, entry = caches.shelves.entries, np.int64(caches.nodes[node].free)
    if entry >= 0:
        caches.nodes[node].free = entries[entry].newer
    else:
        entry = node * caches.ladder[0].room + caches.nodes[node].fresh
        caches.nodes[node].fresh += 1
    caches.nodes[node].held += 1
    other = caches.holder[block]
    entries[entry].block = block
    entries[entry].next_holder = other
    entries[entry].last_holder = -1
    if other >= 0:
        entries[other].last_holder = entry
    caches.holder[block] = entry
    return entry


@compiled
def _enter_below(caches, node, entry, tier):  # type: ignore[no-untyped-def]
    """Put an entry that was taken out of a tier above into `tier`, with its last use."""
    shelves, shelf = caches.shelves, node * _TIERS + tier
    caches.ladder[0].demotions[tier] += 1
    if len(shelves.ranks) == 1:
        order.enter(shelves, shelf, entry, 0.0, 0, math.inf)
    else:
        rank = shelves.ranks[entry]
        order.enter(shelves, shelf, entry, rank.now_s, rank.depth, rank.next_use)


@compiled
def _fall(caches, node, entry, tier):  # type: ignore[no-untyped-def]
    """Put an entry that was taken out of a tier into the next one, and so on with what must go there."""
    while entry >= 0:
        tier, fallen = caches.ladder[0].below[tier], -1
        if tier >= 0 and order.is_full(caches.shelves, node * _TIERS + tier):
            fallen = order.victim(caches.shelves, node * _TIERS + tier)
            if fallen < 0:
                tier = -1
        if tier < 0:
            caches.ladder[0].evictions += 1
            release(caches, entry)
            return
        _enter_below(caches, node, entry, tier)
        entry = fallen


@compiled
def _thin_out(caches, node, top, now_s):  # type: ignore[no-untyped-def]
    """Evict the batches that the store's rule asks for, from `top` down: depth first, as they fall."""
    victims, batch, tier = caches.victims, caches.ladder[0].batch, top
    batch[tier, 0] = 0
    batch[tier, 1] = order.surplus(caches.shelves, node * _TIERS + tier, now_s, victims[tier])
    while tier >= top:
        if batch[tier, 0] == batch[tier, 1]:
            tier = caches.ladder[0].above[tier]
            continue
        entry, below = victims[tier, batch[tier, 0]], caches.ladder[0].below[tier]
        batch[tier, 0] += 1
        if below < 0 or order.is_full(caches.shelves, node * _TIERS + below):
            caches.ladder[0].evictions += 1
            release(caches, entry)
            continue
        _enter_below(caches, node, entry, below)
        tier = below
        batch[tier, 0] = 0
        batch[tier, 1] = order.surplus(caches.shelves, node * _TIERS + tier, now_s, victims[tier])
