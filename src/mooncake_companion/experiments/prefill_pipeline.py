"""FAST'25, section 3.3: chunked pipeline parallelism, what it gains for long prompts and what it costs.

The papers describe it and print no number of it, so there is nothing to set this against.
"""

import dataclasses
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mooncake_companion import traces
from mooncake_companion.costs import (
    load_calibration,
    longest_handover_seconds,
    pipeline_seconds,
    prefill_cost,
    prefill_seconds,
)
from mooncake_companion.hardware import load_node, load_nodes
from mooncake_companion.llm import load_model, load_models
from mooncake_companion.parameters import check, parameter
from mooncake_companion.simulator import Cluster, simulate
from mooncake_companion.simulator.pipeline import advance

WIDTHS = (1, 2, 4, 8)
"""Nodes of an instance, X in the paper, that are compared; those that do not divide the pool are left out."""
CHUNKS = (1024, 4096, 16384)
FIXED_COSTS = {"as fitted": 1.0, "none": 1e-9}
"""What every prefill costs whatever its length, in multiples of the fitted overhead."""

_LENGTHS = tuple(1024 * 2**power for power in range(8))
_OFFERED = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


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
    short_tokens: int = parameter(4096, unit="tokens", low=1, high=10**6, help="prompt of most requests")
    long_tokens: int = parameter(65536, unit="tokens", low=1, high=10**6, help="prompt of the others")
    long_share: float = parameter(0.1, low=0.001, high=0.99, help="share of the requests with a long prompt")
    requests: int = parameter(2000, unit="requests", low=100, high=10**6, help="of each run under load")
    trace: str = parameter("conversation", help="registered trace, or the path of a JSONL file")
    node: str = parameter("a800", choices=tuple(load_nodes()), help="what every node is")
    model: str = parameter("llama3-70b", choices=tuple(load_models()), help="what it serves")
    seed: int = parameter(0, low=0, high=2**32 - 1, help="of arrivals and of which prompts are long")

    def __post_init__(self) -> None:
        check(self)

    @property
    def widths(self) -> tuple[int, ...]:
        """Those of `WIDTHS` into which the pool can be divided."""
        return tuple(width for width in WIDTHS if self.prefill_nodes % width == 0)

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


def run(params: Params) -> pd.DataFrame:
    """TTFT of short and of long prompts, by the load that is offered and by the pipelines' length.

    Returns
    -------
    DataFrame
        Columns: ``fixed_cost`` (a key of `FIXED_COSTS`), ``offered_load`` (computation asked for over
        what the nodes could do one by one), ``requests_per_s``, ``pipeline_nodes``, ``prompts``
        ("short" or "long"), ``input_tokens``, ``mean_s``, ``p50_s``, ``p90_s``.

    Notes
    -----
    Poisson arrivals, and no two prompts alike: nothing is reused. All runs see the same prompts, only
    faster or slower.
    """
    mixed = _mixed(params)
    rows = []
    for title, fixed_cost in FIXED_COSTS.items():
        alone = params.cluster(1, fixed_cost=fixed_cost)
        cost = prefill_cost(alone.node, alone.model, alone.calibration)
        lengths = mixed.input_tokens.astype(float)
        capacity_per_s = params.prefill_nodes / float(prefill_seconds(*cost, lengths, 0.0).mean())
        for load in _OFFERED:
            rate = load * capacity_per_s
            trace = dataclasses.replace(mixed, arrival_s=mixed.arrival_s / rate)
            for width in params.widths:
                result = simulate(trace, params.cluster(width, fixed_cost=fixed_cost))
                rows += [
                    {
                        "fixed_cost": title,
                        "offered_load": load,
                        "requests_per_s": rate,
                        "pipeline_nodes": width,
                        "prompts": prompts,
                        "input_tokens": tokens,
                        **_statistics(result.ttft_s[trace.input_tokens == tokens]),
                    }
                    for prompts, tokens in (("short", params.short_tokens), ("long", params.long_tokens))
                ]
    table = pd.DataFrame(rows)
    table.attrs["provenance"] = {
        "trace_source": f"{mixed.source}, seed {params.seed}",
        "parameters": dataclasses.asdict(params),
    }
    return table


def alone(params: Params) -> pd.DataFrame:
    """TTFT of one prompt on an idle pool, by its length, the pipeline's length and the chunk's.

    Columns: ``input_tokens``, ``pipeline_nodes``, ``chunk_tokens``, ``ttft_s``, ``speedup`` (over one
    node) and ``efficiency`` (that over the number of nodes).
    """
    cluster = params.cluster(1)
    cost = prefill_cost(cluster.node, cluster.model, cluster.calibration)
    rows = []
    for chunk_tokens in sorted({*CHUNKS, params.chunk_tokens}):
        for tokens in sorted({*_LENGTHS, params.short_tokens, params.long_tokens}):
            one_s = prefill_seconds(*cost, tokens, 0)
            for width in params.widths:
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
    return _with_parameters(pd.DataFrame(rows), params)


def stages(params: Params) -> pd.DataFrame:
    """When each stage of a pipeline works on which chunk: a long prompt, and a short one behind it.

    Columns: ``pipeline_nodes``, ``chunk_tokens``, ``prompt`` ("long" or "short"), ``stage`` (from 1),
    ``first_token`` and ``last_token`` of the chunk (from 1), ``start_s``, ``end_s``. Both prompts are
    there at 0 s. The fixed cost is part of each prompt's first chunk at the first stage.
    """
    rows = []
    for width in params.widths:
        for chunk_tokens in sorted({*CHUNKS, params.chunk_tokens}):
            ends_s = [0.0] * width
            for prompt, tokens in (("long", params.long_tokens), ("short", params.short_tokens)):
                rows += _chunks(params, ends_s, tokens, chunk_tokens, {"prompt": prompt})
    return _with_parameters(pd.DataFrame(rows), params)


def on_trace(params: Params) -> pd.DataFrame:
    """TTFT of a trace's requests, caches and all, by the pipelines' length and by how prefixes are moved.

    Columns: ``pipeline_nodes``, ``layerwise`` (whether loading and storing hide behind the computation),
    ``hit_ratio``, ``mean_s``, ``p50_s``, ``p90_s``, ``p99_s``.
    """
    trace = traces.load(params.trace)
    rows = []
    for width in params.widths:
        for layerwise in (True, False):
            result = simulate(trace, dataclasses.replace(params.cluster(width), layerwise=layerwise))
            rows.append(
                {
                    "pipeline_nodes": width,
                    "layerwise": layerwise,
                    "hit_ratio": result.hit_ratio,
                    **_statistics(result.ttft_s),
                    "p99_s": float(np.quantile(result.ttft_s, 0.99)),
                }
            )
    table = pd.DataFrame(rows)
    table.attrs["provenance"] = {
        "trace": trace.name,
        "trace_sha256": trace.sha256,
        "trace_source": trace.source,
        "parameters": dataclasses.asdict(params),
    }
    return table


def _mixed(params: Params) -> traces.Trace:
    """Short and long prompts, none alike, arriving at a mean rate of one a second."""
    rng = np.random.default_rng(params.seed)
    gaps_s = rng.exponential(1.0, params.requests)
    is_long = rng.permutation(params.requests) < max(1, round(params.long_share * params.requests))
    tokens = np.where(is_long, params.long_tokens, params.short_tokens)
    blocks = -(-tokens // traces.BLOCK_TOKENS)
    offsets = np.concatenate([[0], np.cumsum(blocks)])
    return traces.make_trace(
        name="long-and-short",
        origin="standin",
        source=(
            f"generated: {params.requests} requests, {params.long_share:.0%} with {params.long_tokens} "
            f"tokens, the others with {params.short_tokens}"
        ),
        arrival_s=np.cumsum(gaps_s),
        input_tokens=tokens,
        output_tokens=np.ones(params.requests, np.int64),
        block_offsets=offsets,
        block_ids=np.arange(offsets[-1]),
    )


def _chunks(
    params: Params, ends_s: list[float], tokens: int, chunk_tokens: int, told: dict[str, str]
) -> list[dict[str, object]]:
    """Chunks of one prompt as rows; the stages' ends are moved on, as `advance` does for the whole prompt."""
    cluster = params.cluster(len(ends_s))
    cost = prefill_cost(cluster.node, cluster.model, cluster.calibration)
    rows = []
    for first in range(0, tokens, chunk_tokens):
        last = min(first + chunk_tokens, tokens)
        overhead_s = cost.overhead_s if first == 0 else 0.0
        chunk_s = prefill_seconds(0.0, cost.token_s, cost.pair_s, last, first) / len(ends_s)
        hop_s = cluster.hop_token_s
        begin_s = ends_s[0]
        advance(ends_s, begin_s, overhead_s, cost.token_s, cost.pair_s, hop_s, last, first, chunk_tokens)
        rows += [
            {
                "pipeline_nodes": len(ends_s),
                "chunk_tokens": chunk_tokens,
                **told,
                "stage": stage + 1,
                "first_token": first + 1,
                "last_token": last,
                "start_s": begin_s if stage == 0 else end_s - chunk_s,
                "end_s": end_s,
            }
            for stage, end_s in enumerate(ends_s)
        ]
    return rows


def _statistics(ttft_s: np.ndarray) -> dict[str, float]:
    p50_s, p90_s = np.quantile(ttft_s, (0.5, 0.9))
    return {"mean_s": float(ttft_s.mean()), "p50_s": float(p50_s), "p90_s": float(p90_s)}


def _with_parameters(table: pd.DataFrame, params: Params) -> pd.DataFrame:
    table.attrs["provenance"] = {"parameters": dataclasses.asdict(params)}
    return table
