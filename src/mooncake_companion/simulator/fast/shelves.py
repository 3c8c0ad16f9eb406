"""Eviction policies in arrays; twin of `simulator.eviction`.

A shelf is one tier of one node, with a policy of its own; what it holds are entries of `caches`. Three
kinds of order do for all policies: one list (LRU, FIFO, SIEVE), two lists and a list of what was let
go (S3-FIFO), or a heap of ranks (LFU, length-aware, Belady's optimum, the store's rule).
"""

import math
from typing import Any, NamedTuple

import numpy as np

from mooncake_companion.simulator.eviction import POLICIES, STORE, BatchEviction, S3Fifo
from mooncake_companion.simulator.fast.compiling import compiled, inlined

TIERS = 3
_RULES = {name: number for number, name in enumerate((*POLICIES, STORE))}
_LRU, _FIFO, _SIEVE, _S3_FIFO = (_RULES[name] for name in ("lru", "fifo", "sieve", "s3-fifo"))
_LFU, _LATE, _BELADY = (_RULES[name] for name in ("lfu", "length-aware-keeping-late", "belady"))
_LENGTH_AWARE, _STORE = _RULES["length-aware"], _RULES[STORE]
_RANKED = (_LFU, _LENGTH_AWARE, _LATE, _BELADY, _STORE)
_MAIN, _SMALL = 0, 1
_THRESHOLD, _ROUNDS = S3Fifo.THRESHOLD, S3Fifo.ROUNDS

ENTRY = np.dtype(
    [
        ("block", np.int32),
        ("node", np.int32),
        ("older", np.int32),
        ("newer", np.int32),
        ("next_holder", np.int32),
        ("last_holder", np.int32),
        ("pins", np.int32),
        ("tier", np.int8),
        ("queue", np.int8),
        ("marks", np.int16),
    ]
)
"""A block on a node. ``queue``: which list of its shelf it is in; ``marks``: SIEVE's mark, or the
accesses that S3-FIFO counts, as far as they matter."""
RANK = np.dtype(
    [
        ("first", np.float64),
        ("second", np.float64),
        ("serial", np.int64),
        ("now_s", np.float64),
        ("next_use", np.float64),
        ("depth", np.int32),
        ("place", np.int32),
    ]
)
"""Of an entry, if ranks are used: what it is ordered by, its last use, and its place in the heap."""
LIST = np.dtype([("oldest", np.int32), ("newest", np.int32), ("held", np.int64)])
SHELF = np.dtype(
    [
        ("held", np.int64),
        ("capacity", np.int64),
        ("hand", np.int64),
        ("heap", np.int64),
        ("small_blocks", np.int64),
        ("ghost_blocks", np.int64),
        ("ghosts", np.int64),
        ("oldest_ghost", np.int32),
        ("newest_ghost", np.int32),
    ]
)
"""``heap``: where its part of the heap begins. Ghosts are the ids that S3-FIFO remembers."""
GHOST = np.dtype([("older", np.int32), ("newer", np.int32)])
"""By shelf and block: neighbours in the list; ``newer`` is -2 for a block that is not in it."""
_NO_GHOST = -2


RULE = np.dtype(
    [
        ("name", np.int64),
        ("serial", np.int64),
        ("watermark", np.float64),
        ("ratio", np.float64),
        ("lease_ttl_s", np.float64),
    ]
)
"""The policy: ``serial`` is that of the latest rank, what follows is the store's."""


class Shelves(NamedTuple):
    """All shelves: records of the kinds above; ``lists`` has two for each shelf, ``rule`` one in all."""

    entries: Any
    ranks: Any
    states: Any
    lists: Any
    heap: Any
    ghosts: Any
    rule: Any


def new_shelves(
    nodes: int,
    entries: np.ndarray,
    capacities: tuple[int, ...],
    blocks: int,
    eviction: str,
    lease_ttl_s: float,
) -> Shelves:
    """Empty shelves of `TIERS` tiers a node, for block ids below `blocks`."""
    rule, count = _RULES[eviction], nodes * TIERS
    ranked = rule in _RANKED
    states = np.zeros(count, SHELF)
    for tier, capacity in enumerate(capacities):
        mine = states[tier::TIERS]
        mine["capacity"] = capacity
        mine["small_blocks"] = int(capacity * S3Fifo.SMALL_SHARE)
        mine["ghost_blocks"] = int(capacity * S3Fifo.GHOST_SHARE)
    room = np.minimum(states["capacity"], blocks)
    states["heap"] = np.cumsum(room) - room
    states["hand"] = states["oldest_ghost"] = states["newest_ghost"] = -1
    lists = np.zeros(2 * count, LIST)
    lists["oldest"] = lists["newest"] = -1
    ghosts = np.zeros((count, blocks) if rule == _S3_FIFO else (1, 1), GHOST)
    ghosts["newer"] = _NO_GHOST
    policy, store = np.zeros(1, RULE), BatchEviction(1, lease_ttl_s=lease_ttl_s)
    policy["name"] = rule
    for name in ("watermark", "ratio", "lease_ttl_s"):
        policy[name] = getattr(store, name)
    return Shelves(
        entries=entries,
        ranks=np.zeros(len(entries) if ranked else 1, RANK),
        states=states,
        lists=lists,
        heap=np.zeros(int(room.sum()) if ranked else 1, np.int32),
        ghosts=ghosts,
        rule=policy,
    )


@inlined
def evicts_batches(shelves):  # type: ignore[no-untyped-def]
    """Whether the store's rule holds."""
    return shelves.rule[0].name == _STORE


@inlined
def is_full(shelves, shelf):  # type: ignore[no-untyped-def]
    """Whether a shelf has no room left."""
    return shelves.states[shelf].held >= shelves.states[shelf].capacity


@inlined
def enter(shelves, shelf, entry, now_s, depth, next_use):  # type: ignore[no-untyped-def]
    """Admit an entry to a shelf that has room."""
    entries, rule = shelves.entries, shelves.rule[0].name
    entries[entry].tier = shelf % TIERS
    entries[entry].marks = 0
    shelves.states[shelf].held += 1
    if rule in (_LRU, _FIFO, _SIEVE):
        _append(shelves.entries, shelves.lists, shelf, _MAIN, entry)
    elif rule == _S3_FIFO:
        _enter_s3_fifo(shelves, shelf, entry)
    else:
        rank = shelves.ranks[entry]
        rank.first = 1.0
        rank.second = 0.0
        if rule == _LENGTH_AWARE:
            rank.second = -depth
        elif rule == _LATE:
            rank.second = depth
        elif rule == _BELADY:
            rank.first = -next_use
        elif rule == _STORE:
            rank.first = now_s
        _note(shelves, rank, now_s, depth, next_use)
        place = shelves.states[shelf].held - 1
        _sift_up(shelves, shelf, entry, place)


@inlined
def touch(shelves, entry, now_s, depth, next_use):  # type: ignore[no-untyped-def]
    """Note an access to an entry, on the shelf that it is on."""
    entries, rule = shelves.entries, shelves.rule[0].name
    if rule == _LRU:
        shelf = _shelf(entries[entry])
        if shelves.lists[2 * shelf].newest != entry:
            _unlink(shelves.entries, shelves.lists, entry)
            _append(shelves.entries, shelves.lists, shelf, _MAIN, entry)
    elif rule == _FIFO:
        return
    elif rule == _SIEVE:
        entries[entry].marks = 1
    elif rule == _S3_FIFO:
        entries[entry].marks = min(entries[entry].marks + 1, _ROUNDS)
    else:
        rank, shelf = shelves.ranks[entry], _shelf(entries[entry])
        if rule == _BELADY:
            rank.first = -next_use
        elif rule == _STORE:
            rank.first = max(rank.first, now_s + shelves.rule[0].lease_ttl_s)
        else:
            rank.first += 1.0
        _note(shelves, rank, now_s, depth, next_use)
        _sift(shelves, shelf, entry, rank.place)


@compiled
def victim(shelves, shelf):  # type: ignore[no-untyped-def]
    """Take out of a shelf what has to go next; -1 if nothing may."""
    rule = shelves.rule[0].name
    if rule == _STORE:
        return -1
    if rule in (_LRU, _FIFO):
        entry = _first_unpinned(shelves, shelf, _MAIN)
    elif rule == _SIEVE:
        entry = _next_unmarked(shelves, shelf)
    elif rule == _S3_FIFO:
        return _victim_s3_fifo(shelves, shelf)
    else:
        entry = _least_unpinned(shelves, shelf)
    if entry >= 0:
        remove(shelves, entry)
    return entry


@compiled
def remove(shelves, entry):  # type: ignore[no-untyped-def]
    """Take an entry out of the shelf that it is on."""
    rule, shelf = shelves.rule[0].name, _shelf(shelves.entries[entry])
    shelves.states[shelf].held -= 1
    if rule in (_LRU, _FIFO, _SIEVE, _S3_FIFO):
        if rule == _SIEVE and shelves.states[shelf].hand == entry:
            shelves.states[shelf].hand = shelves.entries[entry].newer
        _unlink(shelves.entries, shelves.lists, entry)
    else:
        held, heap, place = shelves.states[shelf].held, shelves.states[shelf].heap, shelves.ranks[entry].place
        if place < held:
            moved = shelves.heap[heap + held]
            shelves.heap[heap + place] = moved
            shelves.ranks[moved].place = place
            _sift(shelves, shelf, moved, place)


@compiled
def surplus(shelves, shelf, now_s, victims):  # type: ignore[no-untyped-def]
    """Take out of a shelf the batch that the store's rule evicts now, into `victims`; how many."""
    state, rule = shelves.states[shelf], shelves.rule[0]
    if rule.name != _STORE or not state.held > rule.watermark * state.capacity:
        return 0
    evictable = 0
    for place in range(state.held):
        entry = shelves.heap[state.heap + place]
        if shelves.ranks[entry].first <= now_s and not shelves.entries[entry].pins:
            evictable += 1
    wanted = math.ceil(evictable * max(rule.ratio, state.held / state.capacity - rule.watermark + rule.ratio))
    for taken in range(wanted):
        entry = _least_unpinned(shelves, shelf)
        remove(shelves, entry)
        victims[taken] = entry
    return wanted


@inlined
def _shelf(entry):  # type: ignore[no-untyped-def]
    return entry.node * TIERS + entry.tier


# Lists


@inlined
def _unlink(entries, lists, entry):  # type: ignore[no-untyped-def]
    older, newer = entries[entry].older, entries[entry].newer
    queue = lists[2 * _shelf(entries[entry]) + entries[entry].queue]
    queue.held -= 1
    if older >= 0:
        entries[older].newer = newer
    else:
        queue.oldest = newer
    if newer >= 0:
        entries[newer].older = older
    else:
        queue.newest = older


@inlined
def _append(entries, lists, shelf, which, entry):  # type: ignore[no-untyped-def]
    queue = lists[2 * shelf + which]
    newest = queue.newest
    queue.held += 1
    entries[entry].queue = which
    entries[entry].older = newest
    entries[entry].newer = -1
    if newest >= 0:
        entries[newest].newer = entry
    else:
        queue.oldest = entry
    queue.newest = entry


@compiled
def _first_unpinned(shelves, shelf, which):  # type: ignore[no-untyped-def]
    entry = shelves.lists[2 * shelf + which].oldest
    while entry >= 0 and shelves.entries[entry].pins:
        entry = shelves.entries[entry].newer
    return np.int64(entry)


@compiled
def _next_unmarked(shelves, shelf):  # type: ignore[no-untyped-def]
    """Move SIEVE's hand to the next entry without a mark; marks it passes are taken away."""
    entries, state = shelves.entries, shelves.states[shelf]
    hand = state.hand
    for _ in range(2 * state.held + 1):
        if hand < 0:
            hand = np.int64(shelves.lists[2 * shelf].oldest)
        if hand < 0:
            return np.int64(-1)
        if not entries[hand].pins:
            if not entries[hand].marks:
                state.hand = hand
                return hand
            entries[hand].marks = 0
        hand = np.int64(entries[hand].newer)
    return np.int64(-1)


# S3-FIFO


@compiled
def _enter_s3_fifo(shelves, shelf, entry):  # type: ignore[no-untyped-def]
    state, block = shelves.states[shelf], shelves.entries[entry].block
    which = _SMALL
    if shelves.ghosts[shelf, block].newer != _NO_GHOST:
        _forget(shelves, shelf, block)
        which = _MAIN
    elif shelves.lists[2 * shelf + _SMALL].held >= state.small_blocks:
        which = _MAIN
    _append(shelves.entries, shelves.lists, shelf, which, entry)
    while state.ghosts > state.ghost_blocks:
        _forget(shelves, shelf, state.oldest_ghost)


@compiled
def _victim_s3_fifo(shelves, shelf):  # type: ignore[no-untyped-def]
    state = shelves.states[shelf]
    if shelves.lists[2 * shelf].held > state.capacity - state.small_blocks:
        entry = _victim_of_main(shelves, shelf)
        return entry if entry >= 0 else _victim_of_small(shelves, shelf)
    entry = _victim_of_small(shelves, shelf)
    return entry if entry >= 0 else _victim_of_main(shelves, shelf)


@compiled
def _victim_of_small(shelves, shelf):  # type: ignore[no-untyped-def]
    while True:
        entry = _first_unpinned(shelves, shelf, _SMALL)
        if entry < 0:
            return entry
        if shelves.entries[entry].marks < _THRESHOLD:
            remove(shelves, entry)
            _remember(shelves, shelf, shelves.entries[entry].block)
            return entry
        _unlink(shelves.entries, shelves.lists, entry)
        shelves.entries[entry].marks = 0
        _append(shelves.entries, shelves.lists, shelf, _MAIN, entry)


@compiled
def _victim_of_main(shelves, shelf):  # type: ignore[no-untyped-def]
    while True:
        entry = _first_unpinned(shelves, shelf, _MAIN)
        if entry < 0:
            return entry
        if not shelves.entries[entry].marks:
            remove(shelves, entry)
            return entry
        _unlink(shelves.entries, shelves.lists, entry)
        shelves.entries[entry].marks -= 1
        _append(shelves.entries, shelves.lists, shelf, _MAIN, entry)


@compiled
def _remember(shelves, shelf, block):  # type: ignore[no-untyped-def]
    state, ghosts = shelves.states[shelf], shelves.ghosts[shelf]
    ghosts[block].older = state.newest_ghost
    ghosts[block].newer = -1
    if state.newest_ghost >= 0:
        ghosts[state.newest_ghost].newer = block
    else:
        state.oldest_ghost = block
    state.newest_ghost = block
    state.ghosts += 1


@compiled
def _forget(shelves, shelf, block):  # type: ignore[no-untyped-def]
    state, ghosts = shelves.states[shelf], shelves.ghosts[shelf]
    older, newer = ghosts[block].older, ghosts[block].newer
    if older >= 0:
        ghosts[older].newer = newer
    else:
        state.oldest_ghost = newer
    if newer >= 0:
        ghosts[newer].older = older
    else:
        state.newest_ghost = older
    ghosts[block].newer = _NO_GHOST
    state.ghosts -= 1


# Ranks


@compiled
def _note(shelves, rank, now_s, depth, next_use):  # type: ignore[no-untyped-def]
    shelves.rule[0].serial += 1
    rank.serial = shelves.rule[0].serial
    rank.now_s = now_s
    rank.depth = depth
    rank.next_use = next_use


@compiled
def _goes_first(one, other):  # type: ignore[no-untyped-def]
    if one.first != other.first:
        return one.first < other.first
    if one.second != other.second:
        return one.second < other.second
    return one.serial < other.serial


@compiled
def _sift(shelves, shelf, entry, place):  # type: ignore[no-untyped-def]
    """Put an entry whose rank has changed where it belongs."""
    heap, ranks = shelves.states[shelf].heap, shelves.ranks
    parent = (place - 1) >> 1
    if place and _goes_first(ranks[entry], ranks[shelves.heap[heap + parent]]):
        _sift_up(shelves, shelf, entry, place)
    else:
        _sift_down(shelves, shelf, entry, place)


@compiled
def _sift_up(shelves, shelf, entry, place):  # type: ignore[no-untyped-def]
    heap, ranks = shelves.states[shelf].heap, shelves.ranks
    while place:
        parent = (place - 1) >> 1
        above = shelves.heap[heap + parent]
        if not _goes_first(ranks[entry], ranks[above]):
            break
        shelves.heap[heap + place] = above
        ranks[above].place = place
        place = parent
    shelves.heap[heap + place] = entry
    ranks[entry].place = place


@compiled
def _sift_down(shelves, shelf, entry, place):  # type: ignore[no-untyped-def]
    heap, held, ranks = shelves.states[shelf].heap, shelves.states[shelf].held, shelves.ranks
    while True:
        child = 2 * place + 1
        if child >= held:
            break
        if child + 1 < held and _goes_first(
            ranks[shelves.heap[heap + child + 1]], ranks[shelves.heap[heap + child]]
        ):
            child += 1
        below = shelves.heap[heap + child]
        if not _goes_first(ranks[below], ranks[entry]):
            break
        shelves.heap[heap + place] = below
        ranks[below].place = place
        place = child
    shelves.heap[heap + place] = entry
    ranks[entry].place = place


@compiled
def _least_unpinned(shelves, shelf):  # type: ignore[no-untyped-def]
    """The entry of least rank that is not in use, or -1; those before it are set aside and put back."""
    entries, state = shelves.entries, shelves.states[shelf]
    found = aside = np.int64(-1)
    while state.held:
        entry = np.int64(shelves.heap[state.heap])
        if not entries[entry].pins:
            found = entry
            break
        remove(shelves, entry)
        entries[entry].newer = aside
        aside = entry
    while aside >= 0:
        after = np.int64(entries[aside].newer)
        state.held += 1
        _sift_up(shelves, shelf, aside, state.held - 1)
        aside = after
    return found
