"""Speed of the LRU hit-ratio curve, beside that of a plain LRU cache at one capacity.

Each function returns records with the keys ``name``, ``requests`` (accesses to blocks),
``requests_per_s`` and ``peak_bytes``. Run as a script, it writes them as JSON.
"""

import json
import sys
import time
import tracemalloc
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from mooncake_companion import traces
from mooncake_companion.simulator.reuse_distance import Ints, lru_hit_curve

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


def lru_curve(block_ids: Ints, *, repeats: int = 7) -> list[dict[str, Any]]:
    """Time the curve over all capacities and the baseline at one, by turns; the best of each counts.

    Parameters
    ----------
    block_ids : array of int64, shape (accesses,)
    repeats : int
        Rounds; compilation is not timed.

    Returns
    -------
    list of dict
        ``lru-curve``, with the key ``ratio`` for how many times as fast it is as ``ratio_to``, and
        ``ordered-dict-lru``.
    """
    blocks = block_ids.tolist()
    hits = lru_hit_curve(block_ids)
    if hits[min(BASELINE_BLOCKS, len(hits) - 1)] != ordered_dict_lru_hits(blocks, BASELINE_BLOCKS):
        raise AssertionError("the curve and the plain cache do not agree")
    subjects: dict[str, Callable[[], Any]] = {
        "lru-curve": lambda: lru_hit_curve(block_ids),
        "ordered-dict-lru": lambda: ordered_dict_lru_hits(blocks, BASELINE_BLOCKS),
    }
    best_s = dict.fromkeys(subjects, float("inf"))
    for _ in range(repeats):
        for name, run in subjects.items():
            best_s[name] = min(best_s[name], _seconds(run))
    records: list[dict[str, Any]] = [
        {
            "name": name,
            "requests": len(blocks),
            "requests_per_s": len(blocks) / best_s[name],
            "peak_bytes": _peak_bytes(run),
        }
        for name, run in subjects.items()
    ]
    records[0] |= {"ratio": best_s["ordered-dict-lru"] / best_s["lru-curve"], "ratio_to": "ordered-dict-lru"}
    return records


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _peak_bytes(run: Callable[[], Any]) -> int:
    """Most memory that a call has allocated at once, in bytes, without what was there before."""
    tracemalloc.start()
    run()
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak_bytes


if __name__ == "__main__":
    json.dump(lru_curve(traces.load("conversation").block_ids), sys.stdout, indent=2)
    sys.stdout.write("\n")
