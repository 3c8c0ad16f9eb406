"""arXiv 2407.00079, Figure 5, and more of what requests are like, counted on a slice of their trace."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mooncake_companion.errors import InputError
from mooncake_companion.live.finer_blocks import with_block_tokens
from mooncake_companion.live.outcome import Outcome, Progress, Row
from mooncake_companion.live.slices import Slice
from mooncake_companion.parameters import check, parameter
from mooncake_companion.simulator.reference import Request
from mooncake_companion.statistics import quantile

TRACE = "conversation"
"""What a page counts on a slice of, where the figure has several traces."""

LEVELS = (*(k / 200 for k in range(1, 10)), *(k / 40 for k in range(2, 39)), 0.96, 0.97, 0.98, 0.99, 1.0)
"""Levels of the quantiles of distributions."""
PROMPT, ANSWER, AGE = "Prompt (tokens)", "Answer (tokens)", "Age of the reused prefix (s)"
KNOWN = "Share of the prompt known"


# --- when ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalParams:
    """Windows in which requests are counted: over all of the time, and shorter ones in its beginning."""

    window_s: float = parameter(60.0, unit="s", low=1, high=600, help="length of a window")
    short_window_s: float = parameter(
        1.0, unit="s", low=0.1, high=600, help="length of a window in the beginning"
    )
    beginning_s: float = parameter(120.0, unit="s", low=1, high=600, help="how long that lasts")

    def __post_init__(self) -> None:
        check(self)


def windows(arrival_s: Sequence[float], window_s: float, until_s: float) -> list[Row]:
    """Requests in each whole window until then, and in the first one in any case.

    Parameters
    ----------
    arrival_s : sequence of float
        In ascending order.
    window_s, until_s : float

    Returns
    -------
    list of dict
        ``time_s`` (start of the window), ``requests``.
    """
    last = max(int(min(until_s, arrival_s[-1]) // window_s), 1)
    counts = Counter(int(each // window_s) for each in arrival_s)
    return [{"time_s": window_s * number, "requests": counts[number]} for number in range(last)]


def arrivals(params: ArrivalParams, sliced: Slice, progress: Progress) -> Outcome:
    """Requests over time; columns as of `experiments.workloads.arrivals`."""
    progress(0, 1)
    arrival_s = [each.arrival_s for each in sliced.requests]
    views = {
        "Whole slice": (params.window_s, arrival_s[-1]),
        "Its beginning": (params.short_window_s, params.beginning_s),
    }
    for name, (window_s, until_s) in zip(("window_s", "short_window_s"), views.values(), strict=True):
        lasts_s = min(until_s, arrival_s[-1])
        if lasts_s < 2 * window_s:
            raise InputError(
                f"parameter {name}: two windows of {window_s:g} s are longer than the {lasts_s:.0f} s that "
                "are drawn; take shorter ones"
            )
    rows = [
        row | {"workload": TRACE, "trace": sliced.name, "view": view, "window_s": window_s}
        for view, (window_s, until_s) in views.items()
        for row in windows(arrival_s, window_s, until_s)
    ]
    most = " and ".join(
        f"{max(row['requests'] for row in rows if row['view'] == view)} in {window_s:g} s"
        for view, (window_s, _) in views.items()
    )
    return Outcome(
        rows=rows,
        description=f"Requests over time, counted in this browser. Most in a window: {most}.",
        offered={"view": list(views)},
    )


# --- how long, and how much comes again ------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ReuseParams:
    """What counts as reuse of a prefix."""

    block_tokens: int = parameter(
        512, unit="tokens", low=16, high=512, help="of the blocks that are found again; divides the trace's"
    )
    common_tokens: int = parameter(
        512, unit="tokens", low=0, high=131_072, help="that all prompts may begin with; reuse is of more"
    )

    def __post_init__(self) -> None:
        check(self)


def of_requests(
    requests: Iterable[Request], block_tokens: int, common_tokens: int
) -> Mapping[str, list[float]]:
    """A value for each request, of its age for each that reuses more than the common tokens.

    Returns
    -------
    mapping of list of float
        `PROMPT`, `ANSWER`, `AGE` and `KNOWN`, with a cache that never forgets.
    """
    values: dict[str, list[float]] = {PROMPT: [], ANSWER: [], AGE: [], KNOWN: []}
    asked_s: dict[int, float] = {}
    for each in requests:
        hits = next((at for at, block in enumerate(each.blocks) if block not in asked_s), len(each.blocks))
        if hits * block_tokens > common_tokens:
            values[AGE].append(each.arrival_s - asked_s[each.blocks[hits - 1]])
        values[PROMPT].append(each.input_tokens)
        values[ANSWER].append(each.output_tokens)
        values[KNOWN].append(min(hits * block_tokens, each.input_tokens - 1) / each.input_tokens)
        asked_s.update(dict.fromkeys(each.blocks, each.arrival_s))
    return values


def distributions(params: ReuseParams, sliced: Slice, progress: Progress) -> Outcome:
    """Quantiles of prompts, answers and ages; columns as of `experiments.workloads.distributions`."""
    progress(0, 1)
    fine = with_block_tokens(sliced, params.block_tokens)
    values = of_requests(fine.requests, fine.block_tokens, params.common_tokens)
    drawn = {name: sorted(values[name]) for name in (PROMPT, ANSWER, AGE) if values[name]}
    rows = [
        {
            "workload": TRACE,
            "trace": sliced.name,
            "quantity": name,
            "level": level,
            "value": float(quantile(ordered, level)),
        }
        for name, ordered in drawn.items()
        for level in LEVELS
    ]
    medians = "; ".join(f"{name}: {quantile(ordered, 0.5):,.0f}" for name, ordered in drawn.items())
    return Outcome(
        rows=rows,
        description=(
            "Cumulative distributions of the conversation trace's slice, one quantity at a time, computed in "
            f"this browser. Medians: {medians}. Requests that reuse a prefix: {len(values[AGE])}."
        ),
        offered={"quantity": list(drawn)},
    )


# --- histograms ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramParams:
    """Bins of a histogram; the report's are 40 of equal width, and so are these."""

    bins: int = parameter(40, unit="bins", low=1, high=500, help="of equal width")
    least_prompt_tokens: int = parameter(
        890, unit="tokens", low=0, high=10**6, help="where the prompts' begin"
    )
    most_prompt_tokens: int = parameter(
        125_546, unit="tokens", low=1, high=10**6, help="where the prompts' end"
    )
    least_answer_tokens: int = parameter(1, unit="tokens", low=0, high=10**6, help="where the answers' begin")
    most_answer_tokens: int = parameter(
        2_000, unit="tokens", low=1, high=10**6, help="where the answers' end"
    )

    def __post_init__(self) -> None:
        check(self)
        for of in ("prompt", "answer"):
            least, most = getattr(self, f"least_{of}_tokens"), getattr(self, f"most_{of}_tokens")
            if least >= most:
                raise InputError(
                    f"parameter most_{of}_tokens: {most} must be more than least_{of}_tokens ({least})"
                )

    def edges(self, least: int, most: int) -> list[float]:
        """Where bins begin, and where the last one ends."""
        return [least + (most - least) * number / self.bins for number in range(self.bins + 1)]


def binned(lengths: Iterable[int], inner_edges: Sequence[float]) -> list[int]:
    """How many of the lengths are in each bin; the first and the last one have what lies beyond.

    >>> binned([1, 5, 9, 10, 99], [5, 10])
    [1, 2, 2]
    """
    counts = Counter(bisect_right(inner_edges, each) for each in lengths)
    return [counts[number] for number in range(len(inner_edges) + 1)]


def histograms(params: HistogramParams, sliced: Slice, progress: Progress) -> Outcome:
    """Requests by length; columns as of `experiments.workloads.length_histograms`."""
    progress(0, 1)
    prompts = [each.input_tokens for each in sliced.requests]
    answers = [each.output_tokens for each in sliced.requests]
    rows = []
    for quantity, lengths, ends in (
        ("input_length", prompts, (params.least_prompt_tokens, params.most_prompt_tokens)),
        ("output_length", answers, (params.least_answer_tokens, params.most_answer_tokens)),
    ):
        edges = params.edges(*ends)
        rows += [
            {
                "origin": "modelled",
                "trace": sliced.name,
                "quantity": quantity,
                "bin_low_tokens": low,
                "bin_high_tokens": high,
                "requests": requests,
            }
            for low, high, requests in zip(edges, edges[1:], binned(lengths, edges[1:-1]), strict=False)
        ]
    return Outcome(
        rows=rows,
        description=(
            f"Histogram of lengths, prompts or answers, counted in this browser; bins: {params.bins}. Bars: "
            f"{len(sliced.requests):,} requests, prompts up to {max(prompts):,} and answers up to "
            f"{max(answers):,} tokens; points: reported, of the whole trace in its own bins."
        ),
    )
