"""What is kept of a trace when the trace itself cannot be had: a few fitted statistics."""

import dataclasses
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mooncake_companion.datafiles import data_path
from mooncake_companion.errors import CompanionError, InputError

LEVELS = (0.0, 0.005, 0.01, *np.round(np.arange(0.025, 0.9751, 0.025), 3).tolist(), 0.99, 0.995, 1.0)
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
"""Input-length classes: tenths of the requests, from the shortest."""

TURN_CLASSES = 6
"""Classes of how many requests a session already had: 0, 1, 2 to 3, 4 to 7, 8 to 15, 16 and more."""

Row = tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Statistics from which `generate` makes a trace like the one they were fitted on.

    Knot rows are values at the quantile `LEVELS` (or `CLASS_LEVELS`), read by straight lines
    between them; rows of rows have one row for each of the `CLASSES` of input length.

    Parameters
    ----------
    name : str
        The trace that it imitates.
    fitted_on : str
        SHA-256 of the trace that it was fitted on.
    requests : int
    duration_s : float
        Seconds from the first to the last arrival.
    tick_s : float
        Seconds between the instants at which requests arrive in groups; 0 if they arrive one by one.
    shared_blocks : int
        Blocks that every prompt begins with: the system prompt.
    load_by_time : tuple of float
        Requests in equal parts of the duration, relative to their mean.
    class_by_time : tuple of tuple of float
        For the same parts: share of each length class among their requests.
    input_tokens : tuple of float
        Prompt length in tokens, at `LEVELS`.
    output_tokens : tuple of tuple of float
        Answer length in tokens by class, at `CLASS_LEVELS`.
    continuation_by_class, continuation_by_time : tuple of float
        Log odds that a request continues an earlier one, beyond the shared blocks: the sum of a
        term for its class and a term for its part of the duration.
    repeat_share : tuple of float
        By class: share of the continuations that repeat a whole earlier prompt.
    reused_share : tuple of tuple of float
        By class, at `CLASS_LEVELS`: leading blocks that a continuation finds, as a share of its own.
    age_s : tuple of float
        Seconds since the latest request that had the deepest of these blocks, at `LEVELS`.
    parent_turns : tuple of float
        Share of the continuations by the turn class of the request that they continue.
    left_blocks : tuple of float
        Blocks by which that request is longer than what is reused, at `LEVELS`.
    """

    name: str
    fitted_on: str
    requests: int
    duration_s: float
    tick_s: float
    shared_blocks: int
    load_by_time: Row
    class_by_time: tuple[Row, ...]
    input_tokens: Row
    output_tokens: tuple[Row, ...]
    continuation_by_class: Row
    continuation_by_time: Row
    repeat_share: Row
    reused_share: tuple[Row, ...]
    age_s: Row
    parent_turns: Row
    left_blocks: Row

    def __post_init__(self) -> None:
        for name, length in _LENGTHS.items():
            if len(getattr(self, name)) != length:
                raise InputError(
                    f"workload {self.name}: {name} has {len(getattr(self, name))} knots, not {length}"
                )
        if not len(self.load_by_time) == len(self.class_by_time) == len(self.continuation_by_time):
            raise InputError(f"workload {self.name}: the rows by time must have as many parts as each other")
        if self.requests < 1 or self.duration_s < 0 or self.tick_s < 0 or self.shared_blocks < 0:
            raise InputError(
                f"workload {self.name}: requests must be positive, times and blocks not negative"
            )


_LENGTHS = {
    "input_tokens": len(LEVELS),
    "age_s": len(LEVELS),
    "left_blocks": len(LEVELS),
    "parent_turns": TURN_CLASSES,
    "output_tokens": CLASSES,
    "reused_share": CLASSES,
    "repeat_share": CLASSES,
    "continuation_by_class": CLASSES,
}


def at_levels(
    levels: Row, values: Row | npt.NDArray[np.float64], u: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Read a knot row at the quantiles `u`; returns an array of the shape of `u`."""
    return np.interp(u, levels, values)


def length_class(u: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Class of a prompt by the quantile of its length, in [0, 1); shape as given."""
    return np.minimum((u * CLASSES).astype(np.int64), CLASSES - 1)


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
        If a field is missing, unknown or of the wrong length.
    """
    given: dict[str, Any] = {name: _frozen(value) for name, value in tomllib.loads(text).items()}
    try:
        return Workload(**given)
    except TypeError as error:
        raise InputError(f"workload {given.get('name', '?')}: {error}") from None


def format_workload(workload: Workload) -> str:
    """Write the statistics as TOML, one field a line."""
    lines = [f"# Fitted by `companion traces fit {workload.name}`; fields as in traces/workload.py."]
    lines += [f"{name} = {_toml(value)}" for name, value in dataclasses.asdict(workload).items()]
    return "\n".join(lines) + "\n"


def _frozen(value: Any) -> Any:
    return tuple(_frozen(v) for v in value) if isinstance(value, list) else value


def _toml(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"{value:.6g}" if value != int(value) else f"{value:.1f}"
    if isinstance(value[0], tuple):
        return "[\n" + "".join(f"  {_toml(row)},\n" for row in value) + "]"
    return "[" + ", ".join(map(_toml, value)) + "]"
