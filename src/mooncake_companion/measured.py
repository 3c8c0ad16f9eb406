"""What others measured on GPUs and published, in SI units; ``data/measured/README.md`` names them.

Nothing of the model is fitted to these tables. Plain Python, so that a page can read them, too.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import fsum

from mooncake_companion.datafiles import read_rows
from mooncake_companion.statistics import interpolate

HIDDEN_SIZE, LAYERS = 8192, 80
"""Shape of the model that was measured, as of every LLaMA-70B."""

_ENGINE = "vllm"
"""Framework whose attention and all-reduce kernels are taken."""
_BACKEND = "vllm_graph"
_OPERATORS = (
    "input_layernorm_ms",
    "attn_pre_proj_ms",
    "attn_rope_ms",
    "attn_post_proj_ms",
    "post_attention_layernorm_ms",
    "mlp_up_proj_ms",
    "mlp_act_ms",
    "mlp_down_proj_ms",
    "add_ms",
    "add_ms",  # once behind attention, once behind the MLP
)
_MODELS = {"a100": "Meta-Llama-3-70B", "h100": "Llama-2-70b-hf"}
"""Whose operators are taken: of two with the same shape, the one measured to longer prompts."""
_CAPPED = "-pcap"
"""Ending of GPUs with a power cap, which are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One prefill or one decode step of a batch.

    Parameters
    ----------
    gpu : str
        "a100" or "h100".
    gpus : int
        How many of them worked on it.
    sequences : int
        In the batch.
    tokens : int
        Of each sequence: its prompt, or its context.
    seconds : float
    """

    gpu: str
    gpus: int
    sequences: int
    tokens: int
    seconds: float


def engine_prefills() -> list[Measurement]:
    """Prefills of Llama2-70B in a serving engine of 2023 (Splitwise); medians of the runs."""
    return [
        _run(row, "prefill", int(row["prompt_size"])) for row in _engine_runs() if row["token_size"] == "128"
    ]


def engine_steps() -> list[Measurement]:
    """Decode steps of Llama2-70B in a serving engine of 2023 (Splitwise), at half of the answer."""
    return [
        _run(row, "decode_iter", int(row["prompt_size"]) + int(row["token_size"]) // 2)
        for row in _engine_runs()
    ]


def kernel_prefills() -> list[Measurement]:
    """Prefills of one prompt as sums of measured kernels: operators, attention and two all-reduces a layer.

    Only lengths at which all three were measured; nothing is extrapolated.
    """
    rows = read_rows("measured", "aiconfigurator_prefill_attention_70b_shape.csv")
    return _summed(
        (row, int(row["tokens"]), int(row["tokens"]))
        for row in rows
        if row["batch"] == "1" and int(row["tokens"]) >= 512
    )


def kernel_steps() -> list[Measurement]:
    """Decode steps as sums of measured kernels, over all batches and contexts that were measured."""
    rows = read_rows("measured", "aiconfigurator_decode_attention_70b_shape.csv")
    return _summed(
        (row, int(row["batch"]), int(row["context_minus_1"]) + 1)
        for row in rows
        if int(row["context_minus_1"]) >= 511
    )


def _engine_runs() -> list[dict[str, str]]:
    rows = read_rows("measured", "splitwise_llama2_70b_end_to_end.csv")
    return [row for row in rows if not row["hardware"].endswith(_CAPPED)]


def _run(row: dict[str, str], phase: str, tokens: int) -> Measurement:
    return Measurement(
        gpu=row["hardware"].removesuffix("-80gb"),
        gpus=int(row["tensor_parallel"]),
        sequences=int(row["batch_size"]),
        tokens=tokens,
        seconds=float(row[f"{phase}_ms_median"]) / 1e3,
    )


def _summed(attention: Iterator[tuple[dict[str, str], int, int]]) -> list[Measurement]:
    """Seconds of all layers, given attention's rows, tokens in the linear layers, and those of a sequence."""
    operators_ms, messages = _operators_ms(), _all_reduces()
    found = []
    for row, passing_tokens, tokens in attention:
        gpu, gpus = row["gpu"], int(row["tp"])
        linear_ms = operators_ms.get((gpu, gpus, passing_tokens))
        if linear_ms is None or not row["framework"].startswith(_ENGINE):
            continue
        reduced_ms = interpolate(HIDDEN_SIZE * passing_tokens, *messages[gpu, gpus])
        layer_ms = linear_ms + float(row["attn_ms"]) + 2 * reduced_ms
        found.append(
            Measurement(
                gpu=gpu,
                gpus=gpus,
                sequences=int(row["batch"]),
                tokens=tokens,
                seconds=LAYERS * layer_ms / 1e3,
            )
        )
    return sorted(found, key=lambda each: (each.gpu, each.gpus, each.sequences, each.tokens))


def _operators_ms() -> dict[tuple[str, int, int], float]:
    """Milliseconds of a layer but for attention, by GPU, how many of them, and tokens."""
    return {
        (row["gpu"], int(row["tp"]), int(row["num_tokens"])): fsum(float(row[name]) for name in _OPERATORS)
        for row in read_rows("measured", "vidur_llama70b_layer_operators.csv")
        if row["model"] == _MODELS[row["gpu"]]
    }


def _all_reduces() -> dict[tuple[str, int], tuple[list[float], list[float]]]:
    """Elements of the messages and milliseconds, by GPU and how many of them."""
    found: dict[tuple[str, int], tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for row in read_rows("measured", "aiconfigurator_all_reduce.csv"):
        if row["backend"] == _BACKEND:
            elements, ms = found[row["gpu"], int(row["gpus"])]
            elements.append(int(row["message_elements_16bit"]))
            ms.append(float(row["all_reduce_ms"]))
    return found
