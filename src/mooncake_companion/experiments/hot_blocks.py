"""FAST'25, Figure 11: how many nodes come to hold a hot block.

Two things about the figure need a mechanism. *Hot keys spread fast*: the hottest ones of the
conversation trace are used 43 times in an hour and come to 8 replicas in 19 minutes, so most uses
are on a node that did not have the key. With Conductor weighing all nodes by Algorithm 1 the holder
mostly wins (synthetic: 1.3 replicas where the paper has 5); with the two shortest queues alone, as
`cache_sharing` finds it from Figure 10, keys spread as in the paper. *And they stay*: if each
node evicted by its own uses alone, a replica would be gone before the next request comes by.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from mooncake_companion import reported
from mooncake_companion.costs import load_calibration
from mooncake_companion.experiments.paper_traces import chosen, provenance, without_decode
from mooncake_companion.hardware import load_node, load_nodes
from mooncake_companion.llm import load_model, load_models
from mooncake_companion.parameters import check, parameter
from mooncake_companion.simulator import Cluster
from mooncake_companion.simulator.serving_path import replica_counts
from mooncake_companion.traces import Trace
from mooncake_companion.traces.finer_blocks import with_block_tokens

RANKS = (10, 100, 1_000, 10_000)
"""Places among the blocks by how often they are asked for, as the figure has them."""

INFORMED = tuple(
    f"fast25.fig11.{quantity}.{workload}.{rank}"
    for quantity in ("max", "t_max", "final", "mean_2nd_half")
    for workload in ("conversation", "synthetic")
    for rank in RANKS
)
"""Claims that are no predictions: two assumptions of `Params` were chosen by these curves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """The experiment's setting; the defaults are the paper's where it states them.

    Stated in section 5.3.3: the ranks, the sampling interval, and that blocks are replicated by
    being fetched, not beforehand. The traces' own speed follows from the figure's time axes. Assumed:
    8 prefill nodes, as in `prefill_scheduling`; caches and routing of `cache_sharing`. Informed by this
    figure, so that its claims are no predictions (`INFORMED`): that a use of a block anywhere keeps
    all its replicas, which is how the released store leases objects; and that the keys are the
    trace's own hashes of 512 tokens, not the store's of 256. The decode pool is left out: every
    answer has one token.
    """

    trace: str = parameter("", help="replay this trace alone; empty: the paper's three, as far as there")
    prefill_nodes: int = parameter(8, unit="nodes", low=1, high=64, help="nodes that prefill")
    cache_tokens_per_node: int = parameter(
        3_000_000, unit="tokens", low=0, high=10**10, help="DRAM for KV cache on each node"
    )
    block_tokens: int = parameter(
        512, unit="tokens", low=16, high=512, help="of the cache's blocks; divides the trace's"
    )
    shared_recency: bool = parameter(True, help="whether a use of a block anywhere keeps all its replicas")
    shortlist_nodes: int = parameter(
        2, unit="nodes", low=0, high=64, help="shortest queues that Conductor weighs; 0: all nodes"
    )
    kvcache_balancing_threshold: float = parameter(
        2.0, low=1, high=1e6, help="of Algorithm 1: fetch when the best prefix exceeds the own by this factor"
    )
    sample_s: float = parameter(30.0, unit="s", low=1, high=600, help="between two counts")
    node: str = parameter("a800", choices=tuple(load_nodes()), help="what every node is")
    model: str = parameter("llama3-70b", choices=tuple(load_models()), help="what it serves")

    def __post_init__(self) -> None:
        check(self)

    def cluster(self) -> Cluster:
        """The prefill pool; the decode node has nothing to do."""
        return Cluster(
            node=load_node(self.node),
            model=load_model(self.model),
            calibration=load_calibration(),
            prefill_nodes=self.prefill_nodes,
            decode_nodes=1,
            cache_tokens_per_node=self.cache_tokens_per_node,
            shared_recency=self.shared_recency,
            kvcache_balancing_threshold=self.kvcache_balancing_threshold,
            shortlist_nodes=self.shortlist_nodes,
        )


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
    times_s = params.sample_s * np.arange(int(trace.arrival_s[-1] // params.sample_s) + 1)
    keys = _keys_by_rank(trace)
    counts = replica_counts(trace, params.cluster(), np.concatenate(list(keys.values())), times_s)
    ends = np.cumsum([len(blocks) for blocks in keys.values()])
    return times_s, dict(zip(keys, np.split(counts, ends[:-1], axis=1), strict=True))


def _keys_by_rank(trace: Trace) -> dict[int, np.ndarray]:
    """All blocks that are asked for as often as the one of each rank."""
    blocks, uses = np.unique(trace.block_ids, return_counts=True)
    descending = np.sort(uses)[::-1]
    return {rank: blocks[uses == descending[rank - 1]] for rank in RANKS if rank <= len(blocks)}


def claims(params: Params = Params()) -> dict[str, float]:
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
