"""FAST'25, Figure 15: how many of 16 nodes should prefill, and how many decode."""

import dataclasses
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mooncake_companion import reported, traces
from mooncake_companion.costs import Calibration, load_calibration
from mooncake_companion.errors import InputError
from mooncake_companion.hardware import load_node, load_nodes
from mooncake_companion.llm import load_model, load_models
from mooncake_companion.parameters import check, parameter
from mooncake_companion.simulator import Cluster, simulate


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
    cache_tokens_per_node: int = parameter(
        3_000_000, unit="tokens", low=0, high=10**10, help="DRAM for KV cache on each prefill node"
    )
    kvcache_balancing_threshold: float = parameter(
        2.0, low=1, high=1e6, help="of Algorithm 1: fetch when the best prefix exceeds the own by this factor"
    )
    node: str = parameter("a800", choices=tuple(load_nodes()), help="what every node is")
    model: str = parameter("llama3-70b", choices=tuple(load_models()), help="what it serves")

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


def run(params: Params) -> pd.DataFrame:
    """Effective requests, mean TTFT and mean TBT by split, beside the paper's.

    Returns
    -------
    DataFrame
        A row for each split and ``origin`` ("modelled", "reported"). Columns: ``origin``,
        ``prefill_nodes``, ``decode_nodes``, ``effective_share`` (requests within both limits, of
        all), ``mean_ttft_s``, ``mean_tbt_s`` (over the requests that have a TBT).
    """
    trace = traces.load(params.trace)
    modelled = pd.DataFrame([_row(params, trace, prefill_nodes) for prefill_nodes in params.splits])
    drawn = reported.figure("fast25_fig15")
    figure = pd.DataFrame(
        {
            "prefill_nodes": drawn["prefill_nodes"],
            "decode_nodes": drawn["decode_nodes"],
            "effective_share": drawn["effective_request_pct"] / 100,
            "mean_ttft_s": drawn["avg_ttft_s"],
            "mean_tbt_s": drawn["avg_tbt_ms"] / 1e3,
        }
    )
    table = pd.concat([modelled.assign(origin="modelled"), figure.assign(origin="reported")])
    table = table[["origin", *figure.columns]].reset_index(drop=True)
    table.attrs["provenance"] = {
        "trace": trace.name,
        "trace_sha256": trace.sha256,
        "trace_source": trace.source,
        "parameters": dataclasses.asdict(params),
    }
    return table


def claims(params: Params = Params()) -> dict[str, float]:
    """Modelled values of the paper's claims by their id, in the unit of each claim."""
    found: dict[str, float] = {}
    for row in run(params).query("origin == 'modelled'").to_dict("records"):
        split = f"{row['prefill_nodes']}p{row['decode_nodes']}d"
        found[f"fast25.fig15.capacity.{split}"] = 100 * row["effective_share"]
        found[f"fast25.fig15.ttft.{split}"] = row["mean_ttft_s"]
        found[f"fast25.fig15.tbt.{split}"] = 1e3 * row["mean_tbt_s"]
    known = set(reported.claims()["id"])
    return {claim: value for claim, value in found.items() if claim in known}


def mean_tbt_s(params: Params, trace: traces.Trace, calibration: Calibration) -> np.ndarray:
    """Mean TBT by split, in seconds, with given constants; shape (splits,)."""
    return np.array(
        [
            np.nanmean(simulate(trace, params.cluster(prefill_nodes, calibration)).tbt_s)
            for prefill_nodes in params.splits
        ]
    )


def _row(params: Params, trace: traces.Trace, prefill_nodes: int) -> dict[str, float]:
    result = simulate(trace, params.cluster(prefill_nodes))
    effective = result.meets(ttft_s=params.ttft_limit_s, tbt_s=params.tbt_limit_s)
    return {
        "prefill_nodes": prefill_nodes,
        "decode_nodes": params.nodes - prefill_nodes,
        "effective_share": float(effective.mean()),
        "mean_ttft_s": float(result.ttft_s.mean()),
        "mean_tbt_s": float(np.nanmean(result.tbt_s)),
    }
