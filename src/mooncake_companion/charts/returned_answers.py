"""Chart of what it gains to send the KV cache of answers back to the prefill pool."""

import altair as alt
import pandas as pd

from mooncake_companion.charts.theme import PALETTE, dashes, finish, shapes
from mooncake_companion.charts.workloads import TITLE_OF, title

GAINS = {
    "ttft_saved_pct": "Mean TTFT saved (%)",
    "hit_ratio_points": "Hit ratio gained (points)",
    "prefill_saved_pct": "Prefill time saved (%)",
}
"""Gains of the table, in words; the first is shown at the start."""


def gains(table: pd.DataFrame) -> alt.HConcatChart:
    """Gain by capacity and by bandwidth: a line a workload through means, a bar for the range.

    Parameters
    ----------
    table : DataFrame
        ``workload``, ``varied`` ("capacity" or "bandwidth"), ``cache_tokens_per_node``,
        ``bandwidth_gbit_per_s``, ``gain`` (of `GAINS`), ``mean``, ``low``, ``high``.
    """
    quantity = alt.param(
        name="answers_gain",
        value=next(iter(GAINS)),
        bind=alt.binding_radio(options=list(GAINS), labels=list(GAINS.values()), name="Gain "),
    )
    axes = (
        ("capacity", "cache_tokens_per_node", "Cache of a prefill node (tokens, logarithmic)", "gain_sizes"),
        ("bandwidth", "bandwidth_gbit_per_s", "Network of a node (Gbit/s, logarithmic)", "gain_rates"),
    )
    ticks = [
        alt.param(name=name, value=sorted(table[column][table["varied"] == varied].unique().tolist()))
        for varied, column, _, name in axes
    ]
    chart = alt.hconcat(*(_panel(table, *axis) for axis in axes)).resolve_scale(y="shared")
    return finish(
        chart.add_params(quantity, *ticks),
        name="returned-answers",
        description=_describe(table),
        table=table,
    )


def _panel(table: pd.DataFrame, varied: str, column: str, heading: str, ticks: str) -> alt.LayerChart:
    colours = {title(name): PALETTE.get(name, PALETTE["dram"]) for name in table["workload"].unique()}
    base = (
        alt.Chart(table)
        .transform_filter(f"datum.varied == '{varied}' && datum.gain == answers_gain")
        .transform_calculate(served=TITLE_OF, gained=f"{GAINS}[datum.gain]")
        .encode(
            alt.X(f"{column}:Q")
            .title(heading)
            .scale(type="log", nice=False, padding=12)
            .axis(values=alt.ExprRef(ticks), format="~s", labelOverlap=True),
            alt.Color("served:N", legend=alt.Legend(title=None, symbolOpacity=1)).scale(
                domain=list(colours), range=list(colours.values())
            ),
            tooltip=[
                alt.Tooltip("served:N").title("Workload"),
                alt.Tooltip("gained:N").title("Gain"),
                alt.Tooltip("cache_tokens_per_node:Q", format=",").title("Cache (tokens)"),
                alt.Tooltip("bandwidth_gbit_per_s:Q", format=".0f").title("Network (Gbit/s)"),
                alt.Tooltip("mean:Q", format="+.2f").title("Mean"),
                alt.Tooltip("low:Q", format="+.2f").title("Least"),
                alt.Tooltip("high:Q", format="+.2f").title("Greatest"),
            ],
        )
    )
    zero = alt.Chart(table).mark_rule(color=PALETTE["reported"], strokeDash=[6, 4]).encode(alt.YDatum(0))
    dash = alt.StrokeDash("served:N", legend=None).scale(dashes(colours))
    shape = alt.Shape("served:N", legend=alt.Legend(title=None, symbolOpacity=1)).scale(shapes(colours))
    means = base.encode(alt.Y("mean:Q").title("Gain with answers returned (% or points)"))
    ranges = base.mark_rule(strokeWidth=1.5).encode(alt.Y("low:Q"), alt.Y2("high:Q"))
    layers = zero + ranges + means.mark_line().encode(dash) + means.mark_point(size=60).encode(shape)
    sized: alt.LayerChart = layers.properties(width=270, height=260)
    return sized


def _describe(table: pd.DataFrame) -> str:
    told = table[table["gain"] == next(iter(GAINS))]
    spans = "; ".join(
        f"{title(str(name))} {rows['mean'].min():+.1f} to {rows['mean'].max():+.1f} %"
        for name, rows in told.groupby("workload", sort=False)
    )
    return (
        "Modelled gain from sending the KV cache of answers back to the prefill nodes, by their cache and "
        f"their network. Mean time to first token saved: {spans}."
    )
