"""Chart of the engine's waiting times on those of queueing theory."""

import altair as alt
import pandas as pd

from mooncake_companion.charts.theme import PALETTE, finish

LEAST = 0.01
"""Where the axis of waits begins, in mean service times."""


def waits(table: pd.DataFrame) -> alt.LayerChart:
    """Mean wait by utilisation; lines: theory, marks with intervals: the engine.

    Parameters
    ----------
    table : DataFrame
        ``origin`` ("theory" or "engine"), ``service``, ``utilisation``, ``wait_services``, ``low``,
        ``high``.
    """
    services = table["service"].drop_duplicates().tolist()
    base = (
        alt.Chart(table)
        .transform_calculate(low_shown=f"max(datum.low, {LEAST})")
        .encode(
            alt.X("utilisation:Q")
            .title("Utilisation of the node")
            .axis(format="%", values=[0, 0.25, 0.5, 0.75, 1])
            .scale(domain=[0, 1]),
            alt.Y("wait_services:Q")
            .title("Mean wait (mean service times)")
            .scale(type="log", nice=False, domainMin=LEAST)
            .axis(values=[0.01, 0.1, 1, 10], format="~g"),
            detail="service:N",
        )
    )
    theory = base.transform_filter(alt.datum.origin == "theory").mark_line(color=PALETTE["reported"])
    engine = base.transform_filter(alt.datum.origin == "engine")
    intervals = engine.mark_rule(color=PALETTE["prefill"], strokeWidth=2).encode(
        alt.Y("low_shown:Q").title("Mean wait (mean service times)"), alt.Y2("high:Q")
    )
    marks = engine.mark_point(filled=False, color=PALETTE["prefill"], strokeWidth=2, opacity=1).encode(
        alt.Shape("service:N", legend=alt.Legend(title=None, columns=1)).scale(
            domain=services, range=["circle", "square", "triangle-up"]
        ),
        tooltip=[
            alt.Tooltip("service:N").title("Service times"),
            alt.Tooltip("utilisation:Q", format=".0%").title("Utilisation"),
            alt.Tooltip("wait_services:Q", format=".3f").title("Engine (mean service times)"),
            alt.Tooltip("low:Q", format=".3f").title("95 % interval from"),
            alt.Tooltip("high:Q", format=".3f").title("to"),
        ],
    )
    return finish(
        theory + intervals + marks, name="queueing-theory-waits", description=_describe(table), table=table
    )


def _describe(table: pd.DataFrame) -> str:
    busiest = table[table["utilisation"] == table["utilisation"].max()]
    told = []
    for service, group in busiest.groupby("service", sort=False):
        wait = group.set_index("origin")["wait_services"]
        told.append(f"{service} {wait['engine']:.2f} in the engine and {wait['theory']:.2f} in theory")
    share = busiest["utilisation"].iloc[0]
    return f"Mean wait in mean service times by utilisation. At {share:.0%}: {'; '.join(told)}."
