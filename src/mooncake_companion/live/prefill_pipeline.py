"""FAST'25, section 3.3: chunked pipeline parallelism, on an idle instance and in a pool under load."""

import dataclasses
import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from mooncake_companion.costs import (
    PrefillCost,
    load_calibration,
    longest_handover_seconds,
    pipeline_seconds,
    prefill_cost,
    prefill_seconds,
)
from mooncake_companion.errors import InputError
from mooncake_companion.hardware import load_node
from mooncake_companion.live.outcome import Outcome, Progress, Row
from mooncake_companion.live.refusals import beside
from mooncake_companion.llm import load_model
from mooncake_companion.parameters import check, parameter
from mooncake_companion.settings import model_parameter, node_parameter
from mooncake_companion.simulator import reference
from mooncake_companion.simulator.cluster import Cluster
from mooncake_companion.simulator.pipeline import advance
from mooncake_companion.simulator.reference import Request
from mooncake_companion.statistics import mean, quantile

WIDTHS = (1, 2, 4, 8)
"""Nodes of an instance, X in the paper, that are compared; those that do not divide the pool are left out."""
FIXED_COSTS = {"as fitted": 1.0, "none": 1e-9}
"""What every prefill costs whatever its length, in multiples of the fitted overhead."""
LENGTHS = tuple(1024 * 2**power for power in range(8))
LOADS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)

FEWER_LOADS = LOADS[1::2]
"""Those at which a page lets its requests arrive."""
MOST_BARS = 5000
"""That one timeline draws in a page."""
MOST_STEPS = 10**7
"""Of chunks through stages that a page computes: some seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """A prefill pool and what is asked of it.

    Stated (section 3.3): the nodes of an instance share out the layers, a prompt passes through in
    chunks, and chunks are of over a thousand tokens. Assumed: everything else. That a prefill's fixed
    cost is paid once, by the first stage, is an assumption of the model, whose weight
    `FIXED_COSTS` shows.
    """

    prefill_nodes: int = parameter(8, unit="nodes", low=1, high=64, help="nodes of the prefill pool")
    chunk_tokens: int = parameter(
        1024, unit="tokens", low=1, high=10**6, help="longest chunk of a prompt, prefill_chunk of section 3.3"
    )
    short_tokens: int = parameter(
        4096, unit="tokens", low=1, high=10**6, help="short prompt, which most requests have"
    )
    long_tokens: int = parameter(65536, unit="tokens", low=1, high=10**6, help="long prompt, of the others")
    long_share: float = parameter(0.1, low=0.001, high=0.99, help="share of the requests with a long prompt")
    requests: int = parameter(2000, unit="requests", low=100, high=10**6, help="of each run under load")
    trace: str = parameter("conversation", help="registered trace, or the path of a JSONL file")
    node: str = node_parameter()
    model: str = model_parameter()
    seed: int = parameter(0, low=0, high=2**32 - 1, help="of arrivals and of which prompts are long")

    def __post_init__(self) -> None:
        check(self)

    @property
    def widths(self) -> tuple[int, ...]:
        """Those of `WIDTHS` into which the pool can be divided."""
        return tuple(width for width in WIDTHS if self.prefill_nodes % width == 0)

    @property
    def prompts(self) -> dict[str, int]:
        """Tokens of the two kinds of prompts."""
        return {"short": self.short_tokens, "long": self.long_tokens}

    def cluster(self, pipeline_nodes: int, *, fixed_cost: float = 1.0) -> Cluster:
        """The pool as pipelines of so many nodes, with a decode pool of the same size."""
        calibration = load_calibration()
        return Cluster(
            node=load_node(self.node),
            model=load_model(self.model),
            calibration=dataclasses.replace(
                calibration, prefill_overhead_s=fixed_cost * calibration.prefill_overhead_s
            ),
            prefill_nodes=self.prefill_nodes,
            decode_nodes=self.prefill_nodes,
            pipeline_nodes=pipeline_nodes,
            pipeline_chunk_tokens=self.chunk_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceParams(Params):
    """One instance, of as many nodes as a reader likes."""

    pipeline_nodes: int = parameter(
        8, unit="nodes", low=1, high=64, help="nodes of an instance, X of section 3.3"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadParams(Params):
    """The pool under load, with fewer requests than in the book."""

    drawn_requests: int = parameter(
        400, unit="requests", low=100, high=2000, help="of each run here, in place of the book's 2,000"
    )


# --- an idle instance -----------------------------------------------------------------------------


def alone_rows(
    cluster: Cluster, lengths: Iterable[int], widths: Iterable[int], chunk_tokens: int
) -> list[Row]:
    """TTFT of one prompt, by length; columns as of `experiments.prefill_pipeline.alone`."""
    cost = _cost_of(cluster)
    rows = []
    for tokens, width in itertools.product(lengths, widths):
        one_s = prefill_seconds(*cost, tokens, 0)
        handover_s = longest_handover_seconds(
            cost.token_s, cost.pair_s, cluster.hop_token_s, width, tokens, 0, chunk_tokens
        )
        ttft_s, _ = pipeline_seconds(one_s, cost.overhead_s, handover_s, width)
        rows.append(
            {
                "input_tokens": tokens,
                "pipeline_nodes": width,
                "chunk_tokens": chunk_tokens,
                "ttft_s": ttft_s,
                "speedup": one_s / ttft_s,
                "efficiency": one_s / ttft_s / width,
            }
        )
    return rows


def speedup(params: InstanceParams, _sliced: None, progress: Progress) -> Outcome:
    """How much sooner one prompt is done; columns as of `experiments.prefill_pipeline.alone`."""
    progress(0, 1)
    with beside("model"):
        cluster = params.cluster(1)
    widths = sorted({*WIDTHS[:-1], params.pipeline_nodes})
    lengths = sorted({*LENGTHS, params.long_tokens})
    rows = alone_rows(cluster, lengths, widths, params.chunk_tokens)
    times = [f"{row['speedup']:.2f}" for row in rows if row["input_tokens"] == params.long_tokens]
    return Outcome(
        rows=rows,
        description=(
            "Lines: how many times sooner one prompt has its first token in a pipeline than on one node, by "
            f"its length, computed in this browser for {params.model} on {params.node} and chunks of "
            f"{params.chunk_tokens:,} tokens. {params.long_tokens:,} tokens with {_listed(widths)} nodes: "
            f"{_listed(times)} times."
        ),
        fixed={"speedup_chunk": params.chunk_tokens},
    )


def stage_rows(params: Params, width: int, chunk_tokens: int) -> list[Row]:
    """When each stage works on which chunk; columns as of `experiments.prefill_pipeline.stages`.

    The stages' ends are moved on chunk by chunk, as `advance` does for whole prompts.
    """
    cluster = params.cluster(1)
    cost, hop_s = _cost_of(cluster), cluster.hop_token_s
    ends_s = [0.0] * width
    rows: list[Row] = []
    for prompt in ("long", "short"):
        tokens = params.prompts[prompt]
        for first in range(0, tokens, chunk_tokens):
            last = min(first + chunk_tokens, tokens)
            overhead_s = cost.overhead_s if first == 0 else 0.0
            chunk_s = prefill_seconds(0.0, cost.token_s, cost.pair_s, last, first) / width
            begin_s = ends_s[0]
            advance(ends_s, begin_s, overhead_s, cost.token_s, cost.pair_s, hop_s, last, first, chunk_tokens)
            rows += [
                {
                    "pipeline_nodes": width,
                    "chunk_tokens": chunk_tokens,
                    "prompt": prompt,
                    "stage": stage + 1,
                    "first_token": first + 1,
                    "last_token": last,
                    "start_s": begin_s if stage == 0 else end_s - chunk_s,
                    "end_s": end_s,
                }
                for stage, end_s in enumerate(ends_s)
            ]
    return rows


def stages(params: InstanceParams, _sliced: None, progress: Progress) -> Outcome:
    """A timeline of one instance; columns as of `experiments.prefill_pipeline.stages`."""
    progress(0, 1)
    width, chunk_tokens = params.pipeline_nodes, params.chunk_tokens
    bars = width * _chunks(params.prompts.values(), chunk_tokens)
    if bars > MOST_BARS:
        raise InputError(
            f"parameter chunk_tokens: chunks of {chunk_tokens:,} tokens at {width} stages make {bars:,} "
            f"bars; at most {MOST_BARS:,} are drawn"
        )
    with beside("model"):
        rows = stage_rows(params, width, chunk_tokens)
    ends_s = {row["prompt"]: row["end_s"] for row in rows}  # of the last chunk at the last stage
    told = ", ".join(f"{prompt} prompt {end_s:.2f} s" for prompt, end_s in ends_s.items())
    return Outcome(
        rows=rows,
        description=(
            "Timeline of the stages of a pipeline, each bar a chunk: a long prompt, and a short one behind "
            f"it, computed in this browser. First tokens with {width} nodes and chunks of {chunk_tokens:,} "
            f"tokens: {told}."
        ),
        fixed={
            "stage_nodes": width,
            "stage_chunk": chunk_tokens,
            "stage_last_s": max(ends_s.values()),
        },
    )


def _cost_of(cluster: Cluster) -> PrefillCost:
    """What a prefill takes on one node of a cluster."""
    return prefill_cost(cluster.node, cluster.model, cluster.calibration)


def _chunks(lengths: Iterable[int], chunk_tokens: int) -> int:
    return sum(math.ceil(tokens / chunk_tokens) for tokens in lengths)


# --- a pool under load ----------------------------------------------------------------------------


def loads(
    params: Params, offered: Iterable[float], mean_prefill_s: Callable[[PrefillCost], float]
) -> Iterator[tuple[Row, Cluster]]:
    """Every setting under load, and how its rows begin; columns as of `experiments.prefill_pipeline.run`.

    Parameters
    ----------
    params : Params
    offered : iterable of float
        Computation asked for over what the nodes could do one by one.
    mean_prefill_s : callable
        Mean seconds of the prompts on one idle node, given what a prefill takes there.
    """
    for title, fixed_cost in FIXED_COSTS.items():
        cost = _cost_of(params.cluster(1, fixed_cost=fixed_cost))
        capacity_per_s = params.prefill_nodes / mean_prefill_s(cost)
        for load in offered:
            for width in params.widths:
                told = {
                    "fixed_cost": title,
                    "offered_load": load,
                    "requests_per_s": load * capacity_per_s,
                    "pipeline_nodes": width,
                }
                yield told, params.cluster(width, fixed_cost=fixed_cost)


def under_load(params: LoadParams, _sliced: None, progress: Progress) -> Outcome:
    """TTFT by offered load and by the pipelines' length; columns as of `experiments.prefill_pipeline.run`."""
    drawn = drawn_prompts(params, random.Random(params.seed))
    tokens = [each.input_tokens for each in drawn]
    runs = len(FIXED_COSTS) * len(FEWER_LOADS)
    steps = runs * sum(params.widths) * _chunks(tokens, params.chunk_tokens)
    if steps > MOST_STEPS:
        raise InputError(
            f"parameter chunk_tokens: chunks of {params.chunk_tokens:,} tokens take {steps:,} steps; "
            f"at most {MOST_STEPS:,} are computed here"
        )
    rows: list[Row] = []
    settings = loads(
        params, FEWER_LOADS, lambda cost: mean([prefill_seconds(*cost, each, 0) for each in tokens])
    )
    for done, (told, cluster) in enumerate(settings):
        progress(done, runs * len(params.widths))
        arriving = [each._replace(arrival_s=each.arrival_s / told["requests_per_s"]) for each in drawn]
        for prompts, seconds in _ttfts_s(params, arriving, cluster).items():
            place = told | {"prompts": prompts, "input_tokens": params.prompts[prompts]}
            rows.append(place | _statistics(seconds))
    return Outcome(rows=rows, description=_description(rows), replayed=len(drawn))


def drawn_prompts(params: LoadParams, rng: random.Random) -> list[Request]:
    """Short and long prompts, arriving at a mean rate of one a second; none alike, so they need no blocks."""
    count = params.drawn_requests
    longs = max(1, round(params.long_share * count))
    tokens = [params.long_tokens] * longs + [params.short_tokens] * (count - longs)
    rng.shuffle(tokens)
    arrivals_s = itertools.accumulate(rng.expovariate(1.0) for _ in tokens)
    return [Request(*each, 1, ()) for each in zip(arrivals_s, tokens, strict=True)]


def _ttfts_s(params: Params, requests: list[Request], cluster: Cluster) -> dict[str, list[float]]:
    records = reference.replay(requests, cluster, block_tokens=1, draws=[0.0] * len(requests)).records
    served = list(zip(requests, records, strict=True))
    return {
        prompts: [
            record.first_token_s - request.arrival_s
            for request, record in served
            if request.input_tokens == tokens
        ]
        for prompts, tokens in params.prompts.items()
    }


def _statistics(ttft_s: list[float]) -> dict[str, float]:
    ordered = sorted(ttft_s)
    return {"mean_s": mean(ordered), "p50_s": quantile(ordered, 0.5), "p90_s": quantile(ordered, 0.9)}


def _description(rows: list[Row]) -> str:
    shown = [row for row in rows if row["fixed_cost"] == rows[0]["fixed_cost"]]
    told = []
    for load, prompts in itertools.product((FEWER_LOADS[0], FEWER_LOADS[-1]), ("short", "long")):
        alike = [row for row in shown if (row["offered_load"], row["prompts"]) == (load, prompts)]
        means_s = _listed(f"{row['mean_s']:.2f}" for row in alike)
        told.append(f"{prompts} prompts at {load:.0%} {means_s} s")
    widths = _listed(row["pipeline_nodes"] for row in alike)
    return (
        f"Lines: time to first token at {len(FEWER_LOADS)} offered loads, for pipelines of several "
        f"lengths, computed in this browser. Means with {widths} nodes: {'; '.join(told)}."
    )


def _listed(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))
