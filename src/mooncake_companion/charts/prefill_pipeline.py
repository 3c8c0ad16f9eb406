"""Charts of FAST'25, section 3.3: prompts in chunks through a pipeline of nodes."""

import altair as alt
import pandas as pd

from mooncake_companion.charts.theme import PALETTE, finish, opacity_key

_DASHES = [[1, 0], [8, 3], [4, 3], [2, 2]]
_SHAPES = ["circle", "square", "diamond", "triangle-up"]
_STATISTICS = {"mean_s": "mean", "p50_s": "median", "p90_s": "90th percentile"}


def gantt(table: pd.DataFrame, *, pipeline_nodes: int, chunk_tokens: int) -> alt.LayerChart:
    """Which chunk each stage of a pipeline works on, over time; its length and the chunks' on radios.

    Parameters
    ----------
    table : DataFrame
        ``pipeline_nodes``, ``chunk_tokens``, ``prompt`` ("long" or "short"), ``stage``,
        ``first_token``, ``last_token``, ``start_s``, ``end_s``.
    pipeline_nodes, chunk_tokens : int
        Where the radios start.
    """
    base = alt.Chart(table).transform_filter(
        "datum.pipeline_nodes == stage_nodes && datum.chunk_tokens == stage_chunk"
    )
    last_s = alt.param(name="stage_last_s", value=float(table["end_s"].max()))
    x = alt.X("start_s:Q").title("Time (s)").scale(domain=[0, alt.ExprRef(last_s.name)], nice=True)
    bars = base.mark_bar(height={"band": 0.86}, color=PALETTE["prefill"], strokeWidth=0.75)
    solid = alt.Scale(domain=["long", "short"], range=[1, 0.3])
    chunks = bars.encode(
        x,
        alt.X2("end_s:Q"),
        alt.Y("stage:O").title("Stage (node)").axis(ticks=False, domain=False, labelOverlap=True),
        alt.FillOpacity("prompt:N", scale=solid),
        stroke=alt.condition(alt.datum.prompt == "long", alt.value("white"), alt.value(PALETTE["prefill"])),
        tooltip=[
            alt.Tooltip("prompt:N").title("Prompt"),
            alt.Tooltip("stage:O").title("Stage"),
            alt.Tooltip("first_token:Q", format=",").title("From token"),
            alt.Tooltip("last_token:Q", format=",").title("to token"),
            alt.Tooltip("start_s:Q", format=".3f").title("From (s)"),
            alt.Tooltip("end_s:Q", format=".3f").title("to (s)"),
        ],
    )
    ends = base.transform_aggregate(done_s="max(end_s)", groupby=["prompt"]).transform_calculate(
        told="datum.prompt + ': first token after ' + format(datum.done_s, '.2f') + ' s'"
    )
    rules = ends.mark_rule(strokeDash=[4, 3], color="#808080").encode(alt.X("done_s:Q"))
    # Above the plot and from its right edge, so that they never leave it.
    texts = [
        ends.transform_filter(alt.datum.prompt == prompt)
        .mark_text(align="right", baseline="bottom")
        .encode(x=alt.value("width"), y=alt.value(-4 - 15 * line), text="told:N")
        for line, prompt in enumerate(("short", "long"))
    ]
    short, long = texts
    key = opacity_key(table, alt.Opacity("prompt:N", scale=solid).title("Prompt"), color=PALETTE["prefill"])
    chart = (chunks + rules + short + long + key).add_params(
        last_s,
        _radio("stage_nodes", table["pipeline_nodes"], pipeline_nodes, "Nodes of the instance "),
        _radio("stage_chunk", table["chunk_tokens"], chunk_tokens, "Tokens of a chunk "),
    )
    return finish(
        chart.properties(height=240),
        name="prefill-pipeline-stages",
        description=_describe_gantt(table, chunk_tokens),
        table=table,
    )


def speedup(table: pd.DataFrame, *, chunk_tokens: int) -> alt.LayerChart:
    """How much sooner one prompt has its first token than on one node, by its length.

    Parameters
    ----------
    table : DataFrame
        ``input_tokens``, ``pipeline_nodes``, ``chunk_tokens``, ``ttft_s``, ``speedup``, ``efficiency``.
    chunk_tokens : int
        Where the radio starts.
    """
    lengths = [1024 * 2**power for power in range(11)]
    base = (
        alt.Chart(table)
        .transform_filter("datum.chunk_tokens == speedup_chunk")
        .encode(
            alt.X("input_tokens:Q")
            .title("Prompt (tokens, logarithmic)")
            .scale(type="log", base=2, nice=False)
            .axis(values=lengths, labelExpr="datum.value / 1024 + 'k'"),
            alt.Y("speedup:Q").title("Sooner than on one node (times)").axis(tickMinStep=1),
            tooltip=[
                alt.Tooltip("pipeline_nodes:O").title("Nodes of the instance"),
                alt.Tooltip("input_tokens:Q", format=",").title("Prompt (tokens)"),
                alt.Tooltip("ttft_s:Q", format=",.2f").title("First token (s)"),
                alt.Tooltip("speedup:Q", format=".2f").title("Times sooner"),
                alt.Tooltip("efficiency:Q", format=".0%").title("Share of the nodes put to use"),
            ],
        )
    )
    chart = _lines(base).add_params(
        _radio("speedup_chunk", table["chunk_tokens"], chunk_tokens, "Tokens of a chunk ")
    )
    return finish(
        chart.properties(height=260),
        name="prefill-pipeline-speedup",
        description=_describe_speedup(table, chunk_tokens),
        table=table,
    )


def under_load(table: pd.DataFrame) -> alt.HConcatChart:
    """TTFT of short and of long prompts by the load that is offered, for pipelines of several lengths.

    Parameters
    ----------
    table : DataFrame
        ``fixed_cost``, ``offered_load``, ``requests_per_s``, ``pipeline_nodes``, ``prompts`` ("short" or
        "long"), ``input_tokens``, ``mean_s``, ``p50_s``, ``p90_s``.
    """
    base = (
        alt.Chart(table)
        .transform_filter("datum.fixed_cost == load_cost")
        .transform_calculate(ttft_s="datum[load_statistic]")
        .encode(
            alt.X("offered_load:Q").title("Offered load, of what single nodes can do").axis(format="%"),
            alt.Y("ttft_s:Q")
            .title("Time to first token (s, logarithmic)")
            .scale(type="log")
            .axis(values=[0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000]),
            tooltip=[
                alt.Tooltip("pipeline_nodes:O").title("Nodes of an instance"),
                alt.Tooltip("offered_load:Q", format=".0%").title("Offered load"),
                alt.Tooltip("requests_per_s:Q", format=".2f").title("Requests/s"),
                alt.Tooltip("input_tokens:Q", format=",").title("Prompt (tokens)"),
                *(
                    alt.Tooltip(f"{name}:Q", format=",.2f").title(f"TTFT, {title} (s)")
                    for name, title in _STATISTICS.items()
                ),
            ],
        )
    )
    panels = [
        _lines(base.transform_filter(alt.datum.prompts == prompts)).properties(
            width=260,
            height=260,
            title=alt.Title(
                f"{prompts.capitalize()} prompts", anchor="middle", fontWeight="normal", fontSize=12
            ),
        )
        for prompts in ("short", "long")
    ]
    costs = list(dict.fromkeys(table["fixed_cost"]))
    chart = (
        alt.hconcat(*panels)
        .resolve_scale(y="shared")
        .add_params(
            alt.param(
                name="load_statistic",
                value="mean_s",
                bind=alt.binding_radio(
                    options=list(_STATISTICS), labels=list(_STATISTICS.values()), name="Time to first token "
                ),
            ),
            alt.param(
                name="load_cost",
                value=costs[0],
                bind=alt.binding_radio(options=costs, name="Fixed cost of a prefill "),
            ),
        )
    )
    return finish(chart, name="prefill-pipeline-load", description=_describe_load(table), table=table)


def _lines(base: alt.Chart) -> alt.LayerChart:
    """A line for each length of a pipeline, told apart by dashes and marks: all are prefill's colour."""
    legend = alt.Legend(
        title="Nodes of an instance",
        columns=4,
        symbolType="stroke",
        symbolSize=500,
        symbolStrokeColor=PALETTE["prefill"],
    )
    dashed = base.mark_line(color=PALETTE["prefill"], strokeWidth=1.75).encode(
        alt.StrokeDash("pipeline_nodes:O", legend=legend).scale(range=_DASHES)
    )
    marked = base.mark_point(color=PALETTE["prefill"], size=55, opacity=1).encode(
        # In another order: a legend of dashes alone.
        alt.Shape("pipeline_nodes:O", legend=None, sort="descending").scale(range=_SHAPES[::-1])
    )
    lines: alt.LayerChart = dashed + marked
    return lines


def _radio(name: str, values: pd.Series, value: int, title: str) -> alt.Parameter:
    options = sorted(values.unique().tolist())
    labels = [f"{option:,}" for option in options]
    return alt.param(
        name=name,
        value=value if value in options else options[0],
        bind=alt.binding_radio(options=options, labels=labels, name=title),
    )


def _describe_gantt(table: pd.DataFrame, chunk_tokens: int) -> str:
    shown = table[table["chunk_tokens"] == chunk_tokens]
    ends = shown.groupby(["pipeline_nodes", "prompt"])["end_s"].max()
    told = "; ".join(
        f"{width} nodes: long {ends[width, 'long']:.2f} s, short {ends[width, 'short']:.2f} s"
        for width in sorted(shown["pipeline_nodes"].unique())
    )
    return (
        "Timeline of the stages of a pipeline, each bar a chunk: a long prompt, and a short one behind it. "
        f"First tokens with chunks of {chunk_tokens} tokens, {told}."
    )


def _describe_speedup(table: pd.DataFrame, chunk_tokens: int) -> str:
    shown = table[table["chunk_tokens"] == chunk_tokens]
    widest = shown[shown["pipeline_nodes"] == shown["pipeline_nodes"].max()].sort_values("input_tokens")
    first, last = widest.iloc[0], widest.iloc[-1]
    return (
        "Lines: how many times sooner one prompt has its first token in a pipeline than on one node. With "
        f"{last['pipeline_nodes']:.0f} nodes {first['speedup']:.1f} times for {first['input_tokens']:,.0f} "
        f"tokens and {last['speedup']:.1f} times for {last['input_tokens']:,.0f}."
    )


def _describe_load(table: pd.DataFrame) -> str:
    shown = table[table["fixed_cost"] == table["fixed_cost"].iloc[0]]
    parts = []
    for load in (shown["offered_load"].min(), shown["offered_load"].max()):
        at = shown[shown["offered_load"] == load]
        told = ", ".join(
            f"{prompts} prompts "
            + " and ".join(
                f"{row.mean_s:.2f} s with {row.pipeline_nodes}" for row in rows.iloc[[0, -1]].itertuples()
            )
            for prompts, rows in at.groupby("prompts")
        )
        parts.append(f"at a load of {load:.0%} {told}")
    return (
        "Lines: time to first token by offered load, for pipelines of several lengths. Mean "
        f"{'; '.join(parts)} nodes."
    )
