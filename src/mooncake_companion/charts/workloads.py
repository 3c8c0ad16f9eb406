"""The papers' workloads in words, a panel for each, and charts of what they are like."""

import altair as alt
import pandas as pd

from mooncake_companion.charts.theme import PALETTE, colours, dashes, finish

TITLES = {
    "conversation": "Conversation",
    "toolagent": "Tool and agent",
    "synthetic": "Synthetic",
    "all": "All three",
    "arxiv": "arXiv report",
}

TITLE_OF = (
    " : ".join(f"datum.workload == '{name}' ? '{title}'" for name, title in TITLES.items())
    + " : datum.workload"
)
"""Vega expression for the title of a row's ``workload``."""


def title(workload: str) -> str:
    """A workload's title; its name if it is none of the papers'."""
    return TITLES.get(workload, workload)


def in_order(table: pd.DataFrame) -> list[str]:
    """The workloads of a table, the papers' in their order, then others.

    >>> in_order(pd.DataFrame({"workload": ["mine", "synthetic", "conversation"]}))
    ['conversation', 'synthetic', 'mine']
    """
    there = set(table["workload"])
    return [name for name in TITLES if name in there] + sorted(there - set(TITLES))


def panels(table: pd.DataFrame, chart: alt.LayerChart) -> alt.ConcatChart:
    """A chart once for each workload of its table, two in a row, on common scales.

    Not a facet: Vega-Lite orders a facet's panels by the data, whatever order is asked for.
    """
    each = [
        chart.transform_filter(alt.datum.workload == name).properties(
            title=alt.Title(title(name), anchor="middle", fontWeight="normal", fontSize=12)
        )
        for name in in_order(table)
    ]
    joined: alt.ConcatChart = alt.concat(*each, columns=2).resolve_scale(x="shared", y="shared")
    return joined


_SERVICES = ("conversation", "toolagent", "synthetic", "arxiv")
_KEY = alt.Legend(title=None, columns=2, symbolType="stroke", symbolSize=500)
_KNOWN = "Share of the prompt known"


def distributions(table: pd.DataFrame) -> alt.Chart:
    """Cumulative distributions of lengths and ages, of the quantity that is chosen.

    Parameters
    ----------
    table : DataFrame
        ``workload``, ``quantity``, ``level`` (share of requests with at most ``value``), ``value``.
    """
    lengths = table[table["quantity"] != _KNOWN]
    quantities = list(dict.fromkeys(lengths["quantity"]))
    quantity = alt.param(
        name="quantity", value=quantities[0], bind=alt.binding_radio(options=quantities, name="Of the ")
    )
    lines = (
        _by_workload(lengths)
        .transform_filter("datum.quantity === quantity && datum.value > 0")
        .mark_line()
        .encode(
            alt.X("value:Q")
            .title("Tokens, or seconds (logarithmic)")
            .scale(type="log")
            .axis(format="~s", tickCount=6),
            alt.Y("level:Q").title("Requests with at most so much").axis(format="%"),
            tooltip=[
                alt.Tooltip("name:N").title("Workload"),
                alt.Tooltip("quantity:N").title("Quantity"),
                alt.Tooltip("value:Q", format=",.4~g").title("At most"),
                alt.Tooltip("level:Q", format=".1%").title("Requests"),
            ],
        )
    )
    medians = _medians(lengths)
    told = "; ".join(f"{each}: {', '.join(rows)}" for each, rows in medians.items())
    return finish(
        lines.add_params(quantity).properties(height=280),
        name="workload-distributions",
        description=f"Cumulative distributions by workload, one quantity at a time. Medians: {told}.",
        table=lengths,
    )


def known_shares(table: pd.DataFrame) -> alt.Chart:
    """Cumulative distribution of how much of a prompt was computed before.

    Parameters
    ----------
    table : DataFrame
        As for `distributions`.
    """
    known = table[table["quantity"] == _KNOWN]
    lines = (
        _by_workload(known)
        .mark_line()
        .encode(
            alt.X("value:Q").title("Share of the prompt known before").axis(format="%"),
            alt.Y("level:Q").title("Requests with at most so much").axis(format="%"),
            tooltip=[
                alt.Tooltip("name:N").title("Workload"),
                alt.Tooltip("value:Q", format=".1%").title("Known, at most"),
                alt.Tooltip("level:Q", format=".1%").title("Requests"),
            ],
        )
    )
    halves = ", ".join(
        f"{title(str(name))} {1 - rows.loc[rows['value'] <= 0.5, 'level'].max():.0%}"
        for name, rows in known.groupby("workload", sort=False)
    )
    return finish(
        lines.properties(height=260),
        name="workload-known-shares",
        description=(
            "Cumulative distribution of the share of a prompt that an earlier request had computed, by "
            f"workload. Requests with more than half of it: {halves}."
        ),
        table=known,
    )


def arrivals(table: pd.DataFrame) -> alt.Chart:
    """Requests over time, by the minute or by the second.

    Parameters
    ----------
    table : DataFrame
        ``workload``, ``view``, ``time_s`` (start of the window), ``window_s``, ``requests``.
    """
    views = list(dict.fromkeys(table["view"]))
    view = alt.param(name="view", value=views[0], bind=alt.binding_radio(options=views, name="View "))
    lines = (
        _by_workload(table)
        .transform_filter("datum.view === view")
        .mark_line(interpolate="step-after", strokeWidth=1.5)
        .encode(
            alt.X("time_s:Q").title("Time (s)").scale(nice=False),
            alt.Y("requests:Q").title("Requests in each window"),
            tooltip=[
                alt.Tooltip("name:N").title("Workload"),
                alt.Tooltip("time_s:Q", format=",").title("From (s)"),
                alt.Tooltip("window_s:Q").title("Length (s)"),
                alt.Tooltip("requests:Q", format=",").title("Requests"),
            ],
        )
    )
    most = table[table["view"] == views[-1]].groupby("workload", sort=False)["requests"].max()
    told = ", ".join(f"{title(str(name))} {count}" for name, count in most.items())
    return finish(
        lines.add_params(view).properties(height=240),
        name="workload-arrivals",
        description=f"Requests over time by workload. Most in a second of the first two minutes: {told}.",
        table=table,
    )


def block_hits(table: pd.DataFrame) -> alt.LayerChart:
    """Share of the blocks that are asked for at most so often; what the report draws as points.

    Parameters
    ----------
    table : DataFrame
        ``origin`` ("modelled" or "reported"), ``workload``, ``block_hit_count``, ``cdf``.
    """
    base = _by_workload(table).encode(
        alt.X("block_hit_count:Q").title("Requests that ask for a block (logarithmic)").scale(type="log"),
        alt.Y("cdf:Q").title("Blocks with at most so many").axis(format="%").scale(zero=False),
        tooltip=[
            alt.Tooltip("name:N").title("Workload"),
            alt.Tooltip("origin:N").title("Origin"),
            alt.Tooltip("block_hit_count:Q", format=",.0f").title("Requests, at most"),
            alt.Tooltip("cdf:Q", format=".1%").title("Blocks"),
        ],
    )
    lines = base.transform_filter("datum.origin === 'modelled'").mark_line(interpolate="step-after")
    points = base.transform_filter("datum.origin === 'reported'").mark_point(
        filled=False, size=50, strokeWidth=1.5, opacity=1, color=PALETTE["reported"]
    )
    points = points.encode(color=alt.value(PALETTE["reported"]), strokeDash=alt.value([1, 0]))
    once = table[table["block_hit_count"].round() == 1].drop_duplicates(["origin", "workload"], keep="last")
    told = ", ".join(f"{title(str(r.workload))} ({r.origin}) {r.cdf:.0%}" for r in once.itertuples())
    return finish(
        (lines + points).properties(height=280),
        name="workload-block-hits",
        description=f"Cumulative distribution of how often blocks are asked for. Asked for once: {told}.",
        table=table,
    )


def histograms(table: pd.DataFrame) -> alt.LayerChart:
    """Requests by length in the bins of the report's figure, of prompts or answers.

    Parameters
    ----------
    table : DataFrame
        ``origin``, ``quantity`` ("input_length", "output_length"), ``bin_low_tokens``,
        ``bin_high_tokens``, ``requests``.
    """
    quantity = alt.param(
        name="length",
        value="input_length",
        bind=alt.binding_radio(
            options=["input_length", "output_length"], labels=["Prompts", "Answers"], name="Length of "
        ),
    )
    base = (
        alt.Chart(table)
        .transform_filter("datum.quantity === length && datum.requests > 0")
        .transform_calculate(middle="(datum.bin_low_tokens + datum.bin_high_tokens) / 2", floor="0.5")
        .encode(
            tooltip=[
                alt.Tooltip("origin:N").title("Origin"),
                alt.Tooltip("bin_low_tokens:Q", format=",.0f").title("From (tokens)"),
                alt.Tooltip("bin_high_tokens:Q", format=",.0f").title("To (tokens)"),
                alt.Tooltip("requests:Q", format=",").title("Requests"),
            ]
        )
    )
    y = alt.Y("requests:Q").title("Requests (logarithmic)").scale(type="log", domainMin=0.5)
    bars = (
        base.transform_filter("datum.origin === 'modelled'")
        .mark_rect(color=PALETTE["arxiv"], stroke="transparent", strokeWidth=1)
        .encode(
            alt.X("bin_low_tokens:Q").title("Length (tokens)").axis(format="~s", tickCount=7),
            alt.X2("bin_high_tokens:Q"),
            y,
            alt.Y2("floor:Q"),
        )
    )
    points = (
        base.transform_filter("datum.origin === 'reported'")
        .mark_point(filled=False, size=50, strokeWidth=1.5, opacity=1, color=PALETTE["reported"])
        .encode(alt.X("middle:Q"), y)
    )
    sums = table.groupby(["origin", "quantity"])["requests"].sum()
    return finish(
        (bars + points).add_params(quantity).properties(height=240),
        name="workload-length-histograms",
        description=(
            "Histogram of lengths in the bins of the report, prompts or answers; bars modelled, points "
            "reported. "
            f"Requests in all: {sums['modelled', 'input_length']:,.0f} modelled, "
            f"{sums['reported', 'input_length']:,.0f} reported."
        ),
        table=table,
    )


def _by_workload(table: pd.DataFrame) -> alt.Chart:
    there = set(table["workload"])
    names = {title(each): each for each in _SERVICES if each in there}
    chart: alt.Chart = (
        alt.Chart(table)
        .transform_calculate(name=TITLE_OF)
        .encode(
            alt.Color("name:N", legend=_KEY).scale(colours(names)),
            alt.StrokeDash("name:N", legend=_KEY).scale(dashes(names)),
        )
    )
    return chart


def _medians(table: pd.DataFrame) -> dict[str, list[str]]:
    at_half = table[table["level"] == 0.5]
    return {
        str(quantity): [f"{title(str(row.workload))} {row.value:,.0f}" for row in rows.itertuples()]
        for quantity, rows in at_half.groupby("quantity", sort=False)
    }
