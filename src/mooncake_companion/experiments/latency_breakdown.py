"""FAST'25, Figure 14: where the time of one request goes, by prompt length and cached share."""

import dataclasses

import pandas as pd

from mooncake_companion import reported
from mooncake_companion.experiments.calibration import THOUSAND_TOKENS
from mooncake_companion.hardware import load_node
from mooncake_companion.live.latency_breakdown import (
    CACHED_PCT,
    COMPONENTS,
    LENGTHS,
    Params,
    component_rows,
    component_times,
)
from mooncake_companion.llm import load_model

__all__ = ["COMPONENTS", "Params", "claims", "component_times", "run"]


def run(params: Params) -> pd.DataFrame:
    """Seconds by component, modelled and reported.

    Returns
    -------
    DataFrame
        Columns: ``origin``, ``input_tokens``, ``cached_pct``, ``component`` (those of `COMPONENTS`
        and, reported only, "schedule"), ``seconds``.
    """
    modelled = [
        row
        for cached_pct in CACHED_PCT
        for length in LENGTHS
        for row in component_rows(params, length, cached_pct)
    ]
    drawn = reported.figure("fast25_fig14")
    drawn = drawn[drawn["component"] != "total"]
    read = pd.DataFrame(
        {
            "origin": "reported",
            "input_tokens": drawn["prompt_length"].str.removesuffix("k").astype(int) * THOUSAND_TOKENS,
            "cached_pct": drawn["prefix_cache_ratio_pct"],
            "component": drawn["component"],
            "seconds": drawn["seconds"],
        }
    )
    table = pd.concat([pd.DataFrame(modelled), read], ignore_index=True)
    table.attrs["provenance"] = {"parameters": dataclasses.asdict(params)}
    return table


def claims(params: Params = Params()) -> dict[str, float]:  # noqa: B008 - it is frozen
    """Modelled values of the figure's claims, in their rows' units.

    "Total" is the sum of what is modelled: the time in Conductor, 0.03 to 0.09 s as reported, is not.
    """
    values: dict[str, float] = {}
    before_decode_s = {}
    for input_tokens in LENGTHS:
        length_k = input_tokens // THOUSAND_TOKENS
        for cached_pct in CACHED_PCT:
            times_s = component_times(params, input_tokens, cached_pct)
            stack = times_s | {"total": sum(times_s.values())}
            for component, seconds in stack.items():
                values[f"fast25.fig14.{component}.{length_k}k.prefix{cached_pct}"] = seconds
            before_decode_s[length_k, cached_pct] = stack["total"] - stack["decode"]
        values |= _derived(params, input_tokens, f"{length_k}k", values)
    kept = values["fast25.fig14.prefill.128k.prefix95"] / values["fast25.fig14.prefill.128k.prefix0"]
    values["fast25.fig14.prefill_reduction"] = 100 * (1 - kept)
    values["fast25.fig14.prefill_reduction_stack"] = 100 * (1 - kept)
    values["fast25.fig14.ttft_reduction"] = 100 * (1 - before_decode_s[128, 95] / before_decode_s[128, 0])
    return values


def _derived(params: Params, input_tokens: int, length: str, stack: dict[str, float]) -> dict[str, float]:
    """What the readings derive from the stack without a cached prefix."""
    node, model = load_node(params.node), load_model(params.model)
    prefill_s, transfer_s, load_s, decode_s = (
        stack[f"fast25.fig14.{component}.{length}.prefix0"] for component in COMPONENTS
    )
    causal_flops = model.linear_flops(input_tokens) + 0.5 * model.attention_flops(input_tokens)
    kv_gb = input_tokens * model.kv_bytes_per_token / 1e9
    return {
        f"fast25.fig14.decode_step.{length}": 1000 * decode_s / params.decoded_tokens,
        f"fast25.fig14.transfer_bw.{length}": kv_gb / transfer_s,
        f"fast25.fig14.load_bw.{length}": kv_gb / load_s,
        f"fast25.fig14.mfu_eq1.{length}": model.prefill_flops(input_tokens) / prefill_s / node.flops_per_s,
        f"fast25.fig14.mfu_causal.{length}": causal_flops / prefill_s / node.flops_per_s,
    }
