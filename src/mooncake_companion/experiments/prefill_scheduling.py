"""FAST'25, Figure 5: time to first token under four ways to pick a prefill node."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd

from mooncake_companion import reported, traces
from mooncake_companion.costs import prefill_time, transfer_time
from mooncake_companion.live.prefill_scheduling import TITLES, Params
from mooncake_companion.simulator import Routing, simulate

__all__ = [
    "TITLES",
    "Params",
    "block_times",
    "box_statistics",
    "claims",
    "comparison",
    "run",
    "threshold_sweep",
]


def run(params: Params) -> pd.DataFrame:
    """Box-plot statistics of TTFT by policy for every split of the nodes, beside the paper's.

    Returns
    -------
    DataFrame
        A row for each policy and split (``origin`` "modelled"), and one for each policy as the paper
        draws it (``origin`` "reported", at ``params.prefill_nodes``). Columns: ``origin``, ``policy``,
        ``prefill_nodes``, ``whisker_low_s``, ``q1_s``, ``median_s``, ``q3_s``, ``whisker_high_s``,
        ``mean_s``, ``mean_low_s``, ``mean_high_s`` (least and greatest mean over the replicates),
        ``ratio_to_global`` (of the mean TTFT), ``hit_ratio`` (share of prompt tokens reused).

    Notes
    -----
    Whiskers reach the last value within 1.5 interquartile ranges of the box; the paper does
    not state its rule. The random policy runs `params.replicates` times at the chosen split,
    once at the others; its box is that of all its runs together.
    """
    trace = _replayed(params)
    modelled = [
        _statistics(params, trace, routing, split) for split in range(1, params.nodes) for routing in Routing
    ]
    table = pd.concat([pd.DataFrame(modelled), _reported(params)], ignore_index=True)
    best_s = table["mean_s"].where(table["policy"] == TITLES[Routing.GLOBAL_CACHE_AWARE])
    table["ratio_to_global"] = table["mean_s"] / best_s.groupby(
        [table["origin"], table["prefill_nodes"]]
    ).transform("max")
    table.attrs["provenance"] = _provenance(params, trace)
    return table


def comparison(table: pd.DataFrame, prefill_nodes: int) -> pd.DataFrame:
    """Reported beside modelled mean TTFT and ratio to global, with the error of each.

    Parameters
    ----------
    table : DataFrame
        As `run` returns it.
    prefill_nodes : int
        The split to compare.

    Returns
    -------
    DataFrame
        Indexed by policy: ``reported_s``, ``modelled_s``, ``error`` and ``reported_ratio``,
        ``modelled_ratio``, ``ratio_error``; errors relative to the reported value.
    """
    chosen = table[table["prefill_nodes"] == prefill_nodes].pivot(index="policy", columns="origin")
    columns = {}
    for quantity, suffix in (("mean_s", "_s"), ("ratio_to_global", "_ratio")):
        reported_value, modelled_value = chosen[quantity]["reported"], chosen[quantity]["modelled"]
        columns["reported" + suffix] = reported_value
        columns["modelled" + suffix] = modelled_value
        columns["error" if suffix == "_s" else "ratio_error"] = modelled_value / reported_value - 1
    return pd.DataFrame(columns).loc[list(TITLES.values())]


def block_times(params: Params) -> dict[str, float]:
    """Seconds to compute, to fetch and to load from DRAM one block near the start of a prompt.

    Keys: ``compute_s`` (without the overhead of a prefill), ``fetch_s``, ``load_s``.
    """
    cluster = params.cluster(Routing.GLOBAL_CACHE_AWARE, params.prefill_nodes)
    node, calibration = cluster.node, cluster.calibration
    block_bytes = traces.BLOCK_TOKENS * cluster.model.kv_bytes_per_token
    computed_s = prefill_time(node, cluster.model, traces.BLOCK_TOKENS, calibration=calibration)
    return {
        "compute_s": computed_s - calibration.prefill_overhead_s,
        "fetch_s": transfer_time(node.nic_bytes_per_s, block_bytes, calibration=calibration),
        "load_s": block_bytes / node.host_to_device_bytes_per_s,
    }


def threshold_sweep(
    params: Params, thresholds: tuple[float, ...] = (1, 1.5, 2, 3, 5, 10, 20, 50, 100)
) -> pd.DataFrame:
    """Mean TTFT and reuse of global cache-aware routing by ``kvcache_balancing_threshold``.

    Columns: ``threshold``, ``mean_s``, ``hit_ratio``, ``fetched_share`` (of the reused tokens),
    all at the split of `params`.
    """
    trace = _replayed(params)
    rows = []
    for threshold in thresholds:
        varied = dataclasses.replace(params, kvcache_balancing_threshold=float(threshold))
        result = simulate(trace, varied.cluster(Routing.GLOBAL_CACHE_AWARE, params.prefill_nodes))
        rows.append(
            {
                "threshold": float(threshold),
                "mean_s": result.ttft_s.mean(),
                "hit_ratio": result.hit_ratio,
                "fetched_share": result.fetched_tokens.sum() / max(1, result.cached_tokens.sum()),
            }
        )
    table = pd.DataFrame(rows)
    table.attrs["provenance"] = _provenance(params, trace)
    return table


_STATISTICS = {
    "ttft_mean": "mean_s",
    "ttft_q1": "q1_s",
    "ttft_median": "median_s",
    "ttft_q3": "q3_s",
    "ttft_whisker_low": "whisker_low_s",
    "ttft_whisker_high": "whisker_high_s",
}


def claims(params: Params = Params()) -> dict[str, float]:  # noqa: B008 - it is frozen
    """Modelled values of the figure's claims, in their rows' units.

    The paper's figure ends below random's upper whisker, so there is no claim to set that against.
    """
    trace = _replayed(params)
    boxes = {
        TITLES[routing].lower().replace(" ", "_"): _statistics(params, trace, routing, params.prefill_nodes)
        for routing in Routing
    }
    values = {
        f"fast25.fig05.{claim}.{policy}": float(box[column])
        for policy, box in boxes.items()
        for claim, column in _STATISTICS.items()
    }
    del values["fast25.fig05.ttft_whisker_high.random"]
    saved = 1 - boxes["global_cache_aware"]["mean_s"] / boxes["local_cache_aware"]["mean_s"]
    return values | {"fast25.fig05.reduction_global_vs_local": 100 * saved}


def _replayed(params: Params) -> traces.Trace:
    trace = traces.load(params.trace)
    return dataclasses.replace(trace, arrival_s=trace.arrival_s / params.arrival_speedup)


def _statistics(params: Params, trace: traces.Trace, routing: Routing, split: int) -> dict[str, Any]:
    runs = params.replicates if routing is Routing.RANDOM and split == params.prefill_nodes else 1
    generators = np.random.default_rng(params.seed).spawn(runs)
    results = [simulate(trace, params.cluster(routing, split), rng=rng) for rng in generators]
    means_s = [result.ttft_s.mean() for result in results]
    return {
        "origin": "modelled",
        "policy": TITLES[routing],
        "prefill_nodes": split,
        **box_statistics(np.concatenate([result.ttft_s for result in results])),
        "mean_low_s": min(means_s),
        "mean_high_s": max(means_s),
        "hit_ratio": float(np.mean([result.hit_ratio for result in results])),
    }


def box_statistics(values_s: np.ndarray) -> dict[str, float]:
    """Quartiles, mean and 1.5-IQR whiskers of a sample, in its unit."""
    q1, median, q3 = np.quantile(values_s, (0.25, 0.5, 0.75))
    reach = 1.5 * (q3 - q1)
    return {
        "whisker_low_s": float(values_s[values_s >= q1 - reach].min()),
        "q1_s": float(q1),
        "median_s": float(median),
        "q3_s": float(q3),
        "whisker_high_s": float(values_s[values_s <= q3 + reach].max()),
        "mean_s": float(values_s.mean()),
    }


def _reported(params: Params) -> pd.DataFrame:
    drawn = reported.figure("fast25_fig05").drop(columns="mean_marker_s")
    drawn = drawn.rename(columns={"mean_printed_s": "mean_s"})
    drawn["policy"] = drawn["policy"].str.capitalize()
    return drawn.assign(origin="reported", prefill_nodes=params.prefill_nodes)


def _provenance(params: Params, trace: traces.Trace) -> dict[str, object]:
    return {
        "trace": trace.name,
        "trace_sha256": trace.sha256,
        "trace_source": trace.source,
        "parameters": dataclasses.asdict(params),
    }
