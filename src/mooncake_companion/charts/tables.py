"""Tables to read: the numbers of a data frame as text, with headings in words."""

import html
import math
from collections.abc import Mapping
from typing import Any

import pandas as pd


def readable(
    table: pd.DataFrame, columns: dict[str, tuple[str, str]], *, rows: tuple[str, str] | None = None
) -> pd.DataFrame:
    """Pick, name and format columns.

    Parameters
    ----------
    table : DataFrame
    columns : dict
        Column of `table` to (heading, format), as ``{"error": ("Error", "{:+.0%}")}``.
    rows : tuple of str, optional
        Column whose values head the rows, and what stands above them; else the index does, below its
        name.

    >>> readable(pd.DataFrame({"error": [-0.118]}), {"error": ("Error", "{:+.0%}")})
      Error
    0  -12%
    """
    shown = {heading: table[name].map(form.format) for name, (heading, form) in columns.items()}
    readable = pd.DataFrame(shown, index=table.index)
    if rows is not None:
        readable = readable.set_axis(pd.Index(table[rows[0]]))
    named = table.index.name if rows is None else rows[1]
    heading = None if named is None else str(named)
    return readable.rename_axis(index=None, columns=heading and heading[0].upper() + heading[1:])


def rounded(value: float) -> str:
    """Four digits, or all before the point.

    >>> rounded(37.3623), rounded(3537000.0)
    ('37.36', '3,537,000')
    """
    if _is_missing(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


class Sortable:
    """A long table that readers of the page can sort by its columns and filter by a word.

    In a notebook it shows itself; without scripts it is a plain table.

    Parameters
    ----------
    table : DataFrame
    columns : dict
        Column of `table` to (heading, format), as for `readable`; a word is left as it is, and what
        is missing is a dash.
    caption : str
        What the table holds.
    sort_by : dict, optional
        Column to the one that it is sorted by, such as an error's text to its size.
    narrow : bool
        All columns are as narrow as their cells; else the second and the last have room for sentences.
    anchors : str, optional
        Column whose values are the rows' addresses in the page, each another one.
    """

    def __init__(
        self,
        table: pd.DataFrame,
        columns: Mapping[str, tuple[str, str]],
        *,
        caption: str,
        sort_by: Mapping[str, str] | None = None,
        narrow: bool = False,
        anchors: str | None = None,
    ) -> None:
        self._table, self._columns, self._caption = table, columns, caption
        self._sort_by, self._narrow, self._anchors = sort_by or {}, narrow, anchors

    def _repr_html_(self) -> str:
        headings = "".join(
            f'<th scope="col">{html.escape(title)}</th>' for title, _ in self._columns.values()
        )
        rows = "".join(
            f"<tr{self._anchor(row)}>{self._cells(row)}</tr>" for row in self._table.to_dict("records")
        )
        kind = "companion-sortable companion-narrow" if self._narrow else "companion-sortable"
        return (
            f'<div class="{kind}" data-caption="{html.escape(self._caption)}">'
            f"<table><thead><tr>{headings}</tr></thead><tbody>{rows}</tbody></table></div>"
        )

    def _anchor(self, row: Mapping[Any, Any]) -> str:
        return f' id="{html.escape(str(row[self._anchors]))}"' if self._anchors else ""

    def _cells(self, row: Mapping[Any, Any]) -> str:
        return "".join(
            f'<td data-value="{_key(row[self._sort_by.get(name, name)])}">{_shown(row[name], form)}</td>'
            for name, (_, form) in self._columns.items()
        )


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _key(value: Any) -> str:
    """What a script sorts by: a number as such; empty for what is missing."""
    return "" if _is_missing(value) else html.escape(str(value))


def _shown(value: Any, form: str) -> str:
    if _is_missing(value):
        return "–"
    return html.escape(value if isinstance(value, str) else form.format(value))
