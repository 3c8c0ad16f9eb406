"""Chart of arXiv 2407.00079, Figure 7: latency that storing the KV cache adds."""

import altair as alt
import pandas as pd

from mooncake_companion.charts.theme import PALETTE, finish, opacity_key

METHODS = ("serialized", "layer-wise")


def added(table: pd.DataFrame) -> alt.LayerChart:
    """Seconds added by each method and length; bars: modelled, diamonds: reported.

    Parameters
    ----------
    table : DataFrame
        ``origin`` ("modelled" or "reported"), ``input_tokens``, ``method``, ``added_s``.
    """
    base = (
        alt.Chart(table)
        .transform_calculate(length="datum.input_tokens / 1000 + 'k'")
        .encode(
            alt.Y("length:N")
            .title("Prompt (tokens)")
            .sort([f"{tokens / 1000:g}k" for tokens in sorted(table["input_tokens"].unique())]),
            alt.YOffset("method:N").sort(list(METHODS)),
            alt.X("added_s:Q").title("Added by storing the KV cache (s)"),
            tooltip=[
                alt.Tooltip("origin:N").title("Origin"),
                alt.Tooltip("method:N").title("Stored"),
                alt.Tooltip("input_tokens:Q", format=",").title("Prompt (tokens)"),
                alt.Tooltip("added_s:Q", format=".4f").title("Added (s)"),
            ],
        )
    )
    solid = alt.Scale(domain=list(METHODS), range=[0.35, 1])
    key = opacity_key(table, alt.Opacity("method:N", scale=solid).title(None), color=PALETTE["dram"])
    bars = (
        base.transform_filter(alt.datum.origin == "modelled")
        .mark_bar(color=PALETTE["dram"], stroke=PALETTE["dram"])
        .encode(alt.FillOpacity("method:N", scale=solid))
    )
    marks = base.transform_filter(alt.datum.origin == "reported").mark_point(
        shape="diamond", size=90, fill="white", stroke=PALETTE["reported"], strokeWidth=2, opacity=1
    )
    return finish(
        (bars + marks + key).properties(height=alt.Step(17)),
        name="layerwise-store",
        description=_describe(table),
        table=table,
    )


def _describe(table: pd.DataFrame) -> str:
    longest = table[table["input_tokens"] == table["input_tokens"].max()]
    told = ", ".join(
        f"{row.origin} {row.method} {row.added_s:.3f} s"
        for row in longest.sort_values(["origin", "method"]).itertuples()
    )
    return (
        "Seconds that storing the KV cache adds to a prefill, by prompt length, after it or layer by layer. "
        f"At {longest['input_tokens'].iloc[0]:,} tokens: {told}."
    )
