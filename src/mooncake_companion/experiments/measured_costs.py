"""The cost model's prefills and decode steps beside measurements on GPUs that others published."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mooncake_companion import measured
from mooncake_companion.costs import (
    Calibration,
    batch_prefill_seconds,
    decode_step_time,
    load_calibration,
    prefill_cost,
)
from mooncake_companion.errors import InputError
from mooncake_companion.hardware import GpuNode, load_node
from mooncake_companion.llm import load_model
from mooncake_companion.parameters import check, parameter
from mooncake_companion.simulator import Cluster

PRESETS = {"a100": "a800", "h100": "h800"}
"""Measured GPU to the preset with the same compute and memory; NVLink differs."""

TITLES = {"a100": "A100", "h100": "H100"}
MODELLED, MODELLED_WITH_HOST = "Model, GPUs alone", "Model, with the host's time"
KERNELS, ENGINE = "Measured: sum of kernels", "Measured: engine of 2023"

_MODEL = load_model("llama3-70b")
_BATCHES = "several prompts of 512"
_SIZES = {
    "prefill": ((0, "prompts below 2,048"), (2048, "prompts from 2,048"), (8192, "prompts from 8,192")),
    "decode": ((0, "batch of 1"), (2, "batches of 2 to 8"), (9, "9 to 32"), (33, "33 to 128"), (129, "more")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """What is compared: LLaMA-70B in 16 bit on eight A100 or H100, as measured.

    Nothing was fitted to these measurements. The constants were fitted to FAST'25, Figures 14 and 15,
    that is, on the paper's A800 nodes and with the paper's serving engine. Assumed: an A100 is an A800 and
    an H100 an H800, which have the same compute and memory but less NVLink.
    """

    gpus: int = parameter(8, unit="GPUs", low=4, high=8, help="that work on a batch; measured are 4 and 8")

    def __post_init__(self) -> None:
        check(self)


def run(params: Params) -> pd.DataFrame:
    """Every measurement and what the model has for it.

    Returns
    -------
    DataFrame
        Columns: ``phase`` ("prefill" or "decode"), ``measured_as`` (`KERNELS` or `ENGINE`), ``gpu``,
        ``sequences``, ``tokens`` (of each sequence: prompt, or context), ``measured_s``, ``modelled``
        (`MODELLED` or, a second row for a decode step, `MODELLED_WITH_HOST`), ``modelled_s``, ``ratio``
        (modelled over measured).

    Raises
    ------
    InputError
        If nothing was measured with so many GPUs.

    Notes
    -----
    Batches that the GPUs' memory cannot hold beside the weights are left out: they were measured on a
    single layer.
    """
    tables = [
        _compared(params, "prefill", KERNELS, measured.kernel_prefills()),
        _compared(params, "prefill", ENGINE, measured.engine_prefills()),
        _compared(params, "decode", KERNELS, measured.kernel_steps()),
        _compared(params, "decode", ENGINE, measured.engine_steps()),
    ]
    table = pd.concat(tables, ignore_index=True)
    table["ratio"] = table["modelled_s"] / table["measured_s"]
    return _with_provenance(table, params)


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
        alone = measured_as.query("phase == 'decode' and modelled == @MODELLED")
        found[f"alone {name}"] = alone["ratio"].median()
    with_host = table.query("modelled == @MODELLED_WITH_HOST and sequences >= 16")
    found |= {"host least": with_host["ratio"].min(), "host greatest": with_host["ratio"].max()}
    steps = engine.query("modelled == @MODELLED_WITH_HOST and gpu == 'A100'").set_index("sequences")["ratio"]
    found["host batch"] = steps[steps.index == steps.index.max()].max()
    return {name: float(value) for name, value in found.items()}


def prefills(params: Params) -> pd.DataFrame:
    """Prefills of one prompt by its length: the model as a curve, the measurements as points.

    Returns
    -------
    DataFrame
        Columns: ``source`` (`MODELLED`, `KERNELS` or `ENGINE`), ``gpu``, ``input_tokens``, ``seconds``,
        ``ratio`` (modelled over measured; 1 on the curve).
    """
    found = run(params).query("phase == 'prefill' and sequences == 1")
    points = pd.DataFrame(
        {
            "source": found["measured_as"],
            "gpu": found["gpu"],
            "input_tokens": found["tokens"],
            "seconds": found["measured_s"],
            "ratio": found["ratio"],
        }
    )
    lengths = np.unique(np.geomspace(128, 16_384, 57).astype(int))
    curves = [
        pd.DataFrame(
            {
                "source": MODELLED,
                "gpu": TITLES[gpu],
                "input_tokens": lengths,
                "seconds": [_prefill_s(_node(gpu, params), 1, int(tokens)) for tokens in lengths],
                "ratio": 1.0,
            }
        )
        for gpu in PRESETS
    ]
    return _with_provenance(pd.concat([*curves, points], ignore_index=True), params)


def steps(params: Params, contexts: Iterable[int] = (512, 2048, 8192, 32_768)) -> pd.DataFrame:
    """Decode steps by batch, for contexts of some lengths: the model as curves, measurements as points.

    Returns
    -------
    DataFrame
        Columns: ``source`` (`MODELLED`, `MODELLED_WITH_HOST`, `KERNELS` or `ENGINE`), ``gpu``,
        ``sequences``, ``context_tokens`` (one of `contexts`), ``exact_tokens`` (of a measurement: up to
        twice ``context_tokens``), ``seconds``.
    """
    wanted = list(contexts)
    rows = []
    for gpu in PRESETS:
        node = _node(gpu, params)
        for tokens in wanted:
            most = min(256, _most_tokens(node) // tokens)
            for sequences in _batches(most):
                rows += [
                    (
                        name,
                        TITLES[gpu],
                        sequences,
                        tokens,
                        tokens,
                        _step_s(node, sequences, tokens, constants),
                    )
                    for name, constants in _CONSTANTS.items()
                ]
    for row in run(params).query("phase == 'decode' and modelled == @MODELLED").to_dict("records"):
        shown = 2 ** int(np.log2(row["tokens"]))
        if shown in wanted and row["sequences"] <= 256:
            rows.append(
                (row["measured_as"], row["gpu"], row["sequences"], shown, row["tokens"], row["measured_s"])
            )
    columns = ["source", "gpu", "sequences", "context_tokens", "exact_tokens", "seconds"]
    return _with_provenance(pd.DataFrame(rows, columns=columns), params)


_CONSTANTS = {MODELLED: load_calibration(host=False), MODELLED_WITH_HOST: load_calibration()}


def _with_provenance(table: pd.DataFrame, params: Params) -> pd.DataFrame:
    table.attrs["provenance"] = {"parameters": dataclasses.asdict(params)}
    return table


def _compared(params: Params, phase: str, measured_as: str, table: pd.DataFrame) -> pd.DataFrame:
    table = table[table["gpus"] == params.gpus]
    if table.empty:
        raise InputError(f"nothing was measured with {params.gpus} GPUs; 4 and 8 are")
    table = table.rename(columns={"input_tokens": "tokens", "context_tokens": "tokens"})
    rows = []
    for row in table.to_dict("records"):
        node, sequences, tokens = _node(row["gpu"], params), int(row["sequences"]), int(row["tokens"])
        if sequences * tokens > _most_tokens(node):
            continue
        modelled = (
            {MODELLED: _prefill_s(node, sequences, tokens)}
            if phase == "prefill"
            else {name: _step_s(node, sequences, tokens, each) for name, each in _CONSTANTS.items()}
        )
        rows += [
            {
                "phase": phase,
                "measured_as": measured_as,
                "gpu": TITLES[row["gpu"]],
                "sequences": sequences,
                "tokens": tokens,
                "measured_s": row["seconds"],
                "modelled": name,
                "modelled_s": seconds,
            }
            for name, seconds in modelled.items()
        ]
    return pd.DataFrame(rows)


def _node(gpu: str, params: Params) -> GpuNode:
    return dataclasses.replace(load_node(PRESETS[gpu]), gpus=params.gpus)


def _most_tokens(node: GpuNode) -> int:
    cluster = Cluster(
        node=node, model=_MODEL, calibration=_CONSTANTS[MODELLED], prefill_nodes=1, decode_nodes=1
    )
    return cluster.vram_tokens


def _prefill_s(node: GpuNode, sequences: int, tokens: int) -> float:
    cost = prefill_cost(node, _MODEL, _CONSTANTS[MODELLED])
    return batch_prefill_seconds(*cost, sequences * tokens, sequences * tokens**2)


def _step_s(node: GpuNode, sequences: int, tokens: int, constants: Calibration) -> float:
    return decode_step_time(node, _MODEL, sequences, sequences * tokens, calibration=constants)


def _batches(most: int) -> list[int]:
    """Numbers of sequences for a smooth curve, the powers of two among them."""
    return sorted({int(2 ** (exponent / 4)) for exponent in range(4 * int(np.log2(most)) + 1)} | {most})


def _size(phase: str, sequences: int, tokens: int) -> str:
    if phase == "prefill" and sequences > 1:
        return _BATCHES
    size = tokens if phase == "prefill" else sequences
    return [words for least, words in _SIZES[phase] if size >= least][-1]
