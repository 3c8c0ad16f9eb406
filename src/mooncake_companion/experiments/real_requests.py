"""arXiv 2407.00079, Figure 13: TTFT and TBT of real requests on 20 nodes."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from mooncake_companion import reported, traces
from mooncake_companion.costs import load_calibration
from mooncake_companion.errors import InputError
from mooncake_companion.hardware import load_node
from mooncake_companion.llm import load_model
from mooncake_companion.parameters import check, parameter
from mooncake_companion.settings import cache_parameter, model_parameter, node_parameter
from mooncake_companion.simulator import Cluster, CoupledCluster, Result, simulate

SYSTEMS = {"Mooncake-[10P+10D]": "mooncake_10p10d", "vLLM-[20M]": "vllm_20m"}
"""The systems by title, each with its name in the ids of claims."""
MOONCAKE, BASELINE = SYSTEMS
PERCENTILES = (50, 90, 99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """The experiment's setting; the defaults are the paper's where it states them.

    Stated in section 8.1.3: the shapes of both clusters, the limits. Assumed: plain vLLM; a cache
    of 3 million tokens a node; the trace's own speed.
    """

    trace: str = parameter("arxiv", help="registered trace, or the path of a JSONL file")
    nodes: int = parameter(20, unit="nodes", low=2, high=64, help="nodes of each system")
    prefill_nodes: int = parameter(
        10, unit="nodes", low=1, high=63, help="Mooncake's nodes that prefill; its others decode"
    )
    ttft_limit_s: float = parameter(30.0, unit="s", low=0.01, high=1000, help="limit of the first token")
    tbt_limit_s: float = parameter(0.1, unit="s", low=0.001, high=100, help="limit of the token rhythm")
    cache_tokens_per_node: int = cache_parameter()
    arrival_speedup: float = parameter(
        1.0, low=0.01, high=100, help="replay the trace this many times as fast"
    )
    node: str = node_parameter()
    model: str = model_parameter()

    def __post_init__(self) -> None:
        check(self)
        if self.prefill_nodes >= self.nodes:
            raise InputError(
                f"parameter prefill_nodes: {self.prefill_nodes} leaves no node of {self.nodes} to decode; "
                f"expected 1 to {self.nodes - 1}"
            )

    def cluster(self, system: str) -> Cluster | CoupledCluster:
        """One of the `SYSTEMS`, by its title."""
        served: dict[str, Any] = {
            "node": load_node(self.node),
            "model": load_model(self.model),
            "calibration": load_calibration(host=False),
            "first_interval_counts": False,
        }
        if system == BASELINE:
            return CoupledCluster(**served, nodes=self.nodes)
        return Cluster(
            **served,
            prefill_nodes=self.prefill_nodes,
            decode_nodes=self.nodes - self.prefill_nodes,
            cache_tokens_per_node=self.cache_tokens_per_node,
        )


def run(params: Params, marks: int = 25) -> pd.DataFrame:
    """Shares of requests with a TTFT and a TBT up to x, beside the paper's.

    Returns
    -------
    DataFrame
        Columns: ``origin`` ("modelled", "reported"), ``metric`` ("ttft", "tbt"), ``system``,
        ``seconds``, ``share``; modelled at 200 points, of the paper's readings those nearest to so many
        `marks` evenly up its axis.
    """
    trace = _replayed(params)
    parts = [
        _curve(values_s).assign(origin="modelled", metric=metric, system=system)
        for system, result in results(params, trace).items()
        for metric, values_s in _metrics(result).items()
    ]
    drawn = reported.figure("arxiv_fig13").rename(columns={"cdf": "share"}).assign(origin="reported")
    drawn = reported.along(drawn, "share", by=["metric", "system"], marks=marks)
    drawn["metric"] = drawn["metric"].str.removesuffix("_s")
    table = pd.concat([*parts, drawn], ignore_index=True)
    table = table[["origin", "metric", "system", "seconds", "share"]]
    table.attrs["provenance"] = {
        "trace": trace.name,
        "trace_sha256": trace.sha256,
        "trace_source": trace.source,
        "parameters": dataclasses.asdict(params),
    }
    return table


def results(params: Params, trace: traces.Trace) -> dict[str, Result]:
    """The replay of a trace by both systems."""
    return {system: simulate(trace, params.cluster(system)) for system in SYSTEMS}


def claims(params: Params = Params()) -> dict[str, float]:
    """Modelled values of the paper's claims by their id, in the unit of each claim."""
    found: dict[str, float] = {}
    within: dict[str, dict[str, float]] = {}
    limits_s = {"ttft": params.ttft_limit_s, "tbt": params.tbt_limit_s}
    for system, result in results(params, _replayed(params)).items():
        name = SYSTEMS[system]
        within[system] = {}
        for metric, values_s in _metrics(result).items():
            share = 100 * float((values_s <= limits_s[metric]).mean())
            within[system][metric] = found[f"arxiv.fig13.within_{metric}.{name}"] = share
            for percentile in PERCENTILES:
                value_s = float(np.percentile(values_s, percentile))
                found[f"arxiv.fig13.{metric}_p{percentile}.{name}"] = value_s
    found["arxiv.fig13.tbt_ok_mooncake"] = within[MOONCAKE]["tbt"]
    found["arxiv.fig13.tbt_ok_vllm"] = within[BASELINE]["tbt"]
    found["arxiv.fig13.ttft_ok"] = min(shares["ttft"] for shares in within.values())
    gain = 100 * (within[MOONCAKE]["tbt"] / within[BASELINE]["tbt"] - 1)
    found["arxiv.fig13.gain"] = found["arxiv.headline.real_gain"] = gain
    known = set(reported.claims()["id"])
    return {claim: value for claim, value in found.items() if claim in known}


def _replayed(params: Params) -> traces.Trace:
    trace = traces.load(params.trace)
    return dataclasses.replace(trace, arrival_s=trace.arrival_s / params.arrival_speedup)


def _metrics(result: Result) -> dict[str, np.ndarray]:
    """TTFT and TBT of every request that has one, in seconds."""
    return {"ttft": result.ttft_s, "tbt": result.tbt_s[np.isfinite(result.tbt_s)]}


def _curve(values_s: np.ndarray, points: int = 200) -> pd.DataFrame:
    shares = np.linspace(0, 1, points)
    return pd.DataFrame({"seconds": np.quantile(values_s, shares), "share": shares})
