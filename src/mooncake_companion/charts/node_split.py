"""Chart of FAST'25, Figure 15: how many of the nodes should prefill."""

import altair as alt
import pandas as pd

from mooncake_companion.charts.theme import PALETTE, finish


def by_split(table: pd.DataFrame) -> alt.ConcatChart:
    """Effective requests, mean TTFT and mean TBT by split; lines: modelled, diamonds: reported.

    Parameters
    ----------
    table : DataFrame
        ``origin`` ("modelled" or "reported"), ``prefill_nodes``, ``decode_nodes``, ``effective_share``,
        ``mean_ttft_s``, ``mean_tbt_s``.
    """
    panels = (
        _panel(table, "datum.effective_share", "Requests within both limits", "mooncake", "%", zero=False),
        _panel(table, "datum.mean_ttft_s", "Mean time to first token (s)", "prefill", ".1f"),
        _panel(table, "1e3 * datum.mean_tbt_s", "Mean time between tokens (ms)", "decode", ".0f"),
    )
    return finish(
        alt.concat(*panels, columns=2, spacing=20),
        name="node-split",
        description=_describe(table),
        table=table,
    )


def _panel(
    table: pd.DataFrame, value: str, heading: str, colour: str, form: str, *, zero: bool = True
) -> alt.LayerChart:
    base = (
        alt.Chart(table)
        .transform_calculate(value=value, split="datum.prefill_nodes + 'P + ' + datum.decode_nodes + 'D'")
        .encode(
            alt.X("prefill_nodes:Q")
            .title("Prefill nodes; the others decode")
            .axis(tickMinStep=1, format="d")
            .scale(nice=False, padding=8),
            alt.Y("value:Q").title(heading).axis(format=form).scale(zero=zero),
            tooltip=[
                alt.Tooltip("split:N").title("Split"),
                alt.Tooltip("origin:N").title("Origin"),
                alt.Tooltip("effective_share:Q", format=".1%").title("Within both limits"),
                alt.Tooltip("mean_ttft_s:Q", format=".2f").title("Mean TTFT (s)"),
                alt.Tooltip("mean_tbt_s:Q", format=".4f").title("Mean TBT (s)"),
            ],
        )
    )
    modelled = base.transform_filter("datum.origin == 'modelled'").mark_line(
        color=PALETTE[colour], point={"size": 35, "color": PALETTE[colour]}
    )
    reported = base.transform_filter("datum.origin == 'reported'").mark_point(
        shape="diamond", size=80, filled=True, color=PALETTE["reported"], opacity=1
    )
    chart: alt.LayerChart = (modelled + reported).properties(width=240, height=190)
    return chart


def _describe(table: pd.DataFrame) -> str:
    told = []
    for origin, rows in table.groupby("origin", sort=False):
        best = rows.iloc[int(rows["effective_share"].argmax())]
        told.append(
            f"{origin}: most requests within both limits, {best['effective_share']:.1%}, with "
            f"{best['prefill_nodes']:.0f} prefill and {best['decode_nodes']:.0f} decode nodes"
        )
    return (
        "Requests within both limits, mean time to first token and mean time between tokens by the number of "
        f"prefill nodes. {'; '.join(told)}."
    )
