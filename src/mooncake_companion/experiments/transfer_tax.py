"""FAST'25, sections 2.1 and 5.4: what moving a KV cache takes, beside the prefill that it spares."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import pandas as pd

from mooncake_companion import reported
from mooncake_companion.costs import load_calibration, prefill_time, transfer_time
from mooncake_companion.experiments.calibration import THOUSAND_TOKENS
from mooncake_companion.hardware import load_node, load_nodes
from mooncake_companion.llm import load_model, load_models
from mooncake_companion.parameters import check, parameter

PREFILL, MOVE = "prefill", "move"
_BANDWIDTHS_GBIT_PER_S = (25, 50, 100, 200, 400, 800)
_LENGTHS = tuple(THOUSAND_TOKENS * 2**power for power in range(8))
_FIGURE_GBIT_PER_S = 800


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """The setting of FAST'25, Figure 14: nodes and model are stated, as is their network (section 5.1).

    Assumed: one request on idle nodes; all of its KV cache is sent, then all of it is loaded into
    GPU memory, with nothing hidden behind the prefill. That is the most that moving it can take.
    """

    node: str = parameter("a800", choices=tuple(load_nodes()), help="what both nodes are")
    model: str = parameter("llama3-70b", choices=tuple(load_models()), help="what they serve")

    def __post_init__(self) -> None:
        check(self)


def run(params: Params) -> pd.DataFrame:
    """Seconds of a prefill and of moving what it computed, by prompt length and network.

    Returns
    -------
    DataFrame
        Columns: ``origin`` ("modelled", "reported"), ``quantity`` (`PREFILL`, or `MOVE`: transfer and
        load), ``bandwidth_gbit_per_s``, ``input_tokens``, ``seconds``, ``transfer_s`` and ``load_s``
        (parts of `MOVE`), ``share`` (of the prefill's seconds). Reported are the bars of Figure 14.
    """
    node, model, calibration = load_node(params.node), load_model(params.model), load_calibration()
    rows = []
    for bandwidth in _BANDWIDTHS_GBIT_PER_S:
        for tokens in _LENGTHS:
            size_bytes = tokens * model.kv_bytes_per_token
            transfer_s = transfer_time(bandwidth * 1e9 / 8, size_bytes, calibration=calibration)
            load_s = size_bytes / node.host_to_device_bytes_per_s
            prefill_s = prefill_time(node, model, tokens, calibration=calibration)
            rows += _rows("modelled", bandwidth, tokens, prefill_s, transfer_s, load_s)
    drawn = reported.figure("fast25_fig14").query("prefix_cache_ratio_pct == 0")
    bars = drawn.pivot(index="prompt_length", columns="component", values="seconds")
    for length, bar in bars.iterrows():
        tokens = int(str(length).removesuffix("k")) * THOUSAND_TOKENS
        read = bar["prefill"], bar["transfer"], bar["load_cache"]
        rows += _rows("reported", _FIGURE_GBIT_PER_S, tokens, *map(float, read))
    table = pd.DataFrame(rows).sort_values(["origin", "quantity", "bandwidth_gbit_per_s", "input_tokens"])
    table = table.reset_index(drop=True)
    table.attrs["provenance"] = {"parameters": dataclasses.asdict(params)}
    return table


def _rows(
    origin: str, bandwidth: int, tokens: int, prefill_s: float, transfer_s: float, load_s: float
) -> list[dict[str, Any]]:
    place: dict[str, Any] = {"origin": origin, "bandwidth_gbit_per_s": bandwidth, "input_tokens": tokens}
    move_s = transfer_s + load_s
    move = {"seconds": move_s, "transfer_s": transfer_s, "load_s": load_s, "share": move_s / prefill_s}
    return [place | {"quantity": PREFILL, "seconds": prefill_s}, place | {"quantity": MOVE} | move]
