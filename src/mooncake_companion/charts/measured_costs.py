"""Charts of the cost model beside measurements on GPUs: prefills by length, decode steps by batch."""

import altair as alt
import pandas as pd

from mooncake_companion.charts.theme import PALETTE, finish

MODELLED, MODELLED_WITH_HOST = "Model, GPUs alone", "Model, with the host's time"
KERNELS, ENGINE = "Measured: sum of kernels", "Measured: engine of 2023"
_SHAPES = {KERNELS: "circle", ENGINE: "diamond"}


def prefills(table: pd.DataFrame, gpu: str = "A100") -> alt.LayerChart:
    """Seconds of one prefill by the prompt's length; line: modelled, marks: measured.

    Parameters
    ----------
    table : DataFrame
        ``source`` (a "Model, …" or one of `KERNELS` and `ENGINE`), ``gpu``, ``input_tokens``,
        ``seconds``, ``ratio``.
    gpu : str
        Chosen at first.
    """
    chosen = _choice("measured_prefill_gpu", gpu, sorted(table["gpu"].unique()), "GPU ")
    base = (
        alt.Chart(table)
        .add_params(chosen)
        .transform_filter(alt.datum.gpu == chosen)
        .encode(
            alt.X("input_tokens:Q")
            .title("Prompt (tokens)")
            .scale(type="log", base=2, domain=[128, 16_384])
            .axis(format=",", values=[128, 512, 2048, 8192]),
            alt.Y("seconds:Q")
            .title("Prefill (s)")
            .scale(type="log", nice=False, padding=12)
            .axis(values=[0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30], format="~g"),
        )
    )
    line = base.transform_filter(alt.datum.source == MODELLED).mark_line(color=PALETTE["prefill"])
    marks = _marks(
        base,
        [
            alt.Tooltip("source:N").title("Source"),
            alt.Tooltip("input_tokens:Q", format=",").title("Prompt (tokens)"),
            alt.Tooltip("seconds:Q", format=".3f").title("Measured (s)"),
            alt.Tooltip("ratio:Q", format=".2f").title("Modelled / measured"),
        ],
    )
    return finish(
        line + marks,
        name="measured-prefill",
        description=_describe_prefills(table),
        table=table,
    )


def steps(table: pd.DataFrame, gpu: str = "A100", context_tokens: int = 512) -> alt.LayerChart:
    """Milliseconds of a decode step by batch; lines: modelled, marks: measured.

    Parameters
    ----------
    table : DataFrame
        ``source``, ``gpu``, ``sequences``, ``context_tokens``, ``exact_tokens``, ``seconds``.
    gpu : str
    context_tokens : int
        Chosen at first.
    """
    chosen = _choice("measured_step_gpu", gpu, sorted(table["gpu"].unique()), "GPU ")
    contexts = sorted(table["context_tokens"].unique().tolist())
    context = alt.param(
        name="measured_step_context",
        value=context_tokens,
        bind=alt.binding_select(
            options=contexts, labels=[f"{tokens:,}" for tokens in contexts], name="Context (tokens) "
        ),
    )
    base = (
        alt.Chart(table)
        .add_params(chosen, context)
        .transform_filter(alt.datum.gpu == chosen)
        .transform_filter(alt.datum.context_tokens == context)
        .transform_calculate(step_ms="1000 * datum.seconds")
        .encode(
            alt.X("sequences:Q")
            .title("Sequences in the batch")
            .scale(type="log", base=2)
            .axis(values=[1, 4, 16, 64, 256]),
            alt.Y("step_ms:Q")
            .title("Decode step (ms)")
            .scale(type="log", nice=False, padding=12)
            .axis(values=[1, 3, 10, 30, 100, 300, 1000, 3000, 10_000], format=",~g"),
        )
    )
    lines = (
        base.transform_filter(alt.FieldOneOfPredicate("source", [MODELLED, MODELLED_WITH_HOST]))
        .mark_line(color=PALETTE["decode"])
        .encode(
            alt.StrokeDash("source:N", legend=alt.Legend(title=None, columns=1, symbolSize=600)).scale(
                domain=[MODELLED, MODELLED_WITH_HOST], range=[[1, 0], [6, 4]]
            )
        )
    )
    marks = _marks(
        base,
        [
            alt.Tooltip("source:N").title("Source"),
            alt.Tooltip("sequences:Q", format=",").title("Sequences"),
            alt.Tooltip("exact_tokens:Q", format=",").title("Context of each (tokens)"),
            alt.Tooltip("step_ms:Q", format=".1f").title("Measured (ms)"),
        ],
    )
    return finish(lines + marks, name="measured-decode", description=_describe_steps(table), table=table)


def _choice(name: str, value: str, options: list[str], label: str) -> alt.Parameter:
    return alt.param(name=name, value=value, bind=alt.binding_radio(options=options, name=label))


def _marks(base: alt.Chart, tooltip: list[alt.Tooltip]) -> alt.Chart:
    """The measurements: grey, a shape for each kind."""
    return (
        base.transform_filter(alt.FieldOneOfPredicate("source", list(_SHAPES)))
        .mark_point(filled=False, color=PALETTE["reported"], strokeWidth=2, opacity=1)
        .encode(
            alt.Shape("source:N", legend=alt.Legend(title=None, columns=1, orient="bottom")).scale(
                domain=list(_SHAPES), range=list(_SHAPES.values())
            ),
            tooltip=tooltip,
        )
    )


def _describe_prefills(table: pd.DataFrame) -> str:
    points = table[(table["source"] == KERNELS) & (table["input_tokens"] >= 4096)]
    told = "; ".join(
        f"{gpu}: {group['ratio'].min():.2f} to {group['ratio'].max():.2f}"
        for gpu, group in points.groupby("gpu")
    )
    return (
        "Seconds of one prefill by the prompt's length, modelled and measured. Modelled over the sum of "
        f"measured kernels from 4,096 tokens, {told}."
    )


def _describe_steps(table: pd.DataFrame) -> str:
    shortest = table[table["context_tokens"] == table["context_tokens"].min()]
    told = []
    for gpu, group in shortest.groupby("gpu"):
        at = group[group["sequences"] == 64].groupby("source")["seconds"].median() * 1e3
        told.append(f"{gpu}: " + ", ".join(f"{source} {ms:.0f} ms" for source, ms in at.items()))
    return (
        "Milliseconds of a decode step by the sequences in the batch, modelled and measured. 64 sequences "
        f"of {shortest['context_tokens'].iloc[0]} tokens on {'; '.join(told)}."
    )
