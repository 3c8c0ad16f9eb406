"""Chart of the bytes that move between tiers and nodes."""

from typing import Literal

import altair as alt
import pandas as pd

from mooncake_companion.charts.theme import colours, finish

NODES = ("Another prefill node", "Prefill node", "Decode node")
TIERS = ("SSD", "DRAM", "VRAM")
"""Columns and rows of the drawing, from the left and from below."""

_IN_LINES = [["Another", "prefill node"], ["Prefill", "node"], ["Decode", "node"]]
_LEAVES = {"VRAM": "vram", "DRAM": "dram", "SSD": "ssd", "Network": "network"}
_SOLID, _DASHED = "on the critical path", "hidden"
_LABELS: tuple[tuple[Literal["left", "center", "right"], int, int], ...] = (
    ("right", -14, 0),
    ("left", 14, 0),
    ("center", 0, -20),
)
"""How a label stands beside its line: alignment, and pixels to the right and down."""
_WIDEST_PX = 22
_ASIDE, _CLEAR = 0.18, 0.2
_PREFILL = NODES.index("Prefill node")


def flows(table: pd.DataFrame) -> alt.LayerChart:
    """Bytes on every way of a chosen scenario: width is bytes, solid is what decode waits for.

    Parameters
    ----------
    table : DataFrame
        ``scenario``, ``way``, ``title``, ``source_node``, ``source_tier``, ``target_node``,
        ``target_tier``, ``bytes`` and ``delay_s`` (means per request), ``critical``,
        ``delayed_share``.
    """
    scenarios = list(dict.fromkeys(table["scenario"]))
    scenario = alt.param(
        name="scenario", value=scenarios[0], bind=alt.binding_select(options=scenarios, name="Scenario ")
    )
    base = _placed(alt.Chart(table))
    chosen = base.transform_filter("datum.scenario === scenario")
    tooltip = [
        alt.Tooltip("title:N").title("Move"),
        alt.Tooltip("gigabytes:Q", format=".2f").title("GB a request"),
        alt.Tooltip("delay_ms:Q", format=",.1f").title("Delays decode by (ms)"),
        alt.Tooltip("delayed_share:Q", format=".1%").title("Requests that it delays"),
    ]
    lines = chosen.mark_rule(opacity=1).encode(
        _x("x"),
        _y("y"),
        alt.X2("x2:Q"),
        alt.Y2("y2:Q"),
        alt.Size("width:Q", legend=None).scale(domain=[0, 1], range=[0, _WIDEST_PX]),
        alt.Color("leaves:N").title("From").scale(colours(_LEAVES)),
        alt.StrokeDash("path:N")
        .title(None)
        .scale(domain=[_SOLID, _DASHED], range=[[1, 0], [6, 4]])
        .legend(symbolType="stroke", symbolSize=500, symbolStrokeWidth=3),
        tooltip=tooltip,
    )
    labels = [
        chosen.transform_filter(f"datum.align === '{align}'")
        .transform_calculate(label="datum.arrow + ' ' + format(datum.gigabytes, '.2f')")
        .mark_text(align=align, fontSize=12, dx=dx, dy=dy)
        .encode(_x("label_x"), _y("label_y"), alt.Text("label:N"), tooltip=tooltip)
        for align, dx, dy in _LABELS
    ]
    places = [
        base.transform_aggregate(moves="count()", groupby=[f"{end}_x", f"{end}_y", f"{end}_tier"])
        .mark_square(size=900, opacity=1)
        .encode(
            _x(f"{end}_x").axis(
                values=[0, 1, 2],
                labelExpr=f"{_IN_LINES}[datum.value]",
                orient="top",
                ticks=False,
                domain=False,
            ),
            _y(f"{end}_y").axis(
                values=[0, 1, 2], labelExpr=f"{list(TIERS)}[datum.value]", grid=False, ticks=False
            ),
            alt.Color(f"{end}_tier:N").scale(colours(_LEAVES)),
        )
        for end in ("source", "target")
    ]
    chart = places[0] + places[1] + lines.add_params(scenario)
    for label in labels:
        chart += label
    return finish(
        chart.properties(height=320), name="cache-byte-flows", description=_describe(table), table=table
    )


def _x(field: str) -> alt.X:
    return alt.X(f"{field}:Q").title(None).scale(domain=[-0.4, 2.75], nice=False)


def _y(field: str) -> alt.Y:
    return alt.Y(f"{field}:Q").title(None).scale(domain=[-0.25, 2.25], nice=False)


def _placed(chart: alt.Chart) -> alt.Chart:
    """Where each move is drawn: from and to which point, with its label and the place that it leaves.

    Moves up and down between the same two tiers run side by side. Worked out from the data in the
    page, for whatever rows a figure has.
    """
    placed = chart.transform_calculate(
        gigabytes="datum.bytes / 1e9",
        delay_ms="1000 * datum.delay_s",
        path=f"datum.critical ? '{_SOLID}' : '{_DASHED}'",
        **{
            f"{end}_{axis}": f"indexof({list(names)}, datum.{end}_{what})"
            for end in ("source", "target")
            for axis, what, names in (("x", "node", NODES), ("y", "tier", TIERS))
        },
    )
    placed = placed.transform_joinaggregate(most="max(gigabytes)").transform_calculate(
        width="datum.gigabytes / datum.most",
        across="datum.source_x !== datum.target_x",
        aside=f"datum.source_x === {_PREFILL} && datum.target_x === {_PREFILL}"
        f" ? {_ASIDE} * (datum.source_y - datum.target_y) : 0",
    )
    return placed.transform_calculate(
        leaves="datum.across ? 'Network' : datum.source_tier",
        align="datum.across ? 'center' : datum.aside < 0 ? 'right' : 'left'",
        arrow="datum.across ? '→' : datum.target_y < datum.source_y ? '↓' : '↑'",
        x=f"datum.aside + {_between('x', _CLEAR)}",
        x2=f"datum.aside + {_between('x', 1 - _CLEAR)}",
        y=_between("y", _CLEAR),
        y2=_between("y", 1 - _CLEAR),
        label_x=f"datum.aside + {_between('x', 0.5)}",
        label_y=_between("y", 0.5),
    )


def _between(axis: str, share: float) -> str:
    """So far on the way from source to target."""
    return f"(1 - {share}) * datum.source_{axis} + {share} * datum.target_{axis}"


def _describe(table: pd.DataFrame) -> str:
    parts = [
        f"{scenario}: {rows['bytes'].sum() / 1e9:.1f} GB a request, on the critical path "
        + (", ".join(rows.loc[rows["critical"], "title"].str.lower()) or "none")
        for scenario, rows in table.groupby("scenario", sort=False)
    ]
    return (
        "Flow diagram of bytes between tiers and nodes, a scenario at a time; width is bytes, solid lines "
        f"delay decode, dashed ones do not. {'. '.join(parts)}."
    )
