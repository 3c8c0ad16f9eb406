"""FAST'25, Figure 15: how many of 16 nodes should prefill, and how many decode."""

import dataclasses

import numpy as np
import pandas as pd

from mooncake_companion import reported, traces
from mooncake_companion.costs import Calibration
from mooncake_companion.live.node_split import Params
from mooncake_companion.simulator import simulate

__all__ = ["Params", "claims", "mean_tbt_s", "run"]


def run(params: Params) -> pd.DataFrame:
    """Effective requests, mean TTFT and mean TBT by split, beside the paper's.

    Returns
    -------
    DataFrame
        A row for each split and ``origin`` ("modelled", "reported"). Columns: ``origin``,
        ``prefill_nodes``, ``decode_nodes``, ``effective_share`` (requests within both limits, of
        all), ``mean_ttft_s``, ``mean_tbt_s`` (over the requests that have a TBT).
    """
    trace = traces.load(params.trace)
    modelled = pd.DataFrame([_row(params, trace, prefill_nodes) for prefill_nodes in params.splits])
    drawn = reported.figure("fast25_fig15")
    figure = pd.DataFrame(
        {
            "prefill_nodes": drawn["prefill_nodes"],
            "decode_nodes": drawn["decode_nodes"],
            "effective_share": drawn["effective_request_pct"] / 100,
            "mean_ttft_s": drawn["avg_ttft_s"],
            "mean_tbt_s": drawn["avg_tbt_ms"] / 1e3,
        }
    )
    table = pd.concat([modelled.assign(origin="modelled"), figure.assign(origin="reported")])
    table = table[["origin", *figure.columns]].reset_index(drop=True)
    table.attrs["provenance"] = {
        "trace": trace.name,
        "trace_sha256": trace.sha256,
        "trace_source": trace.source,
        "parameters": dataclasses.asdict(params),
    }
    return table


def claims(params: Params = Params()) -> dict[str, float]:  # noqa: B008 - it is frozen
    """Modelled values of the paper's claims by their id, in the unit of each claim."""
    found: dict[str, float] = {}
    for row in run(params).query("origin == 'modelled'").to_dict("records"):
        split = f"{row['prefill_nodes']}p{row['decode_nodes']}d"
        found[f"fast25.fig15.capacity.{split}"] = 100 * row["effective_share"]
        found[f"fast25.fig15.ttft.{split}"] = row["mean_ttft_s"]
        found[f"fast25.fig15.tbt.{split}"] = 1e3 * row["mean_tbt_s"]
    known = set(reported.claims()["id"])
    return {claim: value for claim, value in found.items() if claim in known}


def mean_tbt_s(params: Params, trace: traces.Trace, calibration: Calibration) -> np.ndarray:
    """Mean TBT by split, in seconds, with given constants; shape (splits,)."""
    return np.array(
        [
            np.nanmean(simulate(trace, params.cluster(prefill_nodes, calibration)).tbt_s)
            for prefill_nodes in params.splits
        ]
    )


def _row(params: Params, trace: traces.Trace, prefill_nodes: int) -> dict[str, float]:
    result = simulate(trace, params.cluster(prefill_nodes))
    effective = result.meets(ttft_s=params.ttft_limit_s, tbt_s=params.tbt_limit_s)
    return {
        "prefill_nodes": prefill_nodes,
        "decode_nodes": params.nodes - prefill_nodes,
        "effective_share": float(effective.mean()),
        "mean_ttft_s": float(result.ttft_s.mean()),
        "mean_tbt_s": float(np.nanmean(result.tbt_s)),
    }
