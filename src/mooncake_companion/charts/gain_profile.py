"""Chart of Mooncake's gain over vLLM by workload, reported beside modelled."""

import altair as alt
import pandas as pd

from mooncake_companion.charts.theme import PALETTE, finish

_FIRST_WORD = "split(datum.label, ' ')[0]"
_TWO_LINES = f"[{_FIRST_WORD}, substring(datum.label, length({_FIRST_WORD}) + 1)]"  # for narrow screens
_ORIGINS = {"modelled": "mooncake", "reported": "reported"}


def profile(table: pd.DataFrame) -> alt.LayerChart:
    """Gain of each workload as a range over the limits it is stated for, modelled above reported.

    Parameters
    ----------
    table : DataFrame
        ``workload``, ``family``, ``where``, ``measure``, ``baseline``, ``variant``, ``origin`` ("modelled"
        or "reported"), ``gain``, ``at_least``.
    """
    order = list(dict.fromkeys(table["workload"]))
    base = (
        alt.Chart(table)
        .transform_filter("isValid(datum.gain)")
        .transform_calculate(kind="datum.at_least ? 'at least' : datum.origin")
        .encode(
            alt.Y("workload:N").title(None).sort(order).axis(ticks=False, labelExpr=_TWO_LINES),
            alt.YOffset("origin:N").sort(list(_ORIGINS)),
            alt.Color("origin:N", legend=alt.Legend(title=None, symbolOpacity=1)).scale(
                domain=list(_ORIGINS), range=[PALETTE[colour] for colour in _ORIGINS.values()]
            ),
        )
    )
    ranges = (
        base.transform_aggregate(low="min(gain)", high="max(gain)", groupby=["workload", "origin"])
        .mark_rule(strokeWidth=1.5, tooltip=None)
        .encode(_x("low"), alt.X2("high:Q"))
    )
    marks = base.mark_point(filled=True, size=75, opacity=1).encode(
        _x("gain"),
        alt.Shape("kind:N", legend=None).scale(
            domain=["modelled", "reported", "at least"], range=["circle", "diamond", "triangle-right"]
        ),
        tooltip=[
            alt.Tooltip("workload:N").title("Workload"),
            alt.Tooltip("family:N").title("Kind"),
            alt.Tooltip("origin:N").title("Origin"),
            alt.Tooltip("gain:Q", format="+.0%").title("More"),
            alt.Tooltip("measure:N").title("Of what"),
            alt.Tooltip("baseline:N").title("Than"),
            alt.Tooltip("variant:N").title("Limit"),
            alt.Tooltip("at_least:N").title("Lower bound"),
            alt.Tooltip("where:N").title("Stated in"),
        ],
    )
    return finish(
        (ranges + marks).properties(height=alt.Step(18)),
        name="gain-profile",
        description=_describe(table),
        table=table,
    )


def _x(field: str) -> alt.X:
    values = [-0.2, 0, 0.25, 0.5, 1, 2, 4, 8]
    return (
        alt.X(f"{field}:Q")
        .title(["More than vLLM", "(linear near 0, logarithmic beyond)"])
        .scale(type="symlog", constant=0.25, nice=False, padding=12)
        .axis(format="+.0%", values=values, grid=True, labelOverlap="greedy", labelSeparation=3)
    )


def _describe(table: pd.DataFrame) -> str:
    told = []
    for workload, rows in table.groupby("workload", sort=False):
        spans = {
            str(origin): f"{gains.min():+.0%} to {gains.max():+.0%}"
            for origin, gains in rows.dropna(subset="gain").groupby("origin")["gain"]
        }
        each = ", ".join(f"{origin} {span}" for origin, span in spans.items())
        told.append(f"{workload!s}: {each or 'none'}")
    return f"How much more Mooncake serves than vLLM, by workload, over the limits stated. {'; '.join(told)}."
