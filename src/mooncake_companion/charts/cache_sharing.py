"""Charts of FAST'25, Figure 10: local caches against a global one."""

import altair as alt
import pandas as pd

from mooncake_companion.charts.theme import PALETTE, colours, finish, shapes
from mooncake_companion.charts.workloads import TITLE_OF, in_order, panels, title

MODELLED, REPORTED = "modelled", "reported"
_SHORTLIST_KEY = "Cache (dashed: reported)"
_MEANINGS = {"local": "local_cache_aware", "global": "global_cache_aware"}


def sharing(table: pd.DataFrame) -> alt.HConcatChart:
    """Hit rate and prefill time with local caches and with a global one.

    Parameters
    ----------
    table : DataFrame
        ``origin`` ("modelled" or "reported"), ``workload``, ``cache`` ("local" or "global"),
        ``hit_rate_pct``, ``prefill_gpu_time_s``.
    """
    hits = _bars(table, "hit_rate_pct", "Cache hit rate (% of prompt tokens)")
    seconds = _bars(table, "prefill_gpu_time_s", "Mean prefill time (s)", labelled=False)
    return finish(
        alt.hconcat(hits, seconds, spacing=24),
        name="cache-sharing",
        description=_describe(table),
        table=table,
    )


def shortlists(table: pd.DataFrame) -> alt.ConcatChart:
    """Hit rate by how many nodes Conductor weighs; what is reported as level lines.

    Parameters
    ----------
    table : DataFrame
        ``origin``, ``workload``, ``cache``, ``rule``, ``shortlist_nodes``, ``hit_rate_pct``.
    """
    base = alt.Chart(table).encode(
        alt.Y("hit_rate_pct:Q").title("Cache hit rate (% of prompt tokens)"),
        alt.Color("cache:N").title(_SHORTLIST_KEY).scale(colours(_MEANINGS)),
        tooltip=[
            alt.Tooltip("cache:N").title("Cache"),
            alt.Tooltip("rule:N").title("Routing"),
            alt.Tooltip("shortlist_nodes:Q").title("Nodes weighed"),
            alt.Tooltip("hit_rate_pct:Q", format=".1f").title("Hit rate (%)"),
        ],
    )
    modelled = base.transform_filter("datum.rule == 'shortlist'").encode(
        alt.X("shortlist_nodes:Q")
        .title("Nodes weighed, shortest queues first")
        .axis(format="d", tickMinStep=1)
        .scale(nice=False)
    )
    reported = base.transform_filter(alt.datum.origin == REPORTED).mark_rule(
        strokeDash=[5, 4], strokeWidth=1.75
    )
    shape = alt.Shape("cache:N").title(_SHORTLIST_KEY).scale(shapes(_MEANINGS))
    ends = base.transform_filter(alt.datum.origin == REPORTED).mark_point(
        filled=False, size=60, strokeWidth=2
    )
    layers = (
        modelled.mark_line()
        + modelled.mark_point(size=45).encode(shape)
        + reported
        + ends.encode(shape, x=alt.value("width"))
    )
    chart = panels(table, layers.properties(width=230, height=200))
    return finish(
        chart, name="cache-sharing-shortlists", description=_describe_shortlists(table), table=table
    )


def _bars(table: pd.DataFrame, quantity: str, heading: str, *, labelled: bool = True) -> alt.LayerChart:
    base = (
        alt.Chart(table)
        .transform_calculate(panel=TITLE_OF)
        .encode(
            alt.X(f"{quantity}:Q").title(heading).axis(tickCount=5),
            alt.Y("panel:N")
            .title(None)
            .sort([title(name) for name in in_order(table)])
            .axis(ticks=False, labels=labelled),
            alt.YOffset("cache:N").sort(list(_MEANINGS)),
            tooltip=[
                alt.Tooltip("workload:N").title("Workload"),
                alt.Tooltip("cache:N").title("Cache"),
                alt.Tooltip("origin:N").title("Origin"),
                alt.Tooltip("hit_rate_pct:Q", format=".1f").title("Hit rate (%)"),
                alt.Tooltip("prefill_gpu_time_s:Q", format=".2f").title("Prefill (s)"),
            ],
        )
    )
    bars = (
        base.transform_filter(alt.datum.origin == MODELLED)
        .mark_bar(height={"band": 0.8})
        .encode(alt.Color("cache:N").title("Cache (diamonds: reported)").scale(colours(_MEANINGS)))
    )
    reported = base.transform_filter(alt.datum.origin == REPORTED)
    marks = reported.mark_point(
        shape="diamond",
        size=90,
        filled=True,
        fill="white",
        stroke=PALETTE["reported"],
        strokeWidth=2,
        opacity=1,
    )
    chart: alt.LayerChart = (bars + marks).properties(width=230, height=alt.Step(20))
    return chart


def _describe(table: pd.DataFrame) -> str:
    parts = [
        f"{title(str(workload))}, {origin}: "
        + ", ".join(
            f"{row.cache} {row.hit_rate_pct:.1f} % and {row.prefill_gpu_time_s:.2f} s"
            for row in rows.itertuples()
        )
        for (workload, origin), rows in table.groupby(["workload", "origin"], sort=False)
    ]
    return f"Hit rate and mean prefill time by kind of cache. {'. '.join(parts)}."


def _describe_shortlists(table: pd.DataFrame) -> str:
    local = table[(table["rule"] == "shortlist") & (table["cache"] == "local")]
    parts = []
    for workload, rows in local.groupby("workload", sort=False):
        ends = rows.sort_values("shortlist_nodes").iloc[[0, -1]]
        (few, many), (low, high) = ends["shortlist_nodes"], ends["hit_rate_pct"]
        parts.append(
            f"{title(str(workload))}: {low:.0f} % with {few:.0f} weighed, {high:.0f} % with {many:.0f}"
        )
    return (
        "Hit rate of local and global caches by how many nodes the scheduler weighs; dashed: reported. "
        f"Local caches: {'; '.join(parts)}."
    )
