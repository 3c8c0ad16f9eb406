"""Algorithm 1 as code, and what its threshold does: Mooncake issues 381, 510 and 977.

The released software has no such scheduler for one's own cluster, as readers note. `scheduler.candidates`
and `scheduler.choose` are it, and need nothing of the simulator: a snapshot of the nodes and two
predictors, such as `estimates`.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from mooncake_companion import traces
from mooncake_companion.costs import load_calibration, prefill_time, transfer_time
from mooncake_companion.experiments import prefill_scheduling
from mooncake_companion.experiments.paper_traces import provenance
from mooncake_companion.hardware import load_node
from mooncake_companion.live.balancing_threshold import THRESHOLDS
from mooncake_companion.llm import load_model
from mooncake_companion.parameters import check, parameter
from mooncake_companion.settings import model_parameter, node_parameter, threshold_parameter
from mooncake_companion.simulator import Routing, simulate
from mooncake_companion.simulator.scheduler import Candidate, Estimates, Prefix

__all__ = [
    "NETWORKS_BYTES_PER_S",
    "THRESHOLDS",
    "Params",
    "best_thresholds",
    "estimates",
    "gain_of_fetching",
    "run",
    "weighed",
]

NETWORKS_BYTES_PER_S = (3e9, 12.5e9, 25e9, 50e9, 100e9)
"""Line rates of a node that are compared; the paper's has 8 × 100 Gbit/s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """The trace and the cluster; the defaults are those of `prefill_scheduling`."""

    trace: str = parameter("conversation", help="registered trace, or the path of a JSONL file")
    nodes: int = parameter(16, unit="nodes", low=2, high=64, help="nodes of the whole cluster")
    prefill_nodes: int = parameter(
        8, unit="nodes", low=1, high=63, help="nodes that prefill; the others decode"
    )
    kvcache_balancing_threshold: float = threshold_parameter(
        "of the worked example: fetch when the best exceeds the own by this factor"
    )
    node: str = node_parameter()
    model: str = model_parameter()

    def __post_init__(self) -> None:
        check(self)


def run(params: Params) -> pd.DataFrame:
    """Mean TTFT and fetched bytes by threshold and network.

    Decode is left out, answers having one token: on a slow network its streams would overload the links
    whatever Conductor does.

    Returns
    -------
    DataFrame
        Columns: ``threshold``, ``nic_bytes_per_s``, ``mean_ttft_s``, ``fetched_bytes`` (mean per request),
        ``fetched_share`` (of the requests), ``hit_ratio`` (share of the prompt tokens reused).
    """
    trace = traces.load(params.trace)
    prompts = dataclasses.replace(trace, output_tokens=0 * trace.output_tokens + 1)
    rows = []
    for nic_bytes_per_s in NETWORKS_BYTES_PER_S:
        for threshold in THRESHOLDS:
            setting = prefill_scheduling.Params(
                nodes=params.nodes,
                prefill_nodes=params.prefill_nodes,
                kvcache_balancing_threshold=threshold,
                nic_bytes_per_s=nic_bytes_per_s,
                node=params.node,
                model=params.model,
            )
            result = simulate(prompts, setting.cluster(Routing.GLOBAL_CACHE_AWARE, params.prefill_nodes))
            rows.append(
                {
                    "threshold": threshold,
                    "nic_bytes_per_s": nic_bytes_per_s,
                    "mean_ttft_s": float(result.ttft_s.mean()),
                    "fetched_bytes": result.counters["fetched_bytes"] / len(prompts),
                    "fetched_share": float((result.fetched_tokens > 0).mean()),
                    "hit_ratio": result.hit_ratio,
                }
            )
    table = pd.DataFrame(rows)
    table.attrs["provenance"] = provenance(params, {params.trace: trace})
    return table


def best_thresholds(table: pd.DataFrame) -> pd.DataFrame:
    """The threshold with the shortest mean TTFT for each network, and what the published one costs.

    Index: ``nic_bytes_per_s``. Columns: ``threshold``, ``mean_ttft_s``, ``fetched_bytes``, ``loss`` (mean
    TTFT at a threshold of 2 over the shortest, less 1).
    """
    best = table.loc[table.groupby("nic_bytes_per_s")["mean_ttft_s"].idxmin()].set_index("nic_bytes_per_s")
    at_two = table[table["threshold"] == 2.0].set_index("nic_bytes_per_s")["mean_ttft_s"]
    return best[["threshold", "mean_ttft_s", "fetched_bytes"]].assign(loss=at_two / best["mean_ttft_s"] - 1)


def gain_of_fetching(table: pd.DataFrame) -> pd.Series:
    """Mean TTFT at the least threshold against that at the greatest, where next to nothing is fetched.

    By ``nic_bytes_per_s``; the share by which it is shorter, below 0 where fetching costs more than it saves.
    """
    means_s = table.pivot(index="nic_bytes_per_s", columns="threshold", values="mean_ttft_s")
    gain: pd.Series = 1 - means_s[means_s.columns.min()] / means_s[means_s.columns.max()]
    return gain


def estimates(params: Params) -> Estimates:
    """The two predictors that Algorithm 1 calls, from the model's costs of an idle node and network."""
    node, model, fitted = load_node(params.node), load_model(params.model), load_calibration()

    def prefill_s(input_tokens: int, prefix: Prefix) -> tuple[float, float]:
        seconds = float(prefill_time(node, model, input_tokens, prefix.tokens, calibration=fitted))
        return seconds, seconds

    def transfer_s(tokens: int) -> float:
        size_bytes = tokens * model.kv_bytes_per_token
        return float(transfer_time(node.nic_bytes_per_s, size_bytes, calibration=fitted))

    return Estimates(prefill_s=prefill_s, transfer_s=transfer_s)


def weighed(choices: Sequence[Candidate], winner: Candidate) -> pd.DataFrame:
    """Candidates as a table: their fields, the sum ``ttft_s``, and a star where one is the ``winner``."""
    return pd.DataFrame(
        {**each._asdict(), "ttft_s": each.ttft_s, "winner": "★" if each == winner else ""} for each in choices
    )
