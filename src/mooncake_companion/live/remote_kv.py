"""Mooncake issue 17: reading KV cache where it lies, or moving it first; closed form, so exact in a page."""

import itertools
from dataclasses import dataclass

from mooncake_companion.costs import decode_step_time, load_calibration
from mooncake_companion.hardware import GpuNode, load_node
from mooncake_companion.live.network import on_network, own_or_other_network
from mooncake_companion.live.outcome import Outcome, Progress, Row
from mooncake_companion.live.refusals import require_fit
from mooncake_companion.llm import load_model
from mooncake_companion.parameters import check, parameter
from mooncake_companion.settings import model_parameter, node_parameter

MOVED, HOST, REMOTE = "moved once into VRAM", "read from own DRAM", "read from another node"
BATCHES = (1, 2, 4, 8, 16)
OUTPUT_TOKENS = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """One decode node and requests of one length.

    Assumed in favour of reading from afar: it is hidden behind the rest of the step as far as it can be,
    new tokens stay in VRAM, and the links carry nothing else.
    """

    input_tokens: int = parameter(
        16_384, unit="tokens", low=512, high=131_072, help="prompt of every request in the batch"
    )
    node: str = node_parameter("what the node is")
    model: str = model_parameter()

    def __post_init__(self) -> None:
        check(self)

    @property
    def gpu_node(self) -> GpuNode:
        """What the node is."""
        return load_node(self.node)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkParams(Params):
    """The same, on a network of a reader's choice."""

    network_gbit_per_s: float = own_or_other_network()

    @property
    def gpu_node(self) -> GpuNode:
        """What the node is, with the network that was asked for."""
        return on_network(load_node(self.node), self.network_gbit_per_s)


def bandwidths(params: Params) -> dict[str, float]:
    """Bytes/s at which a node reads KV cache: from VRAM, from its own DRAM, from another node."""
    node, fitted = params.gpu_node, load_calibration()
    return {
        MOVED: fitted.hbm_utilisation * node.gpus * node.hbm_bytes_per_s,
        HOST: node.host_to_device_bytes_per_s,
        REMOTE: fitted.network_utilisation * node.nic_bytes_per_s,
    }


def read_rows(params: Params) -> list[Row]:
    """A row for each batch, answer and way to read; columns as of `experiments.remote_kv`."""
    node, model, calibration = params.gpu_node, load_model(params.model), load_calibration()
    rates = bandwidths(params)
    rows = []
    for batch, output_tokens in itertools.product(BATCHES, OUTPUT_TOKENS):
        size_bytes = batch * params.input_tokens * model.kv_bytes_per_token
        link_s = {way: size_bytes / rates[way] for way in (HOST, REMOTE)}
        context = batch * params.input_tokens + batch * (output_tokens - 1) // 2  # the answer's mean
        step_s = decode_step_time(node, model, batch, context, calibration=calibration)
        for way in (MOVED, HOST, REMOTE):
            first_wait_s = link_s[REMOTE] + link_s[HOST] if way == MOVED else 0.0
            each_s = step_s if way == MOVED else max(step_s, link_s[way])
            rows.append(
                {
                    "way": way,
                    "batch": batch,
                    "output_tokens": output_tokens,
                    "mean_token_s": each_s + first_wait_s / output_tokens,
                    "first_wait_s": first_wait_s,
                    "step_s": each_s,
                    "read_bytes": size_bytes * (1 if way == MOVED else output_tokens),
                }
            )
    return rows


def run(params: NetworkParams, _sliced: None, progress: Progress) -> Outcome:
    """Seconds per token by where the KV cache is read; columns as of `experiments.remote_kv`."""
    require_fit(load_node(params.node), load_model(params.model))
    progress(0, 1)
    rows = read_rows(params)
    longest = [row for row in rows if row["output_tokens"] == OUTPUT_TOKENS[-1]]
    parts = [
        f"{batch} together: "
        + ", ".join(
            f"{row['way']} {1000 * row['mean_token_s']:,.0f} ms" for row in longest if row["batch"] == batch
        )
        for batch in BATCHES
    ]
    return Outcome(
        rows=rows,
        description=(
            "Time per token by the length of the answer and by where the KV cache of prompts of "
            f"{params.input_tokens:,} tokens is read, computed in this browser for {params.model} on "
            f"{params.node}. At {OUTPUT_TOKENS[-1]:,} tokens, {'; '.join(parts)}."
        ),
    )
