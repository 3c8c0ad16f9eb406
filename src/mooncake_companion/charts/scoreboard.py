"""Charts of the scoreboard: what the papers report against what is modelled."""

import altair as alt
import numpy as np
import pandas as pd

from mooncake_companion.charts.theme import colours, finish, singled_out

ROLES = ("prediction", "blind", "calibration")
"""Roles of rows that are modelled, the weightiest first."""

_SHAPES = {"prediction": "circle", "blind": "diamond", "calibration": "cross"}
_KEPT = (
    "id",
    "where",
    "quantity",
    "trace",
    "reported",
    "modelled",
    "unit",
    "error_shown",
    "role",
    "reason",
    "ratio",
)


def reported_against_modelled(table: pd.DataFrame) -> alt.LayerChart:
    """Every modelled value over the reported one, on logarithmic axes; on the line they agree.

    Parameters
    ----------
    table : DataFrame
        Rows of the scoreboard: ``id``, ``where``, ``quantity``, ``trace``, ``reported``, ``modelled``,
        ``unit``, ``error_shown`` (with its unit, as text), ``role``, ``reason``. Rows that are not
        modelled or have no place on a logarithm are left out.
    """
    shown = _drawable(table)
    dots = _dots(shown).encode(
        alt.X("reported:Q").title("Reported (logarithmic)").scale(type="log").axis(_NUMBERS),
        alt.Y("modelled:Q").title("Modelled (logarithmic)").scale(type="log").axis(_NUMBERS),
    )
    agreement = (
        alt.Chart(shown)
        .transform_aggregate(low="min(reported)", high="max(reported)")
        .transform_fold(["low", "high"], as_=["end", "value"])
        .mark_line(strokeWidth=1, strokeDash=[4, 4], color="#808080")
        .encode(alt.X("value:Q"), alt.Y("value:Q"))
    )
    near = float((shown["ratio"].between(1 / 1.25, 1.25)).mean()) if len(shown) else 0.0
    return finish(
        (agreement + dots).properties(height=460),
        name="scoreboard-agreement",
        description=(
            f"Scatter plot of {len(shown)} modelled values over the reported ones, from "
            f"{shown['reported'].min():.2g} to {shown['reported'].max():.2g} in their own units. "
            f"{near:.0%} lie within a factor of 1.25."
        ),
        table=shown,
    )


def ratios(table: pd.DataFrame) -> alt.LayerChart:
    """Modelled over reported value for every row, a line for each figure, table and section.

    Parameters
    ----------
    table : DataFrame
        As for `reported_against_modelled`; its order is kept.
    """
    shown = _drawable(table)
    places = list(dict.fromkeys(shown["where"]))
    dots = _dots(shown).encode(
        alt.X("ratio:Q").title("Modelled over reported (logarithmic)").scale(type="log"),
        alt.Y("where:N").title(None).sort(places).axis(labelLimit=150),
    )
    one = (
        alt.Chart(shown)
        .transform_aggregate(rows="count()")
        .transform_calculate(one="1")
        .mark_rule(strokeWidth=1, strokeDash=[4, 4], color="#808080")
        .encode(alt.X("one:Q"))
    )
    worst = shown.groupby("where")["ratio"].apply(lambda each: np.abs(np.log(each)).median()).idxmax()
    return finish(
        (one + dots).properties(height=alt.Step(19)),
        name="scoreboard-ratios",
        description=(
            f"Strips of modelled over reported values, one for each of {len(places)} places in the papers. "
            f"Farthest off by its median is {worst}."
        ),
        table=shown,
    )


_NUMBERS = alt.Axis(
    tickCount=8, labelExpr="format(datum.value, abs(log(datum.value)) > 8 ? '.0e' : '~g')", labelOverlap=True
)


def _drawable(table: pd.DataFrame) -> pd.DataFrame:
    modelled = table[table["role"].isin(ROLES)]
    numbers = modelled.assign(
        reported=pd.to_numeric(modelled["reported"], errors="coerce"),
        modelled=modelled["modelled"].astype(float),
    )
    positive = numbers[(numbers["reported"] > 0) & (numbers["modelled"] > 0)]
    shown = positive.assign(ratio=positive["modelled"] / positive["reported"])[list(_KEPT)]
    shown.attrs = table.attrs
    return shown


def _dots(shown: pd.DataFrame) -> alt.Chart:
    """Marks coloured and shaped by role; those of one role can be looked at alone."""
    roles = [role for role in ROLES if role in set(shown["role"])]
    menu, opacity = singled_out("role", "role", roles, shown=0.85, dimmed=0.06)
    return (
        alt.Chart(shown)
        .mark_point(filled=True, size=55)
        .encode(
            alt.Color("role:N").scale(colours({role: role for role in roles})).title(None),
            alt.Shape("role:N").scale(domain=roles, range=[_SHAPES[role] for role in roles]).title(None),
            opacity=opacity,
            tooltip=[
                alt.Tooltip("where:N").title("Where"),
                alt.Tooltip("quantity:N").title("Quantity"),
                alt.Tooltip("reported:Q", format=",.4~g").title("Reported"),
                alt.Tooltip("modelled:Q", format=",.4~g").title("Modelled"),
                alt.Tooltip("unit:N").title("Unit"),
                alt.Tooltip("error_shown:N").title("Error"),
                alt.Tooltip("role:N").title("Role"),
                alt.Tooltip("reason:N").title("Why"),
                alt.Tooltip("trace:N").title("Trace"),
                alt.Tooltip("id:N").title("Id"),
            ],
        )
        .add_params(menu)
    )
