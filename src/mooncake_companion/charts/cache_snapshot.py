"""Chart of the blocks in the tiers of a node, over time."""

import altair as alt
import pandas as pd

from mooncake_companion.charts.theme import HEAT, finish

TIERS = ("VRAM", "DRAM", "SSD")
"""Kinds of memory, the fastest on top."""

_COLUMNS = 24
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
    first_row, rows = _first_rows(table)
    snapshot = alt.param(
        name="snapshot",
        value=len(times_s),
        bind=alt.binding_range(min=1, max=len(times_s), step=1, name="Snapshot "),
    )
    node = alt.param(
        name="node",
        value=nodes[0],
        bind=alt.binding_select(options=nodes, labels=[f"node {n}" for n in nodes], name="Prefill node "),
    )
    colour = alt.param(
        name="colour",
        value=_BY_USES,
        bind=alt.binding_radio(options=[_BY_USES, _BY_AGE], name="Colour "),
    )
    picked = alt.selection_point(name="picked", fields=["block"], on="click", empty=False)
    most, oldest_s = int(table["uses"].max()), float(table["age_s"].max())
    now = f"datum.time_s === {times_s}[snapshot - 1]"
    start = " : ".join(f"datum.tier === '{tier}' ? {row}" for tier, row in first_row.items())
    base = alt.Chart(table[list(_SHOWN)]).transform_filter(f"{now} && datum.node === node")
    cells = (
        base.transform_calculate(
            column=f"datum.slot % {_COLUMNS}",
            row=f"({start} : 0) + floor(datum.slot / {_COLUMNS})",
        )
        .transform_calculate(
            right="datum.column + 0.9",
            bottom="datum.row + 0.85",
            heat=f"colour === '{_BY_USES}' ? log(max(datum.uses, 1)) / {_log(most)} : "
            f"pow(1 - datum.age_s / {max(oldest_s, 1)}, 3)",
        )
        .mark_rect(cornerRadius=1.5, cursor="pointer")
        .encode(
            alt.X("column:Q", axis=None).scale(domain=[0, _COLUMNS], nice=False),
            alt.X2("right:Q"),
            alt.Y("row:Q")
            .title(None)
            .scale(domain=[0, rows], reverse=True, nice=False)
            .axis(
                values=list(first_row.values()),
                labelExpr=_names(first_row),
                labelBaseline="top",
                grid=False,
                ticks=False,
            ),
            alt.Y2("bottom:Q"),
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
    clock = (
        base.transform_aggregate(time_s="min(time_s)", blocks="count()")
        .transform_calculate(
            label="'after ' + datum.time_s + ' s: ' + datum.blocks + ' blocks on node ' + node",
            middle=f"{_COLUMNS} / 2",
            below=str(rows),
        )
        .mark_text(baseline="top", dy=2)
        .encode(alt.X("middle:Q"), alt.Y("below:Q"), alt.Text("label:N"))
    )
    return finish(
        (cells + clock).add_params(snapshot, node, colour).properties(height=17 * rows),
        name="cache-block-heat",
        description=_describe(table, times_s[-1]),
        table=table,
    )


def _first_rows(table: pd.DataFrame) -> tuple[dict[str, int], int]:
    """Where each tier that is used begins, and how many rows there are with a gap between tiers."""
    first, row = {}, 0
    for tier in TIERS:
        slots = table.loc[table["tier"] == tier, "slot"]
        if len(slots):
            first[tier] = row
            row += -(-(int(slots.max()) + 1) // _COLUMNS) + 1
    return first, row


def _log(most: int) -> str:
    return f"log({max(most, 2)})"


def _names(first_row: dict[str, int]) -> str:
    named = " : ".join(f"datum.value === {row} ? '{tier}'" for tier, row in first_row.items())
    return f"{named} : ''"


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
