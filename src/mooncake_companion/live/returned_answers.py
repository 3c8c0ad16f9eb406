"""What it gains to return answers to the prefill pool, on a slice of the trace."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from mooncake_companion.live import prefill_scheduling
from mooncake_companion.live.network import GBIT_BYTES
from mooncake_companion.live.outcome import Outcome, Progress, Row
from mooncake_companion.live.slices import Slice, hit_ratio, ttfts_s
from mooncake_companion.parameters import parameter
from mooncake_companion.simulator.cluster import Cluster
from mooncake_companion.simulator.reference import replay
from mooncake_companion.simulator.scheduler import Routing
from mooncake_companion.statistics import mean

GAINS = ("hit_ratio_points", "ttft_saved_pct", "prefill_saved_pct")
STRETCH = 0.001
"""By how much slower requests arrive from one pair of replays to the next."""
WORKLOAD = "conversation"
"""What a page replays a slice of."""

_PARTS = (16, 4, 1)
"""What the reader's capacity and bandwidth are divided by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params(prefill_scheduling.Params):
    """As of `prefill_scheduling`, and how often each pair of replays is repeated, a little slower."""

    cache_tokens_per_node: int = parameter(
        3_000_000,
        unit="tokens",
        low=16,
        high=10**10,
        help="DRAM for KV cache on each prefill node; a quarter and a sixteenth are tried, too",
    )
    nic_bytes_per_s: float = parameter(
        0.0,
        unit="bytes/s",
        low=0,
        high=1e13,
        help="line rate of a node's network, 0: that of `node`; a quarter and a sixteenth are tried, too",
    )
    pairs: int = parameter(
        1, low=1, high=10, help="of replays at each setting, for the range; the book has three"
    )


def gain_rows(cluster: Cluster, gains: Sequence[tuple[float, float, float]]) -> list[Row]:
    """A row for each of `GAINS` over all pairs of replays at one setting."""
    return [
        {
            "cache_tokens_per_node": cluster.cache_tokens_per_node,
            "bandwidth_gbit_per_s": cluster.node.nic_bytes_per_s / GBIT_BYTES,
            "gain": gain,
            "mean": mean(values),
            "low": min(values),
            "high": max(values),
        }
        for gain, values in zip(GAINS, zip(*gains, strict=True), strict=True)
    ]


def run(params: Params, sliced: Slice, progress: Progress) -> Outcome:
    """Gains by capacity and by bandwidth; columns as of `experiments.returned_answers`."""
    own = params.cluster(Routing.GLOBAL_CACHE_AWARE, params.prefill_nodes)
    tried = {"capacity": _smaller_caches(own), "bandwidth": _slower_networks(own)}
    distinct = dict.fromkeys(cluster for clusters in tried.values() for cluster in clusters)
    found: dict[Cluster, list[Row]] = {}
    for done, cluster in enumerate(distinct):
        progress(done, len(distinct))
        speedups = [params.arrival_speedup / (1 + STRETCH * pair) for pair in range(params.pairs)]
        replayed = [sliced.head(len(sliced.requests), speedup=speedup) for speedup in speedups]
        found[cluster] = gain_rows(cluster, [_gain(cluster, each) for each in replayed])
    rows = [
        {"origin": "modelled", "workload": WORKLOAD, "trace": sliced.name, "varied": varied, **row}
        for varied, clusters in tried.items()
        for cluster in clusters
        for row in found[cluster]
    ]
    told = ", ".join(f"{row['mean']:+.2f}" for row in found[own])
    return Outcome(
        rows=rows,
        description=(
            "Gain from sending the KV cache of answers back to the prefill nodes, by their cache and their "
            "network, computed in this browser. Modelled at the largest of both (hit ratio in points, mean "
            f"time to first token and prefill time in % saved): {told}."
        ),
        fixed={
            "gain_sizes": sorted({each.cache_tokens_per_node for each in distinct}),
            "gain_rates": sorted({row["bandwidth_gbit_per_s"] for row in rows}),
        },
    )


def _smaller_caches(own: Cluster) -> list[Cluster]:
    return [
        dataclasses.replace(own, cache_tokens_per_node=own.cache_tokens_per_node // part) for part in _PARTS
    ]


def _slower_networks(own: Cluster) -> list[Cluster]:
    nodes = [
        dataclasses.replace(own.node, nic_bytes_per_s=own.node.nic_bytes_per_s / part) for part in _PARTS
    ]
    return [dataclasses.replace(own, node=node) for node in nodes]


def _gain(cluster: Cluster, sliced: Slice) -> tuple[float, float, float]:
    """What answers that return gain, in the order of `GAINS`."""
    answered = [
        request._replace(answer=answer)
        for request, answer in zip(sliced.requests, sliced.answers, strict=True)
    ]
    hits, ttft_s, prefill_s = _measured(cluster, sliced)
    returning = dataclasses.replace(cluster, return_answers=True)
    more_hits, less_ttft_s, less_prefill_s = _measured(
        returning, dataclasses.replace(sliced, requests=answered)
    )
    return 100 * (more_hits - hits), 100 * (1 - less_ttft_s / ttft_s), 100 * (1 - less_prefill_s / prefill_s)


def _measured(cluster: Cluster, sliced: Slice) -> tuple[float, float, float]:
    """Hit ratio, mean TTFT and seconds of all prefills together."""
    records = replay(sliced.requests, cluster, block_tokens=sliced.block_tokens, draws=sliced.draws).records
    prefill_s = sum(record.choice.prefill_s for record in records if record.choice is not None)
    return hit_ratio(sliced, records), mean(ttfts_s(sliced, records)), prefill_s
