"""arXiv 2407.00079, Figure 2: prefill slows down with length, decode gains from its batch."""

import dataclasses
from dataclasses import dataclass

import pandas as pd

from mooncake_companion import reported
from mooncake_companion.costs import decode_step_time, load_calibration, prefill_time
from mooncake_companion.experiments.calibration import THOUSAND_TOKENS
from mooncake_companion.hardware import load_node, load_nodes
from mooncake_companion.llm import load_model, load_models
from mooncake_companion.parameters import check, parameter

PREFILL, DECODING = "prefill", "decoding"


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """The figure's setting: the lengths and batches are stated.

    Assumed: the model, LLaMA3-70B, whose layers have the shape of the report's LLaMA2-70B; in what is
    normalized to its largest value the difference, in the vocabulary, is lost. k is 1,024. Decode does
    not wait for the host: what was fitted on FAST'25, Figure 15, cannot be seen in this figure, which
    is why all experiments of this report are run without it.
    """

    node: str = parameter("a800", choices=tuple(load_nodes()), help="what every node is")
    model: str = parameter("llama3-70b", choices=tuple(load_models()), help="what it serves")
    decode_context_tokens: int = parameter(
        8 * THOUSAND_TOKENS,
        unit="tokens",
        low=1,
        high=10**7,
        help="context of each decoding sequence",
    )
    waits_for_host: bool = parameter(
        False, help="whether a decode step waits for the host, as fitted on FAST'25, Figure 15"
    )

    def __post_init__(self) -> None:
        check(self)


def run(params: Params) -> pd.DataFrame:
    """Latency and throughput of both phases, each over its largest value, modelled and reported.

    Returns
    -------
    DataFrame
        Columns: ``origin``, ``stage``, ``sequence_tokens``, ``batch``, ``latency_s`` (modelled only),
        ``normalized_latency``, ``normalized_throughput`` (of tokens/s).
    """
    drawn = reported.figure("arxiv_fig02")
    read = pd.DataFrame(
        {
            "origin": "reported",
            "stage": drawn["stage"],
            "sequence_tokens": drawn["sequence_length_k"] * THOUSAND_TOKENS,
            "batch": drawn["batch_size"],
            "normalized_latency": drawn["normalized_latency"],
            "normalized_throughput": drawn["normalized_throughput"],
        }
    )
    table = pd.concat([_modelled(params, read), read], ignore_index=True)
    table.attrs["provenance"] = {"parameters": dataclasses.asdict(params)}
    return table


def _modelled(params: Params, read: pd.DataFrame) -> pd.DataFrame:
    node, model = load_node(params.node), load_model(params.model)
    calibration = load_calibration(host=params.waits_for_host)
    table = read[["stage", "sequence_tokens", "batch"]].assign(origin="modelled")
    decoding = table["stage"] == DECODING
    table.loc[decoding, "sequence_tokens"] = params.decode_context_tokens
    table["latency_s"] = prefill_time(node, model, table["sequence_tokens"], calibration=calibration)
    table.loc[decoding, "latency_s"] = [
        decode_step_time(node, model, batch, batch * tokens, calibration=calibration)
        for batch, tokens in table.loc[decoding, ["batch", "sequence_tokens"]].to_numpy().tolist()
    ]
    table["tokens"] = table["sequence_tokens"].where(~decoding, table["batch"])
    table["tokens_per_s"] = table.pop("tokens") / table["latency_s"]
    largest = table.groupby("stage")[["latency_s", "tokens_per_s"]].transform("max")
    table["normalized_latency"] = table["latency_s"] / largest["latency_s"]
    table["normalized_throughput"] = table.pop("tokens_per_s") / largest["tokens_per_s"]
    return table


def step_growth(values: dict[str, float], sequences: int) -> float:
    """How many times as long a decode step of a batch is as that of one sequence, from claims."""
    return values[f"arxiv.fig02.decoding.latency.b{sequences}"] / values["arxiv.fig02.decoding.latency.b1"]


def claims(params: Params = Params()) -> dict[str, float]:
    """Modelled values of the figure's claims, plain ratios."""
    table = run(params).query("origin == 'modelled'")
    values = {}
    for row in table.to_dict("records"):
        decoding = row["stage"] == DECODING
        point = f"b{row['batch']}" if decoding else f"{row['sequence_tokens'] // THOUSAND_TOKENS}k"
        for quantity in ("latency", "throughput"):
            values[f"arxiv.fig02.{row['stage']}.{quantity}.{point}"] = row[f"normalized_{quantity}"]
    return values
