"""Charts of FAST'25, Figure 5: TTFT by the policy that picks the prefill node."""

import altair as alt
import pandas as pd

from mooncake_companion.charts.theme import PALETTE, finish, shapes

MODELLED, REPORTED = "modelled", "reported"
_IS_REPORTED = "datum.origin == 'reported'"
_FIRST_WORD = "split(datum.label, ' ')[0]"
_TWO_LINES = f"[{_FIRST_WORD}, substring(datum.label, length({_FIRST_WORD}) + 1)]"  # for narrow screens


def ttft(table: pd.DataFrame, *, prefill_nodes: int, name: str = "prefill-scheduling-ttft") -> alt.LayerChart:
    """Box plots of TTFT by policy, modelled above reported, with the split on a slider.

    Parameters
    ----------
    table : DataFrame
        ``origin`` ("modelled" or "reported"), ``policy``, ``prefill_nodes``, ``whisker_low_s``,
        ``q1_s``, ``median_s``, ``q3_s``, ``whisker_high_s``, ``mean_s``, ``ratio_to_global``. A
        missing upper whisker is drawn as none.
    prefill_nodes : int
        Where the slider starts.
    name : str
        The figure's id; "prefill-scheduling-ttft-arxiv" for the earlier report's experiment.
    """
    control = f"split_of_{name.replace('-', '_')}"  # two of these figures may share a page
    split = alt.param(
        name=control,
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
        .transform_filter(f"datum.origin == 'reported' || datum.prefill_nodes == {control}")
        .transform_calculate(
            label="'×' + format(datum.ratio_to_global, '.2f')",
            whisker_end="isValid(datum.whisker_high_s) ? datum.whisker_high_s : datum.q3_s",
        )
        .encode(
            alt.Y("policy:N").title(None).sort(_policies(table)).axis(ticks=False, labelExpr=_TWO_LINES),
            alt.YOffset("origin:N").sort([MODELLED, REPORTED]),
            tooltip=_box_tooltip(),
        )
    )
    colour = _colour(table)
    whiskers = base.mark_rule(strokeWidth=1.5).encode(
        alt.X("whisker_low_s:Q").title("Time to first token (s, logarithmic)").scale(type="log", nice=False),
        alt.X2("whisker_end:Q"),
        colour,
    )
    boxes = base.mark_bar(height={"band": 0.72}, strokeWidth=1.75).encode(
        alt.X("q1_s:Q"),
        alt.X2("q3_s:Q"),
        alt.Fill("policy:N", legend=None)
        .scale(_policy_scale(table))
        .condition(test=_IS_REPORTED, value="transparent"),
        alt.Stroke("policy:N", legend=None)
        .scale(_policy_scale(table))
        .condition(test=_IS_REPORTED, value=PALETTE["reported"]),
    )
    medians = base.mark_rect(width=2.5, height={"band": 0.72}).encode(
        alt.X("median_s:Q"),
        color=alt.condition(_IS_REPORTED, alt.value(PALETTE["reported"]), alt.value("white")),
    )
    means = base.mark_point(shape="diamond", size=70, fill="white", stroke="black", strokeWidth=1).encode(
        alt.X("mean_s:Q")
    )
    labels = (
        base.transform_calculate(label_at="max(datum.whisker_end, datum.mean_s)")
        .mark_text(align="left", dx=8, fontSize=11)
        .encode(alt.X("label_at:Q"), alt.Text("label:N"))
    )
    chart = (whiskers + boxes + medians + means + labels).add_params(split).properties(height=alt.Step(24))
    return finish(
        chart,
        name=name,
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
    colour = alt.Color("policy:N", scale=_policy_scale(table), legend=alt.Legend(title=None, columns=2))
    base = alt.Chart(table).encode(y, colour, tooltip=tooltip)
    modelled = base.transform_filter(alt.datum.origin == MODELLED).encode(
        alt.X("prefill_nodes:Q")
        .title("Prefill nodes; the others decode")
        .scale(domain=[first, last], nice=False)
        .axis(tickCount=last - first, format="d", tickMinStep=1)
    )
    reported = base.transform_filter(alt.datum.origin == REPORTED).mark_rule(
        strokeDash=[5, 4], strokeWidth=1.75
    )
    shape = alt.Shape("policy:N", scale=shapes(_policies(table)), legend=alt.Legend(title=None, columns=2))
    ends = base.transform_filter(alt.datum.origin == REPORTED).mark_point(
        filled=False, size=60, strokeWidth=2
    )
    chart = (
        modelled.mark_line()
        + modelled.mark_point(size=45).encode(shape)
        + reported
        + ends.encode(shape, x=alt.value("width"))
    )
    return finish(
        chart,
        name="prefill-scheduling-splits",
        description=(
            "Lines: modelled mean time to first token of each policy as a multiple of global cache-aware "
            f"routing, for {first} to {last} prefill nodes. Dashed: the multiples that the paper reports. "
            f"The policies come in the reported order at {_splits_in_reported_order(table)} of {last} splits."
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
    ranked = table.sort_values("mean_s")
    low, high = ranked.iloc[0], ranked.iloc[-1]
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


def _splits_in_reported_order(table: pd.DataFrame) -> int:
    means_s = table[table["origin"] == MODELLED].pivot(
        index="prefill_nodes", columns="policy", values="mean_s"
    )
    return int((means_s[_policies(table)].diff(axis="columns").iloc[:, 1:] > 0).all(axis="columns").sum())


def _policies(table: pd.DataFrame) -> list[str]:
    return list(dict.fromkeys(table["policy"]))


def _policy_scale(table: pd.DataFrame) -> alt.Scale:
    names = _policies(table)
    return alt.Scale(domain=names, range=[PALETTE[name.lower().replace(" ", "_")] for name in names])


def _colour(table: pd.DataFrame) -> alt.Color:
    """One colour a policy; what is reported is grey."""
    return alt.Color("policy:N", scale=_policy_scale(table), legend=None).condition(
        test=_IS_REPORTED, value=PALETTE["reported"]
    )


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
