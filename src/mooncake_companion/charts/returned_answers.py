"""Chart of what it gains to send the KV cache of answers back to the prefill pool."""

import altair as alt
import pandas as pd

from mooncake_companion.charts.theme import PALETTE, dashes, finish, shapes
from mooncake_companion.charts.workloads import title

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
    shown = table.assign(gain=table["gain"].map(GAINS), workload=table["workload"].map(title))
    shown.attrs = table.attrs
    quantity = alt.param(
        name="answers_gain",
        value=next(iter(GAINS.values())),
        bind=alt.binding_radio(options=list(GAINS.values()), name="Gain "),
    )
    colours = {title(name): PALETTE.get(name, PALETTE["dram"]) for name in table["workload"].unique()}
    by_capacity = _panel(
        shown, "capacity", "cache_tokens_per_node", "Cache of a prefill node (tokens, logarithmic)", colours
    )
    by_bandwidth = _panel(
        shown, "bandwidth", "bandwidth_gbit_per_s", "Network of a node (Gbit/s, logarithmic)", colours
    )
    chart = alt.hconcat(by_capacity, by_bandwidth).resolve_scale(y="shared")
    return finish(
        chart.add_params(quantity), name="returned-answers", description=_describe(table), table=shown
    )


def _panel(
    shown: pd.DataFrame, varied: str, column: str, heading: str, colours: dict[str, str]
) -> alt.LayerChart:
    rows = shown[shown["varied"] == varied]
    base = (
        alt.Chart(shown)
        .transform_filter(f"datum.varied == '{varied}' && datum.gain == answers_gain")
        .encode(
            alt.X(f"{column}:Q")
            .title(heading)
            .scale(type="log", nice=False, padding=12)
            .axis(values=sorted(rows[column].unique().tolist()), format="~s", labelOverlap=True),
            alt.Color("workload:N", legend=alt.Legend(title=None, symbolOpacity=1)).scale(
                domain=list(colours), range=list(colours.values())
            ),
            tooltip=[
                alt.Tooltip("workload:N").title("Workload"),
                alt.Tooltip("gain:N").title("Gain"),
                alt.Tooltip("cache_tokens_per_node:Q", format=",").title("Cache (tokens)"),
                alt.Tooltip("bandwidth_gbit_per_s:Q", format=".0f").title("Network (Gbit/s)"),
                alt.Tooltip("mean:Q", format="+.2f").title("Mean"),
                alt.Tooltip("low:Q", format="+.2f").title("Least"),
                alt.Tooltip("high:Q", format="+.2f").title("Greatest"),
            ],
        )
    )
    zero = alt.Chart(shown).mark_rule(color=PALETTE["reported"], strokeDash=[6, 4]).encode(alt.YDatum(0))
    dash = alt.StrokeDash("workload:N", legend=None).scale(dashes(colours))
    shape = alt.Shape("workload:N", legend=alt.Legend(title=None, symbolOpacity=1)).scale(shapes(colours))
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
