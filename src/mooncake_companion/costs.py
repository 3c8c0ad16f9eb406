"""Seconds and bytes of one action: pure arithmetic that a reader can check by hand.

Every function takes plain numbers or arrays alike and imports only the standard library. What
was fitted comes in as a `Calibration`; nothing here keeps state.
"""

import tomllib
from dataclasses import dataclass

from mooncake_companion.datafiles import data_path
from mooncake_companion.hardware import GpuNode
from mooncake_companion.llm import Number, TransformerModel
from mooncake_companion.parameters import require_positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The fitted constants of the model; ``data/calibration.toml`` says what each was fitted on.

    Parameters
    ----------
    prefill_overhead_s : float
        Seconds that a prefill takes whatever its length.
    linear_utilisation, attention_utilisation : float
        Share of the node's peak reached in the linear layers, and in attention when only the
        causal half of its FLOPs is counted.
    network_utilisation : float
        Share of the NICs' line rate that a transfer reaches.
    """

    prefill_overhead_s: float
    linear_utilisation: float
    attention_utilisation: float
    network_utilisation: float

    def __post_init__(self) -> None:
        require_positive(self, *self.__slots__)


def load_calibration() -> Calibration:
    """The fitted constants that ship with the project, from ``data/calibration.toml``."""
    constants = tomllib.loads(data_path("calibration.toml").read_text("utf-8"))
    return Calibration(**{name: row["value"] for name, row in constants.items()})


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
        Seconds, without queue and transfer. Loading the prefix from DRAM and storing the new
        KV cache are taken to hide behind the computation, layer by layer (FAST'25, section 3.3).

    Notes
    -----
    FAST'25, Equation 1 over the node's peak, with one fitted utilisation for each of its two
    terms. Attention is counted causal: half of what the equation prints.
    """
    linear_s = model.linear_flops(input_tokens, cached_tokens) / (
        calibration.linear_utilisation * node.flops_per_s
    )
    attention_s = (
        0.5
        * model.attention_flops(input_tokens, cached_tokens)
        / (calibration.attention_utilisation * node.flops_per_s)
    )
    return calibration.prefill_overhead_s + linear_s + attention_s


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
