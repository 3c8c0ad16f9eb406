"""How much more Mooncake serves than vLLM, by workload, reported beside modelled.

One row a gain that the papers state or that follows from their curves: FAST'25, Figures 1, 6 and 7; arXiv
2407.00079, Figures 11, 12 and 13. Nothing is simulated here that is not there.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from mooncake_companion import reported
from mooncake_companion.experiments import end_to_end, real_requests, request_rate
from mooncake_companion.experiments.end_to_end import FIGURES, TBT_LIMITS_S

RATE = "highest request rate within the limits"
CAPACITY = "requests within the TBT limit"
BEST_BASELINE = "best of three vLLM"
PLAIN_BASELINE = "plain vLLM"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A workload, and the gains that are stated for it.

    Parameters
    ----------
    title : str
    family : str
        What kind of requests: public data sets, simulated ones, or a trace.
    where : str
        Figure of the papers.
    measure, baseline : str
        What is more, and than whose.
    gains : dict of str
        Id of the claim, by what sets it apart from the workload's others.
    ceilings : dict of str
        Id of the claim of Mooncake's own highest rate, by the same; empty where there is none.
    highest_rate_per_s : float
        Highest request rate tested; a gain that reaches it is a lower bound.
    """

    title: str
    family: str
    where: str
    measure: str
    baseline: str
    gains: Mapping[str, str]
    ceilings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    highest_rate_per_s: float = float("inf")


def _tested(name: str, title: str, family: str, where: str) -> Workload:
    """A data set of arXiv Figures 11 and 12, for [3P+1D], the split that the report's gains are of."""
    claim, limits = request_rate.DATASETS[name].claim, {"TTFT limit alone": "ttft", "both limits": "both"}
    suffix = request_rate.SYSTEMS["Mooncake-[3P+1D]"]
    return Workload(
        title=title,
        family=family,
        where=where,
        measure=RATE,
        baseline=PLAIN_BASELINE,
        gains={
            variant: f"arxiv.{claim.format(f'gain_{limit}')}.{suffix}" for variant, limit in limits.items()
        },
        ceilings={
            variant: f"arxiv.{claim.format(f'max_rate_{limit}')}.{suffix}"
            for variant, limit in limits.items()
        },
        highest_rate_per_s=request_rate.tested_rates(name)[-1],
    )


def _served(name: str, title: str, family: str, where: str) -> Workload:
    """A workload of FAST'25, Figures 1, 6 and 7."""
    return Workload(
        title=title,
        family=family,
        where=where,
        measure=CAPACITY,
        baseline=BEST_BASELINE,
        gains={
            f"{round(1e3 * limit_s)} ms": f"fast25.{FIGURES[name]}.gain.{round(1e3 * limit_s)}ms"
            for limit_s in TBT_LIMITS_S
        },
    )


WORKLOADS = (
    _tested("arxiv-summarization", "ArXiv summarization", "Public data sets", "arXiv, Figure 11"),
    _tested("l-eval", "L-Eval", "Public data sets", "arXiv, Figure 11"),
    _served("synthetic", "Synthetic", "Public data sets, mixed", "FAST'25, Figure 7"),
    _served("toolagent", "Tool and agent", "Real traces", "FAST'25, Figure 6"),
    Workload(
        title="Real requests",
        family="Real traces",
        where="arXiv, Figure 13",
        measure=CAPACITY,
        baseline=PLAIN_BASELINE,
        gains={"100 ms": "arxiv.fig13.gain"},
    ),
    _served("conversation", "Conversation", "Real traces", "FAST'25, Figure 1"),
    *(
        _tested(f"simulated-{length}", f"Simulated, {length}", "Simulated prompts", "arXiv, Figure 12")
        for length in ("16k", "32k", "64k", "128k")
    ),
)
"""From public data sets over real traces to simulated prompts."""


def run(params: end_to_end.Systems) -> pd.DataFrame:
    """Gains of every workload.

    The hardware, the model and the caches of `params` are those of all experiments; nodes and their
    split are each experiment's own.

    Returns
    -------
    DataFrame
        ``workload``, ``family``, ``where``, ``measure``, ``baseline``, ``variant`` (the limits), ``origin``
        ("modelled", "reported"), ``gain`` (0.2 is 20 % more; missing where the baseline serves none),
        ``at_least``: whether Mooncake still keeps its limits at the highest rate tested.
    """
    served = {name: getattr(params, name) for name in ("cache_tokens_per_node", "node", "model")}
    claimed = (
        end_to_end.claims(params.replaying("conversation"))
        | request_rate.claims(request_rate.Params(**served))
        | real_requests.claims(real_requests.Params(**served))
    )
    values = pd.to_numeric(reported.claims().set_index("id")["value"], errors="coerce")
    stated = {str(claim): float(value) for claim, value in values.items()}
    rows = [
        row
        for workload in WORKLOADS
        for origin, values in (("modelled", claimed), ("reported", stated))
        for row in _rows(workload, origin, values)
    ]
    table = pd.DataFrame(rows)
    table.attrs["provenance"] = {"parameters": dataclasses.asdict(params)}
    return table


def _rows(workload: Workload, origin: str, values: Mapping[str, float]) -> list[dict[str, object]]:
    return [
        {
            "workload": workload.title,
            "family": workload.family,
            "where": workload.where,
            "measure": workload.measure,
            "baseline": workload.baseline,
            "variant": variant,
            "origin": origin,
            "gain": values.get(claim, float("nan")) / 100,
            "at_least": variant in workload.ceilings
            and values.get(workload.ceilings[variant], 0.0) >= workload.highest_rate_per_s,
        }
        for variant, claim in workload.gains.items()
    ]
