"""The cost model's prefills and decode steps beside what others measured: closed form, so exact in a page."""

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import median

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
from mooncake_companion.live.outcome import Outcome, Progress, Row
from mooncake_companion.llm import load_model
from mooncake_companion.measured import Measurement
from mooncake_companion.parameters import check, parameter
from mooncake_companion.simulator.cluster import Cluster

PRESETS = {"a100": "a800", "h100": "h800"}
"""Measured GPU to the preset with the same compute and memory; NVLink differs."""

TITLES = {"a100": "A100", "h100": "H100"}
MODELLED, MODELLED_WITH_HOST = "Model, GPUs alone", "Model, with the host's time"
KERNELS, ENGINE = "Measured: sum of kernels", "Measured: engine of 2023"

CONTEXTS = (512, 2048, 8192, 32_768)
"""Tokens of a sequence for which decode steps are drawn."""

_MODEL = load_model("llama3-70b")
_MEASURED_GPUS = (4, 8)
_LENGTHS = tuple(int(128 * 2 ** (step / 8)) for step in range(57))
_MOST_SEQUENCES = 256
_FITTED = load_calibration()


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
        if self.gpus not in _MEASURED_GPUS:
            raise InputError(
                f"parameter gpus: nothing was measured with {self.gpus} GPUs; "
                f"{' and '.join(map(str, _MEASURED_GPUS))} are"
            )

    @property
    def calibration(self) -> Calibration:
        """The constants of the model."""
        return _FITTED


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillParams(Params):
    """The same, with constants of a reader's choice for the prefill."""

    prefill_overhead_s: float = parameter(
        _FITTED.prefill_overhead_s, unit="s", low=1e-4, high=10, help="of every prefill; fitted on Figure 14"
    )
    linear_utilisation: float = parameter(
        _FITTED.linear_utilisation,
        low=0.01,
        high=1,
        help="share of the peak that the linear layers reach; fitted on Figure 14",
    )
    attention_utilisation: float = parameter(
        _FITTED.attention_utilisation,
        low=0.01,
        high=1,
        help="share of the peak that attention reaches; fitted on Figure 14",
    )

    @property
    def calibration(self) -> Calibration:
        """The reader's constants."""
        return dataclasses.replace(
            _FITTED,
            prefill_overhead_s=self.prefill_overhead_s,
            linear_utilisation=self.linear_utilisation,
            attention_utilisation=self.attention_utilisation,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepParams(Params):
    """The same, with constants of a reader's choice for the decode step."""

    decode_overhead_s: float = parameter(
        _FITTED.decode_overhead_s, unit="s", low=1e-5, high=1, help="of every step; fitted on Figure 14"
    )
    hbm_utilisation: float = parameter(
        _FITTED.hbm_utilisation,
        low=0.01,
        high=1,
        help="share of the memory bandwidth that decode reaches; fitted on Figure 14",
    )
    host_sequence_s: float = parameter(
        _FITTED.host_sequence_s,
        unit="s",
        low=0,
        high=1,
        help="of a step that the host spends on each sequence; fitted on Figure 15",
    )

    @property
    def calibration(self) -> Calibration:
        """The reader's constants."""
        return dataclasses.replace(
            _FITTED,
            decode_overhead_s=self.decode_overhead_s,
            hbm_utilisation=self.hbm_utilisation,
            host_sequence_s=self.host_sequence_s,
        )


def compared(params: Params, phase: str) -> Iterator[Row]:
    """Every measurement of a phase, and the model's; columns as of `experiments.measured_costs.run`.

    Batches that the GPUs' memory cannot hold beside the weights are left out: they were measured on a
    single layer.
    """
    tables = (
        {KERNELS: measured.kernel_prefills, ENGINE: measured.engine_prefills}
        if phase == "prefill"
        else {KERNELS: measured.kernel_steps, ENGINE: measured.engine_steps}
    )
    for measured_as, read in tables.items():
        for each in read():
            node = _node(each.gpu, params)
            if each.gpus != params.gpus or each.sequences * each.tokens > _most_tokens(node):
                continue
            for modelled, seconds in _modelled(params, phase, node, each).items():
                yield {
                    "phase": phase,
                    "measured_as": measured_as,
                    "gpu": TITLES[each.gpu],
                    "sequences": each.sequences,
                    "tokens": each.tokens,
                    "measured_s": each.seconds,
                    "modelled": modelled,
                    "modelled_s": seconds,
                    "ratio": seconds / each.seconds,
                }


def prefill_rows(params: Params) -> list[Row]:
    """Prefills of one prompt; columns as of `experiments.measured_costs.prefills`."""
    curves: list[Row] = [
        {
            "source": MODELLED,
            "gpu": TITLES[gpu],
            "input_tokens": tokens,
            "seconds": _prefill_s(params, _node(gpu, params), 1, tokens),
            "ratio": 1.0,
        }
        for gpu in PRESETS
        for tokens in _LENGTHS
    ]
    points: list[Row] = [
        {
            "source": row["measured_as"],
            "gpu": row["gpu"],
            "input_tokens": row["tokens"],
            "seconds": row["measured_s"],
            "ratio": row["ratio"],
        }
        for row in compared(params, "prefill")
        if row["sequences"] == 1
    ]
    return [*curves, *points]


def step_rows(params: Params, contexts: Iterable[int] = CONTEXTS) -> list[Row]:
    """Decode steps by batch, for some contexts; columns as of `experiments.measured_costs.steps`."""
    wanted = list(contexts)
    rows = []
    for gpu in PRESETS:
        node = _node(gpu, params)
        for tokens in wanted:
            for sequences in _batches(min(_MOST_SEQUENCES, _most_tokens(node) // tokens)):
                rows += [
                    _step_row(name, TITLES[gpu], sequences, tokens, tokens, seconds)
                    for name, seconds in _steps_s(params, node, sequences, tokens).items()
                ]
    for row in compared(params, "decode"):
        context = 1 << (row["tokens"].bit_length() - 1)
        if row["modelled"] == MODELLED and context in wanted and row["sequences"] <= _MOST_SEQUENCES:
            name, gpu, sequences = row["measured_as"], row["gpu"], row["sequences"]
            rows.append(_step_row(name, gpu, sequences, context, row["tokens"], row["measured_s"]))
    return rows


def _step_row(
    source: str, gpu: str, sequences: int, context_tokens: int, exact_tokens: int, seconds: float
) -> Row:
    return {
        "source": source,
        "gpu": gpu,
        "sequences": sequences,
        "context_tokens": context_tokens,
        "exact_tokens": exact_tokens,
        "seconds": seconds,
    }


def prefills(params: PrefillParams, _sliced: None, progress: Progress) -> Outcome:
    """Prefills with a reader's constants."""
    progress(0, 1)
    return Outcome(
        rows=prefill_rows(params),
        description=(
            "Seconds of one prefill by the prompt's length: modelled, in this browser, and measured. "
            f"Modelled over measured, in the median: {_medians(compared(params, 'prefill'))}."
        ),
    )


def steps(params: StepParams, _sliced: None, progress: Progress) -> Outcome:
    """Decode steps with a reader's constants."""
    progress(0, 1)
    return Outcome(
        rows=step_rows(params),
        description=(
            "Milliseconds of a decode step by the sequences in the batch: modelled, in this browser, and "
            f"measured. Modelled over measured, in the median: {_medians(compared(params, 'decode'))}."
        ),
    )


def _medians(rows: Iterable[Row]) -> str:
    ratios: dict[str, list[float]] = {}
    for row in rows:
        kind = row["measured_as"].removeprefix("Measured: ")
        told = kind if row["phase"] == "prefill" else f"{row['modelled']}, to {kind}"
        ratios.setdefault(f"{row['gpu']}, {told}", []).append(row["ratio"])
    return "; ".join(f"{kind} {median(values):.2f}" for kind, values in ratios.items())


def _modelled(params: Params, phase: str, node: GpuNode, each: Measurement) -> dict[str, float]:
    if phase == "prefill":
        return {MODELLED: _prefill_s(params, node, each.sequences, each.tokens)}
    return _steps_s(params, node, each.sequences, each.tokens)


def _node(gpu: str, params: Params) -> GpuNode:
    return dataclasses.replace(load_node(PRESETS[gpu]), gpus=params.gpus)


def _most_tokens(node: GpuNode) -> int:
    return Cluster(node=node, model=_MODEL, calibration=_FITTED, prefill_nodes=1, decode_nodes=1).vram_tokens


def _prefill_s(params: Params, node: GpuNode, sequences: int, tokens: int) -> float:
    cost = prefill_cost(node, _MODEL, params.calibration)
    return batch_prefill_seconds(*cost, sequences * tokens, sequences * tokens**2)


def _steps_s(params: Params, node: GpuNode, sequences: int, tokens: int) -> dict[str, float]:
    constants = {
        MODELLED: dataclasses.replace(params.calibration, host_sequence_s=0.0),
        MODELLED_WITH_HOST: params.calibration,
    }
    return {
        name: decode_step_time(node, _MODEL, sequences, sequences * tokens, calibration=each)
        for name, each in constants.items()
    }


def _batches(most: int) -> list[int]:
    """Numbers of sequences for a smooth curve, the powers of two among them."""
    return sorted({int(2 ** (exponent / 4)) for exponent in range(4 * (most.bit_length() - 1) + 1)} | {most})
