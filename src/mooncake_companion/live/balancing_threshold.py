"""The threshold of Algorithm 1, on a slice of the trace: what it does to TTFT and to what is fetched."""

import dataclasses
from collections.abc import Iterator, Sequence

from mooncake_companion.live.outcome import Outcome, Progress, Row
from mooncake_companion.live.prefill_scheduling import Params
from mooncake_companion.live.slices import Slice, hit_ratio, ttfts_s, without_decode
from mooncake_companion.simulator.cluster import Cluster
from mooncake_companion.simulator.reference import Record, replay
from mooncake_companion.simulator.scheduler import Candidate, Routing
from mooncake_companion.statistics import mean

THRESHOLDS = (1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0)
_SWEPT = THRESHOLDS[:-1]
"""Those of `experiments.prefill_scheduling.threshold_sweep`."""


def ttft(params: Params, sliced: Slice, progress: Progress) -> Outcome:
    """Mean TTFT by threshold; columns as of `experiments.prefill_scheduling.threshold_sweep`."""
    replayed = sliced.head(len(sliced.requests), speedup=params.arrival_speedup)
    rows: list[Row] = []
    for cluster, records in _sweep(params, replayed, _SWEPT, progress):
        choices = _choices(records)
        reused = sum(choice.local_tokens + choice.fetched_tokens for choice in choices)
        rows.append(
            {
                "threshold": cluster.kvcache_balancing_threshold,
                "mean_s": mean(ttfts_s(replayed, records)),
                "hit_ratio": hit_ratio(replayed, records),
                "fetched_share": sum(choice.fetched_tokens for choice in choices) / max(1, reused),
            }
        )
    return Outcome(
        rows=rows,
        description=(
            "Line: mean time to first token by the balancing threshold of Algorithm 1, computed in this "
            f"browser. {_told(rows, 'mean_s', params)}"
        ),
    )


def fetched(params: Params, sliced: Slice, progress: Progress) -> Outcome:
    """TTFT and bytes by threshold, without decode; columns as of `experiments.balancing_threshold.run`."""
    replayed = without_decode(sliced.head(len(sliced.requests), speedup=params.arrival_speedup))
    rows: list[Row] = []
    for cluster, records in _sweep(params, replayed, THRESHOLDS, progress):
        fetched_tokens = [choice.fetched_tokens for choice in _choices(records)]
        rows.append(
            {
                "threshold": cluster.kvcache_balancing_threshold,
                "nic_bytes_per_s": cluster.node.nic_bytes_per_s,
                "mean_ttft_s": mean(ttfts_s(replayed, records)),
                "fetched_bytes": sum(fetched_tokens)
                * cluster.model.kv_bytes_per_token
                / len(replayed.requests),
                "fetched_share": sum(tokens > 0 for tokens in fetched_tokens) / len(replayed.requests),
                "hit_ratio": hit_ratio(replayed, records),
            }
        )
    network = rows[0]["nic_bytes_per_s"]
    return Outcome(
        rows=rows,
        description=(
            "Mean time to first token, and bytes fetched for a request, by the balancing threshold of "
            f"Algorithm 1 on a network of {8 * network / 1e9:g} Gbit/s, computed in this browser. "
            f"{_told(rows, 'mean_ttft_s', params)}"
        ),
        fixed={"threshold_network": network},
    )


def _sweep(
    params: Params, sliced: Slice, thresholds: Sequence[float], progress: Progress
) -> Iterator[tuple[Cluster, list[Record]]]:
    """The slice under those thresholds and the reader's."""
    tried = sorted({*thresholds, params.kvcache_balancing_threshold})
    for done, threshold in enumerate(tried):
        progress(done, len(tried))
        varied = dataclasses.replace(params, kvcache_balancing_threshold=threshold)
        cluster = varied.cluster(Routing.GLOBAL_CACHE_AWARE, params.prefill_nodes)
        run = replay(sliced.requests, cluster, block_tokens=sliced.block_tokens, draws=sliced.draws)
        yield cluster, run.records


def _choices(records: Sequence[Record]) -> list[Candidate]:
    return [record.choice for record in records if record.choice is not None]


def _told(rows: Sequence[Row], column: str, params: Params) -> str:
    best = min(rows, key=lambda row: float(row[column]))
    own = next(row for row in rows if row["threshold"] == params.kvcache_balancing_threshold)
    return (
        f"Modelled: shortest, {best[column]:.3f} s, at a threshold of {best['threshold']:g}; "
        f"{own[column]:.3f} s at {own['threshold']:g}."
    )
