"""Chart of what moving a KV cache takes beside the prefill that it spares."""

import altair as alt
import pandas as pd

from mooncake_companion.charts.theme import PALETTE, colours, dashes, finish

_QUANTITIES = {"Prefill": "prefill", "Moving its KV cache": "network"}


def tax(table: pd.DataFrame, *, bandwidth_gbit_per_s: int) -> alt.LayerChart:
    """Seconds of a prefill and of moving its KV cache, by prompt length; the network on a radio.

    Parameters
    ----------
    table : DataFrame
        ``origin``, ``quantity`` ("prefill", "move"), ``bandwidth_gbit_per_s``, ``input_tokens``,
        ``seconds``, and for "move" ``transfer_s``, ``load_s``, ``share`` (of the prefill).
    bandwidth_gbit_per_s : int
        Where the radio starts.
    """
    bandwidths = sorted(table["bandwidth_gbit_per_s"].unique().tolist())
    ends_s = {
        "tax_least_s": 0.8 * float(table["seconds"].min()),
        "tax_most_s": 1.2 * float(table["seconds"].max()),
    }
    longest = int(table["input_tokens"].max())
    lengths = sorted({1024 * 2**power for power in range(8)} & set(table["input_tokens"].tolist()))
    base = (
        alt.Chart(table)
        .transform_calculate(
            what="datum.quantity === 'prefill' ? 'Prefill' : 'Moving its KV cache'",
            parts="datum.quantity === 'prefill' ? '–' : format(1000 * datum.transfer_s, ',.0f') "
            "+ ' ms to send, ' + format(1000 * datum.load_s, ',.0f') + ' ms to load'",
            of_prefill="datum.quantity === 'prefill' ? '–' : format(datum.share, '.1%')",
        )
        .encode(
            alt.X("input_tokens:Q")
            .title("Prompt (tokens, log.)")
            .scale(type="log", base=2, nice=False)
            .axis(values=lengths, labelExpr="datum.value / 1024 + 'k'"),
            alt.Y("seconds:Q")
            .title("Time (s, log.)")
            .scale(type="log", domain=[alt.ExprRef(name) for name in ends_s], nice=False)
            .axis(values=[0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30], format="~g"),
            tooltip=[
                alt.Tooltip("what:N").title("Time of"),
                alt.Tooltip("origin:N").title("Origin"),
                alt.Tooltip("input_tokens:Q", format=",").title("Prompt (tokens)"),
                alt.Tooltip("seconds:Q", format=",.3f").title("Seconds"),
                alt.Tooltip("parts:N").title("Of these"),
                alt.Tooltip("of_prefill:N").title("Of the prefill's time"),
            ],
        )
    )
    chosen = "datum.bandwidth_gbit_per_s == tax_bandwidth"
    modelled = base.transform_filter("datum.origin === 'modelled'").transform_filter(chosen)
    key = alt.Legend(title=None, symbolType="stroke", symbolSize=500)
    lines = modelled.mark_line().encode(
        alt.Color("what:N", legend=key).scale(colours(_QUANTITIES)),
        alt.StrokeDash("what:N", legend=key).scale(dashes(_QUANTITIES)),
    )
    told = (
        modelled.transform_filter(f"datum.quantity === 'move' && datum.input_tokens === {longest}")
        .transform_calculate(
            told=f"'{longest // 1024}k tokens: moving takes ' + datum.of_prefill + ' of the prefill'"
        )
        .mark_text(align="right", baseline="bottom")
        .encode(x=alt.value("width"), y=alt.value(-4), text="told:N")
    )
    reported = (
        base.transform_filter("datum.origin === 'reported'")
        .transform_filter(f"datum.quantity === 'prefill' || {chosen}")
        .mark_point(
            shape="diamond", filled=False, size=90, strokeWidth=2, color=PALETTE["reported"], opacity=1
        )
    )
    radio = alt.param(
        name="tax_bandwidth",
        value=bandwidth_gbit_per_s,
        bind=alt.binding_radio(options=bandwidths, name="Network of a node (Gbit/s) "),
    )
    # Ends of an axis are parameters, so that other rows can be drawn as well.
    ends = [alt.param(name=name, value=end_s) for name, end_s in ends_s.items()]
    return finish(
        (lines + told + reported).add_params(radio, *ends).properties(height=280),
        name="transfer-tax",
        description=_describe(table, longest),
        table=table,
    )


def _describe(table: pd.DataFrame, longest: int) -> str:
    at = table[(table["input_tokens"] == longest) & (table["origin"] == "modelled")]
    move = at[at["quantity"] == "move"].sort_values("bandwidth_gbit_per_s")
    told = ", ".join(f"{row.share:.1%} at {row.bandwidth_gbit_per_s} Gbit/s" for row in move.itertuples())
    return (
        "Lines: seconds of a prefill and of moving the KV cache that it computed, by prompt length; grey "
        f"diamonds: reported. At {longest:,} tokens moving takes, of the prefill's time, {told}."
    )
