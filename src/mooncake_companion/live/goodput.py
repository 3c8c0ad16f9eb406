"""Goodput under offered load on a slice of the trace: Mooncake and the baselines."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from mooncake_companion.live.outcome import Outcome, Progress, Row
from mooncake_companion.live.slices import Slice
from mooncake_companion.live.systems import BATCHINGS, MOONCAKE, TRACE, Systems, replay
from mooncake_companion.parameters import parameter
from mooncake_companion.simulator import reference
from mooncake_companion.simulator.cluster import Cluster
from mooncake_companion.simulator.coupled import CoupledCluster
from mooncake_companion.simulator.overload import Admission
from mooncake_companion.simulator.reference import Record, Request
from mooncake_companion.statistics import mean

OPEN_MOONCAKE = "Mooncake, no rejection"
"""Mooncake as in the end-to-end figures: whoever comes is let in, as with the baselines."""
BARE_MOONCAKE = "Mooncake, no rejection, no cache"
"""What the two pools do alone, with nothing reused."""
SYSTEMS = (MOONCAKE, OPEN_MOONCAKE, BARE_MOONCAKE, *BATCHINGS)

LOADS = 5
"""Loads between the least and the greatest, both included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params(Systems):
    """The `Systems`, and when Mooncake turns a request away.

    Stated (FAST'25, section 5.1): the limits. Assumed: early rejection (arXiv 2407.00079, section 7.2),
    with the limits themselves as those of admission. vLLM 0.5.1 turns nobody away, so that under overload
    its queues grow; `OPEN_MOONCAKE` shows what Mooncake would do then.
    """

    ttft_limit_s: float = parameter(30.0, unit="s", low=0.1, high=1e4, help="limit of the first token")
    admission: str = parameter(
        Admission.EARLY.value,
        choices=tuple(each.value for each in Admission if each is not Admission.NONE),
        help="how Mooncake chooses whom to turn away",
    )
    predicted_decode_s: float = parameter(
        15.0, unit="s", low=0.01, high=1e4, help="t_d; predictive admission alone looks at it"
    )

    def admitting(self, tbt_limit_s: float) -> Cluster:
        """Mooncake, turning away what would not keep to the limits."""
        return self.mooncake(
            admission=Admission(self.admission),
            ttft_limit_s=self.ttft_limit_s,
            tbt_limit_s=tbt_limit_s,
            predicted_decode_s=self.predicted_decode_s,
        )

    def open_to_all(self) -> dict[str, Cluster | CoupledCluster]:
        """The systems that turn nobody away."""
        return {
            OPEN_MOONCAKE: self.mooncake(),
            BARE_MOONCAKE: dataclasses.replace(self, cache_tokens_per_node=0).mooncake(),
            **{system: self.cluster(system) for system in BATCHINGS},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveParams(Params):
    """Those of the experiment, one TBT limit, and how fast the slice is replayed at most."""

    tbt_limit_s: float = parameter(0.1, unit="s", low=0.001, high=100, help="limit of the token rhythm")
    highest_speedup: float = parameter(
        3.0, low=0.1, high=100, help="replay the trace up to so many times as fast"
    )

    @property
    def speedups(self) -> list[float]:
        """How many times as fast as it was recorded the slice is offered."""
        return [self.highest_speedup * step / LOADS for step in range(1, LOADS + 1)]


def run(params: LiveParams, sliced: Slice, progress: Progress) -> Outcome:
    """A row for each system and load; columns as of `experiments.goodput.run`."""
    clusters = {MOONCAKE: params.admitting(params.tbt_limit_s), **params.open_to_all()}
    rows: list[Row] = []
    for speedup in params.speedups:
        head = sliced.head(len(sliced.requests), speedup=speedup)
        offered_per_s = len(head.requests) / head.requests[-1].arrival_s
        for system, cluster in clusters.items():
            progress(len(rows), LOADS * len(clusters))
            shares = _shares(head.requests, replay(head, cluster), params)
            rows.append(
                {
                    "origin": "modelled",
                    "system": system,
                    "tbt_limit_s": params.tbt_limit_s,
                    "workload": TRACE,
                    "arrival_speedup": speedup,
                    "offered_requests_per_s": offered_per_s,
                    "goodput_requests_per_s": shares["within_share"] * offered_per_s,
                    **shares,
                }
            )
    highest = {
        system: max(row["goodput_requests_per_s"] for row in rows if row["system"] == system)
        for system in clusters
    }
    return Outcome(
        rows=rows,
        description=(
            "Above: requests per second within both limits by offered load, a line for each system, computed "
            "in this browser. Below: what becomes of one system's requests. Highest goodput (requests/s) "
            f"with limits of {params.ttft_limit_s:g} s and {1e3 * params.tbt_limit_s:g} ms: "
            f"{', '.join(f'{system} {rate:.2f}' for system, rate in highest.items())}."
        ),
        fixed={"goodput_workload": TRACE, "goodput_limit": params.tbt_limit_s},
    )


def _shares(requests: Sequence[Request], records: Sequence[Record], params: LiveParams) -> dict[str, float]:
    """What becomes of the requests: shares of all, which add up to 1."""
    fates = [_fate(*each, params) for each in zip(requests, records, strict=True)]
    within = [each.input_tokens for each, fate in zip(requests, fates, strict=True) if fate == FATES[0]]
    return {
        **{fate: fates.count(fate) / len(fates) for fate in FATES},
        "within_input_tokens": mean(within) if within else math.nan,
    }


FATES = ("within_share", "late_first_token_share", "slow_share", "rejected_share", "wasted_share")
_REJECTED = {
    reference.Outcome.REJECTED_AT_ARRIVAL: "rejected_share",
    reference.Outcome.REJECTED_AFTER_PREFILL: "wasted_share",
}


def _fate(request: Request, record: Record, params: LiveParams) -> str:
    """The share that a request counts for; one without a TBT meets any limit of it."""
    if record.outcome in _REJECTED:
        return _REJECTED[record.outcome]
    if record.first_token_s - request.arrival_s > params.ttft_limit_s:
        return "late_first_token_share"
    return "slow_share" if record.tbt_s > params.tbt_limit_s else "within_share"
