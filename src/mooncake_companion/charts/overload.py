"""Charts of arXiv 2407.00079, section 7: rejection under overload, and the swing of the loads."""

import altair as alt
import pandas as pd

from mooncake_companion.charts.theme import PALETTE, colours, dashes, finish, opacity_key, shapes

POLICIES = {
    "Baseline": "baseline",
    "Early rejection": "early_rejection",
    "Early rejection based on prediction": "predictive_rejection",
}
"""Policies by their names in the tables, to their colours."""
_FATES = {
    "rejected_at_arrival": "At arrival",
    "rejected_after_prefill": "After its prefill (wasted)",
}
_IN_LINES = "split(replace(datum.label, ' based on ', '|based on|'), '|')"  # for narrow screens
_PREDICTION = "Early rejection based on prediction"
_KEY = alt.Legend(title=None, symbolType="stroke", symbolSize=500)
_POOLS = {"Prefill": "prefill", "Decode": "decode"}


def rejected(table: pd.DataFrame) -> alt.LayerChart:
    """Share of the requests that each policy turns away, by when, with what the paper reports.

    Parameters
    ----------
    table : DataFrame
        ``origin`` ("modelled" or "reported"), ``policy``, ``requests``, ``rejected``,
        ``rejected_share``; modelled rows also ``rejected_at_arrival``, ``rejected_after_prefill``.
        Policies other than the three of Table 3 are left out.
    """
    shown = table[table["policy"].isin(list(POLICIES))]
    y = alt.Y("policy:N").title(None).sort(list(POLICIES)).axis(ticks=False, labelExpr=_IN_LINES)
    solid = alt.Scale(domain=list(_FATES.values()), range=[0.35, 1])
    key = opacity_key(shown, alt.Opacity("fate:O", scale=solid).title(None))
    bars = (
        alt.Chart(shown)
        .transform_filter("datum.origin == 'modelled'")
        .transform_fold(list(_FATES), as_=["column", "count"])
        .transform_calculate(
            fate=f"datum.column == 'rejected_at_arrival' ? '{_FATES['rejected_at_arrival']}' : "
            f"'{_FATES['rejected_after_prefill']}'",
            share="datum.count / datum.requests",
        )
        .mark_bar(height={"band": 0.6})
        .encode(
            y,
            alt.X("share:Q").title("Requests rejected").axis(format="%"),
            alt.Color("policy:N", scale=colours(POLICIES), legend=None),
            alt.Stroke("policy:N", scale=colours(POLICIES), legend=None),
            alt.FillOpacity("fate:O", scale=solid),
            alt.Order("fate:O"),
            tooltip=[
                alt.Tooltip("policy:N").title("Policy"),
                alt.Tooltip("fate:N").title("Rejected"),
                alt.Tooltip("share:Q", format=".1%").title("of all requests"),
                alt.Tooltip("count:Q", format=",").title("Requests"),
            ],
        )
    )
    reported = (
        alt.Chart(shown)
        .transform_filter("datum.origin == 'reported'")
        .mark_tick(color=PALETTE["reported"], thickness=4, opacity=1, height={"band": 0.85})
        .encode(
            y,
            alt.X("rejected_share:Q"),
            tooltip=[
                alt.Tooltip("policy:N").title("Policy, as reported"),
                alt.Tooltip("rejected_share:Q", format=".1%").title("Requests rejected"),
                alt.Tooltip("rejected:Q", format=",").title("Requests"),
            ],
        )
    )
    return finish(
        (bars + reported + key).properties(height=alt.Step(44)),
        name="overload-rejected",
        description=_describe_rejected(shown),
        table=table,
    )


def loads(table: pd.DataFrame) -> alt.FacetChart:
    """Load of both pools over time, a panel a policy; what the paper observed is grey.

    Parameters
    ----------
    table : DataFrame
        ``origin``, ``policy``, ``pool`` ("Prefill" or "Decode"), ``time_s``, ``load`` (1 is the limit).
    """
    return finish(
        _loads(table, "Time (min)", 60.0),
        name="overload-pool-loads",
        description=(
            "Load of the prefill and of the decode pool over 20 minutes, a panel for each policy; grey: "
            f"as reported for early rejection on a production cluster. {_describe_swing(table)}"
        ),
        table=table,
    )


def mechanism(table: pd.DataFrame, *, input_tokens: int) -> alt.FacetChart:
    """Load of both pools when all requests are alike and come evenly, a panel a policy.

    Parameters
    ----------
    table : DataFrame
        As for `loads`, without reported rows, and ``input_tokens`` of the prompts, which can be chosen.
    input_tokens : int
        What is chosen at first.
    """
    lengths = sorted(table["input_tokens"].unique().tolist())
    length = alt.param(
        name="length",
        value=input_tokens,
        bind=alt.binding_select(
            options=lengths, labels=[f"{tokens:,} tokens" for tokens in lengths], name="Prompts of "
        ),
    )
    chosen = table[table["input_tokens"] == input_tokens]
    chart = _loads(table, "Time (s)", 1.0, where="datum.input_tokens === length")
    return finish(
        chart.add_params(length),
        name="overload-mechanism",
        description=(
            "Load of the prefill and of the decode pool over time when identical requests come evenly, a "
            f"panel for each policy. With prompts of {input_tokens:,} tokens: {_describe_swing(chosen)}"
        ),
        table=table,
    )


def swings(table: pd.DataFrame) -> alt.HConcatChart:
    """How far the prefill pool's load swings, by prompt length and by prefill nodes.

    Parameters
    ----------
    table : DataFrame
        ``policy``, ``varied`` ("Prompt tokens" or "Prefill nodes"), ``value``, and ``prefill_std``,
        ``decode_std`` and ``correlation`` of the loads.
    """

    def panel(varied: str) -> alt.LayerChart:
        values = sorted(table.loc[table["varied"] == varied, "value"].unique().tolist())
        base = (
            alt.Chart(table)
            .transform_filter(f"datum.varied == '{varied}'")
            .encode(
                alt.X("value:Q")
                .title(f"{varied} (logarithmic)")
                .scale(type="log", base=2, nice=False)
                .axis(values=values, format=","),
                alt.Y("prefill_std:Q").title("Standard deviation of the prefill load").axis(format="%"),
                _colour(),
                tooltip=[
                    alt.Tooltip("policy:N").title("Policy"),
                    alt.Tooltip("value:Q", format=",").title(varied),
                    alt.Tooltip("prefill_std:Q", format=".1%").title("Swing of the prefill load"),
                    alt.Tooltip("decode_std:Q", format=".1%").title("Swing of the decode load"),
                    alt.Tooltip("correlation:Q", format=".2f").title("Correlation of the two"),
                ],
            )
        )
        return (base.mark_line() + base.mark_point().encode(_shape())).properties(width=250, height=220)

    early = table[table["policy"] == "Early rejection"]
    ends = {
        varied: [f"{std:.0%}" for std in rows.sort_values("value")["prefill_std"].iloc[[0, -1]]]
        for varied, rows in early.groupby("varied")
    }
    return finish(
        alt.hconcat(panel("Prompt tokens"), panel("Prefill nodes")),
        name="overload-swings",
        description=(
            "Standard deviation of the prefill pool's load under each policy when identical requests come "
            f"evenly. With early rejection it goes from {' to '.join(ends['Prompt tokens'])} as prompts get "
            f"longer, and from {' to '.join(ends['Prefill nodes'])} as prefill nodes are added."
        ),
        table=table,
    )


def offered(table: pd.DataFrame) -> alt.LayerChart:
    """Share of the requests that each policy turns away, by how much is asked of the decode pool.

    Parameters
    ----------
    table : DataFrame
        ``policy``, ``offered_decode_load`` (over what the pool can do), ``arrival_speedup``,
        ``rejected_share``, ``prefill_wasted_share``, ``goodput_requests_per_s``.
    """
    base = alt.Chart(table).encode(
        alt.X("offered_decode_load:Q")
        .title("Decode work offered, over what the pool can do")
        .scale(zero=False),
        alt.Y("rejected_share:Q").title("Requests rejected").axis(format="%"),
        _colour(),
        tooltip=[
            alt.Tooltip("policy:N").title("Policy"),
            alt.Tooltip("offered_decode_load:Q", format=".2f").title("Offered over capacity"),
            alt.Tooltip("arrival_speedup:Q", format="g").title("Replay speed"),
            alt.Tooltip("rejected_share:Q", format=".1%").title("Requests rejected"),
            alt.Tooltip("prefill_wasted_share:Q", format=".1%").title("Prefill time wasted"),
            alt.Tooltip("goodput_requests_per_s:Q", format=".2f").title("Goodput (requests/s)"),
        ],
    )
    most = table["offered_decode_load"].max()
    ends = table[table["offered_decode_load"] == most].set_index("policy")["rejected_share"]
    shares = ", ".join(f"{policy} {share:.1%}" for policy, share in ends.items())
    return finish(
        base.mark_line() + base.mark_point().encode(_shape()),
        name="overload-offered-load",
        description=(
            "Share of the requests that each policy rejects, by the decode work offered over what the pool "
            f"can do. At {most:.2f} times: {shares}."
        ),
        table=table,
    )


def decode_time(table: pd.DataFrame) -> alt.LayerChart:
    """Requests that prediction turns away for each t_d, beside the policies that have none.

    Parameters
    ----------
    table : DataFrame
        ``policy``, ``multiple`` (t_d over the mean decode time), ``predicted_decode_s``,
        ``rejected``, ``rejected_after_prefill``.
    """
    base = alt.Chart(table).encode(
        alt.X("multiple:Q").title("Assumed decode time t_d, in mean decode times"),
        alt.Y("rejected:Q").title("Requests rejected").scale(zero=False),
        _colour(),
        tooltip=[
            alt.Tooltip("policy:N").title("Policy"),
            alt.Tooltip("predicted_decode_s:Q", format=".0f").title("t_d (s)"),
            alt.Tooltip("rejected:Q", format=",").title("Requests rejected"),
            alt.Tooltip("rejected_after_prefill:Q", format=",").title("of these, after their prefill"),
        ],
    )
    predicted = table[table["policy"] == "Early rejection based on prediction"].set_index("multiple")[
        "rejected"
    ]
    points = base.transform_filter("datum.policy == 'Early rejection based on prediction'").mark_point()
    key = alt.Legend(title=None, columns=2, symbolType="stroke", symbolSize=500)
    dash = alt.StrokeDash("policy:N", scale=dashes(POLICIES), legend=key)
    return finish(
        (base.mark_line().encode(dash) + points).properties(height=240),
        name="overload-decode-time",
        description=(
            "Requests that prediction rejects by the decode time t_d that it assumes, from "
            f"{predicted.iloc[0]:,.0f} at {predicted.index[0]:g} mean decode times to "
            f"{predicted.min():,.0f} at {predicted.idxmin():g}. Level lines: the two others."
        ),
        table=table,
    )


def _loads(table: pd.DataFrame, title: str, unit_s: float, *, where: str = "true") -> alt.FacetChart:
    base = (
        alt.Chart()
        .transform_filter(where)
        .transform_calculate(at=f"datum.time_s / {unit_s}")
        .encode(
            alt.X("at:Q").title(title).scale(nice=False),
            alt.Y("load:Q").title("Load").axis(format="%", values=[0, 0.5, 1]),
            alt.StrokeDash("pool:N", legend=_KEY).scale(dashes(_POOLS)),
            tooltip=[
                alt.Tooltip("policy:N").title("Policy"),
                alt.Tooltip("origin:N").title("Origin"),
                alt.Tooltip("pool:N").title("Pool"),
                alt.Tooltip("at:Q", format=".1f").title(title),
                alt.Tooltip("load:Q", format=".0%").title("Load"),
            ],
        )
    )
    modelled = (
        base.transform_filter("datum.origin == 'modelled'")
        .mark_line(strokeWidth=1.75)
        .encode(alt.Color("pool:N", legend=_KEY).scale(colours(_POOLS)))
    )
    reported = base.transform_filter("datum.origin == 'reported'").mark_line(
        color=PALETTE["reported"], strokeWidth=1.25
    )
    panels = (modelled + reported).properties(height=130)
    return panels.facet(
        data=table,
        row=alt.Row("policy:N").title(None).sort(list(POLICIES)).header(orient="top", labelAnchor="start"),
    )


def _shape() -> alt.Shape:
    return alt.Shape("policy:N", scale=shapes(POLICIES), legend=alt.Legend(title=None, columns=2))


def _colour() -> alt.Color:
    return alt.Color("policy:N", scale=colours(POLICIES), legend=alt.Legend(title=None, columns=2))


def _describe_rejected(table: pd.DataFrame) -> str:
    shares = {
        origin: ", ".join(f"{row.policy} {row.rejected_share:.1%}" for row in rows.itertuples())
        for origin, rows in table.groupby("origin")
    }
    return (
        "Bars: share of the requests that each policy rejects, at arrival or after the prefill. Modelled: "
        f"{shares['modelled']}. Grey marks, reported: {shares['reported']}."
    )


def _describe_swing(table: pd.DataFrame) -> str:
    modelled = table[table["origin"] == "modelled"]
    spans = {
        key: f"{loads.min():.0%} to {loads.max():.0%}"
        for key, loads in modelled.groupby(["policy", "pool"])["load"]
    }
    return " ".join(
        f"{policy}: prefill {spans[policy, 'Prefill']}, decode {spans[policy, 'Decode']}."
        for policy in POLICIES
    )
