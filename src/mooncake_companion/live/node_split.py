"""FAST'25, Figure 15, on a slice of the trace: how many of the nodes should prefill."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mooncake_companion.costs import Calibration, load_calibration
from mooncake_companion.errors import InputError
from mooncake_companion.hardware import load_node
from mooncake_companion.live.outcome import Outcome, Progress, Row
from mooncake_companion.live.slices import Slice, ttfts_s
from mooncake_companion.llm import load_model
from mooncake_companion.parameters import check, parameter
from mooncake_companion.settings import cache_parameter, model_parameter, node_parameter, threshold_parameter
from mooncake_companion.simulator import reference
from mooncake_companion.simulator.cluster import Cluster
from mooncake_companion.simulator.reference import Record
from mooncake_companion.statistics import mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """The experiment's setting; the defaults are the paper's where it states them.

    Stated in section 5.5: the synthetic trace, 16 nodes, the limits. Assumed: a cache of 3 million
    tokens a node, which section 5.3 states for another experiment; the threshold of Algorithm 1.
    """

    trace: str = parameter("synthetic", help="registered trace, or the path of a JSONL file")
    nodes: int = parameter(16, unit="nodes", low=2, high=64, help="nodes of the whole cluster")
    least_prefill_nodes: int = parameter(5, unit="nodes", low=1, high=63, help="first split")
    most_prefill_nodes: int = parameter(11, unit="nodes", low=1, high=63, help="last split")
    ttft_limit_s: float = parameter(10.0, unit="s", low=0.01, high=1000, help="limit of the first token")
    tbt_limit_s: float = parameter(0.1, unit="s", low=0.001, high=100, help="limit of the token rhythm")
    cache_tokens_per_node: int = cache_parameter()
    kvcache_balancing_threshold: float = threshold_parameter()
    node: str = node_parameter()
    model: str = model_parameter()

    def __post_init__(self) -> None:
        check(self)
        if not self.least_prefill_nodes <= self.most_prefill_nodes < self.nodes:
            raise InputError(
                f"parameter most_prefill_nodes: {self.most_prefill_nodes} must be at least "
                f"least_prefill_nodes ({self.least_prefill_nodes}) and less than nodes ({self.nodes})"
            )

    @property
    def splits(self) -> range:
        """Prefill nodes of every split."""
        return range(self.least_prefill_nodes, self.most_prefill_nodes + 1)

    def cluster(self, prefill_nodes: int, calibration: Calibration | None = None) -> Cluster:
        """One split; with other constants than those that ship, if given."""
        return Cluster(
            node=load_node(self.node),
            model=load_model(self.model),
            calibration=calibration or load_calibration(),
            first_interval_counts=False,
            prefill_nodes=prefill_nodes,
            decode_nodes=self.nodes - prefill_nodes,
            cache_tokens_per_node=self.cache_tokens_per_node,
            kvcache_balancing_threshold=self.kvcache_balancing_threshold,
        )


def run(params: Params, sliced: Slice, progress: Progress) -> Outcome:
    """One row a split; columns as of `experiments.node_split`."""
    rows = []
    for done, prefill_nodes in enumerate(params.splits):
        progress(done, len(params.splits))
        rows.append(_row(params, sliced, prefill_nodes))
    best = max(rows, key=lambda row: float(row["effective_share"]))
    return Outcome(
        rows=rows,
        description=(
            "Requests within both limits, mean time to first token and mean time between tokens by the "
            "number of prefill nodes, computed in this browser. Modelled: most requests within both limits, "
            f"{best['effective_share']:.1%}, with {best['prefill_nodes']} prefill and "
            f"{best['decode_nodes']} decode nodes."
        ),
    )


def _row(params: Params, sliced: Slice, prefill_nodes: int) -> Row:
    cluster = params.cluster(prefill_nodes)
    records = reference.replay(
        sliced.requests, cluster, block_tokens=sliced.block_tokens, draws=sliced.draws
    ).records
    ttft_s = ttfts_s(sliced, records)
    return {
        "origin": "modelled",
        "prefill_nodes": prefill_nodes,
        "decode_nodes": params.nodes - prefill_nodes,
        "effective_share": _effective(params, ttft_s, records) / len(records),
        "mean_ttft_s": mean(ttft_s),
        "mean_tbt_s": mean([each.tbt_s for each in records if not math.isnan(each.tbt_s)]),
    }


def _effective(params: Params, ttft_s: Sequence[float], records: Sequence[Record]) -> int:
    """Requests within both limits; one without a TBT meets any."""
    return sum(
        first_s <= params.ttft_limit_s and not record.tbt_s > params.tbt_limit_s
        for first_s, record in zip(ttft_s, records, strict=True)
    )
