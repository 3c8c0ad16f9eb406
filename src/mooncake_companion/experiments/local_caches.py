"""What could make local caches hit as rarely as in FAST'25, Figure 10: Mooncake issue 452.

Section 5.3.2 does not say how requests were routed; its authors have answered that both designs run the
same implementation, without transfers between nodes in the local one. `cache_sharing` has the
experiment; here its local caches meet one explanation at a time.
"""

import dataclasses

import pandas as pd

from mooncake_companion import reported
from mooncake_companion.experiments import cache_sharing
from mooncake_companion.experiments.paper_traces import available, provenance
from mooncake_companion.live.local_caches import AS_PRINTED, EXPLANATIONS, Params

__all__ = ["AS_PRINTED", "EXPLANATIONS", "Params", "distances", "run"]


def run(params: Params, workloads: tuple[str, ...] = ("conversation", "synthetic")) -> pd.DataFrame:
    """Hit rates of local and global caches under each explanation, beside Figure 10.

    Returns
    -------
    DataFrame
        Columns: ``origin``, ``workload``, ``explanation`` (empty where reported), ``cache`` ("local",
        "global"), ``hit_rate_pct`` (of the prompt tokens), ``prefill_gpu_time_s``.
    """
    rows = []
    replayed = available(workloads)
    base = cache_sharing.Params(node=params.node, model=params.model)
    for explanation, changed in EXPLANATIONS.items():
        for workload in replayed:
            varied = dataclasses.replace(base, trace=workload, **changed)
            table = cache_sharing.run(varied).query("origin == 'modelled'")
            rows.append(table.assign(explanation=explanation).drop(columns="trace"))
    drawn = reported.figure("fast25_fig10")
    drawn = drawn[drawn["workload"].isin(list(replayed))].assign(origin="reported", explanation="")
    modelled = pd.concat(rows, ignore_index=True)
    table = pd.concat([modelled, drawn[modelled.columns]], ignore_index=True)
    table.attrs["provenance"] = provenance(params, replayed)
    return table


def distances(table: pd.DataFrame) -> pd.Series:
    """Largest difference to Figure 10, local and global, over the workloads; by explanation, in points."""
    keys = ["workload", "cache"]
    drawn = table[table["origin"] == "reported"][[*keys, "hit_rate_pct"]]
    both = table[table["origin"] == "modelled"].merge(drawn, on=keys, suffixes=("", "_reported"))
    apart = (both["hit_rate_pct"] - both["hit_rate_pct_reported"]).abs()
    return apart.groupby(both["explanation"], sort=False).max()
