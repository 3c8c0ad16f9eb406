"""FAST'25, sections 2.1 and 5.4: what moving a KV cache takes; closed form, so exact in a page."""

from collections.abc import Iterable
from dataclasses import dataclass

from mooncake_companion.costs import load_calibration, prefill_time, transfer_time
from mooncake_companion.hardware import GpuNode, load_node
from mooncake_companion.live.network import GBIT_BYTES
from mooncake_companion.live.outcome import Outcome, Progress, Row
from mooncake_companion.llm import TransformerModel, load_model
from mooncake_companion.parameters import check, parameter
from mooncake_companion.settings import model_parameter, node_parameter

PREFILL, MOVE = "prefill", "move"
LENGTHS = tuple(1024 * 2**power for power in range(8))


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """The setting of FAST'25, Figure 14: nodes and model are stated, as is their network (section 5.1).

    Assumed: one request on idle nodes; all of its KV cache is sent, then all of it is loaded into
    GPU memory, with nothing hidden behind the prefill. That is the most that moving it can take.
    """

    node: str = node_parameter("what both nodes are")
    model: str = model_parameter("what they serve")

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkParams(Params):
    """The same, and one network of a reader's choice in place of several."""

    bandwidth_gbit_per_s: float = parameter(
        800.0, unit="Gbit/s", low=0.1, high=1e5, help="line rate of a node's network"
    )


def tax_rows(node: GpuNode, model: TransformerModel, bandwidths_gbit_per_s: Iterable[float]) -> list[Row]:
    """Modelled rows, of prefills first; columns as of `experiments.transfer_tax`."""
    calibration = load_calibration()
    rows = []
    for bandwidth in bandwidths_gbit_per_s:
        for tokens in LENGTHS:
            size_bytes = tokens * model.kv_bytes_per_token
            transfer_s = transfer_time(bandwidth * GBIT_BYTES, size_bytes, calibration=calibration)
            load_s = size_bytes / node.host_to_device_bytes_per_s
            prefill_s = prefill_time(node, model, tokens, calibration=calibration)
            rows += rows_of("modelled", bandwidth, tokens, prefill_s, transfer_s, load_s)
    return rows


def rows_of(
    origin: str, bandwidth: float, tokens: int, prefill_s: float, transfer_s: float, load_s: float
) -> list[Row]:
    """A row for the prefill of a prompt, and one for moving what it computed."""
    place: Row = {"origin": origin, "bandwidth_gbit_per_s": bandwidth, "input_tokens": tokens}
    move_s = transfer_s + load_s
    move = {"seconds": move_s, "transfer_s": transfer_s, "load_s": load_s, "share": move_s / prefill_s}
    nothing = dict.fromkeys(("transfer_s", "load_s", "share"), float("nan"))
    return [
        place | {"quantity": PREFILL, "seconds": prefill_s} | nothing,
        place | {"quantity": MOVE} | move,
    ]


def ends_s(rows: Iterable[Row]) -> dict[str, float]:
    """Ends of the chart's axis of seconds, by its parameters."""
    seconds = [row["seconds"] for row in rows]
    return {"tax_least_s": 0.8 * min(seconds), "tax_most_s": 1.2 * max(seconds)}


def run(params: NetworkParams, _sliced: None, progress: Progress) -> Outcome:
    """Prefill and move over one network; columns as of `experiments.transfer_tax`."""
    progress(0, 1)
    bandwidth = params.bandwidth_gbit_per_s
    rows = tax_rows(load_node(params.node), load_model(params.model), [bandwidth])
    longest = rows[-1]
    published = NetworkParams()
    drawn = tax_rows(load_node(published.node), load_model(published.model), [published.bandwidth_gbit_per_s])
    return Outcome(
        rows=rows,
        description=(
            "Lines: seconds of a prefill and of moving the KV cache that it computed, by prompt length, "
            f"computed in this browser for {params.model} on {params.node} and {bandwidth:g} Gbit/s; grey "
            f"diamonds: reported. At {longest['input_tokens']:,} tokens moving takes "
            f"{longest['share']:.1%} of the prefill's time."
        ),
        fixed={"tax_bandwidth": bandwidth} | ends_s([*rows, *drawn]),  # what is reported is near the latter
    )
