"""arXiv 2407.00079, Figure 11, on a slice of one data set: the request rate that small clusters bear."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mooncake_companion.costs import load_calibration
from mooncake_companion.errors import InputError
from mooncake_companion.hardware import load_node
from mooncake_companion.live.outcome import Outcome, Progress, Row
from mooncake_companion.live.slices import Slice, ttfts_s
from mooncake_companion.live.systems import replay
from mooncake_companion.llm import load_model
from mooncake_companion.parameters import check, parameter
from mooncake_companion.settings import cache_parameter, model_parameter, node_parameter
from mooncake_companion.simulator.cluster import Cluster
from mooncake_companion.simulator.coupled import CoupledCluster
from mooncake_companion.statistics import quantile

TRACE = "l-eval"
"""The data set that a page replays a slice of."""
RATES = 6
"""Rates between the lowest and the highest, both included."""
SYSTEMS = {
    "Mooncake-[3P+1D]": "mooncake_3p1d",
    "Mooncake-[2P+2D]": "mooncake_2p2d",
    "vLLM-[4M]": "vllm_4m",
}
"""The systems by title, each with its name in the ids of claims."""
BASELINE = "vLLM-[4M]"
PREFILL_NODES = {"Mooncake-[3P+1D]": 3, "Mooncake-[2P+2D]": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Requests of one panel: the trace, and where the paper has it.

    Parameters
    ----------
    trace : str
        Registered or generated trace.
    title : str
        Name in the figure's readings.
    claim : str
        First words of the ids of its claims, with the figure.
    one_by_one : bool
        Whether vLLM served its requests one by one.
    """

    trace: str
    title: str
    claim: str
    one_by_one: bool = False


DATASETS = {
    "arxiv-summarization": Dataset(
        trace="arxiv-summarization", title="ArXiv Summarization", claim="fig11.{}.arxiv_summarization"
    ),
    "l-eval": Dataset(trace="l-eval", title="L-Eval", claim="fig11.{}.l_eval"),
    **{
        f"simulated-{length}": Dataset(
            trace=f"simulated-{length}", title=length, claim="fig12.{}." + length, one_by_one=True
        )
        for length in ("16k", "32k", "64k", "128k")
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """The experiment's setting; the defaults are the paper's where it states them.

    Stated in section 8.1: four nodes, the three systems, the data sets' statistics (Table 2),
    Poisson arrivals, and limits on the 90th percentiles of TTFT and TBT at 10 and 5 times what the
    lowest rate gives; and that vLLM serves the long simulated requests one by one, not in batches
    (section 8.1.2). Assumed: one limit for all systems, from the best of them at the lowest rate;
    plain vLLM; one request at a time on each of its nodes where it serves one by one; a cache of 3
    million tokens a node. Of the figures only the tested rates are used.
    """

    dataset: str = parameter("l-eval", choices=tuple(DATASETS), help="what is requested")
    nodes: int = parameter(4, unit="nodes", low=4, high=64, help="nodes of every system")
    ttft_multiple: float = parameter(10.0, low=1, high=1000, help="TTFT limit over that of the lowest rate")
    tbt_multiple: float = parameter(5.0, low=1, high=1000, help="TBT limit over that of the lowest rate")
    percentile: float = parameter(
        90.0, unit="%", low=1, high=100, help="of the requests, held against the limits"
    )
    cache_tokens_per_node: int = cache_parameter()
    node: str = node_parameter()
    model: str = model_parameter()

    def __post_init__(self) -> None:
        check(self)
        if self.nodes % 4:
            raise InputError(f"parameter nodes: {self.nodes} is not a multiple of 4, for example 4")

    def cluster(self, system: str) -> Cluster | CoupledCluster:
        """One of the `SYSTEMS`, by its title."""
        served: dict[str, Any] = {
            "node": load_node(self.node),
            "model": load_model(self.model),
            "calibration": load_calibration(host=False),
            "first_interval_counts": False,
        }
        if system == BASELINE:
            baseline = CoupledCluster(**served, nodes=self.nodes)
            one_by_one = DATASETS[self.dataset].one_by_one
            return dataclasses.replace(baseline, max_sequences=1) if one_by_one else baseline
        prefill_nodes = PREFILL_NODES[system] * self.nodes // 4
        return Cluster(
            **served,
            prefill_nodes=prefill_nodes,
            decode_nodes=self.nodes - prefill_nodes,
            cache_tokens_per_node=self.cache_tokens_per_node,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveParams(Params):
    """Those of the experiment, and the rates that are tried; by default up to the paper's highest."""

    lowest_rate_per_s: float = parameter(
        0.1, unit="requests/s", low=0.001, high=1000, help="at which the limits are set, too"
    )
    highest_rate_per_s: float = parameter(
        2.0, unit="requests/s", low=0.001, high=1000, help="up to which the systems are tried"
    )

    def __post_init__(self) -> None:
        Params.__post_init__(self)
        if self.highest_rate_per_s < self.lowest_rate_per_s:
            raise InputError(
                f"parameter highest_rate_per_s: {self.highest_rate_per_s:g} is less than "
                f"lowest_rate_per_s ({self.lowest_rate_per_s:g})"
            )

    @property
    def rates_per_s(self) -> list[float]:
        """Requests per second, in rising order."""
        span = self.highest_rate_per_s - self.lowest_rate_per_s
        return sorted({self.lowest_rate_per_s + span * step / (RATES - 1) for step in range(RATES)})


def run(params: LiveParams, sliced: Slice, progress: Progress) -> Outcome:
    """Percentiles of TTFT and TBT by request rate; columns as of `experiments.request_rate`."""
    tried = [(system, rate_per_s) for system in SYSTEMS for rate_per_s in params.rates_per_s]
    found: list[Row] = []
    for done, (system, rate_per_s) in enumerate(tried):
        progress(done, len(tried))
        place = {"origin": "modelled", "system": system, "request_rate_per_s": rate_per_s}
        found += [
            {**place, "metric": metric, "seconds": seconds}
            for metric, seconds in _percentiles_s(params, sliced, system, rate_per_s).items()
        ]
    lowest = [row for row in found if row["request_rate_per_s"] == params.rates_per_s[0]]
    limits_s = {
        metric: multiple * min(row["seconds"] for row in lowest if row["metric"] == metric)
        for metric, multiple in (("ttft", params.ttft_multiple), ("tbt", params.tbt_multiple))
    }
    rows = [
        {**row, "over_limit": row["seconds"] / limits_s[row["metric"]], "dataset": TRACE} for row in found
    ]
    told = ", ".join(f"{system} {_highest_rate(rows, system)}" for system in SYSTEMS)
    return Outcome(
        rows=rows,
        description=(
            f"Percentile {params.percentile:g} of the time to first token and of the time between tokens, "
            "over their limits, by request rate, computed in this browser; grey marks: reported. Highest of "
            f"the tried rates (requests/s) up to which all are within both limits, modelled: {told}."
        ),
        fixed={"rate_dataset": TRACE},
    )


def _percentiles_s(params: Params, sliced: Slice, system: str, rate_per_s: float) -> dict[str, float]:
    first_s, last_s = sliced.requests[0].arrival_s, sliced.requests[-1].arrival_s
    own_rate_per_s = (len(sliced.requests) - 1) / (last_s - first_s)
    replayed = sliced.head(len(sliced.requests), speedup=rate_per_s / own_rate_per_s)
    records = replay(replayed, params.cluster(system))
    share = params.percentile / 100
    rhythms_s = sorted(record.tbt_s for record in records if not math.isnan(record.tbt_s))
    return {
        "ttft": quantile(sorted(ttfts_s(replayed, records)), share),
        "tbt": quantile(rhythms_s, share),
    }


def _highest_rate(rows: Sequence[Row], system: str) -> str:
    over = [row["request_rate_per_s"] for row in rows if row["system"] == system and row["over_limit"] > 1]
    kept = [
        row["request_rate_per_s"]
        for row in rows
        if row["system"] == system and row["request_rate_per_s"] < min(over, default=math.inf)
    ]
    return f"{max(kept):g}" if kept else "none"
