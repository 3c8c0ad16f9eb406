"""FAST'25, Figures 1 and 7, on a slice of the trace: time between tokens of Mooncake and of vLLM."""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from mooncake_companion.live.outcome import Outcome, Progress, Row
from mooncake_companion.live.slices import Slice, hit_ratio, ttfts_s
from mooncake_companion.live.systems import (
    AXIS_END_S,
    QUANTILES,
    SYSTEMS,
    TBT_LIMITS_S,
    TRACE,
    Params,
    capacity_column,
    quantile_column,
    replay,
)
from mooncake_companion.simulator.reference import Record
from mooncake_companion.statistics import interpolate, mean, quantile

POINTS = 200
"""Of a curve, from 0.02 s to 2 s."""
LIMITS_MS = tuple(range(25, 525, 25))
"""Limits on TBT that `experiments.served_in_time` has a share for."""
FINE_POINTS = 400
"""Of the curves that these are read off."""
_TOLD_MS = 100


def capacity(params: Params, sliced: Slice, progress: Progress) -> Outcome:
    """Effective capacity of every system; columns as of `experiments.end_to_end.run`."""
    rows = [
        {**_summary(system, head, records), "workload": TRACE}
        for system, head, records in _replays(params, sliced, progress)
    ]
    shares = "; ".join(
        f"{row['system']} {', '.join(f'{row[capacity_column(limit_s)]:.0%}' for limit_s in TBT_LIMITS_S)}"
        for row in rows
    )
    limits = ", ".join(f"{1e3 * limit_s:g}" for limit_s in TBT_LIMITS_S)
    return Outcome(
        rows=rows,
        description=(
            "Bars: share of the requests whose time between tokens is within each limit, by system, computed "
            f"in this browser. Within {limits} ms: {shares}."
        ),
        fixed={"capacity_workload": TRACE},
    )


def tbt(params: Params, sliced: Slice, progress: Progress) -> Outcome:
    """Requests by their TBT, for every system; columns as of `experiments.end_to_end.curves`."""
    rows: list[Row] = []
    medians = []
    limits_s = _limits_s(POINTS)
    for system, _, records in _replays(params, sliced, progress):
        shares = zip(limits_s, _shares(records, limits_s), strict=True)
        rows += [
            {"origin": "modelled", "system": system, "tbt_s": limit_s, "share": share, "workload": TRACE}
            for limit_s, share in shares
        ]
        medians.append(f"{system} {1e3 * quantile(_rhythms_s(records), 0.5):.0f}")
    return Outcome(
        rows=rows,
        description=(
            "Share of requests by their time between tokens, a line for each system, computed in this "
            f"browser. Modelled medians in ms: {', '.join(medians)}."
        ),
        fixed={"tbt_workload": TRACE},
    )


def in_time(params: Params, sliced: Slice, progress: Progress) -> Outcome:
    """Requests within each of `LIMITS_MS`, by system; columns as of `experiments.served_in_time`."""
    curve_s = _limits_s(FINE_POINTS)
    rows: list[Row] = []
    for system, _, records in _replays(params, sliced, progress):
        shares = _shares(records, curve_s)
        rows += [
            {
                "workload": TRACE,
                "origin": "modelled",
                "system": system,
                "limit_ms": limit_ms,
                "share": interpolate(limit_ms / 1e3, curve_s, shares),
            }
            for limit_ms in LIMITS_MS
        ]
    told = ", ".join(f"{row['system']} {row['share']:.0%}" for row in rows if row["limit_ms"] == _TOLD_MS)
    return Outcome(
        rows=rows,
        description=(
            "Share of the requests whose time between tokens stays within a limit, which a slider moves, "
            f"computed in this browser. Modelled within {_TOLD_MS} ms: {told}."
        ),
        fixed={"served_workload": TRACE},
    )


def _limits_s(points: int) -> list[float]:
    """TBT at which a curve is drawn, evenly on a logarithmic axis."""
    return [0.02 * 100 ** (point / (points - 1)) for point in range(points)]


def _replays(params: Params, sliced: Slice, progress: Progress) -> Iterator[tuple[str, Slice, list[Record]]]:
    head = sliced.head(len(sliced.requests), speedup=params.arrival_speedup)
    for done, system in enumerate(SYSTEMS):
        progress(done, len(SYSTEMS))
        yield system, head, replay(head, params.cluster(system))


def _rhythms_s(records: Sequence[Record]) -> list[float]:
    """TBT of the requests that have one, in order, in seconds."""
    return sorted(record.tbt_s for record in records if not math.isnan(record.tbt_s))


def _shares(records: Sequence[Record], limits_s: Sequence[float]) -> list[float]:
    """Share of the requests within each limit; one without a TBT meets any."""
    rhythms_s = _rhythms_s(records)
    without = len(records) - len(rhythms_s)
    return [(without + bisect_right(rhythms_s, limit_s)) / len(records) for limit_s in limits_s]


def _summary(system: str, sliced: Slice, records: Sequence[Record]) -> Row:
    limits_s, rhythms_s = (*TBT_LIMITS_S, AXIS_END_S), _rhythms_s(records)
    shares = zip(limits_s, _shares(records, limits_s), strict=True)
    # A prompt in chunks takes the GPUs for all the iterations that it is part of.
    chunked = system == "vLLM Chunked Prefill"
    prefill_s = [
        record.first_token_s - record.start_s if chunked else record.choice.prefill_s
        for record in records
        if record.choice is not None
    ]
    return {
        "origin": "modelled",
        "system": system,
        **{capacity_column(limit_s): share for limit_s, share in shares},
        **{quantile_column(level): quantile(rhythms_s, level) for level in QUANTILES},
        "tbt_mean_s": mean(rhythms_s),
        "prefill_s": mean(prefill_s),
        "ttft_mean_s": mean(ttfts_s(sliced, records)),
        "hit_ratio": hit_ratio(sliced, records),
    }
