"""The ways to a prompt's start, of FAST'25, section 2.2 and Algorithm 1: closed form, so exact in a page."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from mooncake_companion.costs import (
    break_even_bandwidth,
    load_calibration,
    prefill_cost,
    prefill_seconds,
    transfer_time,
    with_tier_seconds,
)
from mooncake_companion.hardware import GpuNode, load_node
from mooncake_companion.live.outcome import Outcome, Progress, Row
from mooncake_companion.llm import TransformerModel, load_model
from mooncake_companion.parameters import check, parameter
from mooncake_companion.settings import model_parameter, node_parameter

NODES = ("a800", "h800")
"""The nodes of which the paper speaks."""

LENGTHS = tuple(1024 * 2**power for power in range(8))
MAP_LENGTHS = tuple(round(1024 * 2 ** (step / 3)) for step in range(22))
MAP_BANDWIDTHS = tuple(10 ** (8 + step / 7) for step in range(27))


@dataclass(frozen=True, slots=True, kw_only=True)
class MapParams:
    """What the map of actions looks at. Assumed: the new tokens behind the cached prefix."""

    model: str = model_parameter("what is served")
    new_tokens: int = parameter(
        1024, unit="tokens", low=1, high=10**6, help="of a prompt, behind its cached prefix, in the map"
    )

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixParams(MapParams):
    """A prefix beside those of `LENGTHS`; the paper states the break-even bandwidth of this one."""

    cached_tokens: int = parameter(
        8192, unit="tokens", low=1, high=10**7, help="prefix at which the break-even bandwidth is stated"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeParams(PrefixParams):
    """One node of a reader's choice, in place of the paper's two."""

    node: str = node_parameter("what computes or loads the prefix")
    gpus: int = parameter(8, unit="GPUs", low=1, high=72, help="of the node, with the links of all of it")


def prefix_rows(name: str, node: GpuNode, model: TransformerModel, lengths: Iterable[int]) -> list[Row]:
    """What prefixes cost to compute and to hold; columns as of `experiments.storage_for_compute.run`."""
    cost = prefill_cost(node, model, load_calibration())
    rows = []
    for tokens in lengths:
        saved_s = float(prefill_seconds(0.0, cost.token_s, cost.pair_s, tokens, 0))
        rows.append(
            {
                "origin": "modelled",
                "node": name,
                "cached_tokens": tokens,
                "saved_flops": model.prefill_flops(tokens),
                "saved_s": saved_s,
                "kv_bytes": tokens * model.kv_bytes_per_token,
                "break_even_bytes_per_s": break_even_bandwidth(node, model, tokens),
                "fitted_break_even_bytes_per_s": tokens * model.kv_bytes_per_token / saved_s,
                "link_bytes_per_s": min(node.nic_bytes_per_s, node.host_to_device_bytes_per_s),
                "network_bytes_per_s": node.nic_bytes_per_s,
                "dram_bytes_per_s": node.host_to_device_bytes_per_s,
                "ssd_bytes_per_s": node.ssd_read_bytes_per_s,
            }
        )
    return rows


def break_even(params: NodeParams, _sliced: None, progress: Progress) -> Outcome:
    """From which bandwidth on loading pays; columns as of `experiments.storage_for_compute.run`."""
    progress(0, 1)
    node = replace(load_node(params.node), gpus=params.gpus)
    model = load_model(params.model)
    rows = prefix_rows(params.node, node, model, sorted({*LENGTHS, params.cached_tokens}))
    (at,) = (row for row in rows if row["cached_tokens"] == params.cached_tokens)
    strict, fitted = (at[f"{name}break_even_bytes_per_s"] / 1e9 for name in ("", "fitted_"))
    return Outcome(
        rows=rows,
        description=(
            "Line: bandwidth above which loading a cached prefix is faster than computing it (Equation 2), "
            f"by its length, beside the line rates of the node's links, computed in this browser for "
            f"{params.gpus} GPUs of {params.node} and {params.model}. At {params.cached_tokens:,} tokens: "
            f"{strict:.1f} GB/s with the GPUs at their peak, {fitted:.1f} GB/s at the speed that they reach."
        ),
        fixed={"line_node": params.node},
    )


def action_rows(model: TransformerModel, new_tokens: int) -> list[Row]:
    """Seconds to the first token along each way, a row for each node, prefix length and bandwidth.

    Columns as of `experiments.storage_for_compute.actions`, without the edges of the cells.
    """
    return [
        row
        for name in NODES
        for cached in MAP_LENGTHS
        for row in _of_length(name, load_node(name), model, cached, new_tokens)
    ]


def _of_length(name: str, node: GpuNode, model: TransformerModel, cached: int, new_tokens: int) -> list[Row]:
    calibration = load_calibration()
    tokens = cached + new_tokens
    kv_bytes, stored_bytes = (model.kv_bytes_per_token * each for each in (cached, new_tokens))
    link = node.host_to_device_bytes_per_s
    whole_s = prefill_seconds(*prefill_cost(node, model, calibration), tokens, 0)
    rest_s = prefill_seconds(*prefill_cost(node, model, calibration), tokens, cached)
    moves_s = kv_bytes / link, stored_bytes / link
    holder_s = with_tier_seconds(rest_s, 0.0, *moves_s, True)
    recompute_s = with_tier_seconds(whole_s, 0.0, 0.0, tokens * model.kv_bytes_per_token / link, True)
    return [
        {
            "node": name,
            "cached_tokens": cached,
            "bytes_per_s": rate,
            "break_even_bytes_per_s": break_even_bandwidth(node, model, cached),
            "recompute_s": recompute_s,
            "fetch_s": holder_s + transfer_time(rate, kv_bytes, calibration=calibration),
            "ssd_s": with_tier_seconds(rest_s, kv_bytes / rate, *moves_s, True),
            "holder_s": holder_s,
        }
        for rate in MAP_BANDWIDTHS
    ]


def edges(values: Sequence[float]) -> dict[float, tuple[float, float]]:
    """Edges of each cell of a logarithmic grid, half-way to the neighbours."""
    between = [math.sqrt(one * other) for one, other in zip(values[1:], values, strict=False)]
    lows = [values[0] ** 2 / between[0], *between]
    highs = [*between, values[-1] ** 2 / between[-1]]
    return dict(zip(values, zip(lows, highs, strict=True), strict=True))


def actions(params: MapParams, _sliced: None, progress: Progress) -> Outcome:
    """The map of actions; columns as of `experiments.storage_for_compute.actions`."""
    progress(0, 1)
    rows = action_rows(load_model(params.model), params.new_tokens)
    for column, grid in (("cached_tokens", MAP_LENGTHS), ("bytes_per_s", MAP_BANDWIDTHS)):
        cells = edges(grid)
        for row in rows:
            row[f"{column}_low"], row[f"{column}_high"] = cells[row[column]]
    shown = [row for row in rows if row["node"] == NODES[0]]
    fetched = sum(row["fetch_s"] < row["recompute_s"] for row in shown) / len(shown)
    return Outcome(
        rows=rows,
        description=(
            "Map of what has the first token soonest, by the length of the cached prefix and the bandwidth "
            f"of the way that it comes by, computed in this browser for {params.model} and "
            f"{params.new_tokens:,} new tokens. Fetching beats computing in {fetched:.0%} of the cells."
        ),
    )
