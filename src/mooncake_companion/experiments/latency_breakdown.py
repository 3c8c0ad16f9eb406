"""FAST'25, Figure 14: where the time of one request goes, by prompt length and cached share."""

import dataclasses
from dataclasses import dataclass

import pandas as pd

from mooncake_companion import reported
from mooncake_companion.costs import decode_step_time, load_calibration, prefill_time, transfer_time
from mooncake_companion.experiments.calibration import THOUSAND_TOKENS
from mooncake_companion.hardware import load_node, load_nodes
from mooncake_companion.llm import load_model, load_models
from mooncake_companion.parameters import check, parameter

COMPONENTS = ("prefill", "transfer", "load_cache", "decode")
"""What is modelled, in the order of the figure; it also has the time in Conductor and its queue."""

_LENGTHS_K = (8, 16, 32, 64, 128)
_CACHED_PCT = (0, 95)


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """The figure's setting: lengths, cached shares and the 128 decoded tokens are stated.

    Assumed: a single request on idle nodes, as the batch is not stated; k is 1,024. Prefill and decode
    constants were fitted on this very figure; transfer and load were not.
    """

    node: str = parameter("a800", choices=tuple(load_nodes()), help="what every node is")
    model: str = parameter("llama3-70b", choices=tuple(load_models()), help="what it serves")
    decoded_tokens: int = parameter(128, unit="tokens", low=1, high=10**6, help="answer of each request")

    def __post_init__(self) -> None:
        check(self)


def run(params: Params) -> pd.DataFrame:
    """Seconds by component, modelled and reported.

    Returns
    -------
    DataFrame
        Columns: ``origin``, ``input_tokens``, ``cached_pct``, ``component`` (those of `COMPONENTS`
        and, reported only, "schedule"), ``seconds``.
    """
    modelled = [
        {
            "origin": "modelled",
            "input_tokens": length_k * THOUSAND_TOKENS,
            "cached_pct": cached_pct,
            "component": component,
            "seconds": seconds,
        }
        for cached_pct in _CACHED_PCT
        for length_k in _LENGTHS_K
        for component, seconds in component_times(params, length_k * THOUSAND_TOKENS, cached_pct).items()
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


def component_times(params: Params, input_tokens: int, cached_pct: int) -> dict[str, float]:
    """Seconds of each of `COMPONENTS` for one request on idle nodes.

    The whole prompt's KV cache moves to the decode node's DRAM, then from there to its GPUs.
    """
    node, model, calibration = load_node(params.node), load_model(params.model), load_calibration()
    kv_bytes = input_tokens * model.kv_bytes_per_token
    cached_tokens = input_tokens * cached_pct // 100
    steps_s = [
        decode_step_time(node, model, 1, input_tokens + token, calibration=calibration)
        for token in range(params.decoded_tokens)
    ]
    return {
        "prefill": prefill_time(node, model, input_tokens, cached_tokens, calibration=calibration),
        "transfer": transfer_time(node.nic_bytes_per_s, kv_bytes, calibration=calibration),
        "load_cache": kv_bytes / node.host_to_device_bytes_per_s,
        "decode": sum(steps_s),
    }


def claims(params: Params = Params()) -> dict[str, float]:
    """Modelled values of the figure's claims, in their rows' units.

    "Total" is the sum of what is modelled: the time in Conductor, 0.03 to 0.09 s as reported, is not.
    """
    values: dict[str, float] = {}
    before_decode_s = {}
    for length_k in _LENGTHS_K:
        input_tokens = length_k * THOUSAND_TOKENS
        for cached_pct in _CACHED_PCT:
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
