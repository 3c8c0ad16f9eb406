"""Charts of FAST'25, section 2.1: what GPUs do over time, and where a request's time goes."""

import altair as alt
import pandas as pd

from mooncake_companion.charts.theme import PALETTE, colours, finish, opacity_key

_NODES = tuple(f"{pool} {number}" for pool in ("Prefill", "Decode", "Node") for number in range(1, 17))
_HOLDS = {
    "prefill": "prefill",
    "decode": "decode",
    "decode alone": "decode",
    "with a prefill in it": "prefill",
    "first to second token": "network",
}
_LEGEND = {"prefill": "prefill", "decode": "decode", "KV cache moved": "network"}
_SHOWN_BY = {"prefill": "(tall, thick)", "decode": "(low, thin)", "KV cache moved": "(triangles)"}
"""What tells the two apart beside their colour."""
_ROWS = {"until decode begins": "Until decode begins", "each later token": "Each later token"}
_PARTS = {
    "queue": ("prefill", 0.5),
    "prefix fetched": ("network", 0.6),
    "own prefill": ("prefill", 1.0),
    "others' work": ("prefill", 0.75),
    "KV cache sent": ("network", 1.0),
    "KV cache loaded": ("dram", 1.0),
    "wait for a step": ("decode", 0.5),
    "fixed cost": ("decode", 0.5),
    "weights read": ("decode", 1.0),
    "KV cache read": ("vram", 1.0),
    "host": ("decode", 0.75),
}
"""Parts of the latency budget: colour, and how solid it is."""
_SECONDS, _MILLISECONDS = ("shown_from_s", "shown_until_s"), ("least_ms", "most_ms")
"""Parameters of the timeline's axes: their ends."""
_BUDGET_PX, _LETTER_PX = 520, 5.6
_HEADING, _LARGE, _GAP = 0.045, 0.74, 0.03
"""Of the budget's height: a row's heading, a row in focus, and the space between the rows."""


def timeline(table: pd.DataFrame, *, tbt_limit_s: float) -> alt.VConcatChart:
    """What every node does in a window, and below it the intervals between tokens; the mode on a radio.

    Parameters
    ----------
    table : DataFrame
        ``mode``, ``kind`` ("work" or "interval"), ``node``, ``holds``, ``start_s``, ``end_s``,
        ``seconds``, ``steps``, ``sequences``, ``new_tokens``, ``cached_tokens``, ``requests``.
    tbt_limit_s : float
        Drawn as a line.
    """
    modes = list(dict.fromkeys(table["mode"]))
    ends = {
        _SECONDS: (float(table["start_s"].min()), float(table["end_s"].max())),
        _MILLISECONDS: (_floor(table), _ceiling(table)),
    }
    base = (
        alt.Chart(table)
        .transform_filter("datum.mode === mode")
        .transform_calculate(
            colour="datum.holds === 'prefill' || datum.holds === 'with a prefill in it' ? 'prefill' : "
            "datum.holds === 'first to second token' ? 'KV cache moved' : 'decode'",
            each="datum.seconds < 1 ? format(1000 * datum.seconds, '.0f') + ' ms' "
            ": format(datum.seconds, '.2f') + ' s'",
        )
    )
    x = alt.X("start_s:Q").title("Time of the trace (s)").scale(domain=_ends(_SECONDS), nice=False)
    key = alt.Legend(title=None, columns=3, labelExpr=f"datum.label + ' ' + ({_SHOWN_BY})[datum.label]")
    colour = alt.Color("colour:N", legend=key).scale(colours(_LEGEND))
    work = base.transform_filter("datum.kind === 'work'")
    y = alt.Y("node:N").title(None).sort(list(_NODES)).axis(ticks=False, domain=False)
    tooltip = [
        alt.Tooltip("node:N").title("Node"),
        alt.Tooltip("holds:N").title("Does"),
        alt.Tooltip("requests:N").title("Requests"),
        alt.Tooltip("new_tokens:Q", format=",").title("Prompt tokens computed"),
        alt.Tooltip("cached_tokens:Q", format=",").title("Prompt tokens reused"),
        alt.Tooltip("sequences:Q").title("Sequences in the batch"),
        alt.Tooltip("steps:Q").title("Iterations"),
        alt.Tooltip("each:N").title("Time of one"),
        alt.Tooltip("start_s:Q", format=".2f").title("From (s)"),
        alt.Tooltip("end_s:Q", format=".2f").title("to (s)"),
    ]
    above = x.axis(labels=False, title=None)
    tall, low = (
        work.transform_filter(f"datum.holds {test}")
        .mark_bar(height={"band": band}, color=PALETTE[kind], stroke="white", strokeWidth=0.4)
        .encode(above, alt.X2("end_s:Q"), y, tooltip=tooltip)
        for kind, band, test in (("prefill", 0.8, "!== 'decode'"), ("decode", 0.4, "!== 'prefill'"))
    )
    between = base.transform_filter("datum.kind === 'interval'").transform_calculate(
        ms="1000 * datum.seconds"
    )
    interval = (
        alt.Y("ms:Q")
        .title("Between tokens (ms, log.)")
        .scale(type="log", domain=_ends(_MILLISECONDS), nice=False)
        .axis(values=[20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000], format="~s", grid=True)
    )
    told = [
        alt.Tooltip("node:N").title("Node"),
        alt.Tooltip("holds:N").title("Interval"),
        alt.Tooltip("each:N").title("Between two tokens"),
        alt.Tooltip("steps:Q").title("Intervals alike"),
        alt.Tooltip("sequences:Q").title("Sequences that wait so long"),
        alt.Tooltip("requests:N").title("Request"),
        alt.Tooltip("end_s:Q", format=".2f").title("Until (s)"),
    ]
    thick, thin = (
        between.transform_filter(f"datum.holds === '{holds}'")
        .mark_rule(strokeWidth=width)
        .encode(x, alt.X2("end_s:Q"), interval, colour, tooltip=told)
        for holds, width in (("with a prefill in it", 6), ("decode alone", 2.5))
    )
    first = (
        between.transform_filter("datum.holds === 'first to second token'")
        .mark_point(shape="triangle-up", size=60, opacity=1)
        .encode(alt.X("end_s:Q"), interval, colour, tooltip=told)
    )
    limit = (
        alt.Chart(table)
        .transform_aggregate(rows="count()")
        .transform_calculate(limit_ms=f"{1000 * tbt_limit_s}")
        .mark_rule(strokeDash=[6, 4], color="#808080")
        .encode(alt.Y("limit_ms:Q"))
    )
    chart = alt.vconcat(
        (tall + low).properties(width=560, height=alt.Step(34)),
        (thick + thin + first + limit).properties(width=560, height=190),
        spacing=8,
    ).add_params(
        alt.param(
            name="mode",
            value=_first_coupled(modes),
            bind=alt.binding_radio(options=modes, name="Deployment "),
        ),
        *(
            alt.param(name=name, value=end)
            for axis in ends
            for name, end in zip(axis, ends[axis], strict=True)
        ),
    )
    return finish(chart, name="deployment-timeline", description=_describe(table, tbt_limit_s), table=table)


def budget(table: pd.DataFrame) -> alt.LayerChart:
    """Two rows of bars, until decode begins and for each later token; focus and prompts to choose.

    Parameters
    ----------
    table : DataFrame
        ``mode``, ``prompts``, ``row``, ``part``, ``seconds``, ``start_s``, ``end_s``, ``total_s``,
        ``requests``.
    """
    modes, prompts = (list(dict.fromkeys(table[name])) for name in ("mode", "prompts"))
    focus, first = "focus_row", "datum.row === 'until decode begins'"
    small = 1 - _LARGE - _GAP
    even = (1 - _GAP) / 2
    large = f"({focus} === 'both' ? {even} : ({focus} === 'first token') === ({first}) ? {_LARGE} : {small})"
    base = (
        alt.Chart(table)
        .transform_filter("datum.prompts === budget_prompts")
        .transform_joinaggregate(longest_s="max(total_s)", groupby=["row"])
        .transform_calculate(high=large)
        .transform_calculate(
            focused=f"{focus} === 'both' || ({focus} === 'first token') === ({first})",
            top=f"{first} ? 0 : 1 - datum.high",
            slot=f"(datum.high - {_HEADING}) / {len(modes)}",
            x0="datum.start_s / datum.longest_s",
            x1="datum.end_s / datum.longest_s",
            unit=f"{first} ? format(datum.seconds, '.2f') + ' s' "
            ": format(1000 * datum.seconds, '.1f') + ' ms'",
            total=f"datum.mode + ': ' + ({first} ? format(datum.total_s, '.2f') + ' s' "
            ": format(1000 * datum.total_s, '.0f') + ' ms')",
        )
        .transform_calculate(y=f"datum.top + {_HEADING} + datum.slot * indexof({modes}, datum.mode)")
        .transform_calculate(
            name_y="datum.y + 0.013",
            y0="datum.y + 0.028",
            y1=f"datum.y + datum.slot * ({focus} !== 'both' && datum.focused ? 0.7 : 0.92)",
            share="datum.x1 - datum.x0",
        )
    )
    y = alt.Y("y0:Q").title(None).axis(None).scale(domain=[0, 1], reverse=True, nice=False)
    x = alt.X("x0:Q").title(None).axis(None).scale(domain=[0, 1], nice=False)
    parts = list(_PARTS)
    in_order = alt.Legend(title=None, columns=3, symbolStrokeWidth=0)
    colour = alt.Color("part:N", legend=in_order).scale(colours({part: _PARTS[part][0] for part in parts}))
    solid = alt.Scale(type="ordinal", domain=parts, range=[_PARTS[part][1] for part in parts])
    key = opacity_key(table, colour, alt.Opacity("part:N", scale=solid, legend=in_order))
    bars = (
        base.transform_filter("datum.x1 > datum.x0 + 1e-9")
        .mark_bar(strokeWidth=0.75)
        .encode(
            x,
            alt.X2("x1:Q"),
            y,
            alt.Y2("y1:Q"),
            colour,
            alt.Stroke("part:N", legend=None).scale(colours({part: _PARTS[part][0] for part in parts})),
            alt.FillOpacity("part:N", scale=solid),
            tooltip=[
                alt.Tooltip("mode:N").title("Deployment"),
                alt.Tooltip("row:N").title("Row"),
                alt.Tooltip("part:N").title("Part"),
                alt.Tooltip("unit:N").title("Mean"),
                alt.Tooltip("total:N").title("Row in all"),
                alt.Tooltip("prompts:N").title("Prompts"),
                alt.Tooltip("requests:Q", format=",").title("Requests"),
            ],
        )
    )
    once = base.transform_aggregate(
        y="min(y)", name_y="min(name_y)", top="min(top)", groupby=["row", "mode", "total"]
    )
    names = once.mark_text(align="left", fontSize=12).encode(
        x=alt.value(0), y=alt.Y("name_y:Q"), text="total:N"
    )
    headings = (
        once.transform_aggregate(top="min(top)", groupby=["row"])
        .transform_calculate(title=f"({_ROWS})[datum.row]", at="datum.top + 0.018")
        .mark_text(align="left", fontWeight="bold", fontSize=13)
        .encode(x=alt.value(0), y=alt.Y("at:Q"), text="title:N")
    )
    labels = (
        base.transform_calculate(at="datum.y1 + 0.018", told="datum.part + ' ' + datum.unit")
        .transform_filter(
            f"{focus} !== 'both' && datum.focused && datum.share * width > {_LETTER_PX} * length(datum.told)"
        )
        .mark_text(align="left", fontSize=11)
        .encode(alt.X("x0:Q"), y=alt.Y("at:Q"), text="told:N")
    )
    chart = (bars + names + headings + labels + key).add_params(
        alt.param(
            name=focus,
            value="both",
            bind=alt.binding_radio(options=["both", "first token", "rhythm"], name="Amplify "),
        ),
        alt.param(
            name="budget_prompts",
            value=prompts[0],
            bind=alt.binding_select(options=prompts, name="Prompts "),
        ),
    )
    return finish(
        chart.properties(height=_BUDGET_PX),
        name="latency-budget",
        description=_describe_budget(table),
        table=table,
    )


def _ends(names: tuple[str, str]) -> list[alt.ExprRef]:
    """Domain of an axis whose ends are parameters, so that other rows can be drawn as well."""
    return [alt.ExprRef(name) for name in names]


def _first_coupled(modes: list[str]) -> str:
    """The mode to begin with: the one in which the two kinds of work meet."""
    return next((mode for mode in modes if mode.startswith("Coupled")), modes[0])


def _floor(table: pd.DataFrame) -> float:
    return 1000 * float(table.loc[table["kind"] == "interval", "seconds"].min()) / 1.3


def _ceiling(table: pd.DataFrame) -> float:
    return 1000 * float(table.loc[table["kind"] == "interval", "seconds"].max()) * 1.3


def _describe(table: pd.DataFrame, tbt_limit_s: float) -> str:
    between = table[(table["kind"] == "interval") & (table["holds"] != "first to second token")]
    parts = []
    for mode, rows in between.groupby("mode", sort=False):
        long = rows[rows["seconds"] > tbt_limit_s]
        parts.append(
            f"{mode}: longest interval {rows['seconds'].max():.2f} s, {long['steps'].sum()} of "
            f"{rows['steps'].sum()} above {1000 * tbt_limit_s:.0f} ms"
        )
    return (
        "Timeline of what every node's GPUs do, prefill or decode, and below it the intervals between the "
        f"tokens of the batches, for one deployment at a time. {'; '.join(parts)}."
    )


def _describe_budget(table: pd.DataFrame) -> str:
    totals = table[table["prompts"] == table["prompts"].iloc[0]].groupby(["mode", "row"], sort=False)[
        "total_s"
    ]
    means_s = totals.first()
    told = "; ".join(
        f"{mode}: {means_s[mode, 'until decode begins']:.2f} s, "
        f"then {1000 * means_s[mode, 'each later token']:.0f} ms a token"
        for mode in dict.fromkeys(table["mode"])
    )
    return (
        "Two rows of stacked bars, the mean time until a request's decode begins and the mean time of each "
        f"later token, by what takes it, for each deployment. {told}."
    )
