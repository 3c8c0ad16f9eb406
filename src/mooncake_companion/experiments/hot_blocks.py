"""FAST'25, Figure 11: how many nodes come to hold a hot block.

Two things about the figure need a mechanism. *Hot keys spread fast*: the hottest ones of the
conversation trace are used 43 times in an hour and come to 8 replicas in 19 minutes, so most uses
are on a node that did not have the key. With Conductor weighing all nodes by Algorithm 1 the holder
mostly wins (synthetic: 1.3 replicas where the paper has 5); with the two shortest queues alone, as
`cache_sharing` finds it from Figure 10, keys spread as in the paper. *And they stay*: if each
node evicted by its own uses alone, a replica would be gone before the next request comes by.
"""

import numpy as np
import pandas as pd

from mooncake_companion import reported
from mooncake_companion.experiments.paper_traces import chosen, provenance, without_decode
from mooncake_companion.live.hot_blocks import RANKS, Params, keys_by_rank
from mooncake_companion.simulator.serving_path import replica_counts
from mooncake_companion.traces import Trace
from mooncake_companion.traces.finer_blocks import with_block_tokens

__all__ = ["INFORMED", "RANKS", "Params", "claims", "replicas", "run"]

INFORMED = tuple(
    f"fast25.fig11.{quantity}.{workload}.{rank}"
    for quantity in ("max", "t_max", "final", "mean_2nd_half")
    for workload in ("conversation", "synthetic")
    for rank in RANKS
)
"""Claims that are no predictions: two assumptions of `Params` were chosen by these curves."""


def run(params: Params) -> pd.DataFrame:
    """Replicas over time of the blocks of each rank, beside the paper's.

    Returns
    -------
    DataFrame
        Columns: ``origin``, ``workload``, ``trace``, ``key_rank``, ``time_s``, ``replica_count``,
        ``low``, ``high``. Which block has a rank is often a matter of chance: many are asked for
        equally often. Modelled counts are the mean over all of these, low and high the 10 and 90 %
        quantiles; the paper's are of one key. A workload whose trace cannot be had has reported
        rows alone.
    """
    replayed = _replayed(params)
    modelled = [
        pd.DataFrame(
            {
                "origin": "modelled",
                "workload": workload,
                "trace": trace.name,
                "key_rank": rank,
                "time_s": times_s,
                "replica_count": counts.mean(axis=1),
                "low": np.quantile(counts, 0.1, axis=1),
                "high": np.quantile(counts, 0.9, axis=1),
            }
        )
        for workload, trace in replayed.items()
        for times_s, by_rank in [replicas(params, trace)]
        for rank, counts in by_rank.items()
    ]
    drawn = reported.figure("fast25_fig11").assign(origin="reported", trace="")
    drawn = drawn[drawn["workload"].isin(replayed)] if params.trace else drawn
    table = pd.concat([*modelled, drawn], ignore_index=True)
    table.attrs["provenance"] = provenance(params, replayed)
    return table


def replicas(params: Params, trace: Trace) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    """Count the nodes that hold each block of a rank, from the trace's start to its last arrival.

    Returns
    -------
    times_s : array of float64, shape (samples,)
        Seconds from the trace's start.
    counts : dict of array of int64, shape (samples, blocks of this rank)
        By rank; ranks that the trace has no block for are left out.
    """
    times_s = np.array(params.times_s(float(trace.arrival_s[-1])))
    keys = keys_by_rank(trace.block_ids.tolist())
    counts = replica_counts(trace, params.cluster(), np.concatenate(list(keys.values())), times_s)
    ends = np.cumsum([len(blocks) for blocks in keys.values()])
    return times_s, dict(zip(keys, np.split(counts, ends[:-1], axis=1), strict=True))


def claims(params: Params = Params()) -> dict[str, float]:  # noqa: B008 - it is frozen
    """Modelled values of the figure's claims, in their rows' units.

    Each is the mean over the blocks of a rank (of the time of the largest count: the median). A
    workload whose trace cannot be had has none.
    """
    drawn = reported.figure("fast25_fig11").groupby("workload")["time_s"].max()
    values = {"fast25.fig11.sample": params.sample_s}
    for workload, trace in _replayed(params).items():
        times_s, by_rank = replicas(params, trace)
        inside = times_s <= drawn.get(workload, np.inf)
        for rank, all_counts in by_rank.items():
            counts = all_counts[inside]
            held = counts.max(axis=0) > 0
            values |= {
                f"fast25.fig11.{name}.{workload}.{rank}": float(value)
                for name, value in {
                    "max": counts.max(axis=0).mean(),
                    "t_max": np.median(times_s[inside][counts[:, held].argmax(axis=0)]),
                    "final": counts[-1].mean(),
                    "mean_2nd_half": counts[times_s[inside] >= times_s[inside][-1] / 2].mean(),
                }.items()
            }
    return values


def _replayed(params: Params) -> dict[str, Trace]:
    """Traces by workload, in the store's blocks and with one-token answers."""
    return {
        workload: without_decode(with_block_tokens(trace, params.block_tokens))
        for workload, trace in chosen(params.trace).items()
    }
