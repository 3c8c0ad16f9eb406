"""Load of the pools over time, counted from a `Result`."""

from functools import partial

import numpy as np
import pandas as pd

from mooncake_companion.costs import decode_step_time
from mooncake_companion.errors import InputError
from mooncake_companion.simulator.cluster import Cluster
from mooncake_companion.simulator.overload import DecodeLoad, Limits, share_of_limits
from mooncake_companion.simulator.reference import Outcome
from mooncake_companion.simulator.result import Result

_STAGES = {
    "waiting": ("arrival_s", "start_s"),
    "prefilling": ("start_s", "first_token_s"),
    "moving": ("first_token_s", "join_s"),
    "decoding": ("join_s", "finish_s"),
}


def pool_series(result: Result, *, interval_s: float = 15.0) -> pd.DataFrame:
    """How many requests are at each stage, at regular times.

    Parameters
    ----------
    result : Result
    interval_s : float
        Seconds between two rows; the default is that of arXiv 2407.00079, Figure 9.

    Returns
    -------
    DataFrame
        ``time_s``, from 0 until the last request is done; requests ``waiting`` for a prefill node,
        ``prefilling``, ``moving`` (first token out, KV cache on its way or without room) and
        ``decoding``; ``context_tokens``, prompts of the decoding ones; and ``arrived``,
        ``finished`` and ``rejected``, counted up to then. At every time
        arrived = waiting + prefilling + moving + decoding + finished + rejected.

    Raises
    ------
    InputError
        If `interval_s` is not above zero.
    """
    if not interval_s > 0:
        raise InputError(f"interval_s must be above 0 s, got {interval_s!r}")
    rejected_s = np.where(np.isfinite(result.start_s), result.first_token_s, result.arrival_s)
    rejected_s = np.where(result.outcome == 0, np.nan, rejected_s)
    last_s = np.nanmax(np.concatenate([result.arrival_s, result.finish_s, rejected_s]))
    times_s = np.arange(0, last_s + interval_s, interval_s)
    gone = np.isfinite(rejected_s)
    columns = {"time_s": times_s}
    for stage, (enter, leave) in _STAGES.items():
        entered_s, left_s = _spans(result, stage, enter, leave, gone)
        columns[stage] = _until(entered_s, times_s) - _until(left_s, times_s)
    columns["context_tokens"] = _until(result.join_s, times_s, result.input_tokens) - _until(
        np.where(np.isfinite(result.join_s), result.finish_s, np.nan), times_s, result.input_tokens
    )
    columns["arrived"] = _until(result.arrival_s, times_s)
    columns["finished"] = _until(result.finish_s, times_s)
    columns["rejected"] = _until(rejected_s, times_s)
    return pd.DataFrame(columns)


def load_series(result: Result, cluster: Cluster, *, interval_s: float = 15.0) -> pd.DataFrame:
    """Load of both pools as Conductor measures it: predicted times over their limits.

    Parameters
    ----------
    result : Result
    cluster : Cluster
        What the trace was sent through.
    interval_s : float
        Seconds between two rows; the default is that of arXiv 2407.00079, Figure 9.

    Returns
    -------
    DataFrame
        ``time_s``, from 0 until the last arrival; ``prefill_load``: how long the last request that a
        node was given has still to wait for its first token, over the TTFT limit; ``decode_load``:
        what `overload.share_of_limits` says of the requests that have their first token. Both are
        means over the nodes of the pool; 1 is the limit.

    Raises
    ------
    InputError
        If `interval_s` is not above zero.

    Notes
    -----
    arXiv 2407.00079, section 7.1: load is the predicted greatest TTFT and TBT on an instance, over
    their limits. Which requests count is not said there.
    """
    if not interval_s > 0:
        raise InputError(f"interval_s must be above 0 s, got {interval_s!r}")
    times_s = np.arange(0, result.arrival_s.max(initial=0) + interval_s, interval_s)
    prefill = [
        _wait_s(result, node, times_s) / cluster.ttft_limit_s for node in range(cluster.prefill_instances)
    ]
    step_s = partial(decode_step_time, cluster.node, cluster.model, calibration=cluster.calibration)
    limits = Limits(step_s, cluster.tbt_limit_s, cluster.vram_tokens)
    decode = [_decode_shares(result, node, times_s, limits) for node in range(cluster.decode_nodes)]
    return pd.DataFrame(
        {
            "time_s": times_s,
            "prefill_load": np.mean(prefill, axis=0),
            "decode_load": np.mean(decode, axis=0),
        }
    )


def traffic_series(result: Result, cluster: Cluster, *, interval_s: float = 15.0) -> pd.DataFrame:
    """Bytes moved on each kind of way, up to regular times.

    Parameters
    ----------
    result : Result
    cluster : Cluster
        What the trace was sent through.
    interval_s : float
        Seconds between two rows.

    Returns
    -------
    DataFrame
        ``time_s``, from 0 until the last request is done. Between nodes: ``fetch_sent_bytes`` and
        ``fetch_received_bytes`` (prefixes from another prefill node), the same of ``stream`` (prefill
        to decode node) and ``load`` (DRAM to GPU memory of the decode node); a transfer counts as
        sent from its first instant on, and as received at its last, so that the difference is what is
        under way. On prefill nodes, counted when the prefill ends: ``ssd_read_bytes``,
        ``dram_read_bytes`` (into GPU memory) and ``dram_written_bytes``. Answers that return are left out.

    Raises
    ------
    InputError
        If `interval_s` is not above zero.
    """
    if not interval_s > 0:
        raise InputError(f"interval_s must be above 0 s, got {interval_s!r}")
    last_s = np.nanmax(np.concatenate([result.arrival_s, result.finish_s, result.streamed_s]))
    times_s = np.arange(0, last_s + interval_s, interval_s)
    token_bytes = cluster.model.kv_bytes_per_token
    prefilled = np.isfinite(result.start_s)
    computed = result.input_tokens - result.cached_tokens
    stream_s = np.where(
        np.isfinite(result.streamed_s),
        (result.start_s if cluster.kv_streaming else result.first_token_s) + cluster.transfer_startup_s,
        np.nan,
    )
    fetch_s = np.where(result.fetched_tokens > 0, result.arrival_s + cluster.transfer_startup_s, np.nan)
    load_s = np.where(
        np.isfinite(result.loaded_s), np.maximum(result.streamed_s, result.first_token_s), np.nan
    )
    done_s = np.where(prefilled, result.first_token_s, np.nan)
    moves = {
        "fetch_sent_bytes": (fetch_s, result.fetched_tokens),
        "fetch_received_bytes": (result.fetched_s, result.fetched_tokens),
        "stream_sent_bytes": (stream_s, result.input_tokens),
        "stream_received_bytes": (result.streamed_s, result.input_tokens),
        "load_sent_bytes": (load_s, result.input_tokens),
        "load_received_bytes": (result.loaded_s, result.input_tokens),
        "ssd_read_bytes": (done_s, result.ssd_tokens),
        "dram_read_bytes": (done_s, result.cached_tokens - result.vram_tokens),
        "dram_written_bytes": (done_s, computed),
    }
    columns = {
        name: token_bytes * _until(moved_s, times_s, tokens) for name, (moved_s, tokens) in moves.items()
    }
    return pd.DataFrame({"time_s": times_s, **columns})


def _wait_s(result: Result, node: int, times_s: np.ndarray) -> np.ndarray:
    """Seconds until a prefill node has done what it was given, at each time."""
    given = result.prefill_node == node
    done_s = np.maximum.accumulate(np.concatenate([[0.0], result.first_token_s[given]]))
    last = np.searchsorted(result.arrival_s[given], times_s, side="right")
    return np.maximum(done_s[last] - times_s, 0.0)


def _decode_shares(result: Result, node: int, times_s: np.ndarray, limits: Limits) -> list[float]:
    """How near to its limits a decode node is, at each time."""
    given = (result.decode_node == node) & (result.outcome == Outcome.FINISHED) & (result.output_tokens > 1)
    began_s, ended_s = result.first_token_s[given], result.finish_s[given]
    tokens = (result.input_tokens + result.output_tokens)[given]
    sequences = _until(began_s, times_s) - _until(ended_s, times_s)
    total = _until(began_s, times_s, tokens) - _until(ended_s, times_s, tokens)
    loads = zip(sequences.tolist(), total.tolist(), strict=True)
    return [share_of_limits(DecodeLoad(*load), limits) for load in loads]


def _spans(
    result: Result, stage: str, enter: str, leave: str, gone: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """When requests enter and leave a stage; NaN for those that never do."""
    entered_s, left_s = getattr(result, enter), getattr(result, leave)
    if stage == "waiting":
        entered_s = np.where(np.isfinite(result.start_s), entered_s, np.nan)
    if stage == "moving":  # not those that end with their first token, nor those turned away then
        decodes = ~gone & (result.output_tokens > 1)
        entered_s, left_s = np.where(decodes, entered_s, np.nan), np.where(decodes, left_s, np.nan)
    if stage == "decoding":
        left_s = np.where(np.isfinite(entered_s), left_s, np.nan)
    return entered_s, left_s


def _until(events_s: np.ndarray, times_s: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Sum of the weights (1 each) of the events up to and at each time."""
    happened = np.isfinite(events_s)
    order = np.argsort(events_s[happened], kind="stable")
    counted = np.ones(len(order), np.int64) if weights is None else weights[happened][order]
    totals = np.concatenate([[0], np.cumsum(counted)])
    return totals[np.searchsorted(events_s[happened][order], times_s, side="right")]
