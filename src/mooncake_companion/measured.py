"""What others measured on GPUs and published, in SI units; ``data/measured/README.md`` names them.

Nothing of the model is fitted to these tables.
"""

import numpy as np
import pandas as pd

from mooncake_companion.datafiles import read_csv

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


def engine_prefills() -> pd.DataFrame:
    """Prefills of Llama2-70B in a serving engine of 2023 (Splitwise).

    Returns
    -------
    DataFrame
        Columns: ``gpu`` ("a100" or "h100"), ``gpus``, ``sequences``, ``input_tokens`` (of each
        sequence), ``seconds`` (median of the runs), ``least_s``, ``greatest_s``.
    """
    runs = _engine_runs().query("token_size == 128")
    return _renamed(runs, "prefill").assign(input_tokens=runs["prompt_size"]).reset_index(drop=True)


def engine_steps() -> pd.DataFrame:
    """Decode steps of Llama2-70B in a serving engine of 2023 (Splitwise).

    Returns
    -------
    DataFrame
        As of `engine_prefills`, with ``context_tokens`` (of each sequence, at half of its answer) in
        place of ``input_tokens``.
    """
    runs = _engine_runs()
    context_tokens = runs["prompt_size"] + runs["token_size"] // 2
    return _renamed(runs, "decode_iter").assign(context_tokens=context_tokens).reset_index(drop=True)


def kernel_prefills() -> pd.DataFrame:
    """Prefills of one prompt as sums of measured kernels: operators, attention and two all-reduces a layer.

    Only lengths at which all three were measured; nothing is extrapolated.

    Returns
    -------
    DataFrame
        Columns: ``gpu``, ``gpus``, ``sequences`` (1), ``input_tokens``, ``seconds``.
    """
    attention = _read("aiconfigurator_prefill_attention_70b_shape").query("batch == 1 and tokens >= 512")
    return _summed(attention.rename(columns={"tokens": "input_tokens"}), "input_tokens")


def kernel_steps() -> pd.DataFrame:
    """Decode steps as sums of measured kernels, over all batches and contexts that were measured.

    Returns
    -------
    DataFrame
        Columns: ``gpu``, ``gpus``, ``sequences``, ``context_tokens`` (of each sequence), ``seconds``.
    """
    attention = _read("aiconfigurator_decode_attention_70b_shape").query("context_minus_1 >= 511")
    attention = attention.assign(context_tokens=attention["context_minus_1"] + 1)
    return _summed(attention, "batch")


def _read(name: str) -> pd.DataFrame:
    return read_csv("measured", f"{name}.csv")


def _engine_runs() -> pd.DataFrame:
    runs = _read("splitwise_llama2_70b_end_to_end")
    return runs[runs["hardware"].isin(["a100-80gb", "h100-80gb"])]


def _renamed(runs: pd.DataFrame, phase: str) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "gpu": runs["hardware"].str.removesuffix("-80gb"),
            "gpus": runs["tensor_parallel"],
            "sequences": runs["batch_size"],
            "seconds": runs[f"{phase}_ms_median"] / 1e3,
            "least_s": runs[f"{phase}_ms_min"] / 1e3,
            "greatest_s": runs[f"{phase}_ms_max"] / 1e3,
        }
    )


def _summed(attention: pd.DataFrame, tokens: str) -> pd.DataFrame:
    """Seconds of all layers; `tokens` names the column with the tokens that the linear layers see."""
    mine = attention[attention["framework"].str.startswith(_ENGINE)]
    operators = _read("vidur_llama70b_layer_operators")
    operators = operators[operators["model"] == operators["gpu"].map(_MODELS)]
    layers = pd.DataFrame(
        {
            "gpu": operators["gpu"],
            "tp": operators["tp"],
            tokens: operators["num_tokens"],
            "operators_ms": sum(operators[name] for name in _OPERATORS),
        }
    )
    table = mine.merge(layers, on=["gpu", "tp", tokens])
    messages = _all_reduces()
    reduced_ms = [
        np.interp(HIDDEN_SIZE * row[tokens], *messages[row["gpu"], row["tp"]])
        for row in table.to_dict("records")
    ]
    layer_ms = table["operators_ms"] + table["attn_ms"] + 2 * np.array(reduced_ms)
    table = table.rename(columns={"tp": "gpus", "batch": "sequences"}).assign(seconds=LAYERS * layer_ms / 1e3)
    lengths = "input_tokens" if "input_tokens" in table else "context_tokens"
    kept = ["gpu", "gpus", "sequences", lengths, "seconds"]
    return table[kept].sort_values(kept[:-1], ignore_index=True)


def _all_reduces() -> dict[tuple[str, int], tuple[np.ndarray, np.ndarray]]:
    """Elements of the messages and milliseconds, by GPU and how many of them."""
    table = _read("aiconfigurator_all_reduce").query("backend == @_BACKEND")
    found = {}
    for gpu, gpus in table[["gpu", "gpus"]].drop_duplicates().itertuples(index=False):
        mine = table[(table["gpu"] == gpu) & (table["gpus"] == gpus)]
        found[gpu, gpus] = (
            mine["message_elements_16bit"].to_numpy(float),
            mine["all_reduce_ms"].to_numpy(float),
        )
    return found
