"""Chart of one request's way through Conductor, step by step."""

from typing import Any

import altair as alt
import pandas as pd

from mooncake_companion.charts.theme import PALETTE, colours, finish

STEPS = (
    "Prefix match",
    "Queue",
    "Transfer",
    "Prefill",
    "Sum and winner",
    "Decode candidates",
)
"""What each step adds."""

_PARTS = {"held": "hydrate", "fetched": "replicate", "computed": "recompute"}
_TERMS = {
    "queue": PALETTE["prefill"] + "66",  # others' prefills: the same colour, faint
    "transfer": PALETTE["network"],
    "prefill": PALETTE["prefill"],
}
_CUT = 4
"""Bars that are so many times as long as the winner's are cut off; their labels tell."""
_PREFIX, _QUEUE, _TRANSFER, _PREFILL, _SUM, _DECODE = range(1, 1 + len(STEPS))
_NODE = "'node ' + datum.node"
_WINS = "datum.wins ? '★ ' : ''"


def steps(table: pd.DataFrame) -> alt.VConcatChart:
    """Every candidate of a chosen scenario's request; the stepper adds a term at a time.

    Parameters
    ----------
    table : DataFrame
        ``scenario``, ``pool`` ("prefill" or "decode"), ``node``, ``wins``, ``request``,
        ``input_tokens``, ``rejected``, ``pool_share``; of prefill candidates ``local_tokens``,
        ``fetched_tokens``, ``source_node``, ``computed_tokens``, ``queue_s``, ``transfer_s``,
        ``prefill_s``, ``ttft_s``; of decode candidates ``sequences``, ``tokens``, ``step_s``,
        ``running_share``, ``headroom``.
    """
    scenarios = list(dict.fromkeys(table["scenario"]))
    chosen = alt.param(
        name="walk_scenario",
        value=scenarios[0],
        bind=alt.binding_select(options=scenarios, name="Request "),
    )
    step = alt.param(
        name="walk_step",
        value=_DECODE,
        bind=alt.binding_radio(
            options=list(range(1, 1 + len(STEPS))),
            labels=[f"{number} {title}" for number, title in enumerate(STEPS, 1)],
            name="Step ",
        ),
    )
    panels = alt.vconcat(
        alt.hconcat(_prompts(table), _sums(table), spacing=20), _decoders(table), spacing=14
    ).add_params(chosen, step)
    return finish(
        panels.resolve_scale(color="independent"),
        name="request-walkthrough",
        description=_describe(table),
        table=table,
    )


def _base(table: pd.DataFrame, pool: str) -> alt.Chart:
    return (
        alt.Chart(table)
        .transform_filter(f"datum.scenario === walk_scenario && datum.pool === '{pool}'")
        .transform_calculate(candidate=_NODE)
    )


def _candidates() -> alt.Y:
    nodes = alt.EncodingSortField(field="node", order="ascending")
    axis = alt.Axis(ticks=False, domain=False)
    return alt.Y("candidate:N", sort=nodes, title=None, axis=axis)


def _prompts(table: pd.DataFrame) -> alt.LayerChart:
    """The prompt on each prefill node: held there, fetched, computed."""
    base = _base(table, "prefill")
    parts = (
        base.transform_calculate(
            held="datum.local_tokens",
            fetched=f"walk_step >= {_TRANSFER} ? datum.fetched_tokens : 0",
            computed=f"walk_step >= {_PREFILL} ? datum.computed_tokens : 0",
        )
        .transform_fold(list(_PARTS), as_=["part", "part_tokens"])
        .transform_calculate(rank=f"indexof({list(_PARTS)}, datum.part)")
        .mark_bar(height={"band": 0.72})
        .encode(
            _candidates(),
            alt.X("part_tokens:Q", stack="zero").title("Prompt (tokens)").axis(format="~s", tickCount=4),
            alt.Color("part:N").title(None).scale(colours(_PARTS)),
            alt.Order("rank:Q"),
            tooltip=_prefill_tooltip(),
        )
    )
    whole = base.mark_tick(thickness=2, height={"band": 0.72}, opacity=1, color=PALETTE["reported"]).encode(
        _candidates(), alt.X("input_tokens:Q")
    )
    return _sized(parts + whole, "Prefill candidates: the prompt there")


def _sums(table: pd.DataFrame) -> alt.LayerChart:
    """Estimated time to first token on each prefill node, a term after the other."""
    base = (
        _base(table, "prefill")
        .transform_joinaggregate(best_s="min(ttft_s)")
        .transform_calculate(cut_s=f"{_CUT} * datum.best_s")
        .transform_calculate(drawn_s="min(datum.ttft_s, datum.cut_s)")
    )
    before = "datum.term === 'queue' ? 0 : datum.queue_s + (datum.term === 'prefill' ? datum.transfer_s : 0)"
    bars = (
        base.transform_calculate(
            queue=f"walk_step >= {_QUEUE} ? datum.queue_s : 0",
            transfer=f"walk_step >= {_TRANSFER} ? datum.transfer_s : 0",
            prefill=f"walk_step >= {_PREFILL} ? datum.prefill_s : 0",
        )
        .transform_fold(list(_TERMS), as_=["term", "term_s"])
        .transform_calculate(before_s=before)
        .transform_filter("datum.term_s > 0 && datum.before_s < datum.cut_s")
        .transform_calculate(until_s="min(datum.before_s + datum.term_s, datum.cut_s)")
        .mark_bar(height={"band": 0.72}, stroke=PALETTE["prefill"], strokeWidth=0.75)
        .encode(
            _candidates(),
            alt.X("before_s:Q").title("Estimated time to first token (s)").axis(tickCount=4),
            alt.X2("until_s:Q"),
            alt.Color("term:N", legend=alt.Legend(title=None, symbolStrokeWidth=0)).scale(
                domain=list(_TERMS), range=list(_TERMS.values())
            ),
            tooltip=_prefill_tooltip(),
        )
    )
    more = "(datum.ttft_s > datum.cut_s ? '… ' : '')"
    labels = (
        base.transform_filter(f"walk_step >= {_SUM}")
        .transform_calculate(label=f"{more} + ({_WINS}) + format(datum.ttft_s, '.2f') + ' s'")
        .mark_text(align="left", dx=5, fontSize=11)
        .encode(_candidates(), alt.X("drawn_s:Q"), alt.Text("label:N"), tooltip=_prefill_tooltip())
    )
    room = base.transform_calculate(far_s="1.35 * datum.drawn_s").mark_point(opacity=0, size=1)
    outline = (
        base.transform_filter(f"datum.wins && walk_step >= {_SUM}")
        .transform_calculate(start="0")
        .mark_bar(height={"band": 0.9}, filled=False, strokeWidth=2, stroke=PALETTE["mooncake"])
        .encode(_candidates(), alt.X("start:Q"), alt.X2("ttft_s:Q"))
    )
    return _sized(
        bars + room.encode(_candidates(), alt.X("far_s:Q")) + outline + labels,
        "Prefill candidates: the time there",
    )


def _decoders(table: pd.DataFrame) -> alt.LayerChart:
    """KV cache that each decode node would hold, by which Conductor chooses, and its headroom."""
    tooltip: list[Any] = [
        alt.Tooltip("candidate:N").title("Decode candidate"),
        alt.Tooltip("sequences:Q").title("Requests given to it, with this one"),
        alt.Tooltip("tokens:Q", format=",").title("KV cache of them (tokens)"),
        alt.Tooltip("step_ms:Q", format=".0f").title("Step of all of them (ms)"),
        alt.Tooltip("running_share:Q", format=".0%").title("Decoding now, of its limits"),
        alt.Tooltip("headroom:Q", format=".0%").title("Headroom"),
        alt.Tooltip("pool_share:Q", format=".0%").title("The pool's mean, of its limits"),
    ]
    base = _base(table, "decode")
    shown = base.transform_filter(f"walk_step >= {_DECODE}")
    bars = (
        shown.transform_calculate(step_ms="1000 * datum.step_s")
        .mark_bar(height={"band": 0.72}, color=PALETTE["decode"])
        .encode(
            _candidates(),
            alt.X("tokens:Q").title("KV cache (tokens); the smallest wins").axis(format="~s", tickCount=5),
            tooltip=tooltip,
        )
    )
    verdict = "(datum.rejected ? '✗ pool full, ' : '★ ')"
    labels = (
        shown.transform_calculate(
            label=f"(datum.wins ? {verdict} : '') + 'headroom ' + format(datum.headroom, '.0%')",
        )
        .mark_text(align="left", dx=5, fontSize=11)
        .encode(_candidates(), alt.X("tokens:Q"), alt.Text("label:N"), tooltip=tooltip)
    )
    room = base.transform_calculate(far="1.3 * datum.tokens").mark_point(opacity=0, size=1)
    outline = (
        shown.transform_filter("datum.wins && !datum.rejected")
        .transform_calculate(start="0")
        .mark_bar(height={"band": 0.9}, filled=False, strokeWidth=2, stroke=PALETTE["mooncake"])
        .encode(_candidates(), alt.X("start:Q"), alt.X2("tokens:Q"))
    )
    layers = bars + room.encode(_candidates(), alt.X("far:Q")) + outline + labels
    sized: alt.LayerChart = layers.properties(
        width=530, height=alt.Step(20), title=_title("Decode candidates")
    )
    return sized


def _sized(layers: alt.LayerChart, title: str) -> alt.LayerChart:
    sized: alt.LayerChart = layers.properties(width=255, height=alt.Step(20), title=_title(title))
    return sized.resolve_scale(color="independent")


def _title(text: str) -> alt.TitleParams:
    return alt.TitleParams(text, fontSize=12)


def _prefill_tooltip() -> list[alt.Tooltip]:
    tokens = {
        "local_tokens": "Own prefix (tokens)",
        "fetched_tokens": "Fetched (tokens)",
        "source_node": "from node",
        "computed_tokens": "Computed (tokens)",
    }
    seconds = {
        "queue_s": "Queue (s)",
        "transfer_s": "Transfer (s)",
        "prefill_s": "Prefill (s)",
        "ttft_s": "Sum (s)",
    }
    return [
        alt.Tooltip("candidate:N").title("Prefill candidate"),
        *(alt.Tooltip(f"{name}:Q", format=",").title(title) for name, title in tokens.items()),
        *(alt.Tooltip(f"{name}:Q", format=".3f").title(title) for name, title in seconds.items()),
    ]


def _describe(table: pd.DataFrame) -> str:
    parts = []
    for scenario, rows in table[table["wins"]].groupby("scenario", sort=False):
        prefill, decode = (rows[rows["pool"] == pool].iloc[0] for pool in ("prefill", "decode"))
        end = (
            f"turned away, the decode pool at {prefill['pool_share']:.0%} of its limits"
            if prefill["rejected"]
            else f"decode on node {decode['node']:.0f}"
        )
        parts.append(
            f"{scenario}: prefill on node {prefill['node']:.0f} with {prefill['local_tokens']:,.0f} of "
            f"{prefill['input_tokens']:,.0f} tokens held and {prefill['fetched_tokens']:,.0f} fetched, first "
            f"token in {prefill['ttft_s']:.2f} s; {end}"
        )
    return (
        "Candidates that the scheduler weighs for one request, a step at a time: prompt held, fetched and "
        f"computed; queue, transfer and prefill time; decode nodes. {'. '.join(parts)}."
    )
