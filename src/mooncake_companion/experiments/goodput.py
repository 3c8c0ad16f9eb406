"""Goodput under offered load: requests per second within both limits, for every system.

No figure of the papers; a question that their effective request capacity (FAST'25, section 5.1) asks at
one load, here asked at all.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from mooncake_companion import reported, traces
from mooncake_companion.experiments import end_to_end
from mooncake_companion.experiments.end_to_end import BATCHINGS, FIGURES, MOONCAKE, TBT_LIMITS_S
from mooncake_companion.live.goodput import BARE_MOONCAKE, OPEN_MOONCAKE, SYSTEMS, Params
from mooncake_companion.simulator import Outcome, Result, simulate

__all__ = [
    "ATTAINMENT",
    "BARE_MOONCAKE",
    "BATCHINGS",
    "MOONCAKE",
    "OPEN_MOONCAKE",
    "SPEEDUPS",
    "SYSTEMS",
    "WORKLOADS",
    "Params",
    "gains",
    "peaks",
    "run",
]

WORKLOADS = ("conversation", "synthetic")
SPEEDUPS = (0.25, 0.5, 0.625, 0.75, 0.875, 1.0, 1.125, 1.25, 1.5, 1.75, 2.0, 3.0)
"""How many times as fast as it was recorded a workload is offered."""
ATTAINMENT = 0.9
"""Share of the requests that must meet both limits where a load counts as borne."""


def run(
    params: Params, workloads: Iterable[str] = WORKLOADS, speedups: Iterable[float] = SPEEDUPS
) -> pd.DataFrame:
    """What becomes of the requests of each workload at each load and TBT limit, by system.

    Returns
    -------
    DataFrame
        ``origin`` ("modelled", "reported"), ``workload``, ``system``, ``tbt_limit_s``,
        ``arrival_speedup``, ``offered_requests_per_s``, ``goodput_requests_per_s``, and of all requests
        the shares ``within_share`` (both limits), ``late_first_token_share`` (done, but the first token
        was late), ``slow_share`` (done, in time, but the rhythm was too slow), ``rejected_share`` (on
        arrival), ``wasted_share`` (rejected after the prefill); ``within_input_tokens``, the mean prompt
        of those within both limits. The reported rows, at the workloads' own
        speed, have ``within_share`` alone of these: the effective capacity of FAST'25, Figures 1 and 7,
        which says nothing of a TTFT limit.
    """
    rows: list[dict[str, Any]] = []
    sources = []
    speedups = tuple(speedups)
    for workload in workloads:
        trace = traces.load(workload)
        sources.append(trace.source)
        for speedup in speedups:
            replayed = dataclasses.replace(trace, arrival_s=trace.arrival_s / speedup)
            offered = {
                "workload": workload,
                "arrival_speedup": speedup,
                "offered_requests_per_s": _rate_per_s(replayed),
            }
            for system, limit_s, result in _replays(params, replayed):
                shares = _shares(result, params.ttft_limit_s, limit_s)
                rows.append(
                    {"origin": "modelled", "system": system, "tbt_limit_s": limit_s, **offered, **shares}
                )
        rows.extend(_reported(workload, _rate_per_s(trace)))
    table = pd.DataFrame(rows)
    goodput = table["within_share"] * table["offered_requests_per_s"]
    table.insert(6, "goodput_requests_per_s", goodput)
    table.attrs["provenance"] = {"trace_source": "; ".join(sources), "parameters": dataclasses.asdict(params)}
    return table


def peaks(table: pd.DataFrame) -> pd.DataFrame:
    """The most that each system achieves, and up to where it bears what is offered.

    Parameters
    ----------
    table : DataFrame
        As `run` returns it.

    Returns
    -------
    DataFrame
        Indexed by ``workload``, ``tbt_limit_s``, ``system``: ``peak_requests_per_s``, the highest
        goodput; ``peak_offered_requests_per_s``, the load it is reached at; ``knee_requests_per_s``, the
        offered load at which the share of requests within both limits first falls below `ATTAINMENT`,
        on a straight line between the loads tried (NaN where it is below from the first on, infinite
        where it never is).
    """
    rows = []
    keys = ["workload", "tbt_limit_s", "system"]
    for key, loads in table[table["origin"] == "modelled"].groupby(keys, sort=False):
        loads = loads.sort_values("offered_requests_per_s")
        best = loads.iloc[int(loads["goodput_requests_per_s"].argmax())]
        rows.append(
            {
                **dict(zip(keys, key, strict=True)),
                "peak_requests_per_s": float(best["goodput_requests_per_s"]),
                "peak_offered_requests_per_s": float(best["offered_requests_per_s"]),
                "knee_requests_per_s": _knee(
                    loads["offered_requests_per_s"].to_numpy(), loads["within_share"].to_numpy()
                ),
            }
        )
    return pd.DataFrame(rows).set_index(keys)


def gains(table: pd.DataFrame) -> pd.Series:
    """Effective capacity of `OPEN_MOONCAKE` over that of the best baseline, less one, at every load.

    Parameters
    ----------
    table : DataFrame
        As `run` returns it.

    Returns
    -------
    Series
        Indexed by ``workload``, ``tbt_limit_s``, ``arrival_speedup``; infinite where no baseline has any
        request within both limits.
    """
    modelled = table[table["origin"] == "modelled"]
    shares = modelled.pivot(
        index=["workload", "tbt_limit_s", "arrival_speedup"], columns="system", values="within_share"
    )
    return shares[OPEN_MOONCAKE] / shares[list(BATCHINGS)].max(axis=1) - 1


def _replays(params: Params, trace: traces.Trace) -> Iterator[tuple[str, float, Result]]:
    """Every system's replay, with the TBT limit that its requests are held against."""
    for limit_s in TBT_LIMITS_S:
        yield MOONCAKE, limit_s, simulate(trace, params.admitting(limit_s))
    for system, cluster in params.open_to_all().items():
        result = simulate(trace, cluster)
        for limit_s in TBT_LIMITS_S:  # nobody is turned away, so that one replay serves all limits
            yield system, limit_s, result


def _shares(result: Result, ttft_limit_s: float, tbt_limit_s: float) -> dict[str, float]:
    finished = result.outcome == Outcome.FINISHED
    late = finished & (result.ttft_s > ttft_limit_s)
    within = result.meets(ttft_s=ttft_limit_s, tbt_s=tbt_limit_s)
    return {
        "within_share": float(within.mean()),
        "late_first_token_share": float(late.mean()),
        "slow_share": float((finished & ~late & ~within).mean()),
        "rejected_share": float((result.outcome == Outcome.REJECTED_AT_ARRIVAL).mean()),
        "wasted_share": float((result.outcome == Outcome.REJECTED_AFTER_PREFILL).mean()),
        "within_input_tokens": float(result.input_tokens[within].mean()) if within.any() else np.nan,
    }


def _rate_per_s(trace: traces.Trace) -> float:
    return len(trace) / float(trace.arrival_s[-1])


def _reported(workload: str, offered_requests_per_s: float) -> list[dict[str, Any]]:
    """Rows of the paper's effective capacity; none for a workload that is not the paper's."""
    if workload not in FIGURES:
        return []
    return [
        {
            "origin": "reported",
            "workload": workload,
            "system": system,
            "tbt_limit_s": limit_s,
            "arrival_speedup": 1.0,
            "offered_requests_per_s": offered_requests_per_s,
            "within_share": reported.claim(
                f"fast25.{FIGURES[workload]}.capacity.{name}.{round(1e3 * limit_s)}ms"
            )
            / 100,
        }
        for system, name in end_to_end.SYSTEMS.items()
        for limit_s in TBT_LIMITS_S
    ]


def _knee(offered: np.ndarray, share: np.ndarray) -> float:
    below = np.flatnonzero(share < ATTAINMENT)
    if not len(below):
        return float("inf")
    at = int(below[0])
    if at == 0:
        return float("nan")
    fallen = (share[at - 1] - ATTAINMENT) / (share[at - 1] - share[at])
    return float(offered[at - 1] + fallen * (offered[at] - offered[at - 1]))
