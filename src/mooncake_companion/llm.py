"""Transformer models: FLOPs of a prefill and bytes of KV cache. Standard library only.

Every method takes plain numbers or arrays alike: the arithmetic is the same.
"""

from dataclasses import dataclass
from typing import Any

from mooncake_companion.errors import InputError
from mooncake_companion.parameters import require_positive
from mooncake_companion.presets import find, shipped

Number = Any  # a number or an array of numbers: the formulas do not care

LINEAR_FLOPS_PER_PARAMETER = 22 * 80 * 8192**2 / 70_553_706_496
"""FLOPs of the linear layers for a token, per weight that it uses, as Equation 1 counts LLaMA3-70B.

Two would be exact. The fitted utilisation divides the paper's count, so what carries over to a model
whose b the paper does not state is this ratio.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerModel:
    """Shape of a decoder-only model: dense or with experts, and what it keeps of a token.

    Parameters
    ----------
    title : str
        The name that people use.
    layers, model_dim : int
        l and d of FAST'25, Table 1.
    query_heads_per_kv_head : int or None
        Query heads that share one key/value head: gqa of FAST'25, Table 1.
    kv_elements_per_layer : int or None
        Elements that a layer keeps of a token, where that is not 2 d / gqa: 576 for multi-head latent
        attention. Exactly one of these two is given.
    element_bytes : int
        Bytes of one tensor element: s of FAST'25, Table 1.
    weight_element_bytes : int or None
        Bytes of one weight; as `element_bytes` if None.
    attention_flops_coefficient : float
        a of FAST'25, Equation 1.
    linear_flops_coefficient : float or None
        b of FAST'25, Equation 1; if None, what `LINEAR_FLOPS_PER_PARAMETER` makes of the active
        parameters.
    parameters : int
        Weights, as a count.
    active_parameters : int or None
        Weights that one token uses; all of them if None. Fewer in a mixture of experts.
    source : str
        Where the numbers come from.
    """

    title: str
    layers: int
    model_dim: int
    query_heads_per_kv_head: int | None = None
    kv_elements_per_layer: int | None = None
    element_bytes: int
    weight_element_bytes: int | None = None
    attention_flops_coefficient: float
    linear_flops_coefficient: float | None = None
    parameters: int
    active_parameters: int | None = None
    source: str

    def __post_init__(self) -> None:
        require_positive(
            self, "layers", "model_dim", "element_bytes", "attention_flops_coefficient", "parameters"
        )
        optional = (
            "query_heads_per_kv_head",
            "kv_elements_per_layer",
            "weight_element_bytes",
            "linear_flops_coefficient",
            "active_parameters",
        )
        require_positive(self, *(name for name in optional if getattr(self, name) is not None))
        if (self.query_heads_per_kv_head is None) == (self.kv_elements_per_layer is None):
            raise InputError(
                "TransformerModel: give either query_heads_per_kv_head (grouped-query attention) or "
                "kv_elements_per_layer (anything else), not both and not neither"
            )
        if self.query_heads_per_kv_head is not None and self.query_heads_per_kv_head > self.model_dim:
            raise InputError(
                f"TransformerModel.query_heads_per_kv_head: {self.query_heads_per_kv_head} query heads are "
                f"more than the {self.model_dim} elements of model_dim that they share"
            )
        if self.active_parameters is not None and self.active_parameters > self.parameters:
            raise InputError(
                f"TransformerModel.active_parameters: {self.active_parameters} is more than all "
                f"{self.parameters} parameters"
            )

    @property
    def kv_bytes_per_token(self) -> int:
        """KV cache of one token, keys and values of all layers, in bytes.

        FAST'25, section 2.2: 2 l d s / gqa; 327,680 for LLaMA3-70B.
        """
        if self.kv_elements_per_layer is not None:
            return self.layers * self.kv_elements_per_layer * self.element_bytes
        assert self.query_heads_per_kv_head is not None
        return 2 * self.layers * self.model_dim * self.element_bytes // self.query_heads_per_kv_head

    @property
    def weights_bytes(self) -> int:
        """All weights, in bytes: what GPU memory holds beside the KV cache, and a decode step reads.

        Of a mixture of experts a step reads the experts that its batch needs, which with some tens of
        sequences are nearly all; a small batch is made too slow by this.
        """
        return self.parameters * (self.weight_element_bytes or self.element_bytes)

    def attention_flops(self, input_tokens: Number, cached_tokens: Number = 0) -> Number:
        """FLOPs of attention for the tokens behind a cached prefix: l a (n² − p²) d.

        As Equation 1 prints it: every token attends to all n, not only to those before it.
        """
        pairs = input_tokens * input_tokens - cached_tokens * cached_tokens
        return self.layers * self.attention_flops_coefficient * self.model_dim * pairs

    def linear_flops(self, input_tokens: Number, cached_tokens: Number = 0) -> Number:
        """FLOPs of the linear layers for the tokens behind a cached prefix: l b (n − p) d²."""
        tokens = input_tokens - cached_tokens
        if self.linear_flops_coefficient is None:
            return LINEAR_FLOPS_PER_PARAMETER * (self.active_parameters or self.parameters) * tokens
        return self.layers * self.linear_flops_coefficient * self.model_dim**2 * tokens

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
    return shipped(TransformerModel, "models.toml")


def load_model(name: str) -> TransformerModel:
    """The model preset called `name`, or what the table ``[model]`` of a TOML file says.

    Parameters
    ----------
    name : str
        Such as "llama3-70b", or the path of a file that ends in ``.toml``; see `presets.find`.

    Raises
    ------
    InputError
        If there is no preset of that name; the known ones are listed. If the file cannot be read, or
        something in it is wrong.
    """
    return find(TransformerModel, name, "model", load_models())
