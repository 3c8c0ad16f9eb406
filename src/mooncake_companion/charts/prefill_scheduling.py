"""Charts of FAST'25, Figure 5: TTFT by the policy that picks the prefill node."""

import altair as alt
import pandas as pd

from mooncake_companion.charts.theme import PALETTE, finish

MODELLED, REPORTED = "modelled", "reported"


def ttft(table: pd.DataFrame, *, prefill_nodes: int) -> alt.LayerChart:
    """Box plots of TTFT by policy, modelled above reported, with the split on a slider.

    Parameters
    ----------
    table : DataFrame
        ``origin`` ("modelled" or "reported"), ``policy``, ``prefill_nodes``, ``whisker_low_s``,
        ``q1_s``, ``median_s``, ``q3_s``, ``whisker_high_s``, ``mean_s``, ``ratio_to_global``. A
        missing upper whisker is drawn as none.
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
    base = (
        alt.Chart(table)
        .transform_filter("datum.origin == 'reported' || datum.prefill_nodes == split")
        .transform_calculate(
            label="datum.origin + ', ×' + format(datum.ratio_to_global, '.2f')",
            whisker_end="isValid(datum.whisker_high_s) ? datum.whisker_high_s : datum.q3_s",
        )
        .encode(
            alt.Y("policy:N").title(None).sort(_policies(table)).axis(ticks=False),
            alt.YOffset("origin:N").sort([MODELLED, REPORTED]),
            tooltip=_box_tooltip(),
        )
    )
    x = alt.X("q1_s:Q").title("Time to first token (s, logarithmic)").scale(type="log", nice=False)
    colour = _colour(table)
    whiskers = base.mark_rule(strokeWidth=1.5).encode(
        alt.X("whisker_low_s:Q").title("Time to first token (s, logarithmic)").scale(type="log"),
        alt.X2("whisker_end:Q"),
        colour,
    )
    boxes = base.mark_bar(height={"band": 0.72}, fillOpacity=0.85, strokeWidth=1.5).encode(
        x, alt.X2("q3_s:Q"), colour, alt.Stroke("origin:N", legend=None).scale(_outline())
    )
    medians = base.mark_tick(thickness=2.5, bandSize=18, color="white").encode(alt.X("median_s:Q"))
    means = base.mark_point(shape="diamond", size=70, fill="white", stroke="black", strokeWidth=1).encode(
        alt.X("mean_s:Q")
    )
    labels = base.mark_text(align="left", dx=8, fontSize=11).encode(
        alt.X("label_at:Q"), alt.Text("label:N")
    ).transform_calculate(label_at="max(datum.whisker_end, datum.mean_s)")
    chart = (whiskers + boxes + medians + means + labels).add_params(split).properties(height=alt.Step(24))
    return finish(
        chart,
        name="prefill-scheduling-ttft",
        description=_describe(table, prefill_nodes),
        table=table,
    )


def splits(table: pd.DataFrame) -> alt.LayerChart:
    """Mean TTFT as a multiple of global cache-aware routing, for every split of the nodes.

    Parameters
    ----------
    table : DataFrame
        As for `ttft`, with ``mean_low_s`` and ``mean_high_s``.
    """
    first, last = int(table["prefill_nodes"].min()), int(table["prefill_nodes"].max())
    y = alt.Y("ratio_to_global:Q").title("Mean TTFT over global cache aware (logarithmic)").scale(type="log")
    tooltip = [
        alt.Tooltip("policy:N").title("Policy"),
        alt.Tooltip("origin:N").title("Origin"),
        alt.Tooltip("prefill_nodes:O").title("Prefill nodes"),
        alt.Tooltip("ratio_to_global:Q", format=".2f").title("Ratio to global"),
        alt.Tooltip("mean_s:Q", format=",.2f").title("Mean TTFT (s)"),
    ]
    base = alt.Chart(table).encode(y, _colour(table, legend=True), tooltip=tooltip)
    modelled = base.transform_filter(alt.datum.origin == MODELLED).encode(
        alt.X("prefill_nodes:Q")
        .title("Prefill nodes; the others decode")
        .scale(domain=[first, last], nice=False)
        .axis(tickCount=last - first, format="d", tickMinStep=1)
    )
    reported = base.transform_filter(alt.datum.origin == REPORTED).mark_rule(
        strokeDash=[5, 4], strokeWidth=1.75
    )
    chart = modelled.mark_line() + modelled.mark_point(size=45) + reported
    return finish(
        chart,
        name="prefill-scheduling-splits",
        description=(
            "Lines: modelled mean time to first token of each policy as a multiple of global cache-aware "
            f"routing, for {first} to {last} prefill nodes. Dashed: the multiples that the paper reports. "
            "The order of the policies is the same at every split; the multiples are not."
        ),
        table=table,
    )


def threshold(table: pd.DataFrame) -> alt.LayerChart:
    """Mean TTFT of global cache-aware routing by its balancing threshold.

    Parameters
    ----------
    table : DataFrame
        ``threshold``, ``mean_s``, ``hit_ratio``, ``fetched_share``.
    """
    base = alt.Chart(table).encode(
        alt.X("threshold:Q").title("kvcache_balancing_threshold (logarithmic)").scale(type="log"),
        alt.Y("mean_s:Q").title("Mean TTFT (s)").scale(zero=False, nice=True),
        tooltip=[
            alt.Tooltip("threshold:Q", format="g").title("Threshold"),
            alt.Tooltip("mean_s:Q", format=".3f").title("Mean TTFT (s)"),
            alt.Tooltip("hit_ratio:Q", format=".1%").title("Prompt tokens reused"),
            alt.Tooltip("fetched_share:Q", format=".1%").title("of these, fetched"),
        ],
    )
    colour = PALETTE["global_cache_aware"]
    chart = base.mark_line(color=colour) + base.mark_point(color=colour)
    low, high = table.loc[table["mean_s"].idxmin()], table.loc[table["mean_s"].idxmax()]
    return finish(
        chart.properties(height=220),
        name="balancing-threshold-ttft",
        description=(
            "Line: modelled mean time to first token by the balancing threshold of Algorithm 1, from "
            f"{low['mean_s']:.2f} s at a threshold of {low['threshold']:g} to {high['mean_s']:.2f} s at "
            f"{high['threshold']:g}."
        ),
        table=table,
    )


def _policies(table: pd.DataFrame) -> list[str]:
    return list(dict.fromkeys(table["policy"]))


def _colour(table: pd.DataFrame, *, legend: bool = False) -> alt.Color:
    names = _policies(table)
    scale = alt.Scale(domain=names, range=[PALETTE[name.lower().replace(" ", "_")] for name in names])
    shown = alt.Legend(title=None, columns=2) if legend else None
    return alt.Color("policy:N", scale=scale, legend=shown)


def _outline() -> alt.Scale:
    return alt.Scale(domain=[MODELLED, REPORTED], range=["transparent", PALETTE["reported"]])


def _box_tooltip() -> list[alt.Tooltip]:
    seconds = {
        "mean_s": "Mean TTFT (s)",
        "q1_s": "First quartile (s)",
        "median_s": "Median (s)",
        "q3_s": "Third quartile (s)",
        "whisker_high_s": "Upper whisker (s)",
    }
    return [
        alt.Tooltip("policy:N").title("Policy"),
        alt.Tooltip("origin:N").title("Origin"),
        *(alt.Tooltip(f"{name}:Q", format=",.2f").title(title) for name, title in seconds.items()),
        alt.Tooltip("ratio_to_global:Q", format=".2f").title("Mean over global's"),
    ]


def _describe(table: pd.DataFrame, prefill_nodes: int) -> str:
    chosen = table[table["prefill_nodes"] == prefill_nodes]
    means = {
        origin: ", ".join(f"{row.policy} {row.mean_s:.2f}" for row in rows.itertuples())
        for origin, rows in chosen.groupby("origin")
    }
    return (
        f"Box plots of time to first token by routing policy with {prefill_nodes} prefill nodes. "
        f"Modelled means in seconds: {means[MODELLED]}. Reported: {means[REPORTED]}."
    )
