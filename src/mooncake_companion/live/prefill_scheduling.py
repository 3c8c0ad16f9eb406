"""FAST'25, Figure 5, on a slice of the trace: time to first token by routing policy."""

import dataclasses
from dataclasses import dataclass

from mooncake_companion.costs import load_calibration
from mooncake_companion.errors import InputError
from mooncake_companion.hardware import GpuNode, load_node
from mooncake_companion.live.outcome import Outcome, Progress, Row
from mooncake_companion.live.slices import Slice, hit_ratio, ttfts_s
from mooncake_companion.llm import load_model
from mooncake_companion.parameters import check, parameter
from mooncake_companion.settings import (
    cache_parameter,
    model_parameter,
    network_parameter,
    node_parameter,
    threshold_parameter,
)
from mooncake_companion.simulator.cluster import Cluster
from mooncake_companion.simulator.reference import replay
from mooncake_companion.simulator.scheduler import Routing
from mooncake_companion.statistics import box

TITLES = {
    Routing.GLOBAL_CACHE_AWARE: "Global cache aware",
    Routing.LOCAL_CACHE_AWARE: "Local cache aware",
    Routing.LOAD_BALANCING: "Load balancing",
    Routing.RANDOM: "Random",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """The experiment's setting; the defaults are the paper's where it states them.

    Stated in section 4.2: the conversation trace, 16 nodes, the four policies. Assumed: the
    split into 8 prefill and 8 decode nodes, which is what the arXiv report states for the same
    experiment on its own trace (its Figure 8); a cache of 3 million tokens a node, which section 5.3
    states for another experiment; the threshold, of which `threshold_sweep` shows the effect.
    """

    trace: str = parameter("conversation", help="registered trace, or the path of a JSONL file")
    nodes: int = parameter(16, unit="nodes", low=2, high=64, help="nodes of the whole cluster")
    prefill_nodes: int = parameter(
        8, unit="nodes", low=1, high=63, help="nodes that prefill; the others decode"
    )
    kvcache_balancing_threshold: float = threshold_parameter()
    cache_tokens_per_node: int = cache_parameter()
    nic_bytes_per_s: float = network_parameter()
    arrival_speedup: float = parameter(
        1.0, low=0.01, high=100, help="replay the trace this many times as fast"
    )
    node: str = node_parameter()
    model: str = model_parameter()
    seed: int = parameter(0, low=0, high=2**32 - 1, help="of the random policy's choices")
    replicates: int = parameter(
        5, unit="runs", low=1, high=100, help="runs of the random policy, for its spread"
    )

    def __post_init__(self) -> None:
        check(self)
        if self.prefill_nodes >= self.nodes:
            raise InputError(
                f"parameter prefill_nodes: {self.prefill_nodes} leaves no node of {self.nodes} to decode; "
                f"expected 1 to {self.nodes - 1}"
            )

    def _node(self) -> GpuNode:
        node = load_node(self.node)
        return dataclasses.replace(node, nic_bytes_per_s=self.nic_bytes_per_s or node.nic_bytes_per_s)

    def cluster(self, routing: Routing, prefill_nodes: int) -> Cluster:
        """The prefill pool of one run."""
        return Cluster(
            node=self._node(),
            model=load_model(self.model),
            calibration=load_calibration(),
            prefill_nodes=prefill_nodes,
            decode_nodes=self.nodes - prefill_nodes,
            cache_tokens_per_node=self.cache_tokens_per_node,
            routing=routing,
            kvcache_balancing_threshold=self.kvcache_balancing_threshold,
        )


def run(params: Params, sliced: Slice, progress: Progress) -> Outcome:
    """One box a policy at the split of `params`; columns as of `experiments.prefill_scheduling`.

    The random policy runs once, with the draws of the slice.
    """
    replayed = sliced.head(len(sliced.requests), speedup=params.arrival_speedup)
    rows = []
    for done, routing in enumerate(Routing):
        progress(done, len(Routing))
        rows.append(_row(params, replayed, routing))
    best_s = rows[list(Routing).index(Routing.GLOBAL_CACHE_AWARE)]["mean_s"]
    for row in rows:
        row["ratio_to_global"] = row["mean_s"] / best_s
    means = ", ".join(f"{row['policy']} {row['mean_s']:.2f}" for row in rows)
    return Outcome(
        rows=rows,
        description=(
            f"Box plots of time to first token by routing policy with {params.prefill_nodes} prefill nodes, "
            f"computed in this browser. Modelled means in seconds: {means}."
        ),
        fixed={"split_of_prefill_scheduling_ttft": params.prefill_nodes},
    )


def _row(params: Params, sliced: Slice, routing: Routing) -> Row:
    cluster = params.cluster(routing, params.prefill_nodes)
    records = replay(sliced.requests, cluster, block_tokens=sliced.block_tokens, draws=sliced.draws).records
    statistics = box(ttfts_s(sliced, records))
    return {
        "origin": "modelled",
        "policy": TITLES[routing],
        "prefill_nodes": params.prefill_nodes,
        **statistics,
        "mean_low_s": statistics["mean_s"],
        "mean_high_s": statistics["mean_s"],
        "hit_ratio": hit_ratio(sliced, records),
    }
