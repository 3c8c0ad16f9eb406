"""Fit a workload's statistics on a trace."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mooncake_companion.traces.trace import (
    BLOCK_TOKENS,
    Floats,
    Ints,
    Trace,
    infinite_cache_leading_hits,
    tick_s,
)
from mooncake_companion.traces.workload import (
    AGE_ROWS,
    CLASS_LEVELS,
    CLASSES,
    LEVELS,
    PARENT_CLASSES,
    TURN_CLASSES,
    Kind,
    Row,
    Workload,
    turn_class,
)

_PARTS = 24
_AGE_LEVELS = (0.005, 0.01, 0.025, *np.arange(1, 20) / 20, 0.975, 0.99)
_ROUNDS = 30
_MOST_CHOICES = 5_000
"""Rates are fitted on so many continuations at most, evenly spaced."""
_DAMPING = 0.1
"""Added to what was seen and what was expected, so that no rate becomes 0."""
_LATER = np.minimum(np.arange(TURN_CLASSES), 1)
"""Row of the factors by length for each turn class: the first requests of sessions, or later ones."""
_DIGITS = 6
_LEAST_SAMPLE = 8
"""A class with fewer continuations borrows what those of all classes do."""


def fit_workload(trace: Trace, *, name: str | None = None) -> Workload:
    """Fit the statistics that `generate` needs; the same trace always gives the same ones.

    Parameters
    ----------
    trace : Trace
    name : str, optional
        Name of the workload; the trace's, if not given.
    """
    tick = float(tick_s(trace) or 0.0)
    return Workload(
        name=name or trace.name,
        basis=f"fitted on the {trace.name} trace",
        fitted_on=trace.sha256,
        requests=len(trace),
        duration_s=trace.duration_s,
        tick_s=tick,
        arrival_cv=_arrival_cv(trace, tick),
        load_by_time=_row(_load(trace)),
        kinds=(_fit_kind(trace),),
    )


def _arrival_cv(trace: Trace, tick: float) -> float:
    """Of the gaps; where only counts are known, from how they differ from one tick to the next."""
    gaps_s = np.diff(trace.arrival_s)
    if tick:
        counts = np.bincount(np.rint(trace.arrival_s / tick).astype(np.int64))
        return round(float(np.sqrt((np.diff(counts) ** 2).mean() / 2 / counts.mean())), 3)
    return round(float(gaps_s.std() / gaps_s.mean()), 3) if len(gaps_s) and gaps_s.any() else 1.0


def _fit_kind(trace: Trace) -> Kind:
    links = _links(trace)
    classes = _classes(trace.input_tokens)
    firsts = ~links.continues
    first_class = np.zeros(len(trace), dtype=np.int64)
    first_class[firsts] = _classes(trace.input_tokens[firsts])
    part = np.arange(len(trace)) * _PARTS // len(trace)
    continued = [links.continues[part == k] for k in range(_PARTS)]
    return Kind(
        prompts=int(links.prompt_blocks > 0),
        prompt_blocks=(float(links.prompt_blocks),),
        input_tokens=_knots(trace.input_tokens, LEVELS),
        output_tokens=tuple(_knots(trace.output_tokens[classes == k], CLASS_LEVELS) for k in range(CLASSES)),
        first_tokens=_knots(trace.input_tokens[firsts], LEVELS),
        first_class_by_part=tuple(_shares(first_class[firsts & (part == k)]) for k in range(_PARTS)),
        continuation_by_part=_row(np.asarray([c.mean() if len(c) else 0.0 for c in continued]), 4),
        **_returns(trace, links),
        **_growth(trace, links),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Links:
    """Who continues whom: for each request the blocks it reuses and the latest that had them."""

    prompt_blocks: int
    continues: npt.NDArray[np.bool]
    repeats: npt.NDArray[np.bool]
    reused_blocks: Ints
    parent: Ints
    turn: Ints


def _links(trace: Trace) -> _Links:
    prompt = _common_blocks(trace)
    reused = infinite_cache_leading_hits(trace)
    parent = np.full(len(trace), -1, dtype=np.int64)
    turn = np.zeros(len(trace), dtype=np.int64)
    latest: dict[int, int] = {}
    for request in range(len(trace)):
        ids = trace.blocks_of(request).tolist()
        if reused[request] > prompt:
            parent[request] = latest[ids[reused[request] - 1]]
            turn[request] = turn[parent[request]] + 1
        latest.update(dict.fromkeys(ids, request))
    return _Links(
        prompt_blocks=prompt,
        continues=parent >= 0,
        repeats=(parent >= 0) & (reused == np.diff(trace.block_offsets)),
        reused_blocks=reused,
        parent=parent,
        turn=turn,
    )


def _common_blocks(trace: Trace) -> int:
    """Leading blocks that all requests have in common."""
    common = trace.blocks_of(0)
    for request in range(1, len(trace)):
        ids = trace.blocks_of(request)[: len(common)]
        same = ids == common[: len(ids)]
        common = common[: len(ids) if same.all() else int(np.argmin(same))]
    return len(common) if len(trace) > 1 else 0


def _load(trace: Trace) -> Floats:
    """Requests in equal parts of the duration, relative to their mean."""
    share = (trace.arrival_s - trace.arrival_s[0]) / max(trace.duration_s, 1e-9)
    part = np.minimum((share * _PARTS).astype(np.int64), _PARTS - 1)
    return np.bincount(part, minlength=_PARTS) * _PARTS / len(trace)


def _classes(tokens: Ints, classes: int = CLASSES) -> Ints:
    """Equal parts of the requests by length; equals are told apart by their order."""
    rank = np.empty(len(tokens), dtype=np.int64)
    rank[np.argsort(tokens, kind="stable")] = np.arange(len(tokens))
    return np.asarray(rank * classes // max(len(tokens), 1))


def _shares(classes: Ints) -> Row:
    """Mix of classes; all alike where there is nobody."""
    counts = np.bincount(classes, minlength=CLASSES)
    return _row(counts / counts.sum() if counts.any() else np.full(CLASSES, 1 / CLASSES), 3)


def _returns(trace: Trace, links: _Links) -> dict[str, Any]:
    """Fit who is continued: a choice among all open ends, with a rate by turn and age, and by length.

    The likelihood of the choices is raised by scaling each rate to what was seen over what was
    expected, in turns (Breslow's estimate, when there is one factor).
    """
    chosen = np.flatnonzero(links.continues)
    if not len(chosen):
        return {}
    age_s = trace.arrival_s[chosen] - trace.arrival_s[links.parent[chosen]]
    edges_s = _age_edges(age_s)
    classes = _classes(trace.input_tokens, PARENT_CLASSES)
    turns = np.asarray([turn_class(t) for t in links.turn.tolist()])
    ends = np.full(len(trace), len(trace), dtype=np.int64)  # when each is continued first
    np.minimum.at(ends, links.parent[chosen], chosen)
    sample = chosen[:: -(-len(chosen) // _MOST_CHOICES)]
    shape = (len(edges_s) - 1, TURN_CLASSES, PARENT_CLASSES)
    seen = np.zeros(shape)
    there = np.zeros((len(sample), *shape), dtype=np.float32)
    for row, request in enumerate(sample.tolist()):
        open_ends = np.flatnonzero(ends[:request] >= request)
        ages_s = trace.arrival_s[request] - trace.arrival_s[open_ends]
        age_class = np.searchsorted(edges_s, ages_s, side="right") - 1
        near = age_class < shape[0]
        at = np.ravel_multi_index((age_class[near], turns[open_ends[near]], classes[open_ends[near]]), shape)
        there[row] = np.bincount(at, minlength=int(np.prod(shape))).reshape(shape)
        parent = links.parent[request]
        own = np.searchsorted(edges_s, trace.arrival_s[request] - trace.arrival_s[parent], side="right") - 1
        seen[own, turns[parent], classes[parent]] += 1
    by_turn, by_length = np.ones(shape[:2]), np.ones((2, PARENT_CLASSES))
    by_age = np.ones((shape[0], AGE_ROWS))
    age_row = np.arange(PARENT_CLASSES) * AGE_ROWS // PARENT_CLASSES
    for _ in range(_ROUNDS):
        for factor, summed in ((by_turn, _by_turn), (by_length, _by_length), (by_age, _by_age)):
            weights = by_turn[:, :, None] * by_length[_LATER] * by_age[:, None, age_row]
            total = np.einsum("ratc,atc->r", there, weights)
            expected = np.einsum("r,ratc->atc", 1 / np.maximum(total, 1e-9), there) * weights
            factor *= (summed(seen) + _DAMPING) / (summed(expected) + _DAMPING)
    return {
        "return_age_s": _row(edges_s),
        "return_rate": _relative(by_turn.T),
        "return_by_length": _relative(by_length),
        "return_by_age": _relative(by_age.T),
    }


def _by_turn(counts: Floats) -> Floats:
    """Sum counts by age, turn class and length class over lengths."""
    return np.asarray(counts.sum(2))


def _by_length(counts: Floats) -> Floats:
    """Sum them over ages: for the first requests of sessions, and for later ones."""
    return np.stack([counts[:, :1].sum((0, 1)), counts[:, 1:].sum((0, 1))])


def _by_age(counts: Floats) -> Floats:
    """Sum them over turns, and over the lengths of each row."""
    return np.asarray(counts.sum(1).reshape(len(counts), AGE_ROWS, -1).sum(2))


def _relative(rates: Floats) -> tuple[Row, ...]:
    return tuple(_row(row, 3) for row in rates / rates.max())


def _age_edges(age_s: Floats) -> Floats:
    """Edges at quantiles of the ages; each differs from the one before."""
    inner = np.unique(np.round(np.quantile(age_s, _AGE_LEVELS), 3))
    top = float(np.ceil(age_s.max() + 1e-3))
    return np.concatenate(([0.0], inner[(inner > 0) & (inner < top)], [top]))


def _growth(trace: Trace, links: _Links) -> dict[str, Any]:
    """Fit what a continuation leaves out and adds, by class of the request that it continues."""
    classes = _classes(trace.input_tokens, PARENT_CLASSES)
    parent_class = np.where(links.continues, classes[links.parent], -1)
    grows = links.continues & ~links.repeats
    left = np.diff(trace.block_offsets)[links.parent] - links.reused_blocks
    new = trace.input_tokens - links.reused_blocks * BLOCK_TOKENS
    repeats, left_rows, new_rows = [], [], []
    for k in range(PARENT_CLASSES):
        continued = links.continues & (parent_class == k)
        own = continued & grows
        own = own if own.sum() >= _LEAST_SAMPLE else grows
        repeats.append(links.repeats[continued].mean() if continued.any() else 0.0)
        left_rows.append(_knots(left[own], CLASS_LEVELS))
        new_rows.append(_knots(new[own], CLASS_LEVELS))
    return {
        "repeat_share": _row(np.asarray(repeats), 4),
        "left_blocks": tuple(left_rows),
        "new_tokens": tuple(new_rows),
        "reused_blocks": _knots(links.reused_blocks[grows], LEVELS),
    }


def _knots(values: Ints | Floats, levels: Row) -> Row:
    return _row(np.quantile(values, levels)) if len(values) else (0.0,) * len(levels)


def _row(values: Floats, digits: int = _DIGITS) -> Row:
    return tuple(float(f"{v:.{digits}g}") for v in values.tolist())
