"""The figures that a page can compute again, and the one function that it asks."""

import dataclasses
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mooncake_companion.errors import InputError
from mooncake_companion.live import (
    end_to_end,
    goodput,
    node_split,
    overload,
    prefill_scheduling,
    rejection,
    storage_for_compute,
    systems,
    walkthrough,
)
from mooncake_companion.live.outcome import Outcome, Progress
from mooncake_companion.live.slices import MOST_REQUESTS, Slice, SliceParams
from mooncake_companion.parameters import Parameter, Value, describe

_NAMED = re.compile(r"^parameter (\w+): ")


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFigure:
    """How one figure is computed in a page.

    Parameters
    ----------
    params : type
        Declares its parameters, as for the command line.
    shown : tuple of str
        Those that the page lets a reader change; the others keep their defaults.
    model : callable
        Given a `params`, the `Slice` to replay (None if `replays` is not set) and a `Progress`.
    replays : bool
        Whether it replays a slice of the trace that the book's figure was made from.
    asks_requests : bool
        Whether a reader says how much of the slice; else the model takes what it needs.
    requests : int
        How much of it, if the reader leaves it so.
    trace : str
        Whose slice, where the figure was made from several.
    beside_reported : bool
        Whether the figure also has what a paper reports, which stays.
    """

    params: type
    shown: tuple[str, ...]
    model: Callable[[Any, Any, Progress], Outcome]
    replays: bool = True
    asks_requests: bool = True
    requests: int = SliceParams().requests
    trace: str = ""
    beside_reported: bool = True

    def fields(self) -> tuple[Parameter, ...]:
        """What the page asks for, in its order."""
        declared = {each.name: each for each in describe(self.params)}
        length = describe(SliceParams) if self.replays and self.asks_requests else ()
        length = tuple(dataclasses.replace(each, default=self.requests) for each in length)
        return (*length, *(declared[name] for name in self.shown))


_CONDUCTOR = (
    "nodes",
    "prefill_nodes",
    "kvcache_balancing_threshold",
    "cache_tokens_per_node",
    "nic_bytes_per_s",
    "arrival_speedup",
)
_SYSTEMS = ("arrival_speedup", "nodes", "prefill_nodes", "cache_tokens_per_node", "chunk_tokens")
_LIMITS = ("ttft_limit_s", "tbt_limit_s", "predicted_decode_s")

LIVE: Mapping[str, LiveFigure] = {
    "prefix-actions": LiveFigure(
        params=storage_for_compute.MapParams,
        shown=("model", "new_tokens"),
        model=storage_for_compute.actions,
        replays=False,
        beside_reported=False,
    ),
    "request-walkthrough": LiveFigure(
        params=walkthrough.Params,
        shown=("request", *_CONDUCTOR),
        model=walkthrough.run,
        asks_requests=False,
        beside_reported=False,
    ),
    "prefill-scheduling-ttft": LiveFigure(
        params=prefill_scheduling.Params, shown=_CONDUCTOR, model=prefill_scheduling.run
    ),
    "node-split": LiveFigure(
        params=node_split.Params,
        shown=(
            "nodes",
            "least_prefill_nodes",
            "most_prefill_nodes",
            "ttft_limit_s",
            "tbt_limit_s",
            "cache_tokens_per_node",
            "kvcache_balancing_threshold",
        ),
        model=node_split.run,
    ),
    "tbt-distribution": LiveFigure(
        params=systems.Params, shown=_SYSTEMS, model=end_to_end.tbt, trace=systems.TRACE
    ),
    "effective-capacity": LiveFigure(
        params=systems.Params, shown=_SYSTEMS, model=end_to_end.capacity, trace=systems.TRACE
    ),
    "goodput": LiveFigure(
        params=goodput.LiveParams,
        shown=(
            "highest_speedup",
            "nodes",
            "prefill_nodes",
            "ttft_limit_s",
            "tbt_limit_s",
            "admission",
        ),
        model=goodput.run,
        trace=systems.TRACE,
    ),
    "overload-rejected": LiveFigure(
        params=rejection.Params,
        shown=("arrival_speedup", "prefill_nodes", "decode_pool_nodes", *_LIMITS),
        model=rejection.rejected,
        requests=MOST_REQUESTS,
    ),
    "overload-mechanism": LiveFigure(
        params=overload.Params,
        shown=(
            "prefill_nodes",
            "identical_input_tokens",
            "identical_offered_load",
            "identical_prefill_excess",
            "ttft_limit_s",
            "tbt_limit_s",
        ),
        model=rejection.mechanism,
        replays=False,
        beside_reported=False,
    ),
    "overload-pool-loads": LiveFigure(
        params=rejection.LoadParams,
        shown=("replay_speedup", "prefill_pool_nodes", "decode_pool_nodes", *_LIMITS),
        model=rejection.loads,
        requests=MOST_REQUESTS,
    ),
    "overload-decode-time": LiveFigure(
        params=rejection.Params,
        shown=("arrival_speedup", "prefill_nodes", "decode_pool_nodes", "ttft_limit_s", "tbt_limit_s"),
        model=rejection.decode_times,
        requests=MOST_REQUESTS,
        beside_reported=False,
    ),
}
"""Live figures by their id."""


def compute(
    figure: str, given: Mapping[str, str], sliced: Slice | None, progress: Progress = lambda _done, _all: None
) -> tuple[Outcome, str]:
    """Compute a figure with a reader's values.

    Parameters
    ----------
    figure : str
        A key of `LIVE`.
    given : mapping of str
        Values as they were typed, by parameter.
    sliced : Slice or None
        Of the trace, where the figure replays one.
    progress : callable

    Returns
    -------
    tuple
        The outcome, and a sentence that says what was computed from what.

    Raises
    ------
    InputError
        For a value that its declaration does not allow, as on the command line.
    """
    live = LIVE[figure]
    values = {field.name: field.parse(given[field.name]) for field in live.fields() if field.name in given}
    settings = dict(values)
    if sliced is not None and live.asks_requests:
        sliced = sliced.head(int(settings.pop("requests", live.requests)))
    outcome = live.model(live.params(**settings), sliced, progress)
    if sliced is not None and outcome.replayed:
        sliced = sliced.head(outcome.replayed)
    return outcome, _told(live, sliced, values, outcome.without_reported)


def _told(live: LiveFigure, sliced: Slice | None, values: Mapping[str, Value], without: str) -> str:
    published = {field.name: field.default for field in live.fields()}
    changed = [
        f"{name} = {value}"
        for name, value in values.items()
        if value != published[name] and name != "requests"
    ]
    setting = f"with {', '.join(changed)}, all else as published" if changed else "with the published setting"
    of_what = ""
    if sliced is not None:
        of_what = (
            f"on the first {len(sliced.requests):,} of {sliced.trace_requests:,} requests of the "
            f"{sliced.source.rstrip('. ')}, "
        )
    told = f"Modelled here, in your browser, {of_what}{setting}."
    kept = without or "What is reported is as in the paper, for its own setting and the whole trace."
    return f"{told} {kept}" if live.beside_reported else told


def answer(figure: str, given: str, sliced: str, progress: Progress) -> str:
    """`compute`, from JSON to JSON: what the page's worker calls.

    Parameters
    ----------
    figure : str
    given : str
        An object of strings.
    sliced : str
        As `Slice.to_json` tells it; empty for none.
    progress : callable

    Returns
    -------
    str
        An object with ``rows``, ``description``, ``fixed``, ``told`` and ``reported`` (whether the
        figure keeps what is); or with ``error`` and, if it is about one parameter, ``field``.
    """
    try:
        outcome, told = compute(
            figure, json.loads(given), Slice.from_json(json.loads(sliced)) if sliced else None, progress
        )
    except InputError as error:
        named = _NAMED.match(str(error))
        return json.dumps({"error": str(error), "field": named[1] if named else ""})
    rows = [{name: _finite(value) for name, value in row.items()} for row in outcome.rows]
    return json.dumps(
        {
            "rows": rows,
            "description": outcome.description,
            "fixed": dict(outcome.fixed),
            "told": told,
            "reported": not outcome.without_reported,
        }
    )


def _finite(value: Any) -> Any:
    """JSON has no NaN; Vega takes null for a missing value."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
