"""What it gains to return answers to the prefill pool, on a slice of the trace."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from mooncake_companion.hardware import load_nodes
from mooncake_companion.live import prefill_scheduling
from mooncake_companion.live.outcome import Outcome, Progress, Row
from mooncake_companion.live.slices import Slice, hit_ratio, ttfts_s
from mooncake_companion.live.statistics import mean
from mooncake_companion.llm import load_models
from mooncake_companion.parameters import check, parameter
from mooncake_companion.simulator.cluster import Cluster
from mooncake_companion.simulator.reference import replay
from mooncake_companion.simulator.scheduler import Routing

GAINS = ("hit_ratio_points", "ttft_saved_pct", "prefill_saved_pct")
STRETCH = 0.001
"""By how much slower requests arrive from one pair of replays to the next."""
BITS_PER_BYTE = 8
WORKLOAD = "conversation"
"""What a page replays a slice of."""

_PARTS = (16, 4, 1)
"""What the reader's capacity and bandwidth are divided by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The cluster and what it serves; the defaults are those of `prefill_scheduling`.

    Assumed: what `traces.answers` finds of the answers in later prompts, an upper bound; the rest as
    there.
    """

    trace: str = parameter("", help="replay this trace alone; empty: conversation and synthetic")
    nodes: int = parameter(16, unit="nodes", low=2, high=64, help="nodes of the whole cluster")
    prefill_nodes: int = parameter(
        8, unit="nodes", low=1, high=63, help="nodes that prefill; the others decode"
    )
    kvcache_balancing_threshold: float = parameter(
        2.0, low=1, high=1e6, help="of Algorithm 1: fetch when the best prefix exceeds the own by this factor"
    )
    cache_tokens_per_node: int = parameter(
        3_000_000, unit="tokens", low=0, high=10**10, help="DRAM for KV cache on each prefill node"
    )
    nic_bytes_per_s: float = parameter(
        0.0, unit="bytes/s", low=0, high=1e13, help="line rate of a node's network; 0: that of `node`"
    )
    node: str = parameter("a800", choices=tuple(load_nodes()), help="what every node is")
    model: str = parameter("llama3-70b", choices=tuple(load_models()), help="what it serves")

    def __post_init__(self) -> None:
        check(self)
        self.cluster(return_answers=False)  # refuses a split that leaves no node to decode

    def cluster(self, *, return_answers: bool) -> Cluster:
        """The cluster that keeps answers, or does not."""
        setting = {field.name: getattr(self, field.name) for field in dataclasses.fields(Setting)}
        scheduling = prefill_scheduling.Params(**setting)
        cluster = scheduling.cluster(Routing.GLOBAL_CACHE_AWARE, self.prefill_nodes)
        return dataclasses.replace(cluster, return_answers=return_answers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Params(Setting):
    """The experiment's setting.

    A queue is chaotic, and a gain of a percent may be luck: each pair of replays is repeated on slightly
    slower arrivals, a thousandth a time, and the table has the range of the gains.
    """

    replicates: int = parameter(3, unit="runs", low=1, high=100, help="pairs of replays at each setting")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveParams(Setting):
    """The same with fewer replays, and the largest capacity and bandwidth of those that are tried."""

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
    arrival_speedup: float = parameter(
        1.0, low=0.01, high=100, help="replay the trace this many times as fast"
    )
    pairs: int = parameter(
        1, low=1, high=10, help="of replays at each setting, for the range; the book has three"
    )


def gain_rows(cluster: Cluster, gains: Sequence[tuple[float, float, float]]) -> list[Row]:
    """A row for each of `GAINS` over all pairs of replays at one setting."""
    return [
        {
            "cache_tokens_per_node": cluster.cache_tokens_per_node,
            "bandwidth_gbit_per_s": cluster.node.nic_bytes_per_s * BITS_PER_BYTE / 1e9,
            "gain": gain,
            "mean": mean(values),
            "low": min(values),
            "high": max(values),
        }
        for gain, values in zip(GAINS, zip(*gains, strict=True), strict=True)
    ]


def run(params: LiveParams, sliced: Slice, progress: Progress) -> Outcome:
    """Gains by capacity and by bandwidth; columns as of `experiments.returned_answers`."""
    node = params.cluster(return_answers=True).node
    own = dataclasses.replace(params, nic_bytes_per_s=node.nic_bytes_per_s)
    tried = {
        "capacity": [
            dataclasses.replace(own, cache_tokens_per_node=own.cache_tokens_per_node // part)
            for part in _PARTS
        ],
        "bandwidth": [
            dataclasses.replace(own, nic_bytes_per_s=own.nic_bytes_per_s / part) for part in _PARTS
        ],
    }
    distinct = dict.fromkeys(setting for settings in tried.values() for setting in settings)
    found: dict[LiveParams, list[Row]] = {}
    for done, setting in enumerate(distinct):
        progress(done, len(distinct))
        gains = [_gain(setting, sliced, 1 + STRETCH * pair) for pair in range(params.pairs)]
        found[setting] = gain_rows(setting.cluster(return_answers=True), gains)
    rows = [
        {"origin": "modelled", "workload": WORKLOAD, "trace": sliced.name, "varied": varied, **row}
        for varied, settings in tried.items()
        for setting in settings
        for row in found[setting]
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


def _gain(setting: LiveParams, sliced: Slice, slower: float) -> tuple[float, float, float]:
    """What answers that return gain, in the order of `GAINS`."""
    replayed = sliced.head(len(sliced.requests), speedup=setting.arrival_speedup / slower)
    without, with_answers = (_measured(setting, replayed, returns) for returns in (False, True))
    return (
        100 * (with_answers[0] - without[0]),
        100 * (1 - with_answers[1] / without[1]),
        100 * (1 - with_answers[2] / without[2]),
    )


def _measured(setting: LiveParams, sliced: Slice, returns: bool) -> tuple[float, float, float]:
    """Hit ratio, mean TTFT and seconds of all prefills together."""
    requests = sliced.requests
    if returns:
        requests = [
            request._replace(answer=answer) for request, answer in zip(requests, sliced.answers, strict=True)
        ]
    cluster = setting.cluster(return_answers=returns)
    records = replay(requests, cluster, block_tokens=sliced.block_tokens, draws=sliced.draws).records
    prefill_s = sum(record.choice.prefill_s for record in records if record.choice is not None)
    return hit_ratio(sliced, records), mean(ttfts_s(sliced, records)), prefill_s
