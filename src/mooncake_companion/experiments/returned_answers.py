"""Whether the KV cache of answers should go back to the prefill pool, for the turns to come.

The papers keep what prefill computed; when a decode node is done with a request, it also has the KV cache
of the answer, which the next turn's prompt contains. Readers ask why it is not kept (Mooncake issue
279). Here each trace is replayed with and without `Cluster.return_answers`, by the prefill nodes' capacity
and by their network. Nothing of this is reported, so nothing is compared.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from mooncake_companion.costs import transfer_time
from mooncake_companion.experiments import prefill_scheduling
from mooncake_companion.experiments.paper_traces import available, chosen, provenance
from mooncake_companion.live.network import GBIT_BYTES
from mooncake_companion.live.returned_answers import GAINS, STRETCH, gain_rows
from mooncake_companion.parameters import check, parameter
from mooncake_companion.settings import (
    cache_parameter,
    model_parameter,
    network_parameter,
    node_parameter,
    threshold_parameter,
)
from mooncake_companion.simulator import Cluster, Result, Routing, simulate
from mooncake_companion.traces import Trace, infinite_cache_hit_ratio
from mooncake_companion.traces.answers import UNCONTINUED, infinite_cache_hit_ratio_with_answers, next_turns

__all__ = [
    "BANDWIDTHS_GBIT_PER_S",
    "CAPACITIES_TOKENS",
    "GAINS",
    "WORKLOADS",
    "Params",
    "run",
    "totals",
]

WORKLOADS = ("conversation", "synthetic")
CAPACITIES_TOKENS = (500_000, 1_000_000, 2_000_000, 3_000_000, 10_000_000)
BANDWIDTHS_GBIT_PER_S = (80, 200, 400)
"""Below these the released traces overload the network of 16 nodes, and differences are chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """The experiment's setting; the defaults are those of `prefill_scheduling`.

    Assumed: what `traces.answers` finds of the answers in later prompts, an upper bound; the rest as
    there. A queue is chaotic, and a gain of a percent may be luck: each pair of replays is repeated
    on slightly slower arrivals, a thousandth a time, and the table has the range of the gains.
    """

    trace: str = parameter("", help="replay this trace alone; empty: conversation and synthetic")
    nodes: int = parameter(16, unit="nodes", low=2, high=64, help="nodes of the whole cluster")
    prefill_nodes: int = parameter(
        8, unit="nodes", low=1, high=63, help="nodes that prefill; the others decode"
    )
    kvcache_balancing_threshold: float = threshold_parameter()
    cache_tokens_per_node: int = cache_parameter()
    nic_bytes_per_s: float = network_parameter()
    node: str = node_parameter()
    model: str = model_parameter()
    replicates: int = parameter(3, unit="runs", low=1, high=100, help="pairs of replays at each setting")

    def __post_init__(self) -> None:
        check(self)
        self.cluster(return_answers=False)  # refuses a split that leaves no node to decode

    def cluster(self, *, return_answers: bool) -> Cluster:
        """The cluster that keeps answers, or does not."""
        setting = dataclasses.asdict(self)
        del setting["replicates"]
        scheduling = prefill_scheduling.Params(**setting)
        cluster = scheduling.cluster(Routing.GLOBAL_CACHE_AWARE, self.prefill_nodes)
        return dataclasses.replace(cluster, return_answers=return_answers)


def run(params: Params) -> pd.DataFrame:
    """Gains from returning answers, by capacity and by bandwidth.

    Returns
    -------
    DataFrame
        A row for each workload, setting and gain. Columns: ``origin`` ("modelled"), ``workload``,
        ``trace``, ``varied`` ("capacity" or "bandwidth"), ``cache_tokens_per_node``,
        ``bandwidth_gbit_per_s`` (line rate of a node), ``gain`` (of `GAINS`: hit ratio in points; mean
        TTFT and all prefill seconds in % of those without), ``mean``, ``low``, ``high`` (over the
        replicates). Above zero is better with answers returned.
    """
    replayed = _replayed(params)
    rows = [
        {"origin": "modelled", "workload": workload, "trace": trace.name, "varied": varied, **row}
        for workload, trace in replayed.items()
        for varied, settings in _settings(params).items()
        for setting in settings
        for row in _gains(setting, trace)
    ]
    table = pd.DataFrame(rows)
    table.attrs["provenance"] = provenance(params, replayed)
    return table


def totals(params: Params = Params()) -> pd.DataFrame:
    """What returning answers moves and saves at the setting itself, on the trace as it is.

    Returns
    -------
    DataFrame
        Indexed by workload. Columns: ``trace``; ``requests``, ``continued_requests`` (that a later
        prompt goes on with), ``too_late_pct`` (of these: still decoding when that prompt comes);
        ``input_tokens_mean``, ``output_tokens_mean``; with and without answers
        (suffixes ``_with``, ``_without``) ``infinite_hit_ratio_pct`` of one infinite cache,
        ``hit_ratio_pct``, ``ttft_mean_s``, ``prefill_s`` (all prefills together); ``returned_bytes``,
        ``returned_share_pct`` (of the bytes streamed to decode nodes) and ``link_s``, what they keep
        one node's link busy.
    """
    replayed = _replayed(params)
    table = pd.DataFrame(
        [{"workload": workload, **_totals(params, trace)} for workload, trace in replayed.items()]
    ).set_index("workload")
    table.attrs["provenance"] = provenance(params, replayed)
    return table


def _replayed(params: Params) -> dict[str, Trace]:
    return chosen(params.trace) if params.trace else available(WORKLOADS)


def _settings(params: Params) -> dict[str, list[Params]]:
    own = params.cluster(return_answers=False).node.nic_bytes_per_s
    rates = {rate * GBIT_BYTES for rate in BANDWIDTHS_GBIT_PER_S} | {own}
    sizes = {*CAPACITIES_TOKENS, params.cache_tokens_per_node}
    return {
        "capacity": [dataclasses.replace(params, cache_tokens_per_node=size) for size in sorted(sizes)],
        "bandwidth": [dataclasses.replace(params, nic_bytes_per_s=rate) for rate in sorted(rates)],
    }


def _pair(params: Params, trace: Trace) -> tuple[Result, Result]:
    """The trace without and with answers that return."""
    without, with_answers = (
        simulate(trace, params.cluster(return_answers=returns)) for returns in (False, True)
    )
    return without, with_answers


def _gains(params: Params, trace: Trace) -> list[dict[str, Any]]:
    stretched = (
        dataclasses.replace(trace, arrival_s=trace.arrival_s * (1 + STRETCH * replicate))
        for replicate in range(params.replicates)
    )
    return gain_rows(params.cluster(return_answers=True), [_gain(*_pair(params, each)) for each in stretched])


def _gain(without: Result, with_answers: Result) -> tuple[float, float, float]:
    """In the order of `GAINS`."""
    return (
        100 * (with_answers.hit_ratio - without.hit_ratio),
        100 * (1 - with_answers.ttft_s.mean() / without.ttft_s.mean()),
        100 * (1 - with_answers.prefill_s.sum() / without.prefill_s.sum()),
    )


def _totals(params: Params, trace: Trace) -> dict[str, Any]:
    cluster, measured = params.cluster(return_answers=True), _pair(params, trace)
    infinite = (infinite_cache_hit_ratio(trace), infinite_cache_hit_ratio_with_answers(trace))
    turns = next_turns(trace)
    continued = np.flatnonzero(turns != UNCONTINUED)
    too_late = measured[1].finish_s[continued] > trace.arrival_s[turns[continued]]
    columns: dict[str, Any] = {
        "trace": trace.name,
        "requests": len(trace),
        "continued_requests": len(continued),
        "too_late_pct": 100 * float(too_late.mean()) if len(continued) else 0.0,
        "input_tokens_mean": float(trace.input_tokens.mean()),
        "output_tokens_mean": float(trace.output_tokens.mean()),
    }
    for suffix, result, bound in zip(("without", "with"), measured, infinite, strict=True):
        columns |= {
            f"infinite_hit_ratio_pct_{suffix}": 100 * bound,
            f"hit_ratio_pct_{suffix}": 100 * result.hit_ratio,
            f"ttft_mean_s_{suffix}": float(result.ttft_s.mean()),
            f"prefill_s_{suffix}": float(result.prefill_s.sum()),
        }
    moved = measured[1].counters
    returned = moved["returned_bytes"]
    return columns | {
        "returned_bytes": returned,
        "returned_share_pct": 100 * returned / moved["streamed_bytes"] if returned else 0.0,
        "link_s": transfer_time(cluster.node.nic_bytes_per_s, returned, calibration=cluster.calibration),
    }
