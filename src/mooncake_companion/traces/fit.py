"""Fit a workload's statistics on a trace, and measure how like it a generated one is."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np

from mooncake_companion.traces.trace import (
    Floats,
    Ints,
    Trace,
    infinite_cache_hit_ratio,
    infinite_cache_leading_hits,
    tick_s,
)
from mooncake_companion.traces.workload import (
    CLASS_LEVELS,
    CLASSES,
    LEVELS,
    TURN_CLASSES,
    Row,
    Workload,
    turn_class,
)

_TIME_PARTS = 12
_DIGITS = 6
_LEAST_SAMPLE = 8
"""A class with fewer continuations borrows the reuse of all classes."""


def fit_workload(trace: Trace, *, name: str | None = None) -> Workload:
    """Fit the statistics that `generate` needs; the same trace always gives the same ones.

    Parameters
    ----------
    trace : Trace
    name : str, optional
        Name of the workload; the trace's, if not given.
    """
    part = _time_part(trace)
    classes = _classes(trace.input_tokens)
    links = _links(trace)
    odds = _continuation_odds(links, classes, part)
    return Workload(
        name=name or trace.name,
        fitted_on=trace.sha256,
        requests=len(trace),
        duration_s=trace.duration_s,
        tick_s=float(tick_s(trace) or 0.0),
        shared_blocks=links.shared_blocks,
        load_by_time=_row(np.bincount(part, minlength=_TIME_PARTS) * _TIME_PARTS / len(trace)),
        class_by_time=_class_shares(classes, part),
        input_tokens=_knots(trace.input_tokens, LEVELS),
        output_tokens=tuple(_knots(trace.output_tokens[classes == k], CLASS_LEVELS) for k in range(CLASSES)),
        continuation_by_class=_row(odds[:CLASSES], 3),
        continuation_by_time=_row(odds[CLASSES:], 3),
        **_reuse(trace, links, classes),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Links:
    """Who continues whom: for each request the blocks it reuses and where they were last."""

    shared_blocks: int
    continues: np.ndarray[Any, np.dtype[np.bool]]
    repeats: np.ndarray[Any, np.dtype[np.bool]]
    reused_blocks: Ints
    age_s: Floats
    left_blocks: Ints
    parent_turn: Ints


def _links(trace: Trace) -> _Links:
    shared = _shared_blocks(trace)
    reused = infinite_cache_leading_hits(trace)
    blocks = np.diff(trace.block_offsets)
    parent = np.full(len(trace), -1, dtype=np.int64)
    turn = np.zeros(len(trace), dtype=np.int64)
    latest: dict[int, int] = {}
    for request in range(len(trace)):
        ids = trace.blocks_of(request).tolist()
        if reused[request] > shared:
            parent[request] = latest[ids[reused[request] - 1]]
            turn[request] = turn[parent[request]] + 1
        latest.update(dict.fromkeys(ids, request))
    return _Links(
        shared_blocks=shared,
        continues=parent >= 0,
        repeats=(parent >= 0) & (reused == blocks),
        reused_blocks=reused,
        age_s=trace.arrival_s - trace.arrival_s[parent],
        left_blocks=blocks[parent] - reused,
        parent_turn=turn[parent],
    )


def _shared_blocks(trace: Trace) -> int:
    """Leading blocks that all requests have in common."""
    common = trace.blocks_of(0)
    for request in range(1, len(trace)):
        ids = trace.blocks_of(request)[: len(common)]
        same = ids == common[: len(ids)]
        common = common[: len(ids) if same.all() else int(np.argmin(same))]
    return len(common) if len(trace) > 1 else 0


def _time_part(trace: Trace) -> Ints:
    since_s = trace.arrival_s - trace.arrival_s[0]
    share = since_s / max(trace.duration_s, 1e-9)
    return np.minimum((share * _TIME_PARTS).astype(np.int64), _TIME_PARTS - 1)


def _classes(input_tokens: Ints) -> Ints:
    """Tenths of the requests by length; equals are told apart by their order."""
    rank = np.empty(len(input_tokens), dtype=np.int64)
    rank[np.argsort(input_tokens, kind="stable")] = np.arange(len(input_tokens))
    return np.asarray(rank * CLASSES // len(input_tokens))


def _class_shares(classes: Ints, part: Ints) -> tuple[Row, ...]:
    """Mix of length classes by time; a part without requests has all classes alike."""
    counts = [np.bincount(classes[part == k], minlength=CLASSES) for k in range(_TIME_PARTS)]
    return tuple(_row(c / c.sum() if c.any() else np.full(CLASSES, 1 / CLASSES), 3) for c in counts)


def _continuation_odds(links: _Links, classes: Ints, part: Ints) -> Floats:
    """Log odds by class, then by time: logistic regression, damped a little so that it always ends."""
    design = np.zeros((len(classes), CLASSES + _TIME_PARTS))
    design[np.arange(len(classes)), classes] = 1
    design[np.arange(len(classes)), CLASSES + part] = 1
    damping = 0.01 * np.eye(design.shape[1])
    odds = np.zeros(design.shape[1])
    for _ in range(50):
        share = 1 / (1 + np.exp(-design @ odds))
        slope = design.T @ (links.continues - share) - damping @ odds
        curvature = design.T @ (design * (share * (1 - share))[:, None]) + damping
        odds += np.linalg.solve(curvature, slope)
    return odds


def _reuse(trace: Trace, links: _Links, classes: Ints) -> dict[str, Any]:
    grows = links.continues & ~links.repeats
    share = links.reused_blocks / np.diff(trace.block_offsets)
    rows, repeats = [], []
    for k in range(CLASSES):
        own = grows & (classes == k)
        rows.append(_knots(share[own if own.sum() >= _LEAST_SAMPLE else grows], CLASS_LEVELS))
        continued = links.continues & (classes == k)
        repeats.append(links.repeats[continued].mean() if continued.any() else 0.0)
    return {
        "repeat_share": _row(np.asarray(repeats), 4),
        "reused_share": tuple(rows),
        "age_s": _knots(links.age_s[links.continues], LEVELS),
        "parent_turns": _turn_shares(links),
        "left_blocks": _knots(links.left_blocks[grows], LEVELS),
    }


def _turn_shares(links: _Links) -> Row:
    classes = [turn_class(turn) for turn in links.parent_turn[links.continues].tolist()]
    counts = np.bincount(classes, minlength=TURN_CLASSES) if classes else np.ones(TURN_CLASSES)
    return _row(counts / counts.sum(), 4)


def _knots(values: Ints | Floats, levels: Row) -> Row:
    return _row(np.quantile(values, levels)) if len(values) else (0.0,) * len(levels)


def _row(values: Floats, digits: int = _DIGITS) -> Row:
    return tuple(float(f"{v:.{digits}g}") for v in values.tolist())


def lru_hit_ratio(trace: Trace, blocks: int) -> float:
    """Share of block requests that one LRU cache of so many blocks serves.

    Each request touches its blocks from the prompt's end to its start, so that a prefix is not
    evicted before what stands on it.
    """
    held: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for request in range(len(trace)):
        ids = trace.blocks_of(request).tolist()
        for block in ids:
            if block not in held:
                break
            hits += 1
        for block in reversed(ids):
            held[block] = None
            held.move_to_end(block)
        while len(held) > blocks:
            held.popitem(last=False)
    return hits / len(trace.block_ids)


def fidelity(
    trace: Trace, other: Trace, *, lru_blocks: tuple[int, ...] = (1_000, 10_000, 50_000)
) -> dict[str, tuple[float, float]]:
    """Compare two traces, number by number.

    Returns
    -------
    dict of str to (float, float)
        The value for each of the two: hit ratios of an infinite cache and of LRU caches, length
        quantiles in tokens, distinct blocks per request, share of blocks used only once.
    """
    pairs = {"infinite-cache hit ratio": (infinite_cache_hit_ratio(trace), infinite_cache_hit_ratio(other))}
    for blocks in lru_blocks:
        pairs[f"LRU hit ratio, {blocks} blocks"] = (
            lru_hit_ratio(trace, blocks),
            lru_hit_ratio(other, blocks),
        )
    for column in ("input_tokens", "output_tokens"):
        for q in (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99):
            both = [float(np.quantile(getattr(t, column), q)) for t in (trace, other)]
            pairs[f"{column}, quantile {q}"] = (both[0], both[1])
        pairs[f"{column}, mean"] = (
            float(getattr(trace, column).mean()),
            float(getattr(other, column).mean()),
        )
    uses = [np.unique(t.block_ids, return_counts=True)[1] for t in (trace, other)]
    pairs["distinct blocks per request"] = (len(uses[0]) / len(trace), len(uses[1]) / len(other))
    pairs["share of blocks used once"] = (float((uses[0] == 1).mean()), float((uses[1] == 1).mean()))
    return pairs
