"""arXiv 2407.00079, Figure 7: latency that storing the KV cache adds to a prefill."""

import dataclasses
from dataclasses import dataclass

import pandas as pd

from mooncake_companion import reported
from mooncake_companion.costs import load_calibration, prefill_time
from mooncake_companion.hardware import load_node
from mooncake_companion.llm import load_model
from mooncake_companion.parameters import check
from mooncake_companion.settings import model_parameter, node_parameter

METHODS = {"serialized": False, "layer-wise": True}
"""Whether the store overlaps with the computation of the layers that follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """The figure's setting: the five lengths and two methods are stated.

    Assumed: nothing is cached; the store goes over a node's host link at its line rate; the model has
    the shape of the report's.
    """

    node: str = node_parameter()
    model: str = model_parameter()

    def __post_init__(self) -> None:
        check(self)


def run(params: Params) -> pd.DataFrame:
    """Seconds that storing adds, modelled and reported.

    Returns
    -------
    DataFrame
        Columns: ``origin``, ``input_tokens``, ``method``, ``added_s``.

    Notes
    -----
    Layer by layer, storing goes on while later layers compute and is added only as far as it outlasts
    them (FAST'25, section 3.3). The last layer has none behind it, so that its share of the store
    always remains.
    """
    drawn = reported.figure("arxiv_fig07")
    read = pd.DataFrame(
        {
            "origin": "reported",
            "input_tokens": drawn["sequence_length_tokens"],
            "method": drawn["method"],
            "added_s": drawn["extra_latency_s"],
        }
    )
    modelled = read.assign(origin="modelled")
    modelled["added_s"] = [
        _added_s(params, tokens, METHODS[method])
        for tokens, method in zip(modelled["input_tokens"], modelled["method"], strict=True)
    ]
    table = pd.concat([modelled, read], ignore_index=True)
    table.attrs["provenance"] = {"parameters": dataclasses.asdict(params)}
    return table


def implied_rates(params: Params) -> pd.DataFrame:
    """What the reported bars imply: bytes/s of the store, with and without a constant taken off.

    Returns
    -------
    DataFrame
        A row for each length. Columns: ``input_tokens``, ``reported_s`` (serialized),
        ``layerwise_s`` (as reported), ``bytes_per_s`` (KV cache over ``reported_s``) and
        ``bytes_per_s_without`` (over ``reported_s`` less the smallest layer-wise bar).
    """
    drawn = reported.figure("arxiv_fig07")
    bars = drawn.pivot(index="sequence_length_tokens", columns="method", values="extra_latency_s")
    kv_bytes = bars.index.to_numpy(float) * load_model(params.model).kv_bytes_per_token
    return pd.DataFrame(
        {
            "input_tokens": bars.index,
            "reported_s": bars["serialized"],
            "layerwise_s": bars["layer-wise"],
            "bytes_per_s": kv_bytes / bars["serialized"],
            "bytes_per_s_without": kv_bytes / (bars["serialized"] - bars["layer-wise"].min()),
        }
    ).reset_index(drop=True)


def _added_s(params: Params, input_tokens: int, layerwise: bool) -> float:
    node, model = load_node(params.node), load_model(params.model)
    compute_s = float(prefill_time(node, model, input_tokens, calibration=load_calibration()))
    store_s = input_tokens * model.kv_bytes_per_token / node.host_to_device_bytes_per_s
    if not layerwise:
        return store_s
    last_layer_s = store_s / model.layers
    return max(0.0, store_s - last_layer_s - compute_s) + last_layer_s


def claims(params: Params = Params()) -> dict[str, float]:
    """Modelled values of the figure's claims, in seconds."""
    table = run(params).query("origin == 'modelled'")
    return {
        f"arxiv.fig07.{row['method'].replace('-', '_')}.{row['input_tokens']}": row["added_s"]
        for row in table.to_dict("records")
    }
