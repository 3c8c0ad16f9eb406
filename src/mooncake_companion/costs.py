"""Seconds and bytes of one action: pure arithmetic that a reader can check by hand.

Only the standard library is imported. Prefill, transfer and break-even take plain numbers or arrays
alike; what has a roofline in it, and so a maximum, takes plain numbers. What was fitted comes in as a
`Calibration`; nothing here keeps state.
"""

import tomllib
from dataclasses import dataclass
from typing import NamedTuple

from mooncake_companion.datafiles import data_path
from mooncake_companion.errors import InputError
from mooncake_companion.hardware import GpuNode
from mooncake_companion.llm import Number, TransformerModel
from mooncake_companion.parameters import require_positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The constants of the model; ``data/calibration.toml`` says where each comes from.

    Parameters
    ----------
    prefill_overhead_s : float
        Seconds that a prefill takes whatever its length.
    linear_utilisation, attention_utilisation : float
        Share of the node's peak reached in the linear layers, and in attention when only the
        causal half of its FLOPs is counted.
    network_utilisation : float
        Share of the NICs' line rate that a transfer reaches.
    decode_overhead_s : float
        Seconds that a decode step takes whatever its batch.
    hbm_utilisation : float
        Share of the memory bandwidth that decode reaches.
    host_sequence_s : float
        Seconds of a decode step that the host spends on each sequence.
    """

    prefill_overhead_s: float
    linear_utilisation: float
    attention_utilisation: float
    network_utilisation: float
    decode_overhead_s: float
    hbm_utilisation: float
    host_sequence_s: float = 0.0

    def __post_init__(self) -> None:
        require_positive(
            self,
            "prefill_overhead_s",
            "linear_utilisation",
            "attention_utilisation",
            "network_utilisation",
            "decode_overhead_s",
            "hbm_utilisation",
        )
        if not self.host_sequence_s >= 0:
            raise InputError(f"Calibration.host_sequence_s must be at least 0, got {self.host_sequence_s!r}")


def load_calibration(*, host: bool = True) -> Calibration:
    """The constants that ship with the project, from ``data/calibration.toml``.

    Parameters
    ----------
    host : bool
        Whether decode steps wait for the host. It was fitted on a figure of FAST'25; the arXiv
        report's own Figure 2 shows a step that hardly grows with its batch, so without for that.
    """
    constants = tomllib.loads(data_path("calibration.toml").read_text("utf-8"))
    values = {name: row["value"] for name, row in constants.items()}
    return Calibration(**(values if host else values | {"host_sequence_s": 0.0}))


class PrefillCost(NamedTuple):
    """Prefill seconds as coefficients: a constant, one for each token and one for each pair."""

    overhead_s: float
    token_s: float
    pair_s: float


class DecodeCost(NamedTuple):
    """Seconds of a decode step as coefficients, as `decode_seconds` takes them."""

    overhead_s: float
    weights_s: float
    arithmetic_s: float
    overlapped_sequence_s: float
    serial_sequence_s: float
    context_token_s: float


def prefill_cost(node: GpuNode, model: TransformerModel, calibration: Calibration) -> PrefillCost:
    """Coefficients of Equation 1 over what the node reaches of its peak; see `prefill_time`."""
    return PrefillCost(
        overhead_s=calibration.prefill_overhead_s,
        token_s=model.linear_flops(1) / (calibration.linear_utilisation * node.flops_per_s),
        pair_s=0.5 * model.attention_flops(1) / (calibration.attention_utilisation * node.flops_per_s),
    )


def prefill_seconds(
    overhead_s: float, token_s: float, pair_s: float, input_tokens: Number, cached_tokens: Number
) -> Number:
    """Prefill time from its coefficients; the one formula that every engine evaluates."""
    pairs = input_tokens * input_tokens - cached_tokens * cached_tokens
    return overhead_s + token_s * (input_tokens - cached_tokens) + pair_s * pairs


def with_tier_seconds(
    compute_s: Number, read_s: Number, load_s: Number, store_s: Number, layerwise: bool
) -> Number:
    """Time of a prefill that also reads its prefix from SSD, loads it from DRAM and stores new blocks.

    Layer by layer, all three go on while the GPUs compute, the last two in opposite directions of the
    host link, and the longest of the four counts (FAST'25, section 3.3). Otherwise they come one
    after the other.
    """
    if layerwise:
        return max(compute_s, read_s, load_s, store_s)
    return read_s + load_s + compute_s + store_s


def longest_handover_seconds(
    token_s: float,
    pair_s: float,
    hop_token_s: float,
    stages: int,
    input_tokens: Number,
    cached_tokens: Number,
    chunk_tokens: int,
) -> Number:
    """The longest time from a chunk's start at one stage of a pipeline to its start at the next.

    Each stage has 1/`stages` of the layers; the hop takes `hop_token_s` a token. Attention makes each
    full chunk longer than the one before it, so it is the last chunk or the last full one.
    """
    chunks = (input_tokens - cached_tokens + chunk_tokens - 1) // chunk_tokens
    last = cached_tokens + (chunks - 1) * chunk_tokens
    per_token_s, per_pair_s = token_s / stages + hop_token_s, pair_s / stages
    longest_s = per_token_s * (input_tokens - last) + per_pair_s * (input_tokens**2 - last**2)
    if chunks > 1:
        full_s = per_token_s * chunk_tokens + per_pair_s * (last**2 - (last - chunk_tokens) ** 2)
        longest_s = max(longest_s, full_s)
    return longest_s


def pipeline_seconds(
    prefill_s: float, overhead_s: float, longest_handover_s: float, stages: int
) -> tuple[float, float]:
    """Time of a prefill in an idle pipeline, and the part of it in which the first stage is taken.

    Parameters
    ----------
    prefill_s : float
        Of the whole prefill on one node, its overhead included.
    overhead_s : float
        Part of it that is not shared out: paid once, in front.
    longest_handover_s : float
        As of `longest_handover_seconds`.
    stages : int
        X of FAST'25, section 3.3.

    Notes
    -----
    Chunked pipeline parallelism. A chunk takes equally long at every stage. So the first stage is
    done after the sum of all chunks, and the last one is behind it by the longest handover for each
    stage between: the makespan of a proportionate flow shop.
    """
    first_stage_s = overhead_s + (prefill_s - overhead_s) / stages
    return first_stage_s + (stages - 1) * longest_handover_s, first_stage_s


def batch_prefill_seconds(
    overhead_s: float, token_s: float, pair_s: float, tokens: Number, pairs: Number
) -> Number:
    """Time of one iteration that computes several prompts, with one overhead for all.

    ``tokens`` and ``pairs`` are the sums of n − p and of n² − p² over the prompts.
    """
    return overhead_s + token_s * tokens + pair_s * pairs


def prefill_time(
    node: GpuNode,
    model: TransformerModel,
    input_tokens: Number,
    cached_tokens: Number = 0,
    *,
    calibration: Calibration,
) -> Number:
    """Time from the start of a prefill to its first token, in seconds.

    Parameters
    ----------
    node, model : GpuNode, TransformerModel
    input_tokens, cached_tokens : int or array of int, shape (requests,)
        Prompt length n and reused prefix p, in tokens; 0 <= p < n.
    calibration : Calibration

    Returns
    -------
    float or array of float64, shape (requests,)
        Seconds of computation, without queue and transfer; `with_tier_seconds` adds loading
        the prefix and storing the new KV cache.

    Notes
    -----
    FAST'25, Equation 1 over the node's peak, with one fitted utilisation for each of its two
    terms. Attention is counted causal: half of what the equation prints.
    """
    return prefill_seconds(*prefill_cost(node, model, calibration), input_tokens, cached_tokens)


def decode_cost(
    node: GpuNode, model: TransformerModel, calibration: Calibration, *, overlapping: bool = True
) -> DecodeCost:
    """Coefficients of a decode step: a roofline over memory, arithmetic and host; see `decode_step_time`."""
    hbm_bytes_per_s = calibration.hbm_utilisation * node.gpus * node.hbm_bytes_per_s
    return DecodeCost(
        overhead_s=calibration.decode_overhead_s,
        weights_s=model.weights_bytes / hbm_bytes_per_s,
        arithmetic_s=model.linear_flops(1) / (calibration.linear_utilisation * node.flops_per_s),
        overlapped_sequence_s=calibration.host_sequence_s if overlapping else 0.0,
        serial_sequence_s=0.0 if overlapping else calibration.host_sequence_s,
        context_token_s=model.kv_bytes_per_token / hbm_bytes_per_s,
    )


def decode_seconds(
    overhead_s: float,
    weights_s: float,
    arithmetic_s: float,
    overlapped_sequence_s: float,
    serial_sequence_s: float,
    context_token_s: float,
    sequences: Number,
    context_tokens: Number,
) -> Number:
    """Seconds of a decode step from its coefficients; the one formula that every engine evaluates."""
    gpu_s = max(weights_s, arithmetic_s * sequences) + context_token_s * context_tokens
    return overhead_s + max(gpu_s, overlapped_sequence_s * sequences) + serial_sequence_s * sequences


def mixed_seconds(
    prefill_overhead_s: float,
    token_s: float,  # noqa: ARG001 - as in DecodeCost.arithmetic_s
    pair_s: float,
    overhead_s: float,
    weights_s: float,
    arithmetic_s: float,
    overlapped_sequence_s: float,
    serial_sequence_s: float,
    context_token_s: float,
    sequences: Number,
    context_tokens: Number,
    chunk_tokens: Number,
    chunk_pairs: Number,
    prompts: Number,
) -> Number:
    """Seconds of an iteration that decodes a batch and computes chunks of prompts along with it.

    The linear layers run over all tokens together, so the weights are read once; the chunks'
    attention and, for each prompt that begins, the overhead of a prefill come on top. Without
    chunks it is `decode_seconds`.
    """
    linear_s = max(weights_s, arithmetic_s * (sequences + chunk_tokens))
    gpu_s = linear_s + context_token_s * context_tokens + pair_s * chunk_pairs
    decode_s = overhead_s + max(gpu_s, overlapped_sequence_s * sequences) + serial_sequence_s * sequences
    return decode_s + prefill_overhead_s * prompts


def decode_step_time(
    node: GpuNode,
    model: TransformerModel,
    sequences: int,
    context_tokens: int,
    *,
    calibration: Calibration,
    overlapping: bool = True,
) -> float:
    """Time in which every sequence of a batch gets one more token, in seconds.

    Parameters
    ----------
    node, model : GpuNode, TransformerModel
    sequences : int
        Sequences in the batch, at least 1.
    context_tokens : int
        Tokens in the KV cache of all of them together.
    calibration : Calibration
    overlapping : bool
        Whether the host does its work on the sequences while the GPUs compute, or after it.

    Notes
    -----
    A roofline. The linear layers take the longer of reading the weights and of their arithmetic
    (Equation 1 for one token a sequence); attention reads the whole KV cache of the batch. The
    host's work on each sequence goes on meanwhile and counts where it takes longer, or comes on
    top. To that comes an overhead for each step.
    """
    cost = decode_cost(node, model, calibration, overlapping=overlapping)
    return float(decode_seconds(*cost, sequences, context_tokens))


def transfer_time(
    nic_bytes_per_s: float,
    transferred_bytes: Number,
    *,
    calibration: Calibration,
    startup_s: float = 0.0,
) -> Number:
    """Time to move bytes between two nodes that do nothing else, in seconds.

    Parameters
    ----------
    nic_bytes_per_s : float
        Line rate of the slower of the two nodes, in bytes/s.
    transferred_bytes : int or array of int
    calibration : Calibration
    startup_s : float
        Seconds before the first byte moves.

    Notes
    -----
    FAST'25, Figure 12: latency grows in proportion to size.
    """
    return startup_s + transferred_bytes / (calibration.network_utilisation * nic_bytes_per_s)


def break_even_bandwidth(node: GpuNode, model: TransformerModel, cached_tokens: Number) -> Number:
    """Bandwidth above which loading a prefix beats computing it, in bytes/s.

    Parameters
    ----------
    node, model : GpuNode, TransformerModel
    cached_tokens : int or array of int
        Prefix length p, in tokens.

    Notes
    -----
    FAST'25, Equation 2: B / G > 2 d s / (gqa (a p d + b d²)), at the node's peak G.
    """
    return node.flops_per_s * model.kv_bytes_per_token * cached_tokens / model.prefill_flops(cached_tokens)
