"""Chart of FAST'25, Figure 11: how many nodes hold a hot block, over time."""

import altair as alt
import pandas as pd

from mooncake_companion.charts.theme import PALETTE, finish
from mooncake_companion.charts.workloads import in_order, title

MODELLED, REPORTED = "modelled", "reported"


def replicas(table: pd.DataFrame) -> alt.FacetChart:
    """Replicas over time, a panel a rank, of the workload that is chosen.

    Panels keep Vega-Lite's own order: another one would move their headings alone.

    Parameters
    ----------
    table : DataFrame
        ``origin`` ("modelled" or "reported"), ``workload``, ``key_rank``, ``time_s``,
        ``replica_count``, ``low``, ``high`` (NaN where reported).
    """
    workloads = in_order(table)
    workload = alt.param(
        name="workload",
        value=workloads[0],
        bind=alt.binding_radio(options=workloads, labels=[title(each) for each in workloads], name="Trace "),
    )
    base = (
        alt.Chart()
        .transform_filter("datum.workload === workload")
        .encode(
            alt.X("time_s:Q").title("Time (s)").axis(tickCount=4),
            tooltip=[
                alt.Tooltip("workload:N").title("Workload"),
                alt.Tooltip("key_rank:O").title("Rank"),
                alt.Tooltip("origin:N").title("Origin"),
                alt.Tooltip("time_s:Q", format=",").title("Time (s)"),
                alt.Tooltip("replica_count:Q", format=".1f").title("Replicas"),
            ],
        )
    )
    y = alt.Y("replica_count:Q").title("Replicas").axis(tickMinStep=2)
    modelled = base.transform_filter(alt.datum.origin == MODELLED)
    band = modelled.mark_area(
        color=PALETTE["dram"],
        fillOpacity=0.25,
        stroke=PALETTE["dram"],
        strokeWidth=0.5,
        interpolate="step-after",
    ).encode(alt.Y("low:Q").title("Replicas"), alt.Y2("high:Q"))
    line = modelled.mark_line(color=PALETTE["dram"], interpolate="step-after").encode(y)
    reported = (
        base.transform_filter(alt.datum.origin == REPORTED)
        .mark_line(color=PALETTE["reported"], interpolate="step-after", strokeDash=[4, 2], strokeWidth=1.75)
        .encode(y)
    )
    chart = (
        (band + line + reported)
        .properties(width=250, height=120)
        .facet(data=table, facet=alt.Facet("key_rank:O").title("Rank of the block by its uses"), columns=2)
        .add_params(workload)
    )
    return finish(chart, name="hot-block-replicas", description=_describe(table), table=table)


def _describe(table: pd.DataFrame) -> str:
    hottest = table[table["key_rank"] == table["key_rank"].min()]
    parts = [
        f"{title(str(workload))}, {origin}: {rows['replica_count'].max():.0f}"
        for (workload, origin), rows in hottest.groupby(["workload", "origin"], sort=False)
    ]
    return (
        "Number of nodes that hold blocks of four ranks over time; solid: modelled mean over the blocks of "
        f"a rank, with its 10 to 90 % band; dashed: reported. Most for rank {hottest['key_rank'].iloc[0]}: "
        f"{', '.join(parts)}."
    )
