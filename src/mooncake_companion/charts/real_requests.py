"""Chart of arXiv 2407.00079, Figure 13: TTFT and TBT of real requests on 20 nodes."""

import altair as alt
import numpy as np
import pandas as pd

from mooncake_companion.charts.theme import PALETTE, colours, dashes, finish

SYSTEMS = {"Mooncake-[10P+10D]": "mooncake", "vLLM-[20M]": "vllm"}
"""Systems by their names in the tables, to their colours."""
_SHAPES = ("diamond", "triangle-up")
_LINES = alt.Legend(title="Lines: modelled", columns=1, symbolType="stroke", symbolSize=500)
_MARKS = alt.Legend(title="Grey marks: reported", columns=1)


def distributions(table: pd.DataFrame, *, ttft_limit_s: float, tbt_limit_s: float) -> alt.HConcatChart:
    """Share of the requests with a TTFT and a TBT up to x; lines: modelled, grey marks: reported.

    Parameters
    ----------
    table : DataFrame
        ``origin`` ("modelled" or "reported"), ``metric`` ("ttft" or "tbt"), ``system``, ``seconds``,
        ``share``.
    ttft_limit_s, tbt_limit_s : float
        The limits, which are marked.
    """
    chart = alt.hconcat(
        _panel(
            table, "ttft", "Time to first token (s, logarithmic)", ttft_limit_s, [0.1, 0.3, 1, 3, 10, 30, 100]
        ),
        _panel(
            table, "tbt", "Time between tokens (s, logarithmic)", tbt_limit_s, [0.02, 0.05, 0.1, 0.2, 0.5, 1]
        ),
        spacing=24,
    )
    return finish(chart, name="real-requests", description=_describe(table), table=table)


def _panel(
    table: pd.DataFrame, metric: str, heading: str, limit_s: float, ticks: list[float]
) -> alt.LayerChart:
    base = (
        alt.Chart(table)
        .transform_filter(f"datum.metric == '{metric}'")
        .encode(
            alt.X("seconds:Q")
            .title(heading)
            .scale(type="log", domain=[ticks[0], ticks[-1]], nice=False)
            .axis(values=ticks),
            alt.Y("share:Q").title("Requests up to it").axis(format="%"),
            tooltip=[
                alt.Tooltip("system:N").title("System"),
                alt.Tooltip("origin:N").title("Origin"),
                alt.Tooltip("seconds:Q", format=".3f").title("Seconds"),
                alt.Tooltip("share:Q", format=".1%").title("Requests up to it"),
            ],
        )
    )
    lines = (
        base.transform_filter("datum.origin == 'modelled'")
        .mark_line(clip=True)
        .encode(
            alt.Color("system:N", legend=_LINES).scale(colours(SYSTEMS)),
            alt.StrokeDash("system:N", legend=_LINES).scale(dashes(SYSTEMS)),
        )
    )
    marks = (
        base.transform_filter("datum.origin == 'reported'")
        .mark_point(color=PALETTE["reported"], filled=True, size=45, opacity=1, clip=True)
        .encode(
            alt.Shape("system:N", legend=_MARKS if metric == "ttft" else None).scale(
                domain=list(SYSTEMS), range=list(_SHAPES)
            )
        )
    )
    limit = (
        alt.Chart(table)
        .transform_aggregate(rows="count()")
        .transform_calculate(limit=f"{limit_s}")
        .mark_rule(strokeDash=[2, 3], color="#808080", tooltip=None)
        .encode(alt.X("limit:Q").title(heading))
    )
    chart: alt.LayerChart = (limit + lines + marks).properties(width=290, height=260)
    return chart.resolve_legend(shape="independent")


def _describe(table: pd.DataFrame) -> str:
    told = []
    for (origin, system), rows in table.groupby(["origin", "system"], sort=False):
        ttft_s, tbt_s = (_median_s(rows[rows["metric"] == metric]) for metric in ("ttft", "tbt"))
        told.append(f"{system}, {origin}: {ttft_s:.2f} s and {1e3 * tbt_s:.0f} ms")
    return (
        "Cumulative shares of the requests by their time to first token and by their time between tokens; "
        f"grey marks: reported. Medians: {'; '.join(told)}."
    )


def _median_s(curve: pd.DataFrame) -> float:
    return float(np.interp(0.5, curve["share"], curve["seconds"]))
