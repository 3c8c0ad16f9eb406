"""FAST'25, section 3.3: chunked pipeline parallelism, what it gains for long prompts and what it costs.

The papers describe it and print no number of it, so there is nothing to set this against.
"""

import dataclasses

import numpy as np
import pandas as pd

from mooncake_companion import traces
from mooncake_companion.costs import prefill_seconds
from mooncake_companion.live.prefill_pipeline import (
    FIXED_COSTS,
    LENGTHS,
    LOADS,
    WIDTHS,
    Params,
    alone_rows,
    loads,
    stage_rows,
)
from mooncake_companion.simulator import simulate

__all__ = ["CHUNKS", "FIXED_COSTS", "WIDTHS", "Params", "alone", "on_trace", "run", "stages"]

CHUNKS = (1024, 4096, 16384)


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
    lengths = mixed.input_tokens.astype(float)
    rows = []
    settings = loads(params, LOADS, lambda cost: float(prefill_seconds(*cost, lengths, 0.0).mean()))
    for told, cluster in settings:
        trace = dataclasses.replace(mixed, arrival_s=mixed.arrival_s / told["requests_per_s"])
        ttft_s = simulate(trace, cluster).ttft_s
        rows += [
            {
                **told,
                "prompts": prompts,
                "input_tokens": tokens,
                **_statistics(ttft_s[trace.input_tokens == tokens]),
            }
            for prompts, tokens in params.prompts.items()
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
    lengths = sorted({*LENGTHS, params.short_tokens, params.long_tokens})
    rows = [
        row
        for chunk_tokens in _chunks(params)
        for row in alone_rows(cluster, lengths, params.widths, chunk_tokens)
    ]
    return _with_parameters(pd.DataFrame(rows), params)


def stages(params: Params) -> pd.DataFrame:
    """When each stage of a pipeline works on which chunk: a long prompt, and a short one behind it.

    Columns: ``pipeline_nodes``, ``chunk_tokens``, ``prompt`` ("long" or "short"), ``stage`` (from 1),
    ``first_token`` and ``last_token`` of the chunk (from 1), ``start_s``, ``end_s``. Both prompts are
    there at 0 s. The fixed cost is part of each prompt's first chunk at the first stage.
    """
    rows = [
        row
        for width in params.widths
        for chunk_tokens in _chunks(params)
        for row in stage_rows(params, width, chunk_tokens)
    ]
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


def _chunks(params: Params) -> list[int]:
    """Lengths of chunks that are shown."""
    return sorted({*CHUNKS, params.chunk_tokens})


def _statistics(ttft_s: np.ndarray) -> dict[str, float]:
    p50_s, p90_s = np.quantile(ttft_s, (0.5, 0.9))
    return {"mean_s": float(ttft_s.mean()), "p50_s": float(p50_s), "p90_s": float(p90_s)}


def _with_parameters(table: pd.DataFrame, params: Params) -> pd.DataFrame:
    table.attrs["provenance"] = {"parameters": dataclasses.asdict(params)}
    return table
