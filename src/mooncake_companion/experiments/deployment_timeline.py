"""FAST'25, sections 1, 2.1 and 3.1: what the GPUs do over time, in one pool and in two."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from mooncake_companion import traces
from mooncake_companion.errors import InputError
from mooncake_companion.live.deployment_timeline import (
    BEHIND,
    BESIDE,
    CLASSES,
    FIRST,
    FIRST_TOKEN,
    MODES,
    PARTS,
    RHYTHM,
    STEADY,
    TBT_LIMIT_S,
    Params,
    Served,
    budget_rows,
    require_work,
    rhythm_parts,
    window_rows,
)
from mooncake_companion.simulator import Cluster, CoupledCluster
from mooncake_companion.simulator.timeline import Timeline, timeline
from mooncake_companion.simulator.watched import Iteration

__all__ = [
    "BEHIND",
    "BESIDE",
    "CLASSES",
    "COUPLED",
    "DISAGGREGATED",
    "FIRST",
    "FIRST_TOKEN",
    "HOST_BESIDE",
    "MODES",
    "NO_STORE",
    "PARTS",
    "RHYTHM",
    "STEADY",
    "TBT_LIMIT_S",
    "Params",
    "at_own_pace",
    "budget",
    "controls",
    "replayed",
    "replays",
    "run",
    "run_modes",
    "summary",
    "window",
]

DISAGGREGATED, COUPLED, *_ = MODES
NO_STORE, HOST_BESIDE = "Disaggregated, no store", "Coupled, host beside the GPUs"
"""The `controls`."""


def replayed(params: Params) -> traces.Trace:
    """The start of one in so many conversations of a trace, all of their turns, as fast as asked for.

    Requests belong to one conversation if their second block is the same: the first one is, in many
    of the released requests, a preamble common to all.

    Raises
    ------
    InputError
        If nothing is left.
    """
    trace = at_own_pace(params)
    return dataclasses.replace(trace, arrival_s=trace.arrival_s / params.arrival_speedup)


def at_own_pace(params: Params) -> traces.Trace:
    """What `replayed` gives, before it is made faster."""
    trace = traces.load(params.trace)
    arrival_s = trace.arrival_s / params.arrival_speedup
    conversations: dict[int, int] = {}
    kept = []
    for index in np.flatnonzero(arrival_s < params.replayed_s).tolist():
        blocks = trace.blocks_of(index)
        conversation = int(blocks[1]) if len(blocks) > 1 else -1 - index
        if conversations.setdefault(conversation, len(conversations)) % params.one_in == 0:
            kept.append(index)
    if not kept:
        raise InputError(f"parameter replayed_s: {trace.name} has no request before {params.replayed_s} s")
    shown_s = params.replayed_s * params.arrival_speedup
    return traces.Trace.from_requests(
        [
            (
                float(trace.arrival_s[index]),
                int(trace.input_tokens[index]),
                int(trace.output_tokens[index]),
                trace.blocks_of(index).tolist(),
            )
            for index in kept
        ],
        name=trace.name,
        origin=trace.origin,
        source=f"first {shown_s:g} s of one conversation in {params.one_in} of the {trace.source}",
        block_tokens=trace.block_tokens,
    )


def replays(params: Params) -> dict[str, Timeline]:
    """The same requests served by each of the `MODES`."""
    trace = replayed(params)
    return {mode: timeline(trace, params.cluster(mode)) for mode in MODES}


def run(params: Params) -> pd.DataFrame:
    """What the GPUs do in the window, and how long tokens take; see `window`."""
    return window(params, replays(params))


def run_modes(params: Params) -> pd.DataFrame:
    """Each mode over the whole replay, for those who vary a parameter; see `summary`."""
    return summary(params, replays(params))


def summary(params: Params, found: Mapping[str, Timeline]) -> pd.DataFrame:
    """Each mode over the whole replay.

    Columns: ``mode``, ``ttft_mean_s``, ``tbt_mean_s``, ``tbt_within_share`` (of the requests, within
    0.1 s), ``behind_prefill_share`` (of the time between tokens), ``hit_ratio``.
    """
    rows = [_summary(mode, params.cluster(mode), watched) for mode, watched in found.items()]
    return _with_provenance(pd.DataFrame(rows), params)


def controls(params: Params) -> pd.DataFrame:
    """What is left of the difference between one pool and two when something else is made equal.

    Returns
    -------
    DataFrame
        Columns as of `summary`; ``mode`` is `NO_STORE`, two pools that reuse nothing, or
        `HOST_BESIDE`, one pool whose host works while the GPUs compute, as it does in two.
    """
    bare = dataclasses.replace(params, cache_tokens_per_node=0).cluster(DISAGGREGATED)
    coupled = params.cluster(COUPLED)
    assert isinstance(coupled, CoupledCluster)
    beside = dataclasses.replace(coupled, host_overlaps=True)
    trace = replayed(params)
    rows = [
        _summary(mode, cluster, timeline(trace, cluster))
        for mode, cluster in ((NO_STORE, bare), (HOST_BESIDE, beside))
    ]
    return _with_provenance(pd.DataFrame(rows), params)


def window(params: Params, found: Mapping[str, Timeline]) -> pd.DataFrame:
    """What every node does during the window, and the intervals between tokens.

    Returns
    -------
    DataFrame
        Columns: ``mode``; ``kind``, "work" or "interval"; ``node`` (a title); ``holds``, what an
        iteration or an interval has in it; ``start_s`` and ``end_s``, cut to the window; ``seconds``,
        of one iteration or interval, not cut; ``steps``, iterations or intervals alike in a row;
        ``sequences``, that get a token; ``new_tokens`` and ``cached_tokens``, of the prompts
        computed, and ``requests``, which those are, counted from 0 in what is replayed. Steps of one
        batch are one row, with their mean. Intervals are those of the sequences that were in the
        batch before; the first of a request that comes from another node has a row of its own.

    Raises
    ------
    InputError
        If no node works in the window.
    """
    rows: list[dict[str, Any]] = []
    for mode, watched in found.items():
        rows += window_rows(params, mode, params.cluster(mode), *_noted(watched))
    require_work(params, rows)
    return _with_provenance(pd.DataFrame(rows), params)


def budget(params: Params, found: Mapping[str, Timeline]) -> pd.DataFrame:
    """Where the time of a request goes: until decode begins, and for each token after that.

    Returns
    -------
    DataFrame
        A row for each mode, class of requests (``prompts``), ``row`` (`FIRST_TOKEN`, `RHYTHM`) and
        ``part``. ``seconds``: mean over the class's requests, for `RHYTHM` of their means over tokens;
        ``start_s``, ``end_s``: where it stands in its row; ``total_s``: of the row; ``requests``.
        Requests whose answer is a single token are left out.
    """
    rows: list[dict[str, Any]] = []
    for mode, watched in found.items():
        rows += budget_rows(mode, params.cluster(mode), *_noted(watched), np.mean)
    return _with_provenance(pd.DataFrame(rows), params)


def _summary(mode: str, cluster: Cluster | CoupledCluster, watched: Timeline) -> dict[str, Any]:
    result = watched.result
    parts = np.array(rhythm_parts(cluster, *_noted(watched))).T.copy()
    return {
        "mode": mode,
        "ttft_mean_s": float(result.ttft_s.mean()),
        "tbt_mean_s": float(np.nanmean(result.tbt_s)),
        "tbt_within_share": float(np.mean(~(result.tbt_s > TBT_LIMIT_S))),
        "behind_prefill_share": float(parts[-1].sum() / parts.sum()),
        "hit_ratio": result.hit_ratio,
    }


def _noted(watched: Timeline) -> tuple[list[Served], list[Iteration]]:
    """What became of each request, and what each node did, as plain rows."""
    columns = (getattr(watched.result, name).tolist() for name in Served._fields)
    served = [Served(*row) for row in zip(*columns, strict=True)]
    return served, watched.iterations


def _with_provenance(table: pd.DataFrame, params: Params) -> pd.DataFrame:
    trace = replayed(params)
    table.attrs["provenance"] = {
        "trace": trace.name,
        "trace_sha256": trace.sha256,
        "trace_source": trace.source,
        "parameters": dataclasses.asdict(params),
    }
    return table
