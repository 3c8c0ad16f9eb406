"""The chart of the first page: requests within a limit that the reader moves."""

import altair as alt
import pandas as pd

from mooncake_companion.charts.theme import PALETTE, colours, finish
from mooncake_companion.charts.workloads import title

SYSTEMS = {
    "Mooncake": "mooncake",
    "vLLM": "vllm",
    "vLLM Prefix Caching": "vllm_prefix",
    "vLLM Chunked Prefill": "vllm_chunked",
}

_END = 1.2  # of the axis, with room for the numbers at its right
_IN_TWO_LINES = "split(replace(datum.label, 'vLLM ', 'vLLM|'), '|')"


def within_limit(table: pd.DataFrame, *, limit_ms: int = 100) -> alt.LayerChart:
    """Share of the requests that each system serves within a limit on TBT.

    Parameters
    ----------
    table : DataFrame
        ``workload``, ``origin`` ("modelled" or "reported"), ``system``, ``limit_ms``, ``share``.
    limit_ms : int
        Where the slider stands at first.
    """
    limits = sorted(table["limit_ms"].unique())
    workloads = list(dict.fromkeys(table["workload"]))
    limit = alt.param(
        name="tbt_limit",
        value=limit_ms,
        bind=alt.binding_range(
            min=limits[0],
            max=limits[-1],
            step=limits[1] - limits[0],
            name="Limit on the time between tokens (ms) ",
        ),
    )
    workload = alt.param(
        name="served_workload",
        value=workloads[0],
        bind=alt.binding_radio(
            options=workloads, labels=[title(each) for each in workloads], name="Workload "
        ),
    )
    base = (
        alt.Chart(table)
        .transform_filter("datum.limit_ms == tbt_limit && datum.workload == served_workload")
        .encode(
            alt.X("share:Q")
            .title("Requests served within the limit")
            .scale(domain=[0, _END], nice=False)
            .axis(format="%", values=[0, 0.25, 0.5, 0.75, 1]),
            alt.Y("system:N").title(None).sort(list(SYSTEMS)).axis(ticks=False, labelExpr=_IN_TWO_LINES),
            tooltip=[
                alt.Tooltip("system:N").title("System"),
                alt.Tooltip("origin:N").title("Origin"),
                alt.Tooltip("limit_ms:Q").title("Limit (ms)"),
                alt.Tooltip("share:Q", format=".1%").title("Within it"),
            ],
        )
    )
    modelled = base.transform_filter(alt.datum.origin == "modelled")
    bars = modelled.mark_bar(height={"band": 0.62}).encode(
        alt.Color("system:N", legend=None).scale(colours(SYSTEMS))
    )
    heading = (
        alt.Chart(table)
        .transform_aggregate(rows="count()")
        .transform_calculate(word="'modelled'")
        .mark_text(align="right", baseline="bottom", fontSize=11, tooltip=None)
        .encode(alt.XDatum(_END), y=alt.value(2), text="word:N")
    )
    labels = modelled.mark_text(align="right", fontWeight="bold", fontSize=13).encode(
        alt.XDatum(_END), text=alt.Text("share:Q", format=".0%")
    )
    reported = base.transform_filter(alt.datum.origin == "reported").mark_point(
        shape="diamond",
        size=110,
        filled=True,
        fill="white",
        stroke=PALETTE["reported"],
        strokeWidth=2,
        opacity=1,
    )
    chart = (bars + labels + heading + reported).add_params(workload, limit).properties(height=alt.Step(44))
    return finish(
        chart, name="served-in-time", description=_describe(table, limit_ms, workloads[0]), table=table
    )


def _describe(table: pd.DataFrame, limit_ms: int, workload: str) -> str:
    at = table[(table["limit_ms"] == limit_ms) & (table["workload"] == workload)]
    share = at.set_index(["origin", "system"])["share"]
    told = ", ".join(
        f"{system} {share[('modelled', system)]:.0%} modelled and {share[('reported', system)]:.0%} reported"
        for system in SYSTEMS
    )
    return (
        f"Share of the requests whose time between tokens stays within {limit_ms} ms, {title(workload)} "
        f"workload: {told}. A slider moves the limit; buttons choose the workload."
    )
