"""Bytes that a request moves between tiers and nodes, and which of these moves it waits for.

FAST'25, sections 3.2 and 3.3, describe the moves; no figure counts them. Each scenario is a short trace
that brings the caches into a state, and a last request that finds it so, replayed by the engine; the
whole trace is averaged over its requests. A move is *on the critical path* if decode would begin
earlier without it, and hidden otherwise: behind the computation, or done when nobody waits.
"""

from collections.abc import Sequence

import pandas as pd

from mooncake_companion import traces
from mooncake_companion.experiments.paper_traces import provenance
from mooncake_companion.live.byte_flows import WAYS, Params, Served, flow_rows, moves, scenarios, whole_trace
from mooncake_companion.live.outcome import Row
from mooncake_companion.simulator import Result, simulate
from mooncake_companion.simulator.reference import Request
from mooncake_companion.traces import BLOCK_TOKENS, Trace

__all__ = ["WAYS", "Params", "run", "times"]


def run(params: Params) -> pd.DataFrame:
    """Bytes on every way by scenario, and what each delays the start of decode.

    Returns
    -------
    DataFrame
        A row for each scenario and move that takes place. ``scenario``; ``requests`` (1, or the
        trace's); ``way``, ``title``, ``source_node``, ``source_tier``, ``target_node``,
        ``target_tier``; ``bytes`` and ``delay_s``, mean per request; ``critical``, whether the delay is
        above a millisecond; ``delayed_share``, of the requests that it delays by more than that.
    """
    trace = traces.load(params.trace)
    table = pd.DataFrame([*_single_rows(params), *_whole_rows(params, trace)])
    table.attrs["provenance"] = provenance(params, {params.trace: trace})
    return table


def times(params: Params) -> pd.DataFrame:
    """How long the single request of each scenario takes to its first token and to its decode.

    Returns
    -------
    DataFrame
        Indexed by ``scenario``: ``reused_tokens``, ``ttft_s``, ``decode_start_s`` (both from arrival).
    """
    rows = [
        {
            "scenario": name,
            "reused_tokens": int(result.cached_tokens[-1]),
            "ttft_s": float(result.ttft_s[-1]),
            "decode_start_s": float(result.join_s[-1] - result.arrival_s[-1]),
        }
        for name, cluster, requests in scenarios(params, BLOCK_TOKENS)
        for result in [simulate(_trace(requests), cluster)]
    ]
    return pd.DataFrame(rows).set_index("scenario")


def _single_rows(params: Params) -> list[Row]:
    rows = []
    for name, cluster, requests in scenarios(params, BLOCK_TOKENS):
        result = simulate(_trace(requests), cluster)
        before = simulate(_trace(requests[:-1]), cluster).counters["demoted_to_ssd"] if requests[:-1] else 0
        demoted = result.counters["demoted_to_ssd"] - before
        last = [move.last() for move in moves(_served(result), cluster)]
        rows += flow_rows(name, last, demoted * BLOCK_TOKENS, cluster)
    return rows


def _whole_rows(params: Params, trace: Trace) -> list[Row]:
    rows = []
    for name, cluster in whole_trace(params).items():
        result = simulate(trace, cluster)
        demoted = result.counters["demoted_to_ssd"] * trace.block_tokens
        rows += flow_rows(f"Whole trace, {name}", moves(_served(result), cluster), demoted, cluster)
    return rows


def _served(result: Result) -> list[Served]:
    columns = [getattr(result, name).tolist() for name in Served._fields]
    return [Served(*each) for each in zip(*columns, strict=True)]


def _trace(requests: Sequence[Request]) -> Trace:
    return Trace.from_requests([each[:4] for each in requests], name="scenario")
