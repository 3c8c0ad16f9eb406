"""FAST'25, Figures 1, 6, 7 and 8: Mooncake against three ways to run vLLM, on three workloads."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from mooncake_companion import reported, traces
from mooncake_companion.errors import CompanionError
from mooncake_companion.live.systems import (
    AXIS_END_S,
    BATCHINGS,
    MOONCAKE,
    QUANTILES,
    SYSTEMS,
    TBT_LIMITS_S,
    Params,
    Systems,
    capacity_column,
    quantile_column,
)
from mooncake_companion.simulator import Result, simulate

__all__ = [
    "BATCHINGS",
    "FIGURES",
    "MOONCAKE",
    "SYSTEMS",
    "TBT_LIMITS_S",
    "Params",
    "Systems",
    "claims",
    "curves",
    "on_every_workload",
    "results",
    "run",
]

FIGURES = {"conversation": "fig01", "toolagent": "fig06", "synthetic": "fig07"}
"""Where the paper has the TBT of each workload."""


def run(params: Params) -> pd.DataFrame:
    """TBT, effective capacity and prefill time of every system, beside the paper's.

    Returns
    -------
    DataFrame
        A row for each system (``origin`` "modelled"), and one as the paper has it ("reported") for
        one of its traces. Columns: ``origin``, ``system``, ``capacity_100ms``, ``capacity_200ms``,
        ``capacity_300ms``, ``capacity_1000ms`` (share of the requests with a TBT up to that;
        one without a TBT counts), ``tbt_p10_s``, ``tbt_p50_s``, ``tbt_p90_s``, ``tbt_p99_s``,
        ``tbt_mean_s``, ``prefill_s`` (mean GPU time of a prefill), ``ttft_mean_s``, ``hit_ratio``;
        NaN where the paper does not say.
    """
    trace = _replayed(params)
    rows = [_summary(system, result) for system, result in results(params, trace).items()]
    table = pd.concat([pd.DataFrame(rows), _reported(params)], ignore_index=True)
    table.attrs["provenance"] = _provenance(params, trace)
    return table


def curves(params: Params, points: int = 200, marks: int = 25) -> pd.DataFrame:
    """Share of requests with a TBT up to x, as Figures 1, 6 and 7 draw it.

    Columns: ``origin``, ``system``, ``tbt_s``, ``share``; the modelled ones at so many `points`, of the
    paper's readings those nearest to so many `marks` evenly up its axis.
    """
    trace = _replayed(params)
    limits_s = np.geomspace(0.02, 2.0, points)
    parts = [
        pd.DataFrame({"tbt_s": limits_s, "share": _shares(result, limits_s)}).assign(
            origin="modelled", system=system
        )
        for system, result in results(params, trace).items()
    ]
    if params.trace in FIGURES:
        drawn = reported.figure(f"fast25_{FIGURES[params.trace]}")
        drawn = reported.along(drawn, "capacity_pct", by=["series"], marks=marks)
        parts.append(
            pd.DataFrame(
                {
                    "tbt_s": drawn["tbt_ms"] / 1e3,
                    "share": drawn["capacity_pct"] / 100,
                    "origin": "reported",
                    "system": drawn["series"],
                }
            )
        )
    table = pd.concat(parts, ignore_index=True)[["origin", "system", "tbt_s", "share"]]
    table.attrs["provenance"] = _provenance(params, trace)
    return table


def on_every_workload(
    measure: Callable[[Params], pd.DataFrame],
    params: Systems = Systems(),  # noqa: B008 - it is frozen
) -> pd.DataFrame:
    """What `run` or `curves` says of each of the paper's workloads, in one table.

    Returns
    -------
    DataFrame
        As of `measure`, and ``workload``; ``attrs["provenance"]`` has all traces.
    """
    tables = {workload: measure(params.replaying(workload)) for workload in FIGURES}
    table = pd.concat([each.assign(workload=name) for name, each in tables.items()], ignore_index=True)
    table.attrs["provenance"] = {
        "trace_source": "; ".join(each.attrs["provenance"]["trace_source"] for each in tables.values()),
        "parameters": dataclasses.asdict(params),
    }
    return table


def claims(params: Params = Params()) -> dict[str, float]:  # noqa: B008 - it is frozen
    """Modelled values of the paper's claims by their id, in the unit of each claim.

    All three workloads are replayed, whatever `params` has as its trace; one that cannot be had
    gives no values.
    """
    found: dict[str, float] = {}
    for workload in FIGURES:
        try:
            table = run(dataclasses.replace(params, trace=workload))
        except CompanionError:
            continue
        modelled = table.query("origin == 'modelled'").set_index("system").drop(columns="origin")
        found |= _claims_of(workload, {str(system): dict(row) for system, row in modelled.iterrows()})
    known = set(reported.claims()["id"])
    return {claim: value for claim, value in found.items() if claim in known}


def results(params: Params, trace: traces.Trace) -> dict[str, Result]:
    """The replay of a trace by every system."""
    return {system: simulate(trace, params.cluster(system)) for system in SYSTEMS}


def _replayed(params: Params) -> traces.Trace:
    trace = traces.load(params.trace)
    return dataclasses.replace(trace, arrival_s=trace.arrival_s / params.arrival_speedup)


def _shares(result: Result, limits_s: np.ndarray) -> np.ndarray:
    tbt_s = np.sort(np.nan_to_num(result.tbt_s, nan=0.0))
    return np.searchsorted(tbt_s, limits_s, side="right") / len(tbt_s)


def _summary(system: str, result: Result) -> dict[str, Any]:
    limits_s = (*TBT_LIMITS_S, AXIS_END_S)
    capacity = _shares(result, np.array(limits_s))
    quantiles_s = np.nanquantile(result.tbt_s, QUANTILES)
    # A prompt in chunks takes the GPUs for all the iterations that it is part of.
    chunked = system == "vLLM Chunked Prefill"
    prefill_s = result.first_token_s - result.start_s if chunked else result.prefill_s
    return {
        "origin": "modelled",
        "system": system,
        **{capacity_column(limit_s): share for limit_s, share in zip(limits_s, capacity, strict=True)},
        **{quantile_column(level): x for level, x in zip(QUANTILES, quantiles_s, strict=True)},
        "tbt_mean_s": float(np.nanmean(result.tbt_s)),
        "prefill_s": float(prefill_s.mean()),
        "ttft_mean_s": float(result.ttft_s.mean()),
        "hit_ratio": result.hit_ratio,
    }


def _reported(params: Params) -> pd.DataFrame:
    """The paper's rows in the columns of `_summary`; none for a trace that is not the paper's."""
    if params.trace not in FIGURES:
        return pd.DataFrame()
    values = pd.to_numeric(reported.claims().set_index("id")["value"], errors="coerce")
    stated = {str(claim): float(value) for claim, value in values.items()}
    figure = f"fast25.{FIGURES[params.trace]}"
    rows = []
    for system, name in SYSTEMS.items():
        row: dict[str, Any] = {"origin": "reported", "system": system}
        for limit_s in (*TBT_LIMITS_S, AXIS_END_S):
            share = stated.get(f"{figure}.capacity.{name}.{round(1e3 * limit_s)}ms", np.nan)
            row[capacity_column(limit_s)] = share / 100
        for level in QUANTILES:
            row[quantile_column(level)] = (
                stated.get(f"{figure}.tbt_p{round(100 * level)}.{name}", np.nan) / 1e3
            )
        row["tbt_mean_s"] = stated.get(f"{figure}.tbt_mean.{name}", np.nan) / 1e3
        row["prefill_s"] = stated.get(f"fast25.fig08.gpu_time.{params.trace}.{name}", np.nan)
        rows.append(row)
    return pd.DataFrame(rows)


def _claims_of(workload: str, rows: dict[str, dict[str, float]]) -> dict[str, float]:
    """Claims of one workload from the rows of `_summary` by system."""
    figure, found = f"fast25.{FIGURES[workload]}", {}
    for system, name in SYSTEMS.items():
        row = rows[system]
        for level in QUANTILES:
            found[f"{figure}.tbt_p{round(100 * level)}.{name}"] = 1e3 * row[quantile_column(level)]
        found[f"{figure}.tbt_mean.{name}"] = 1e3 * row["tbt_mean_s"]
        found[f"fast25.fig08.gpu_time.{workload}.{name}"] = row["prefill_s"]
        ratio = row["prefill_s"] / rows[MOONCAKE]["prefill_s"]
        found[f"fast25.fig08.ratio.{workload}.{name}"] = ratio
    for limit_s in (*TBT_LIMITS_S, AXIS_END_S):
        milliseconds, column = round(1e3 * limit_s), capacity_column(limit_s)
        for system, name in SYSTEMS.items():
            found[f"{figure}.capacity.{name}.{milliseconds}ms"] = 100 * rows[system][column]
            gain_percent = _gain_percent(rows[MOONCAKE][column], rows[system][column])
            found[f"{figure}.gain_over.{name}.{milliseconds}ms"] = gain_percent
        best = max(rows[system][column] for system in BATCHINGS)
        found[f"{figure}.gain.{milliseconds}ms"] = _gain_percent(rows[MOONCAKE][column], best)
    found[f"fast25.text.{workload}_gain_200"] = found[f"{figure}.gain.200ms"]
    if workload == "synthetic":
        found["fast25.text.synthetic_vllm_over_300"] = 100 - found[f"{figure}.capacity.vllm.300ms"]
    if workload == "conversation":
        found["fast25.headline.capacity_gain_min"] = found[f"{figure}.gain.300ms"]
        found["fast25.headline.capacity_gain_max"] = found[f"{figure}.gain.100ms"]
    return found


def _gain_percent(capacity: float, baseline: float) -> float:
    return 100 * (capacity / baseline - 1) if baseline else float("inf")


def _provenance(params: Params, trace: traces.Trace) -> dict[str, object]:
    return {
        "trace": trace.name,
        "trace_sha256": trace.sha256,
        "trace_source": trace.source,
        "parameters": dataclasses.asdict(params),
    }
