"""FAST'25, Figure 13: time to first token and time of a transfer, by the nodes' network bandwidth."""

import dataclasses
from collections.abc import Iterable

import numpy as np
import pandas as pd

from mooncake_companion import reported, traces
from mooncake_companion.costs import prefill_time
from mooncake_companion.live.network import GBIT_BYTES
from mooncake_companion.live.network_bandwidth import Params
from mooncake_companion.llm import load_model
from mooncake_companion.simulator import simulate

__all__ = ["Params", "busy_nodes", "claims", "run", "splits", "streamed_gbit_per_s"]


def run(params: Params) -> pd.DataFrame:
    """Mean TTFT and mean transfer times by bandwidth, modelled and reported.

    Returns
    -------
    DataFrame
        Columns: ``origin``, ``bandwidth_gbit_per_s`` (NaN where it does not matter), ``series``
        ("avg_ttft", "ttft_recompute", "transfer_time_theoretical", "transfer_time_real"),
        ``seconds`` (NaN where nothing is transferred). The theoretical time of a transfer is its
        bytes over the line rate.
    """
    drawn = reported.figure("fast25_fig13").query("inside_axes == 1")
    drawn = drawn.replace({"series": {"ttft_of_recomputation": "ttft_recompute"}})
    read = pd.DataFrame(
        {
            "origin": "reported",
            "bandwidth_gbit_per_s": drawn["bandwidth_gbps"].where(drawn["series"] != "ttft_recompute"),
            "series": drawn["series"],
            "seconds": drawn["seconds"],
        }
    ).drop_duplicates()
    trace = traces.load(params.trace)
    bandwidths = sorted(set(read["bandwidth_gbit_per_s"].dropna().tolist()))
    modelled = [row for bandwidth in bandwidths for row in _at(params, trace, bandwidth)]
    recompute_s = simulate(trace, params.uncached(bandwidths[-1])).ttft_s.mean()
    modelled.append({"bandwidth_gbit_per_s": np.nan, "series": "ttft_recompute", "seconds": recompute_s})
    table = pd.concat([pd.DataFrame(modelled).assign(origin="modelled"), read], ignore_index=True)
    table.attrs["provenance"] = _provenance(params, trace)
    return table


def splits(params: Params, prefill_nodes: Iterable[int]) -> pd.DataFrame:
    """What `run` gives, for several splits of the nodes.

    Returns
    -------
    DataFrame
        As `run` returns it, with ``prefill_nodes``, which is NaN for what is reported: the paper does
        not state its split.
    """
    tables = []
    for count in prefill_nodes:
        table = run(dataclasses.replace(params, prefill_nodes=count))
        tables.append(table[table["origin"] == "modelled"].assign(prefill_nodes=count))
    joined = pd.concat([*tables, table[table["origin"] == "reported"]], ignore_index=True)
    joined.attrs["provenance"] = _provenance(params, traces.load(params.trace))
    return joined


def streamed_gbit_per_s(params: Params) -> float:
    """What streaming every prompt to its decode node takes of each prefill node's network, in Gbit/s."""
    trace = traces.load(params.trace)
    token_bytes = load_model(params.model).kv_bytes_per_token
    bytes_per_s = float(trace.input_tokens.sum()) * token_bytes / float(trace.arrival_s[-1])
    return bytes_per_s / params.prefill_nodes / GBIT_BYTES


def busy_nodes(params: Params, *, compute_s: float | None = None) -> float:
    """Prefill nodes that are kept busy on average when every prompt is computed whole.

    With fewer nodes the queue grows for as long as the trace goes on.

    Parameters
    ----------
    params : Params
    compute_s : float, optional
        Mean seconds of a prefill; as modelled, if not given.
    """
    trace = traces.load(params.trace)
    cluster = params.cluster(1.0)  # no matter on which network
    lengths = trace.input_tokens.astype(float)
    modelled_s = prefill_time(cluster.node, cluster.model, lengths, calibration=cluster.calibration)
    mean_s = float(modelled_s.mean()) if compute_s is None else compute_s
    return len(trace) * mean_s / float(trace.arrival_s[-1])


def _at(params: Params, trace: traces.Trace, bandwidth_gbit_per_s: float) -> list[dict[str, object]]:
    cluster = params.cluster(bandwidth_gbit_per_s)
    result = simulate(trace, cluster)
    fetched = result.fetched_tokens > 0
    fetched_bytes = result.fetched_tokens[fetched] * cluster.model.kv_bytes_per_token
    seconds = {
        "avg_ttft": result.ttft_s.mean(),
        "transfer_time_theoretical": _mean(fetched_bytes / cluster.node.nic_bytes_per_s),
        "transfer_time_real": _mean((result.fetched_s - result.arrival_s)[fetched]),
    }
    return [
        {"bandwidth_gbit_per_s": bandwidth_gbit_per_s, "series": series, "seconds": float(value)}
        for series, value in seconds.items()
    ]


def _provenance(params: Params, trace: traces.Trace) -> dict[str, object]:
    return {
        "trace": trace.name,
        "trace_sha256": trace.sha256,
        "trace_source": trace.source,
        "parameters": dataclasses.asdict(params),
    }


def _mean(values: np.ndarray) -> float:
    """Mean, or NaN where nothing was fetched."""
    return float(values.mean()) if len(values) else np.nan


def claims(params: Params = Params()) -> dict[str, float]:  # noqa: B008 - it is frozen
    """Modelled values of the figure's claims, in seconds."""
    table = run(params).query("origin == 'modelled'")
    values = {}
    for row in table.to_dict("records"):
        bandwidth = row["bandwidth_gbit_per_s"]
        at = "" if np.isnan(bandwidth) else f".{bandwidth:.0f}gbps"
        values[f"fast25.fig13.{row['series']}{at}"] = row["seconds"]
    return values
