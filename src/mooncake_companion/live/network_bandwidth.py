"""FAST'25, Figure 13, on a slice of a trace: time to first token and of a transfer, by the network.

The figure's own trace is the synthetic one. Few of its first requests have a prefix that another node
holds, too few for a mean, so that a page takes the conversation trace.
"""

import dataclasses
import math
from dataclasses import dataclass

from mooncake_companion.errors import InputError
from mooncake_companion.live import prefill_scheduling
from mooncake_companion.live.network import GBIT_BYTES
from mooncake_companion.live.outcome import Outcome, Progress, Row
from mooncake_companion.live.refusals import beside
from mooncake_companion.live.slices import Slice, ttfts_s
from mooncake_companion.parameters import check, parameter
from mooncake_companion.settings import cache_parameter, model_parameter, node_parameter, threshold_parameter
from mooncake_companion.simulator import reference
from mooncake_companion.simulator.cluster import Cluster
from mooncake_companion.simulator.reference import Record
from mooncake_companion.simulator.scheduler import Routing
from mooncake_companion.statistics import mean

TRACE = "conversation"
"""What a page replays a slice of."""
BANDWIDTHS_GBIT_PER_S = (1.0, 4.0, 10.0, 24.0, 40.0, 80.0, 160.0, 400.0, 1000.0)
"""What a page tries; from 24 to 400 some of the figure's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """The figure's setting; the synthetic workload and the bandwidths are stated.

    Assumed: 16 nodes, split and run as in `prefill_scheduling`, none of which this figure informed. What
    counts as a transfer was decided with the figure in view: a prefix fetched from another prefill node,
    since the bytes that its theoretical times imply grow with the bandwidth, as those of fetches do and
    those of the stream to the decode node, a whole prompt's, do not.
    """

    trace: str = parameter("synthetic", help="registered trace, or the path of a JSONL file")
    nodes: int = parameter(16, unit="nodes", low=2, high=64, help="nodes of the whole cluster")
    prefill_nodes: int = parameter(
        8, unit="nodes", low=1, high=63, help="nodes that prefill; the others decode"
    )
    kvcache_balancing_threshold: float = threshold_parameter()
    cache_tokens_per_node: int = cache_parameter()
    node: str = node_parameter("what every node is, but for its network")
    model: str = model_parameter()

    def __post_init__(self) -> None:
        check(self)
        self.cluster(100)  # refuses a split that leaves no node to decode, a model that does not fit

    def cluster(self, bandwidth_gbit_per_s: float) -> Cluster:
        """The cluster on a network of that bandwidth a node, in Gbit/s."""
        nic_bytes_per_s = bandwidth_gbit_per_s * GBIT_BYTES
        settings = {field.name: getattr(self, field.name) for field in dataclasses.fields(Params)}
        scheduling = prefill_scheduling.Params(**settings, nic_bytes_per_s=nic_bytes_per_s)
        with beside("model"):
            return scheduling.cluster(Routing.GLOBAL_CACHE_AWARE, self.prefill_nodes)

    def uncached(self, bandwidth_gbit_per_s: float) -> Cluster:
        """The same without caches: every prompt is computed whole."""
        return dataclasses.replace(self.cluster(bandwidth_gbit_per_s), cache_tokens_per_node=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeParams(Params):
    """The same, and which networks a page tries."""

    slowest_gbit_per_s: float = parameter(
        24.0, unit="Gbit/s", low=0.1, high=1e4, help="slowest network of a node that is tried"
    )
    fastest_gbit_per_s: float = parameter(
        400.0, unit="Gbit/s", low=0.1, high=1e4, help="fastest one; some between them are tried, too"
    )

    def __post_init__(self) -> None:
        Params.__post_init__(self)
        if self.fastest_gbit_per_s < self.slowest_gbit_per_s:
            raise InputError(
                f"parameter fastest_gbit_per_s: {self.fastest_gbit_per_s:g} is less than slowest_gbit_per_s "
                f"({self.slowest_gbit_per_s:g})"
            )

    @property
    def bandwidths_gbit_per_s(self) -> list[float]:
        """Both ends, and those of `BANDWIDTHS_GBIT_PER_S` between them."""
        ends = slowest, fastest = self.slowest_gbit_per_s, self.fastest_gbit_per_s
        return sorted({*ends, *(each for each in BANDWIDTHS_GBIT_PER_S if slowest < each < fastest)})


def run(params: RangeParams, sliced: Slice, progress: Progress) -> Outcome:
    """Mean TTFT and transfer times by bandwidth; columns as of `experiments.network_bandwidth.splits`."""
    rows: list[Row] = []
    bandwidths = params.bandwidths_gbit_per_s
    for done, bandwidth in enumerate(bandwidths):
        progress(done, len(bandwidths) + 1)
        cluster = params.cluster(bandwidth)
        seconds = _seconds(sliced, _replay(sliced, cluster), cluster)
        rows += [_row(params, bandwidth, series, value) for series, value in seconds.items()]
    progress(len(bandwidths), len(bandwidths) + 1)
    recompute_s = mean(ttfts_s(sliced, _replay(sliced, params.uncached(bandwidths[-1]))))
    rows.append(_row(params, math.nan, "ttft_recompute", recompute_s))
    told = "; ".join(
        f"{row['bandwidth_gbit_per_s']:g} Gbit/s {row['seconds']:.2f} s"
        for row in rows
        if row["series"] == "avg_ttft"
    )
    return Outcome(
        rows=rows,
        description=(
            "Modelled mean time to first token, and of a transfer where there is one, by bandwidth, computed "
            f"in this browser; nodes that prefill: {params.prefill_nodes}. To the first token: {told}; with "
            f"everything recomputed {recompute_s:.2f} s."
        ),
        fixed={"split": params.prefill_nodes, "network_rates": bandwidths},
        without_reported=(
            "What the paper reports is of the synthetic trace, whose first requests share hardly any prefix "
            "with one another, and is left out."
        ),
    )


def _replay(sliced: Slice, cluster: Cluster) -> list[Record]:
    return reference.replay(
        sliced.requests, cluster, block_tokens=sliced.block_tokens, draws=sliced.draws
    ).records


def _seconds(sliced: Slice, records: list[Record], cluster: Cluster) -> dict[str, float]:
    """Means by series; a transfer is a fetch of a prefix."""
    bytes_per_s, token_bytes = cluster.node.nic_bytes_per_s, cluster.model.kv_bytes_per_token
    fetches = [
        (each.choice.fetched_tokens * token_bytes / bytes_per_s, each.fetched_s - request.arrival_s)
        for request, each in zip(sliced.requests, records, strict=True)
        if each.choice is not None and each.choice.fetched_tokens
    ]
    theoretical, real = zip(*fetches, strict=True) if fetches else ((math.nan,), (math.nan,))
    return {
        "avg_ttft": mean(ttfts_s(sliced, records)),
        "transfer_time_theoretical": mean(theoretical),
        "transfer_time_real": mean(real),
    }


def _row(params: Params, bandwidth_gbit_per_s: float, series: str, seconds: float) -> Row:
    return {
        "bandwidth_gbit_per_s": bandwidth_gbit_per_s,
        "series": series,
        "seconds": seconds,
        "origin": "modelled",
        "prefill_nodes": params.prefill_nodes,
    }
