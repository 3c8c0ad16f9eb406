"""The headline as a reader can play with it: who serves how many requests within a limit on TBT."""

import dataclasses

import numpy as np
import pandas as pd

from mooncake_companion import traces
from mooncake_companion.experiments import end_to_end, paper_traces
from mooncake_companion.live.end_to_end import FINE_POINTS, LIMITS_MS

__all__ = ["LIMITS_MS", "WORKLOADS", "gain_percent", "run"]

WORKLOADS = ("conversation", "synthetic")
"""The workloads whose traces were released; the paper's Figures 1 and 7."""


def run(params: end_to_end.Params) -> pd.DataFrame:
    """Share of the requests within each of `LIMITS_MS`, by workload and system.

    Parameters
    ----------
    params : end_to_end.Params
        The setting of all systems; its trace is left aside, and `WORKLOADS` are replayed.

    Returns
    -------
    DataFrame
        Columns: ``workload``, ``origin`` ("modelled", or "reported": read off FAST'25, Figures 1 and 7,
        between two readings in a straight line), ``system``, ``limit_ms``, ``share``.
    """
    parts = []
    for workload in WORKLOADS:
        setting = dataclasses.replace(params, trace=workload)
        curves = end_to_end.curves(setting, points=FINE_POINTS, marks=400)
        for names, curve in curves.groupby(["origin", "system"], sort=False):
            origin, system = map(str, names)
            ordered = curve.sort_values("tbt_s", kind="stable")
            share = np.interp(np.array(LIMITS_MS) / 1e3, ordered["tbt_s"], ordered["share"])
            parts.append(
                pd.DataFrame({"limit_ms": LIMITS_MS, "share": share}).assign(
                    workload=workload, origin=origin, system=system
                )
            )
    table = pd.concat(parts, ignore_index=True)[["workload", "origin", "system", "limit_ms", "share"]]
    replayed = {workload: traces.load(workload) for workload in WORKLOADS}
    table.attrs["provenance"] = paper_traces.provenance(params, replayed)
    return table


def gain_percent(table: pd.DataFrame, *, workload: str, limit_ms: int) -> float:
    """By how many per cent more requests Mooncake serves within a limit than the best other, modelled.

    Parameters
    ----------
    table : DataFrame
        From `run`.
    workload : str
        Of `WORKLOADS`.
    limit_ms : int
        Of `LIMITS_MS`.
    """
    modelled = table[table["origin"] == "modelled"].set_index(["workload", "limit_ms", "system"]).sort_index()
    share = modelled["share"][(workload, limit_ms)]
    best = share.drop(end_to_end.MOONCAKE).max()
    return float(100 * (share[end_to_end.MOONCAKE] / best - 1))
