"""Charts of FAST'25, Figure 13: time to first token and of transfers, by the network's bandwidth."""

import altair as alt
import pandas as pd

from mooncake_companion.charts.theme import PALETTE, finish

_DECADES = [10.0**power for power in range(-6, 6)]
_RATES = [0.1, 1, 4, 10, 24, 40, 80, 160, 400, 1000, 10_000, 100_000]
_SOLID, _DASHED = [1, 0], [6, 4]
_Series = dict[str, tuple[str, str, list[int]]]
_TTFT: _Series = {
    "avg_ttft": ("Prefixes fetched", "replicate", _SOLID),
    "ttft_recompute": ("All recomputed", "recompute", _SOLID),
}
_TRANSFER: _Series = {
    "transfer_time_real": ("Real", "network", _SOLID),
    "transfer_time_theoretical": ("Bytes over line rate", "network", _DASHED),
}


def by_bandwidth(table: pd.DataFrame, *, prefill_nodes: int) -> alt.HConcatChart:
    """Mean TTFT and mean transfer time, modelled as lines, reported as diamonds; the split on a slider.

    Parameters
    ----------
    table : DataFrame
        ``origin`` ("modelled" or "reported"), ``bandwidth_gbit_per_s`` (missing for "ttft_recompute"),
        ``series``, ``seconds``, ``prefill_nodes`` (missing for what is reported).
    prefill_nodes : int
        Where the slider starts.
    """
    split = alt.param(
        name="split",
        value=prefill_nodes,
        bind=alt.binding_range(
            min=int(table["prefill_nodes"].min()),
            max=int(table["prefill_nodes"].max()),
            step=1,
            name="Prefill nodes ",
        ),
    )
    chart = alt.hconcat(
        _panel(table, _TTFT, "Mean time to first token (s, logarithmic)"),
        _panel(table, _TRANSFER, "Mean time of a transfer (s, logarithmic)"),
    ).resolve_scale(color="independent", shape="independent", strokeDash="independent")
    return finish(
        chart.add_params(split, alt.param(name="network_rates", value=_RATES)),
        name="network-bandwidth",
        description=_describe(table, prefill_nodes),
        table=table,
    )


def _panel(table: pd.DataFrame, series: _Series, heading: str) -> alt.LayerChart:
    titles = [title for title, *_ in series.values()]
    named = " : ".join(f"datum.series == '{name}' ? '{title}'" for name, (title, *_) in series.items())
    base = (
        alt.Chart(table)
        .transform_filter(alt.FieldOneOfPredicate(field="series", oneOf=list(series)))
        .transform_filter("datum.origin == 'reported' || datum.prefill_nodes == split")
        .transform_calculate(what=f"{named} : ''")
        .encode(
            alt.Y("seconds:Q").title(heading).scale(type="log").axis(values=_DECADES),
            alt.Color(
                "what:N", legend=alt.Legend(title=None, columns=1, symbolType="stroke", symbolSize=500)
            ).scale(domain=titles, range=[PALETTE[meaning] for _, meaning, _ in series.values()]),
            alt.StrokeDash(
                "what:N", legend=alt.Legend(title=None, columns=1, symbolType="stroke", symbolSize=500)
            ).scale(domain=titles, range=[dash for *_, dash in series.values()]),
            tooltip=[
                alt.Tooltip("what:N").title("Series"),
                alt.Tooltip("origin:N").title("Origin"),
                alt.Tooltip("bandwidth_gbit_per_s:Q", format=".0f").title("Bandwidth (Gbit/s)"),
                alt.Tooltip("seconds:Q", format=",.3f").title("Seconds"),
            ],
        )
    )
    by_rate = base.transform_filter("isValid(datum.bandwidth_gbit_per_s)").encode(
        alt.X("bandwidth_gbit_per_s:Q")
        .title("Network of a node (Gbit/s, logarithmic)")
        .scale(type="log", nice=False)
        .axis(values=alt.ExprRef("network_rates"))
    )
    level = base.transform_filter("!isValid(datum.bandwidth_gbit_per_s)")
    grey = alt.ColorValue(PALETTE["reported"])
    modelled, reported = "datum.origin == 'modelled'", "datum.origin == 'reported'"
    layers = (
        by_rate.transform_filter(modelled).mark_line(point={"size": 45})
        + level.transform_filter(modelled).mark_rule(strokeWidth=2.25)
        + level.transform_filter(reported)
        .mark_rule(strokeWidth=2.25)
        .encode(grey, alt.StrokeDashValue(_DASHED))
        + by_rate.transform_filter(reported)
        .mark_point(size=90, filled=True, opacity=1)
        .encode(
            grey,
            alt.Shape("what:N", legend=None).scale(domain=titles[::-1], range=["triangle-up", "diamond"]),
        )
    )
    return layers.properties(width=270, height=260)


def _describe(table: pd.DataFrame, prefill_nodes: int) -> str:
    shown = table[(table["origin"] == "reported") | (table["prefill_nodes"] == prefill_nodes)]
    means = shown[shown["series"] == "avg_ttft"].pivot(
        index="bandwidth_gbit_per_s", columns="origin", values="seconds"
    )
    told = "; ".join(
        f"{rate:.0f} Gbit/s {row['modelled']:.2f} s (reported {row['reported']:.2f} s)"
        for rate, row in means.iterrows()
    )
    return f"Modelled mean time to first token by bandwidth, with {prefill_nodes} prefill nodes: {told}."
