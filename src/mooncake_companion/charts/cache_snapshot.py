"""Chart of the blocks in the tiers of a node, over time."""

import altair as alt
import pandas as pd

from mooncake_companion.charts.theme import HEAT, finish

TIERS = ("VRAM", "DRAM", "SSD")
"""Kinds of memory, the fastest on top."""

_ABOVE = {"DRAM": "datum.VRAM", "SSD": "datum.VRAM + datum.DRAM"}
_COLUMNS = 24
_ROW_PX = 17
_BY_USES, _BY_AGE = "Requests that asked for it", "Time since its last use"
_SHOWN = ("time_s", "node", "tier", "slot", "block", "position", "uses", "age_s", "holders")


def heat(table: pd.DataFrame) -> alt.LayerChart:
    """Every block that a node holds as a cell, by tier; time, node and what the colour means are chosen.

    A block stays in its cell as long as it stays in its tier; a click outlines it wherever it is.

    Parameters
    ----------
    table : DataFrame
        ``time_s`` of the snapshot, ``node``, ``tier`` ("VRAM", "DRAM" or "SSD"), ``slot`` in the tier,
        ``block``, ``position`` in its prefix, ``uses``, ``age_s`` since its last use, ``holders`` (text).
    """
    times_s = sorted(table["time_s"].unique().tolist())
    nodes = sorted(table["node"].unique().tolist())
    snapshot = alt.param(
        name="snapshot",
        value=len(times_s),
        bind=alt.binding_range(min=1, max=len(times_s), step=1, name="Snapshot "),
    )
    node = alt.param(
        name="node", value=nodes[0], bind=alt.binding_select(options=nodes, name="Prefill node ")
    )
    colour = alt.param(
        name="colour",
        value=_BY_USES,
        bind=alt.binding_radio(options=[_BY_USES, _BY_AGE], name="Colour "),
    )
    picked = alt.selection_point(name="picked", fields=["block"], on="click", empty=False)
    places = _places(alt.Chart(table[list(_SHOWN)]))
    # Counted from the last one: at the first ones nothing may be held yet.
    shown = places.transform_filter(f"datum.to_last === {len(times_s)} - snapshot && datum.node === node")
    cells = (
        shown.transform_calculate(
            right="datum.column + 0.9",
            heat=f"colour === '{_BY_USES}' ? log(max(datum.uses, 1)) / log(max(datum.most, 2)) : "
            "pow(1 - datum.age_s / max(datum.oldest_s, 1), 3)",
        )
        .mark_rect(cornerRadius=1.5, cursor="pointer")
        .encode(
            alt.X("column:Q", axis=None).scale(domain=[0, _COLUMNS], nice=False),
            alt.X2("right:Q"),
            _row("row").scale(paddingInner=0.15),
            alt.Color("heat:Q")
            .title("Demand")
            .scale(domain=[0, 0.25, 1], range=list(HEAT), clamp=True, interpolate="rgb")
            .legend(
                values=[0, 1], labelExpr="datum.value === 0 ? 'cold' : 'hot'", gradientLength=120, tickCount=2
            ),
            tooltip=[
                alt.Tooltip("block:Q").title("Block"),
                alt.Tooltip("tier:N").title("Tier"),
                alt.Tooltip("uses:Q", format=",").title("Requests that asked for it"),
                alt.Tooltip("age_s:Q", format=".1f").title("Last use here (s ago)"),
                alt.Tooltip("position:Q").title("Blocks before it in its prefix"),
                alt.Tooltip("holders:N").title("Held by nodes"),
                alt.Tooltip("time_s:Q").title("Time (s)"),
            ],
            stroke=alt.when(picked).then(alt.value("#808080")).otherwise(alt.value("transparent")),
            strokeWidth=alt.when(picked).then(alt.value(3)).otherwise(alt.value(0)),
        )
        .add_params(picked)
    )
    # All rows of all times and nodes, so that none moves when these change.
    every_row = (
        places.transform_aggregate(cells="count()", groupby=["row"])
        .mark_text()
        .encode(_row("row"), text=alt.value(""))
    )
    headings = (
        places.transform_aggregate(cells="count()", groupby=["first", "tier"])
        .mark_text(align="left", baseline="bottom", dy=6)
        .encode(_row("first"), alt.Text("tier:N"), x=alt.value(0))
    )
    clock = (
        shown.transform_aggregate(time_s="min(time_s)", blocks="count()", groupby=["last"])
        .transform_calculate(
            label="'after ' + datum.time_s + ' s: ' + datum.blocks + ' blocks on node ' + node",
            middle=f"{_COLUMNS} / 2",
        )
        .mark_text(dy=4)
        .encode(alt.X("middle:Q"), _row("last"), alt.Text("label:N"))
    )
    return finish(
        (cells + every_row + headings + clock)
        .add_params(snapshot, node, colour)
        .properties(height=alt.Step(_ROW_PX)),
        name="cache-block-heat",
        description=_describe(table, times_s[-1]),
        table=table,
    )


def _row(field: str) -> alt.Y:
    return alt.Y(f"{field}:O", axis=None)


def _places(chart: alt.Chart) -> alt.Chart:
    """Where each block is drawn: its column, its row, the row of its tier's name, the last row of all.

    The tiers stand below each other, each below its name; one that is never used takes no rows.
    Worked out from the data in the page, for whatever rows a figure has.
    """
    numbered = chart.transform_window(
        rank="dense_rank()", sort=[alt.SortField("time_s", order="descending")]
    ).transform_calculate(to_last="datum.rank - 1")
    for tier in TIERS:
        rows = f"datum.tier === '{tier}' ? floor(datum.slot / {_COLUMNS}) + 2 : 0"
        numbered = numbered.transform_calculate(**{tier: rows})
    above = " + ".join(f"(datum.tier === '{lower}' ? {upper} : 0)" for lower, upper in _ABOVE.items())
    largest = {"uses": "most", "age_s": "oldest_s"} | dict(zip(TIERS, TIERS, strict=True))
    return (
        numbered.transform_joinaggregate(
            [
                alt.JoinAggregateFieldDef(op="max", field=field, **{"as": name})
                for field, name in largest.items()
            ]
        )
        .transform_calculate(first=above, last="datum.VRAM + datum.DRAM + datum.SSD")
        .transform_calculate(
            column=f"datum.slot % {_COLUMNS}", row=f"datum.first + 1 + floor(datum.slot / {_COLUMNS})"
        )
    )


def _describe(table: pd.DataFrame, last_s: float) -> str:
    last = table[table["time_s"] == last_s]
    held = ", ".join(f"{(last['tier'] == tier).sum()} in {tier}" for tier in TIERS)
    hottest = last.sort_values("uses").to_dict("records")[-1]
    return (
        f"Heat map of the blocks in the tiers of {table['node'].nunique()} nodes, at "
        f"{table['time_s'].nunique()} times. After {last_s:g} s all nodes together hold {held}; "
        f"{(last['uses'] == 1).mean():.0%} of these were asked for once. The hottest, asked for by "
        f"{hottest['uses']} requests, is held by nodes "
        f"{hottest['holders']}."
    )
