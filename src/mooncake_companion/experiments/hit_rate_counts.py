"""Why arXiv 2407.00079, Table 1, does not come out of the released trace: Mooncake issue 4020.

A reader replayed the released trace through an LRU cache and found 4 to 6 points more than Table 1 has,
at every capacity. Every way to count that we know moves the hit ratio (`cache_capacity.definitions`);
here is by how much, beside what would be needed.
"""

import numpy as np
import pandas as pd

from mooncake_companion import reported
from mooncake_companion.datafiles import read_csv
from mooncake_companion.experiments import cache_capacity
from mooncake_companion.experiments.paper_traces import available, provenance
from mooncake_companion.live.hit_rate_counts import PLAIN, Params

__all__ = ["FINER_TOKENS", "NEEDED", "PLAIN", "TRACES", "Params", "asked", "misfits", "run"]

NEEDED = "what would be needed"
TRACES = ("arxiv", "conversation")
"""The report's own, and that of the same service some months later."""
FINER_TOKENS = (256,)
"""Sizes of finer blocks that are tried; the report's have 512 tokens."""


def asked() -> pd.DataFrame:
    """What the reader found beside Table 1.

    Returns
    -------
    DataFrame
        Columns: ``capacity_blocks`` (infinite: room for all), ``found_ratio``, ``table_ratio``,
        ``needed_points`` (table less found, in percentage points).
    """
    found = read_csv("questions", "issue_4020.csv")
    table_ids = ["inf" if np.isinf(c) else f"{c:.0f}" for c in found["capacity_blocks"]]
    table = found.rename(columns={"hit_ratio": "found_ratio"}).assign(
        table_ratio=[reported.claim(f"arxiv.table1.lrucache.{name}") for name in table_ids]
    )
    return table.assign(needed_points=100 * (table["table_ratio"] - table["found_ratio"]))


def run(params: Params) -> pd.DataFrame:
    """How far each way of counting moves the hit ratio, and how far it would have to.

    Returns
    -------
    DataFrame
        A row for each trace, way and capacity. Columns: ``origin`` ("modelled", or "reported" for
        `NEEDED`), ``workload``, ``trace``, ``definition``, ``capacity_blocks``, ``hit_ratio``, ``points``
        (difference to `PLAIN`, in percentage points). A trace that cannot be had has no rows.
    """
    replayed = available(TRACES)
    tables = [
        cache_capacity.definitions(trace, warmup_s=params.warmup_s, finer_tokens=FINER_TOKENS).assign(
            origin="modelled", workload=workload, trace=trace.name
        )
        for workload, trace in replayed.items()
    ]
    needed = asked().rename(columns={"table_ratio": "hit_ratio", "needed_points": "points"})
    tables.append(
        needed.assign(origin="reported", workload="arxiv", trace="", definition=NEEDED).drop(
            columns="found_ratio"
        )
    )
    columns = ["origin", "workload", "trace", "definition", "capacity_blocks", "hit_ratio", "points"]
    table = pd.concat(tables, ignore_index=True)[columns]
    table.attrs["provenance"] = provenance(params, replayed)
    return table


def misfits(table: pd.DataFrame) -> pd.DataFrame:
    """How far each way stays from what is needed, the nearest first.

    Returns
    -------
    DataFrame
        Columns: ``workload``, ``definition``, ``shift_points`` (mean over the capacities),
        ``misfit_points`` (root mean square of the difference to what is needed), ``worst_points``.
    """
    needed = table[table["definition"] == NEEDED].set_index("capacity_blocks")["points"]
    modelled = table[table["origin"] == "modelled"]
    differences = modelled["points"] - modelled["capacity_blocks"].map(needed)
    grouped = modelled.assign(
        shift_points=modelled["points"], squared=differences**2, worst_points=differences.abs()
    ).groupby(["workload", "definition"], as_index=False)
    counted = grouped.agg(
        shift_points=("shift_points", "mean"),
        misfit_points=("squared", "mean"),
        worst_points=("worst_points", "max"),
    )
    counted["misfit_points"] = np.sqrt(counted["misfit_points"])
    return counted.sort_values("misfit_points", ignore_index=True)
