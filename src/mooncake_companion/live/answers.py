"""What a page asks: one of the figures, computed with a reader's values."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from mooncake_companion.errors import InputError
from mooncake_companion.live.figures import LIVE, LiveFigure
from mooncake_companion.live.outcome import Outcome, Progress
from mooncake_companion.live.slices import Slice
from mooncake_companion.parameters import Value

_NAMED = re.compile(r"^parameter (\w+): ")


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
    return outcome, _told(live, sliced, values, outcome)


def _told(live: LiveFigure, sliced: Slice | None, values: Mapping[str, Value], outcome: Outcome) -> str:
    published = {field.name: field.default for field in live.fields()}
    changed = [
        f"{name} = {value}"
        for name, value in values.items()
        if value != published[name] and not (name == "requests" and sliced is not None)
    ]
    first = "as the form has it at first"
    setting = f"with {', '.join(changed)}, all else {first}" if changed else f"with all {first}"
    of_what = f"on {outcome.replayed:,} requests drawn here, " if outcome.replayed else ""
    if sliced is not None:
        of_what = (
            f"on the first {len(sliced.requests):,} of {sliced.trace_requests:,} requests of the "
            f"{sliced.source.rstrip('. ')}, "
        )
    told = f"Modelled here, in your browser, {of_what}{setting}."
    whole = " and the whole trace" if sliced is not None else ""
    kept = outcome.without_reported or f"What is reported is as in the paper, for its own setting{whole}."
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
        An object with ``rows``, ``description``, ``fixed``, ``offered``, ``told`` and ``reported``
        (whether the figure keeps what is); or with ``error`` and, if it is about one parameter, ``field``.
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
            "offered": {name: list(values) for name, values in outcome.offered.items()},
            "told": told,
            "reported": not outcome.without_reported,
        }
    )


def _finite(value: Any) -> Any:
    """JSON has no NaN; Vega takes null for a missing value."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
