"""What a live figure gives back to the page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
Progress = Callable[[int, int], object]
"""Told how many of how many parts are done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A figure's modelled rows, and what goes with them.

    Parameters
    ----------
    rows : list of dict
        They take the place of the figure's own modelled rows, with the same columns.
    description : str
        What the figure shows now, for those who don't see it.
    fixed : mapping
        Controls of the figure, by the name of their Vega parameter, that can have but one value now.
    offered : mapping
        What controls of the figure let a reader choose among now, where that is not what it was.
    replayed : int
        Requests that were replayed, where the model chose how many, or drew them; 0 where the reader
        said how many of a slice.
    without_reported : str
        A sentence that says why what a paper reports is not shown beside the rows; empty where it is.
    """

    rows: list[Row]
    description: str
    fixed: Mapping[str, float | str] = field(default_factory=dict)
    offered: Mapping[str, Sequence[float | str]] = field(default_factory=dict)
    replayed: int = 0
    without_reported: str = ""
