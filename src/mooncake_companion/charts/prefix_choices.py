"""Chart of what is done for the start of every prompt, over time."""

import altair as alt
import pandas as pd

from mooncake_companion.charts.theme import colours, finish

ACTIONS = ("hydrate", "replicate", "migrate", "recompute")

_REQUESTS, _TOKENS = "Requests", "Tokens reused"


def over_time(table: pd.DataFrame, *, window_s: float) -> alt.Chart:
    """Requests, or tokens that they reuse, by what was done for them, with the setting to choose.

    Parameters
    ----------
    table : DataFrame
        ``setting``, ``time_s`` (a window's start), ``action``, ``requests``, ``share`` (of the window's
        requests), ``reused_tokens`` (all of them), ``mean_input_tokens``, ``mean_reused_tokens``,
        ``mean_ttft_s``.
    window_s : float
        Length of a window.
    """
    settings = list(dict.fromkeys(table["setting"]))
    setting = alt.param(
        name="setting", value=settings[0], bind=alt.binding_select(options=settings, name="Setting ")
    )
    counted = alt.param(
        name="counted", value=_REQUESTS, bind=alt.binding_radio(options=[_REQUESTS, _TOKENS], name="Count ")
    )
    window = alt.param(name="window_s", value=window_s)
    chart = (
        alt.Chart(table)
        .transform_filter("datum.setting === setting")
        .transform_calculate(
            start="datum.time_s / 60",
            end=f"datum.time_s / 60 + 0.92 * ({window.name} / 60)",
            counted=f"counted === '{_REQUESTS}' ? datum.requests : datum.reused_tokens",
            order=f"indexof({list(ACTIONS)}, datum.action)",
        )
        .mark_bar()
        .encode(
            alt.X("start:Q").title("Time (min)").bin("binned").scale(nice=False).axis(labelSeparation=6),
            alt.X2("end:Q"),
            alt.Y("counted:Q", stack="zero")
            .title("Requests, or tokens that they reuse")
            .axis(format="~s", tickCount=5),
            alt.Color("action:N").title(None).scale(colours({action: action for action in ACTIONS})),
            alt.Order("order:Q"),
            tooltip=[
                alt.Tooltip("action:N").title("Done"),
                alt.Tooltip("requests:Q", format=",").title("Requests"),
                alt.Tooltip("share:Q", format=".1%").title("of the window's"),
                alt.Tooltip("mean_input_tokens:Q", format=",.0f").title("Mean prompt (tokens)"),
                alt.Tooltip("mean_reused_tokens:Q", format=",.0f").title("Mean reused (tokens)"),
                alt.Tooltip("mean_ttft_s:Q", format=".2f").title("Mean TTFT (s)"),
                alt.Tooltip("start:Q", format=".2~f").title("From minute"),
            ],
        )
        .add_params(setting, counted, window)
        .properties(height=260)
    )
    return finish(chart, name="prefix-choices", description=_describe(table), table=table)


def _describe(table: pd.DataFrame) -> str:
    parts = []
    for setting, rows in table.groupby("setting", sort=False):
        sums = rows.groupby("action")[["requests", "reused_tokens"]].sum()
        shares = (sums["requests"] / sums["requests"].sum()).reindex(ACTIONS)
        parts.append(
            f"{setting}: " + ", ".join(f"{action} {share:.1%}" for action, share in shares.items() if share)
        )
    return (
        "Requests by what was done for the start of their prompts, in windows of time, a setting at a time. "
        f"Of all requests: {'. '.join(parts)}."
    )
