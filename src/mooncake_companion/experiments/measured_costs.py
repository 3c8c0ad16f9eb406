"""The cost model's prefills and decode steps beside measurements on GPUs that others published."""

import dataclasses
from collections.abc import Iterable

import pandas as pd

from mooncake_companion.live.measured_costs import (
    CONTEXTS,
    ENGINE,
    KERNELS,
    MODELLED,
    MODELLED_WITH_HOST,
    TITLES,
    Params,
    compared,
    prefill_rows,
    step_rows,
)

__all__ = ["ENGINE", "KERNELS", "Params", "errors", "headlines", "prefills", "run", "steps"]

_BATCHES = "several prompts of 512"
_SIZES = {
    "prefill": ((0, "prompts below 2,048"), (2048, "prompts from 2,048"), (8192, "prompts from 8,192")),
    "decode": ((0, "batch of 1"), (2, "batches of 2 to 8"), (9, "9 to 32"), (33, "33 to 128"), (129, "more")),
}


def run(params: Params) -> pd.DataFrame:
    """Every measurement and what the model has for it.

    Returns
    -------
    DataFrame
        Columns: ``phase`` ("prefill" or "decode"), ``measured_as`` (`KERNELS` or `ENGINE`), ``gpu``,
        ``sequences``, ``tokens`` (of each sequence: prompt, or context), ``measured_s``, ``modelled``
        (`MODELLED` or, a second row for a decode step, `MODELLED_WITH_HOST`), ``modelled_s``, ``ratio``
        (modelled over measured).

    Notes
    -----
    Batches that the GPUs' memory cannot hold beside the weights are left out: they were measured on a
    single layer.
    """
    rows = [row for phase in ("prefill", "decode") for row in compared(params, phase)]
    return _with_provenance(pd.DataFrame(rows), params)


def errors(table: pd.DataFrame) -> pd.DataFrame:
    """How far the model is off, by phase, size, GPU and kind of measurement.

    Parameters
    ----------
    table : DataFrame
        As of `run`.

    Returns
    -------
    DataFrame
        Columns: ``phase``, ``size``, ``gpu``, ``measured_as``, ``modelled``, ``compared`` (how many),
        ``least_ratio``, ``median_ratio``, ``greatest_ratio``.
    """
    sizes = zip(table["phase"], table["sequences"], table["tokens"], strict=True)
    sized = table.assign(size=[_size(*row) for row in sizes])
    order = {words: rank for ranks in _SIZES.values() for rank, (_, words) in enumerate(ranks)}
    order[_BATCHES] = len(order)
    grouped = sized.groupby(["phase", "size", "gpu", "measured_as", "modelled"])["ratio"]
    found = grouped.agg(
        compared="size", least_ratio="min", median_ratio="median", greatest_ratio="max"
    ).reset_index()
    found["rank"] = found["size"].map(order)
    keys = ["phase", "modelled", "measured_as", "gpu", "rank"]
    return found.sort_values(keys, ascending=[False, True, True, True, True], ignore_index=True).drop(
        columns="rank"
    )


def headlines(table: pd.DataFrame) -> dict[str, float]:
    """The numbers that sum the comparison up.

    Parameters
    ----------
    table : DataFrame
        As of `run`.

    Returns
    -------
    dict
        ``long prefill error``: most that a prefill from 8,192 tokens on A100 is off the kernels, in %.
        ``short prefill A100``, ``last prefill A100``, ``engine prefill A100`` and the same of the H100:
        ratio at the shortest and longest prompt of kernels, and at the engine's longest.
        ``alone kernels`` and ``alone engine``: median ratio of the GPUs' decode steps. ``host least`` and
        ``host greatest``: range of the ratio with the host's time over batches from 16 on, whatever was
        measured; ``host batch``: that of the engine's largest batch on A100.
    """
    kernels, engine = (table[table["measured_as"] == measured_as] for measured_as in (KERNELS, ENGINE))
    prefill = kernels[kernels["phase"] == "prefill"]
    long = prefill[(prefill["gpu"] == "A100") & (prefill["tokens"] >= 8192)]
    found = {"long prefill error": 100 * (long["ratio"] - 1).abs().max()}
    for gpu in TITLES.values():
        mine = prefill[prefill["gpu"] == gpu].set_index("tokens")["ratio"]
        found |= {
            f"short prefill {gpu}": mine[mine.index.min()],
            f"last prefill {gpu}": mine[mine.index.max()],
        }
        mine = engine.query("phase == 'prefill' and gpu == @gpu and sequences == 1").set_index("tokens")[
            "ratio"
        ]
        found[f"engine prefill {gpu}"] = mine[mine.index.max()]
    for name, measured_as in (("kernels", kernels), ("engine", engine)):
        alone = measured_as[(measured_as["phase"] == "decode") & (measured_as["modelled"] == MODELLED)]
        found[f"alone {name}"] = alone["ratio"].median()
    with_host = table[(table["modelled"] == MODELLED_WITH_HOST) & (table["sequences"] >= 16)]
    found |= {"host least": with_host["ratio"].min(), "host greatest": with_host["ratio"].max()}
    steps = engine[(engine["modelled"] == MODELLED_WITH_HOST) & (engine["gpu"] == "A100")]
    found["host batch"] = steps.loc[steps["sequences"] == steps["sequences"].max(), "ratio"].max()
    return {name: float(value) for name, value in found.items()}


def prefills(params: Params) -> pd.DataFrame:
    """Prefills of one prompt by its length: the model as a curve, the measurements as points.

    Returns
    -------
    DataFrame
        Columns: ``source`` (`MODELLED`, `KERNELS` or `ENGINE`), ``gpu``, ``input_tokens``, ``seconds``,
        ``ratio`` (modelled over measured; 1 on the curve).
    """
    return _with_provenance(pd.DataFrame(prefill_rows(params)), params)


def steps(params: Params, contexts: Iterable[int] = CONTEXTS) -> pd.DataFrame:
    """Decode steps by batch, for contexts of some lengths: the model as curves, measurements as points.

    Returns
    -------
    DataFrame
        Columns: ``source`` (`MODELLED`, `MODELLED_WITH_HOST`, `KERNELS` or `ENGINE`), ``gpu``,
        ``sequences``, ``context_tokens`` (one of `contexts`), ``exact_tokens`` (of a measurement: up to
        twice ``context_tokens``), ``seconds``.
    """
    return _with_provenance(pd.DataFrame(step_rows(params, contexts)), params)


def _with_provenance(table: pd.DataFrame, params: Params) -> pd.DataFrame:
    table.attrs["provenance"] = {"parameters": dataclasses.asdict(params)}
    return table


def _size(phase: str, sequences: int, tokens: int) -> str:
    if phase == "prefill" and sequences > 1:
        return _BATCHES
    size = tokens if phase == "prefill" else sequences
    return [words for least, words in _SIZES[phase] if size >= least][-1]
