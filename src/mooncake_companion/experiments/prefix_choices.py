"""What is done for the start of every prompt, over time, and why: FAST'25, sections 3.2 and 4.2.

Four things can be done (`scheduler.Action`): **hydrate**, lift the prefix from the node's own slower
memory; **recompute** it; **migrate** it from another node; **replicate** it, so that both nodes have it
from then on. The papers describe all four and show no counts; these are the model's.
"""

import numpy as np
import pandas as pd

from mooncake_companion import traces
from mooncake_companion.experiments.paper_traces import provenance
from mooncake_companion.live.prefix_choices import Choice, Params, window_rows
from mooncake_companion.simulator import Action, Result, simulate
from mooncake_companion.traces import Trace

__all__ = ["REASONS", "Params", "reasons", "run"]

REASONS = {
    "nothing known": "nothing of it was computed before",
    "known, not used": "its start was computed before, but is gone, not yet there, or not on the chosen node",
    "own, all of it": "the node itself holds all of its start that was ever computed",
    "own, a part": "the node itself holds a part; the rest is gone, or below the threshold for a fetch",
    "another's, cold": "the best prefix is another node's, and too few asked for it to keep two copies",
    "another's": "the best prefix is another node's, and exceeds the own by the threshold",
}
"""Why a choice was made, in words."""


def run(params: Params) -> pd.DataFrame:
    """Count the choices in windows of time, for each setting.

    Returns
    -------
    DataFrame
        ``setting``, ``time_s`` (the window's start), ``action``, ``requests``; ``share`` of the window's
        requests; their ``reused_tokens``, in all; means over them: ``mean_input_tokens``,
        ``mean_reused_tokens``, ``mean_ttft_s``.
    """
    trace = traces.load(params.trace)
    table = pd.DataFrame(
        row | {"setting": name}
        for name, result in _runs(params, trace)
        for row in window_rows(_choices(result), params.window_s)
    )
    table.attrs["provenance"] = provenance(params, {params.trace: trace})
    return table


def reasons(params: Params) -> pd.DataFrame:
    """Count the choices of the whole trace by why they were made.

    Returns
    -------
    DataFrame
        ``setting``, ``action``, ``reason`` (a key of `REASONS`), ``requests``, ``share`` of all requests,
        ``reused_share`` of the prompts' tokens.
    """
    trace = traces.load(params.trace)
    known_blocks = traces.infinite_cache_leading_hits(trace)
    tables = []
    for name, result in _runs(params, trace):
        each = pd.DataFrame(
            {
                "action": result.action,
                "reason": _reasons(result, known_blocks, trace.block_tokens),
                "input_tokens": result.input_tokens,
                "reused_tokens": result.cached_tokens,
            }
        )
        counted = each.groupby(["action", "reason"], as_index=False).agg(
            requests=("action", "size"), input_tokens=("input_tokens", "sum"), reused=("reused_tokens", "sum")
        )
        counted["share"] = counted["requests"] / len(trace)
        counted["reused_share"] = counted["reused"] / counted["input_tokens"]
        tables.append(counted.drop(columns=["input_tokens", "reused"]).assign(setting=name))
    return pd.concat(tables, ignore_index=True)


def _runs(params: Params, trace: Trace) -> list[tuple[str, Result]]:
    return [(name, simulate(trace, cluster)) for name, cluster in params.clusters().items()]


def _choices(result: Result) -> list[Choice]:
    columns = (
        result.arrival_s,
        result.action,
        result.input_tokens,
        result.cached_tokens,
        result.ttft_s,
    )
    return [Choice(*each) for each in zip(*(column.tolist() for column in columns), strict=True)]


def _reasons(result: Result, known_blocks: np.ndarray, block_tokens: int) -> np.ndarray:
    """Why, by what was done and how much of the prompt had come before."""
    reused_blocks = -(-result.cached_tokens // block_tokens)
    recomputed = np.where(known_blocks > 0, "known, not used", "nothing known")
    hydrated = np.where(reused_blocks >= known_blocks, "own, all of it", "own, a part")
    names = {
        Action.RECOMPUTE: recomputed,
        Action.HYDRATE: hydrated,
        Action.MIGRATE: np.array("another's, cold"),
        Action.REPLICATE: np.array("another's"),
    }
    return np.select([result.action == action.value for action in names], list(names.values()), default="")
