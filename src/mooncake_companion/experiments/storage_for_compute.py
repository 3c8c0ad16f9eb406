"""FAST'25, section 2.2: when loading a cached prefix is faster than computing it (Equations 1 and 2)."""

import dataclasses
import math
from dataclasses import dataclass

import pandas as pd

from mooncake_companion import reported
from mooncake_companion.costs import break_even_bandwidth
from mooncake_companion.hardware import load_node, load_nodes
from mooncake_companion.llm import load_model, load_models
from mooncake_companion.parameters import check, parameter

BINARY = 1024
"""The papers count memory in powers of this: 320 KB are 327,680 bytes of KV cache a token."""

_LENGTHS = tuple(1024 * 2**power for power in range(8))


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """The section's setting: all of it is stated, in Table 1 and in the text behind Equation 2.

    The H800's peak is not: it is taken from its data sheet.
    """

    model: str = parameter("llama3-70b", choices=tuple(load_models()), help="what is served")
    cached_tokens: int = parameter(
        8192, unit="tokens", low=1, high=10**7, help="prefix at which the break-even bandwidth is stated"
    )
    dram_bytes: float = parameter(1e12, unit="bytes", low=1, high=1e15, help="a node's DRAM for KV cache")
    pooled_tokens: int = parameter(
        50_000_000,
        unit="tokens",
        low=1,
        high=10**12,
        help="capacity that DRAM is pooled for",
    )

    def __post_init__(self) -> None:
        check(self)


def run(params: Params) -> pd.DataFrame:
    """What a prefix costs to compute and to hold, and from which bandwidth on loading it is faster.

    Returns
    -------
    DataFrame
        A row for each node preset and prefix length. Columns: ``origin``, ``node``,
        ``cached_tokens``, ``saved_flops`` (Equation 1), ``kv_bytes``, ``break_even_bytes_per_s``
        (Equation 2), ``link_bytes_per_s`` (the slower of the node's network and host link). The
        paper's printed break-even bandwidths have ``origin`` "reported".
    """
    model = load_model(params.model)
    rows = [
        {
            "origin": "modelled",
            "node": name,
            "cached_tokens": tokens,
            "saved_flops": model.prefill_flops(tokens),
            "kv_bytes": tokens * model.kv_bytes_per_token,
            "break_even_bytes_per_s": break_even_bandwidth(node, model, tokens),
            "link_bytes_per_s": min(node.nic_bytes_per_s, node.host_to_device_bytes_per_s),
        }
        for name, node in load_nodes().items()
        for tokens in sorted({*_LENGTHS, params.cached_tokens})
    ]
    rows += [
        {
            "origin": "reported",
            "node": name,
            "cached_tokens": 8192,
            "break_even_bytes_per_s": 1e9 * reported.claim(f"fast25.eq2.b_min_{name}"),
        }
        for name in ("a800", "h800")
    ]
    table = pd.DataFrame(rows)
    table.attrs["provenance"] = {"parameters": dataclasses.asdict(params)}
    return table


def claims(params: Params = Params()) -> dict[str, float]:
    """Modelled values of the section's claims, in their rows' units."""
    model = load_model(params.model)
    token_bytes = model.kv_bytes_per_token
    break_even = {
        f"fast25.eq2.b_min_{name}": break_even_bandwidth(load_node(name), model, params.cached_tokens) / 1e9
        for name in ("a800", "h800")
    }
    return {
        **break_even,
        "fast25.store.kv_per_token": token_bytes / BINARY,
        "fast25.store.local_tokens": params.dram_bytes / token_bytes,
        "fast25.store.sat_nodes": math.ceil(params.pooled_tokens * token_bytes / params.dram_bytes),
        "fast25.fig12.kv_128k": 128 * BINARY * token_bytes / BINARY**3,
    }
