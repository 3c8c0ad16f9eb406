"""arXiv 2407.00079, Figure 2: prefill by length and decode by batch; closed form, so exact in a page."""

from collections.abc import Sequence
from dataclasses import dataclass

from mooncake_companion.costs import decode_step_time, load_calibration, prefill_time
from mooncake_companion.hardware import load_node
from mooncake_companion.live.outcome import Outcome, Progress, Row
from mooncake_companion.live.refusals import require_fit
from mooncake_companion.llm import load_model
from mooncake_companion.parameters import check, parameter
from mooncake_companion.settings import model_parameter, node_parameter

PREFILL, DECODING = "prefill", "decoding"

LENGTHS = tuple(8 * 1024 * step for step in range(1, 17))
"""Prompts of the figure, in tokens."""
BATCHES = tuple(range(1, 17))
"""Its decode batches, in sequences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """The figure's setting: the lengths and batches are stated.

    Assumed: the model, LLaMA3-70B, whose layers have the shape of the report's LLaMA2-70B; in what is
    normalized to its largest value the difference, in the vocabulary, is lost. k is 1,024. Decode does
    not wait for the host: what was fitted on FAST'25, Figure 15, cannot be seen in this figure, which
    is why all experiments of this report are run without it.
    """

    node: str = node_parameter()
    model: str = model_parameter()
    decode_context_tokens: int = parameter(
        8192, unit="tokens", low=1, high=10**7, help="context of each decoding sequence"
    )
    waits_for_host: bool = parameter(
        False, help="whether a decode step waits for the host, as fitted on FAST'25, Figure 15"
    )

    def __post_init__(self) -> None:
        check(self)


def phase_rows(params: Params) -> list[Row]:
    """Modelled rows, of prefills first; columns as of `experiments.two_phases`."""
    node, model = load_node(params.node), load_model(params.model)
    calibration = load_calibration(host=params.waits_for_host)
    context = params.decode_context_tokens
    prefills = [
        (tokens, 1, tokens, float(prefill_time(node, model, tokens, calibration=calibration)))
        for tokens in LENGTHS
    ]
    steps = [
        (
            context,
            batch,
            batch,
            decode_step_time(node, model, batch, batch * context, calibration=calibration),
        )
        for batch in BATCHES
    ]
    return [*_rows(PREFILL, prefills), *_rows(DECODING, steps)]


def _rows(stage: str, points: Sequence[tuple[int, int, int, float]]) -> list[Row]:
    """Of sequence length, batch, tokens that are computed, and seconds: each over its largest value."""
    most_s = max(seconds for *_, seconds in points)
    most_per_s = max(tokens / seconds for *_, tokens, seconds in points)
    return [
        {
            "origin": "modelled",
            "stage": stage,
            "sequence_tokens": length,
            "batch": batch,
            "latency_s": seconds,
            "normalized_latency": seconds / most_s,
            "normalized_throughput": tokens / seconds / most_per_s,
        }
        for length, batch, tokens, seconds in points
    ]


def run(params: Params, _sliced: None, progress: Progress) -> Outcome:
    """Both phases on the reader's node; columns as of `experiments.two_phases`."""
    require_fit(load_node(params.node), load_model(params.model))
    progress(0, 1)
    rows = phase_rows(params)
    longest, alone = rows[len(LENGTHS) - 1], rows[len(LENGTHS)]
    return Outcome(
        rows=rows,
        description=(
            "Lines: throughput or latency of prefill by prompt length and of decode by batch, over the "
            f"largest value of each, computed in this browser for {params.model} on {params.node}; grey "
            f"diamonds: reported. At {longest['sequence_tokens']:,} tokens prefill is down to "
            f"{longest['normalized_throughput']:.0%} of its best throughput; one sequence alone decodes at "
            f"{alone['normalized_throughput']:.0%} of it, in {alone['normalized_latency']:.0%} of the time "
            "of the largest batch's step."
        ),
    )
