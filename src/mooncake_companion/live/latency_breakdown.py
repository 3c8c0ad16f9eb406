"""FAST'25, Figure 14: where the time of one request goes; closed form, so exact in a page."""

from dataclasses import dataclass

from mooncake_companion.costs import (
    decode_cost,
    decode_seconds,
    load_calibration,
    prefill_time,
    transfer_time,
)
from mooncake_companion.hardware import GpuNode, load_node
from mooncake_companion.live.network import on_network, own_or_other_network
from mooncake_companion.live.outcome import Outcome, Progress, Row
from mooncake_companion.live.refusals import require_fit
from mooncake_companion.llm import load_model
from mooncake_companion.parameters import check, parameter
from mooncake_companion.settings import model_parameter, node_parameter

COMPONENTS = ("prefill", "transfer", "load_cache", "decode")
"""What is modelled, in the order of the figure; it also has the time in Conductor and its queue."""

LENGTHS = tuple(1024 * 2**power for power in range(3, 8))
CACHED_PCT = (0, 95)


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """The figure's setting: lengths, cached shares and the 128 decoded tokens are stated.

    Assumed: a single request on idle nodes, as the batch is not stated; k is 1,024. Prefill and decode
    constants were fitted on this very figure; transfer and load were not.
    """

    node: str = node_parameter()
    model: str = model_parameter()
    decoded_tokens: int = parameter(128, unit="tokens", low=1, high=10**6, help="answer of each request")

    def __post_init__(self) -> None:
        check(self)

    @property
    def gpu_node(self) -> GpuNode:
        """What every node is."""
        return load_node(self.node)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareParams(Params):
    """The same, with one cached share and a network of a reader's choice."""

    cached_pct: int = parameter(0, unit="%", low=0, high=99, help="share of the prompt that is cached")
    network_gbit_per_s: float = own_or_other_network()

    @property
    def gpu_node(self) -> GpuNode:
        """What every node is, with the network that was asked for."""
        return on_network(load_node(self.node), self.network_gbit_per_s)


def component_times(params: Params, input_tokens: int, cached_pct: int) -> dict[str, float]:
    """Seconds of each of `COMPONENTS` for one request on idle nodes.

    The whole prompt's KV cache moves to the decode node's DRAM, then from there to its GPUs.
    """
    node, model, calibration = params.gpu_node, load_model(params.model), load_calibration()
    kv_bytes = input_tokens * model.kv_bytes_per_token
    cached_tokens = input_tokens * cached_pct // 100
    step = decode_cost(node, model, calibration)
    contexts = range(input_tokens, input_tokens + params.decoded_tokens)
    return {
        "prefill": prefill_time(node, model, input_tokens, cached_tokens, calibration=calibration),
        "transfer": transfer_time(node.nic_bytes_per_s, kv_bytes, calibration=calibration),
        "load_cache": kv_bytes / node.host_to_device_bytes_per_s,
        "decode": sum(decode_seconds(*step, 1, context) for context in contexts),
    }


def component_rows(params: Params, input_tokens: int, cached_pct: int) -> list[Row]:
    """Modelled rows of one bar; columns as of `experiments.latency_breakdown`."""
    return [
        {
            "origin": "modelled",
            "input_tokens": input_tokens,
            "cached_pct": cached_pct,
            "component": component,
            "seconds": seconds,
        }
        for component, seconds in component_times(params, input_tokens, cached_pct).items()
    ]


def run(params: ShareParams, _sliced: None, progress: Progress) -> Outcome:
    """A bar for each length, with one cached share; columns as of `experiments.latency_breakdown`."""
    require_fit(load_node(params.node), load_model(params.model))
    rows: list[Row] = []
    for done, length in enumerate(LENGTHS):
        progress(done, len(LENGTHS))
        rows += component_rows(params, length, params.cached_pct)
    longest = {row["component"]: row["seconds"] for row in rows[-len(COMPONENTS) :]}
    moved_s = longest["transfer"] + longest["load_cache"]
    return Outcome(
        rows=rows,
        description=(
            "Stacked bars of where the time of one request goes, by prompt length, computed in this browser "
            f"for {params.model} on {params.node} with {params.cached_pct} % cached. At {LENGTHS[-1]:,} "
            f"tokens decode begins after {longest['prefill'] + moved_s:,.2f} s, of which {moved_s:,.2f} s "
            f"are for moving the KV cache, and takes {longest['decode']:,.2f} s."
        ),
        fixed={"breakdown_cached": params.cached_pct},
        without_reported=""
        if params.cached_pct in CACHED_PCT
        else "Nothing is reported of this cached share.",
    )
