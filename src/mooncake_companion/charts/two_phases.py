"""Chart of arXiv 2407.00079, Figure 2: both phases by length and by batch."""

import altair as alt
import pandas as pd

from mooncake_companion.charts.theme import PALETTE, finish

_QUANTITIES = {"normalized_throughput": "throughput (tokens/s)", "normalized_latency": "latency"}
_PANELS = {
    "prefill": ("sequence_tokens", "Prompt (tokens, log.)", "datum.value / 1024 + 'k'"),
    "decoding": ("batch", "Sequences in the batch (log.)", "datum.value"),
}


def phases(table: pd.DataFrame) -> alt.HConcatChart:
    """Throughput or latency of prefill by length and of decode by batch; grey diamonds: reported.

    Parameters
    ----------
    table : DataFrame
        ``origin``, ``stage`` ("prefill", "decoding"), ``sequence_tokens``, ``batch``, ``latency_s``
        (modelled only), ``normalized_latency``, ``normalized_throughput``.
    """
    quantity = alt.param(
        name="phase_quantity",
        value=next(iter(_QUANTITIES)),
        bind=alt.binding_radio(options=list(_QUANTITIES), labels=list(_QUANTITIES.values()), name="Shown "),
    )
    panels = [_panel(table, stage) for stage in _PANELS]
    chart = alt.hconcat(*panels).resolve_scale(y="shared").add_params(quantity)
    return finish(chart, name="two-phases", description=_describe(table), table=table)


def _panel(table: pd.DataFrame, stage: str) -> alt.LayerChart:
    field, title, label = _PANELS[stage]
    rows = table[table["stage"] == stage]
    lengths = rows[field].unique().tolist()
    values = [min(lengths) * 2**power for power in range(5) if min(lengths) * 2**power <= max(lengths)]
    colour = PALETTE["prefill" if stage == "prefill" else "decode"]
    base = (
        alt.Chart(table)
        .transform_filter(f"datum.stage === '{stage}'")
        .transform_calculate(shown="datum[phase_quantity]")
        .encode(
            alt.X(f"{field}:Q")
            .title(title)
            .scale(type="log", base=2, nice=False, padding=8)
            .axis(values=values, labelExpr=label),
            alt.Y("shown:Q").title("Over its largest value").scale(domain=[0, 1.05]).axis(format="%"),
            tooltip=[
                alt.Tooltip("origin:N").title("Origin"),
                alt.Tooltip(f"{field}:Q", format=",").title(title.removesuffix(" (log.)")),
                alt.Tooltip("normalized_throughput:Q", format=".1%").title("Throughput, of its largest"),
                alt.Tooltip("normalized_latency:Q", format=".1%").title("Latency, of its largest"),
                alt.Tooltip("latency_s:Q", format=".3f").title("Latency (s), modelled"),
            ],
        )
    )
    modelled = base.transform_filter("datum.origin === 'modelled'")
    reported = base.transform_filter("datum.origin === 'reported'").mark_point(
        shape="diamond", filled=False, size=90, strokeWidth=2, color=PALETTE["reported"], opacity=1
    )
    heading = "Prefill: one prompt" if stage == "prefill" else "Decode: one step"
    layers: alt.LayerChart = modelled.mark_line(color=colour) + reported
    return layers.properties(
        width=250, height=230, title=alt.Title(heading, anchor="middle", fontWeight="normal", fontSize=12)
    )


def _describe(table: pd.DataFrame) -> str:
    modelled = table[table["origin"] == "modelled"]
    prefill = modelled[modelled["stage"] == "prefill"].sort_values("sequence_tokens").iloc[-1]
    decoding = modelled[modelled["stage"] == "decoding"].sort_values("batch").iloc[0]
    return (
        "Lines: throughput or latency of prefill by prompt length and of decode by batch, over the largest "
        f"value of each; grey diamonds: reported. At {prefill['sequence_tokens']:,} tokens prefill is down "
        f"to {prefill['normalized_throughput']:.0%} of its best throughput; one sequence alone decodes at "
        f"{decoding['normalized_throughput']:.0%} of it, in {decoding['normalized_latency']:.0%} of the "
        "time of the largest batch's step."
    )
