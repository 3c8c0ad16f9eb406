"""Chart of a sweep: one measured quantity over one or two of the varied parameters."""

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd
from pandas.api import types

from mooncake_companion.charts.theme import HEAT, PALETTE, SHAPES, colours, finish

_POINT = "point"
_LOGARITHMIC_FROM = 50.0
_MOST_COLOURS = 12
_NUMBER = "abs(datum.value) < 1e4 ? format(datum.value, '.4~g') : format(datum.value, '~s')"


def distinguishing(table: pd.DataFrame, parameters: Sequence[str]) -> tuple[str, ...]:
    """Find the columns that tell the rows of one point apart, such as ``policy`` and ``prefill_nodes``.

    Parameters
    ----------
    table : DataFrame
        ``point``, the columns of `parameters`, and the experiment's own columns.
    parameters : sequence of str
        Columns of the varied parameters.

    Returns
    -------
    tuple of str
        Columns of words first, then as few as will do of the numbers that are the same at each point.
        If even these leave rows of a point alike, the chart shows their mean.
    """
    own = [column for column in table.columns if column not in (_POINT, *parameters)]
    words = [column for column in own if not types.is_numeric_dtype(table[column])]
    chosen: list[str] = []
    combinations = table[_POINT].nunique()
    for column in [*words, *_planned(table, [column for column in own if column not in words])]:
        if combinations == len(table):
            break
        found = len(table[[_POINT, *chosen, column]].drop_duplicates())
        if found > combinations:
            chosen, combinations = [*chosen, column], found
    return tuple(chosen)


def _planned(table: pd.DataFrame, numbers: Sequence[str]) -> list[str]:
    """Columns of numbers that were not measured, as far as the points' tables tell."""
    place = table.groupby(_POINT).cumcount()
    if len(set(table[_POINT].value_counts())) > 1:  # rows come and go: whole numbers before the first measure
        whole = [types.is_integer_dtype(table[column]) for column in numbers]
        return list(numbers[: whole.index(False) if False in whole else len(numbers)])
    same = [int(table[column].groupby(place).nunique(dropna=False).max()) == 1 for column in numbers]
    return [column for column, each in zip(numbers, same, strict=True) if each]


def measured(table: pd.DataFrame, parameters: Sequence[str], by: Sequence[str]) -> list[str]:
    """List the columns of numbers that can be drawn."""
    return [
        column
        for column in table.columns
        if column not in (_POINT, *parameters, *by)
        and types.is_numeric_dtype(table[column])
        and not types.is_bool_dtype(table[column])
    ]


def over_parameters(
    table: pd.DataFrame,
    *,
    parameters: Mapping[str, str],
    drawn: int,
    by: Sequence[str],
    quantity: str,
    lines: bool,
) -> alt.LayerChart | alt.FacetChart:
    """One quantity, chosen by a drop-down, over one or two parameters; other choices have their own.

    Parameters
    ----------
    table : DataFrame
        As for `distinguishing`.
    parameters : mapping
        Columns of the varied parameters to their titles, those to draw over first.
    drawn : int
        How many of them are drawn over: the first gives the place, the second the colour. Of a grid,
        the others are chosen by drop-downs; of a sample, they stand in the tooltip.
    by : sequence of str
        As `distinguishing` found them. If one parameter is drawn over, the first column of words among
        them gives the colour.
    quantity : str
        What is chosen at first.
    lines : bool
        Whether points of one colour are joined: of a grid, not of a sample.
    """
    quantities = measured(table, list(parameters), by)
    columns = list(parameters)
    others = columns[drawn:] if lines else []
    rows = _summed_up(table, [_POINT, *columns, *by], quantities)
    colour = columns[1] if drawn > 1 else _words(rows, by)
    picks = {
        column: parameters.get(column, column)
        for column in (*by, *others)
        if column != colour and len(set(rows[column])) > 1
    }
    for column in picks:
        rows[column] = [_said(value) for value in rows[column]]
    base = _chosen(rows, list(picks)).encode(
        _place(rows, columns[0], parameters[columns[0]]),
        alt.Y("shown:Q").title(None).scale(zero=False).axis(labelExpr=_NUMBER),
        _coloured(rows, colour, parameters.get(colour, colour)),
        tooltip=[
            *(alt.Tooltip(column).title(title) for column, title in parameters.items()),
            *(alt.Tooltip(column) for column in by),
            alt.Tooltip("shown:Q", format=",.4~g").title("Chosen quantity"),
        ],
    )
    joined = lines and types.is_numeric_dtype(rows[columns[0]])
    points = base.mark_point().encode(*_shaped(rows, colour, parameters.get(colour, colour)))
    marks = alt.layer(*([base.mark_line()] if joined else []), points)
    chosen = alt.param(
        name="quantity", value=quantity, bind=alt.binding_select(options=quantities, name="Quantity ")
    )
    controls = [_pick(number, title, rows[column]) for number, (column, title) in enumerate(picks.items())]
    titled = marks.properties(title=_title(list(picks.values())), height=300).add_params(chosen, *controls)
    return finish(titled, name="sweep", description=_describe(rows, quantity, parameters, drawn), table=table)


def _chosen(rows: pd.DataFrame, picks: Sequence[str]) -> alt.Chart:
    """The rows that the drop-downs choose, with the quantity that they choose as ``shown``."""
    chart = (
        alt.Chart(rows).transform_calculate(shown="datum[quantity]").transform_filter("isValid(datum.shown)")
    )
    for number, column in enumerate(picks):
        chart = chart.transform_filter(f"datum['{column}'] === pick_{number}")
    return chart


def _title(picks: Sequence[str]) -> alt.Title:
    """What the drop-downs choose, so that an exported image says it, too."""
    told = " + ', ' + ".join(f"'{title}: ' + pick_{number}" for number, title in enumerate(picks))
    return alt.Title(alt.expr(f"[quantity, {told}]" if told else "quantity"))


def _summed_up(table: pd.DataFrame, keys: list[str], quantities: list[str]) -> pd.DataFrame:
    """One row for what the drop-downs can tell apart: the mean over rows that they cannot."""
    return table.groupby(keys, sort=False, dropna=False)[quantities].mean().reset_index()


def _words(rows: pd.DataFrame, by: Sequence[str]) -> str:
    """The column whose words give the colour; empty if none is fit."""
    for column in by:
        fit = 1 < rows[column].nunique() <= _MOST_COLOURS and not types.is_numeric_dtype(rows[column])
        if fit and column != "origin":
            return column
    return ""


def _said(value: object) -> str:
    return "–" if pd.isna(value) else str(value)  # type: ignore[call-overload]


def _pick(number: int, title: str, values: pd.Series) -> alt.Parameter:
    options = list(dict.fromkeys(values))
    first = "modelled" if "modelled" in options else options[0]
    return alt.param(
        name=f"pick_{number}", value=first, bind=alt.binding_select(options=options, name=f"{title} ")
    )


def _place(rows: pd.DataFrame, column: str, title: str) -> alt.X:
    values = rows[column]
    if types.is_bool_dtype(values) or not types.is_numeric_dtype(values):
        return alt.X(f"{column}:N").title(title).sort(None)
    low, high = float(values.min()), float(values.max())
    wide = low > 0 and high / low >= _LOGARITHMIC_FROM
    whole = types.is_integer_dtype(values)
    axis = alt.Axis(labelExpr=_NUMBER, tickCount=6, tickMinStep=1 if whole else alt.Undefined)
    x = alt.X(f"{column}:Q").title(f"{title}, logarithmic" if wide else title).axis(axis)
    return x.scale(type="log", nice=False) if wide else x.scale(zero=False, nice=False)


def _coloured(rows: pd.DataFrame, column: str, title: str) -> alt.Color | alt.ColorValue:
    if not column:
        return alt.ColorValue(PALETTE["prediction"])
    values = sorted(rows[column].unique().tolist())
    numbers = _are_numbers(rows[column])
    if numbers and len(values) > _MOST_COLOURS:
        scale = alt.Scale(range=list(HEAT), interpolate="rgb")
        return alt.Color(f"{column}:Q").title(title).scale(scale)
    meanings = {value: str(value).lower().replace(" ", "_").replace("-", "_") for value in values}
    known = all(meaning in PALETTE for meaning in meanings.values())
    scale = colours(meanings) if known else alt.Scale(domain=values, range=_from_low_to_high(len(values)))
    return alt.Color(f"{column}:{'O' if numbers else 'N'}").title(title).scale(scale)


def _shaped(rows: pd.DataFrame, column: str, title: str) -> list[alt.Shape]:
    """A shape for each colour, where there are enough of them."""
    values = sorted(rows[column].unique().tolist()) if column else []
    if not 1 < len(values) <= len(SHAPES):
        return []
    kind = "O" if _are_numbers(rows[column]) else "N"
    return [alt.Shape(f"{column}:{kind}").title(title).scale(domain=values, range=SHAPES[: len(values)])]


def _are_numbers(values: "pd.Series[Any]") -> bool:
    return bool(types.is_numeric_dtype(values) and not types.is_bool_dtype(values))


def _from_low_to_high(count: int) -> list[str]:
    """So many colours along `HEAT`."""
    stops = [[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in HEAT]
    found = []
    for number in range(count):
        at = number / max(1, count - 1) * (len(stops) - 1)
        left = min(int(at), len(stops) - 2)
        mixed = [round(a + (b - a) * (at - left)) for a, b in zip(stops[left], stops[left + 1], strict=True)]
        found.append("#" + "".join(f"{channel:02X}" for channel in mixed))
    return found


def _describe(rows: pd.DataFrame, quantity: str, parameters: Mapping[str, str], drawn: int) -> str:
    over = " and ".join(list(parameters.values())[:drawn])
    low, high = rows[quantity].min(), rows[quantity].max()
    return (
        f"A quantity of the experiment over {over}, at {rows[_POINT].nunique()} points of a sweep. "
        f"The one chosen at first, {quantity}, goes from {low:.4g} to {high:.4g} over all rows."
    )
