"""arXiv 2407.00079, Figure 2: prefill slows down with length, decode gains from its batch."""

import dataclasses

import pandas as pd

from mooncake_companion import reported
from mooncake_companion.experiments.calibration import THOUSAND_TOKENS
from mooncake_companion.live.two_phases import DECODING, Params, phase_rows

__all__ = ["DECODING", "Params", "claims", "run", "step_growth"]


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
    table = pd.concat([pd.DataFrame(phase_rows(params)), read], ignore_index=True)
    table.attrs["provenance"] = {"parameters": dataclasses.asdict(params)}
    return table


def step_growth(values: dict[str, float], sequences: int) -> float:
    """How many times as long a decode step of a batch is as that of one sequence, from claims."""
    return values[f"arxiv.fig02.decoding.latency.b{sequences}"] / values["arxiv.fig02.decoding.latency.b1"]


def claims(params: Params = Params()) -> dict[str, float]:  # noqa: B008 - it is frozen
    """Modelled values of the figure's claims, plain ratios."""
    table = run(params).query("origin == 'modelled'")
    values = {}
    for row in table.to_dict("records"):
        decoding = row["stage"] == DECODING
        point = f"b{row['batch']}" if decoding else f"{row['sequence_tokens'] // THOUSAND_TOKENS}k"
        for quantity in ("latency", "throughput"):
            values[f"arxiv.fig02.{row['stage']}.{quantity}.{point}"] = row[f"normalized_{quantity}"]
    return values
