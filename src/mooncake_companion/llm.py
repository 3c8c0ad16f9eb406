"""Transformer models: FLOPs of a prefill and bytes of KV cache. Standard library only.

Every method takes plain numbers or arrays alike: the arithmetic is the same.
"""

import tomllib
from dataclasses import dataclass
from typing import Any

from mooncake_companion.datafiles import data_path
from mooncake_companion.errors import InputError
from mooncake_companion.parameters import require_positive

Number = Any  # a number or an array of numbers: the formulas do not care


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerModel:
    """Shape of a decoder-only model with grouped-query attention.

    Parameters
    ----------
    title : str
        The name that people use.
    layers, model_dim : int
        l and d of FAST'25, Table 1.
    query_heads_per_kv_head : int
        Query heads that share one key/value head: gqa of FAST'25, Table 1.
    element_bytes : int
        Bytes of one tensor element: s of FAST'25, Table 1.
    attention_flops_coefficient, linear_flops_coefficient : float
        a and b of FAST'25, Equation 1.
    parameters : int
        Weights, as a count.
    source : str
        Where the numbers come from.
    """

    title: str
    layers: int
    model_dim: int
    query_heads_per_kv_head: int
    element_bytes: int
    attention_flops_coefficient: float
    linear_flops_coefficient: float
    parameters: int
    source: str

    def __post_init__(self) -> None:
        require_positive(
            self,
            "layers",
            "model_dim",
            "query_heads_per_kv_head",
            "element_bytes",
            "attention_flops_coefficient",
            "linear_flops_coefficient",
            "parameters",
        )

    @property
    def kv_bytes_per_token(self) -> int:
        """KV cache of one token, keys and values of all layers, in bytes.

        FAST'25, section 2.2: 2 l d s / gqa; 327,680 for LLaMA3-70B.
        """
        return 2 * self.layers * self.model_dim * self.element_bytes // self.query_heads_per_kv_head

    def attention_flops(self, input_tokens: Number, cached_tokens: Number = 0) -> Number:
        """FLOPs of attention for the tokens behind a cached prefix: l a (n² − p²) d.

        As Equation 1 prints it: every token attends to all n, not only to those before it.
        """
        pairs = input_tokens * input_tokens - cached_tokens * cached_tokens
        return self.layers * self.attention_flops_coefficient * self.model_dim * pairs

    def linear_flops(self, input_tokens: Number, cached_tokens: Number = 0) -> Number:
        """FLOPs of the linear layers for the tokens behind a cached prefix: l b (n − p) d²."""
        return (
            self.layers * self.linear_flops_coefficient * self.model_dim**2 * (input_tokens - cached_tokens)
        )

    def prefill_flops(self, input_tokens: Number, cached_tokens: Number = 0) -> Number:
        """FLOPs of a prefill of n tokens that reuses a prefix of p.

        Parameters
        ----------
        input_tokens, cached_tokens : int or array of int
            n and p, in tokens; 0 <= p < n.

        Notes
        -----
        FAST'25, Equation 1: l (a n² d + b n d²), less the same for p.
        """
        return self.attention_flops(input_tokens, cached_tokens) + self.linear_flops(
            input_tokens, cached_tokens
        )


def load_models() -> dict[str, TransformerModel]:
    """All model presets of ``data/presets/models.toml``, by name."""
    presets = tomllib.loads(data_path("presets", "models.toml").read_text("utf-8"))
    return {name: TransformerModel(**fields) for name, fields in presets.items()}


def load_model(name: str) -> TransformerModel:
    """The model preset called `name`.

    Raises
    ------
    InputError
        If there is none of that name; the known ones are listed.
    """
    models = load_models()
    if name not in models:
        raise InputError(f"no model preset {name!r}; there are {', '.join(models)}")
    return models[name]
