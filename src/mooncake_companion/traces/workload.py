"""What is kept of a trace when the trace itself cannot be had: a few statistics, fitted or described."""

import dataclasses
import tomllib
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from mooncake_companion.datafiles import data_path
from mooncake_companion.errors import CompanionError, InputError
from mooncake_companion.traces.trace import Floats, Ints

LEVELS = (*np.round(np.arange(0, 0.9951, 0.005), 3).tolist(), 0.9975, 0.999, 1.0)
"""Quantile levels of the long knot rows."""

CLASS_LEVELS = tuple(
    np.round(
        np.sort(
            [0.005, 0.01, 0.02, 0.035, 0.075, 0.925, 0.965, 0.98, 0.99, 0.995, *np.arange(0, 1.01, 0.05)]
        ),
        3,
    ).tolist()
)
"""Quantile levels of the knot rows that each length class has."""

CLASSES = 10
"""Length classes of a fit: tenths of the requests, from the shortest."""

PARENT_CLASSES = 20
"""The same for requests that are continued: twentieths."""

AGE_ROWS = 4
"""Parts of the lengths for which a fit has rates by age: quarters."""

TURN_CLASSES = 6
"""Classes of how many requests a session had before: 0, 1, 2 to 3, 4 to 7, 8 to 15, 16 and more."""

Row = tuple[float, ...]

_LEVELS_BY_KNOTS: dict[int, Row] = {len(LEVELS): LEVELS, len(CLASS_LEVELS): CLASS_LEVELS}


_BY_PARENT_CLASS = ("return_by_length", "repeat_share", "left_blocks", "new_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of requests: their lengths, their system prompts and their sessions.

    A request either begins a session, or continues one: it then shares its leading blocks with
    the session's latest request. A document with questions is such a session too, in which each
    question leaves out the one before it. Which session is continued is drawn with weights: the
    rate at which one of that age and turn comes back, times a factor by its length.

    Knot rows are values at quantile levels, read by straight lines between them: `LEVELS` or
    `CLASS_LEVELS` by their number of knots, otherwise equally spaced from 0 to 1. Rows by class
    have one entry for each of equally likely classes of length, from the shortest; one entry is
    for all lengths.

    Parameters
    ----------
    name : str
    share : float
        Share of the workload's requests.
    prompts : int
        System prompts in use; 0 for none.
    prompt_skew : float
        How unequally they are used: the one of rank r in proportion to r to the power of -skew.
    prompt_blocks : tuple of float
        Full blocks of a system prompt by its rank, from the most used to the least: a knot row.
    input_tokens : tuple of float
        Prompt lengths of all requests, in tokens; empty if they are what the sessions make them.
    output_tokens : tuple of tuple of float
        Answer lengths in tokens, by class.
    first_tokens : tuple of float
        Prompt lengths in tokens of requests that begin a session; `input_tokens`, if empty.
    first_class_by_part : tuple of tuple of float
        Share of each class of `first_tokens` in equal parts of the requests, as they arrive.
    continuation_by_part : tuple of float
        Share of requests that continue a session, in such parts.
    return_age_s : tuple of float
        Edges, in s, of the ages between which `return_rate` is constant; beyond the last nobody comes back.
    return_rate : tuple of tuple of float
        By turn class (the last row for all further ones): relative rate at which a session is continued, by
        the age of its latest request.
    return_by_length : tuple of tuple of float
        Factor to it, by class of that request's length: of sessions that have had one request, and
        (the last row) of those that have had more.
    return_by_age : tuple of tuple of float
        Factor to it, by age as `return_rate`: a row for each of equal parts of these classes.
    repeat_share : tuple of float
        By the same class: share of the continuations that repeat the whole prompt.
    left_blocks : tuple of tuple of float
        By the same class: blocks at the end of the continued prompt, its partial one included, that are
        not shared.
    new_tokens : tuple of tuple of float
        By the same class: tokens that follow what is shared.
    reused_blocks : tuple of float
        Depth of reuse, in blocks, of all continuations that are no repetitions; empty if it is what the
        sessions make it.
    """

    name: str = "all"
    share: float = 1.0
    prompts: int = 0
    prompt_skew: float = 0.0
    prompt_blocks: Row = (0.0,)
    input_tokens: Row = ()
    output_tokens: tuple[Row, ...]
    first_tokens: Row = ()
    first_class_by_part: tuple[Row, ...] = ((1.0,),)
    continuation_by_part: Row = (0.0,)
    return_age_s: Row = (0.0, 3600.0)
    return_rate: tuple[Row, ...] = ((1.0,),)
    return_by_length: tuple[Row, ...] = ((1.0,),)
    return_by_age: tuple[Row, ...] = ((1.0,),)
    repeat_share: Row = (0.0,)
    left_blocks: tuple[Row, ...] = ((1.0,),)
    new_tokens: tuple[Row, ...] = ((1.0,),)
    reused_blocks: Row = ()

    def __post_init__(self) -> None:
        _require(
            len(self.return_age_s) == len(self.return_rate[0]) + 1,
            self,
            "return_age_s",
            "one more than rates",
        )
        rates = {len(row) for row in (*self.return_rate, *self.return_by_age)}
        _require(len(rates - {1}) <= 1, self, "return_rate", "as long in each row as return_by_age")
        classes = {
            *map(len, self.return_by_length),
            *map(len, (self.repeat_share, self.left_blocks, self.new_tokens)),
        }
        classes -= {1}
        _require(len(classes) < 2, self, ", ".join(_BY_PARENT_CLASS), "of as many classes as each other")
        _require(not classes or bool(self.input_tokens), self, "input_tokens", "given, as there are classes")
        _require(bool(self.input_tokens or self.first_tokens), self, "first_tokens", "given")
        _require(0 < self.share <= 1, self, "share", "above 0 and at most 1")
        _require(self.prompts >= 0, self, "prompts", "at least 0")
        _require(all(0 <= c <= 1 for c in self.continuation_by_part), self, "continuation_by_part", "shares")

    def length_class(self, tokens: int, classes: int) -> int:
        """Class of a prompt by its length."""
        return bisect_right(_class_edges(self.input_tokens, classes), tokens) if classes > 1 else 0


@lru_cache(maxsize=64)
def _class_edges(row: Row, classes: int) -> Row:
    return tuple(at_levels(row, np.arange(1, classes) / classes).tolist())


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Statistics from which `generate` makes a trace.

    Parameters
    ----------
    name : str
        The trace that it imitates.
    basis : str
        What it was made from, in one phrase.
    fitted_on : str
        SHA-256 of the trace that it was fitted on; empty if it was made from what is published.
    requests : int
    duration_s : float
        Seconds from the first to the last arrival.
    tick_s : float
        Seconds between the instants at which requests arrive in groups; 0 if they arrive one by one.
    arrival_cv : float
        Coefficient of variation of the gaps between arrivals, which have a gamma distribution,
        before they are gathered into ticks: 1 is a Poisson process, 0 a steady beat, more is bursty.
    load_by_time : tuple of float
        Requests in equal parts of the duration, relative to their mean.
    kinds : tuple of Kind
        Their shares add up to 1.
    """

    name: str
    basis: str
    fitted_on: str = ""
    requests: int
    duration_s: float
    tick_s: float = 0.0
    arrival_cv: float = 1.0
    load_by_time: Row = (1.0,)
    kinds: tuple[Kind, ...]

    def __post_init__(self) -> None:
        if self.requests < 1 or min(self.duration_s, self.tick_s, self.arrival_cv) < 0:
            raise InputError(f"workload {self.name}: requests must be positive, times not negative")
        if abs(sum(kind.share for kind in self.kinds) - 1) > 1e-6:
            raise InputError(f"workload {self.name}: the shares of its kinds must add up to 1")


def _require(holds: bool, kind: Kind, field: str, expected: str) -> None:
    if not holds:
        raise InputError(f"workload kind {kind.name}: {field} must be {expected}")


def at_levels(row: Row, u: Floats) -> Floats:
    """Read a knot row at the quantiles `u`; returns an array of the shape of `u`."""
    if len(row) == 1:
        return np.full(np.shape(u), row[0])
    return np.interp(u, _LEVELS_BY_KNOTS.get(len(row)) or np.linspace(0.0, 1.0, len(row)), row)


def by_class(rows: tuple[Row, ...], classes: Ints, u: Floats) -> Floats:
    """Read for each entry of `u` the row of its class."""
    drawn = np.empty(len(u))
    for k, row in enumerate(rows):
        drawn[classes == k] = at_levels(row, u[classes == k])
    return drawn


def turn_class(turn: int) -> int:
    """Class of a request by how many its session had before it."""
    return min(turn.bit_length(), TURN_CLASSES - 1)


def workload_path(name: str) -> Path:
    """Where the statistics of a trace are kept.

    Raises
    ------
    CompanionError
        If none are kept for this trace.
    """
    try:
        return data_path("workloads", f"{name}.toml")
    except CompanionError:
        raise CompanionError(f"there is no stand-in for the {name} trace") from None


def load_workload(name: str) -> Workload:
    """Read the statistics kept for a trace.

    Raises
    ------
    CompanionError
        If none are kept for this trace.
    """
    return parse_workload(workload_path(name).read_text("utf-8"))


def parse_workload(text: str) -> Workload:
    """Read what `format_workload` wrote.

    Raises
    ------
    InputError
        If a field is missing, unknown or does not fit the others.
    """
    given: dict[str, Any] = {name: _frozen(value) for name, value in tomllib.loads(text).items()}
    try:
        given["kinds"] = tuple(Kind(**kind) for kind in given.get("kinds", ()))
        return Workload(**given)
    except TypeError as error:
        raise InputError(f"workload {given.get('name', '?')}: {error}") from None


def format_workload(workload: Workload, *, made_by: str) -> str:
    """Write the statistics as TOML, one field a line; fields at their defaults are left out.

    Parameters
    ----------
    workload : Workload
    made_by : str
        The command that the first line names.
    """
    lines = [f"# Made by `{made_by}`; fields as in traces/workload.py."]
    lines += _fields(workload)
    for kind in workload.kinds:
        lines += ["", "[[kinds]]", *_fields(kind)]
    return "\n".join(lines) + "\n"


def _fields(of: Workload | Kind) -> list[str]:
    values = {field: getattr(of, field.name) for field in dataclasses.fields(of) if field.name != "kinds"}
    return [f"{field.name} = {_toml(value)}" for field, value in values.items() if value != field.default]


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _frozen(v) for name, v in value.items()}
    return tuple(_frozen(v) for v in value) if isinstance(value, list) else value


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"{value:.6g}" if value != int(value) else f"{value:.1f}"
    if value and isinstance(value[0], tuple):
        return "[\n" + "".join(f"  {_toml(row)},\n" for row in value) + "]"
    return "[" + ", ".join(map(_toml, value)) + "]"
