"""Speed of the LRU hit-ratio curve, beside that of a plain LRU cache at one capacity."""

from collections import OrderedDict
from collections.abc import Sequence

from mooncake_companion import traces
from mooncake_companion.simulator.reuse_distance import Ints, lru_hit_curve

from .records import Record, measured, record

BASELINE_BLOCKS = 10_000


def ordered_dict_lru_hits(blocks: Sequence[int], capacity_blocks: int) -> int:
    """Hits of the LRU cache that one would write first."""
    held: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for block in blocks:
        if block in held:
            hits += 1
            held.move_to_end(block)
            continue
        if len(held) == capacity_blocks:
            held.popitem(last=False)
        held[block] = None
    return hits


def lru_curve(*, repeats: int = 7, block_ids: Ints | None = None) -> list[Record]:
    """Time the curve over all capacities, and the plain cache at one of them.

    Parameters
    ----------
    repeats : int
    block_ids : array of int64, shape (accesses,), optional
        Those of the conversation trace, if not given.

    Returns
    -------
    list of dict
        One record; its requests are accesses to blocks, and ``ratio`` is how many times as fast the
        curve is as the plain cache.
    """
    ids = traces.load("conversation").block_ids if block_ids is None else block_ids
    blocks = ids.tolist()
    hits = lru_hit_curve(ids)
    if hits[min(BASELINE_BLOCKS, len(hits) - 1)] != ordered_dict_lru_hits(blocks, BASELINE_BLOCKS):
        raise AssertionError("the curve and the plain cache do not agree")
    curve = measured(lambda: lru_hit_curve(ids), repeats=repeats)
    plain = measured(lambda: ordered_dict_lru_hits(blocks, BASELINE_BLOCKS), repeats=repeats)
    return [
        record(
            "lru-curve",
            len(blocks),
            curve,
            ratio=plain.seconds / curve.seconds,
            ratio_to="an OrderedDict at one capacity",
            ratio_peak_bytes=plain.peak_bytes,
        )
    ]
