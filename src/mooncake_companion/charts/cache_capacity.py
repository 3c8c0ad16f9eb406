"""Charts of FAST'25, Figure 9, and arXiv 2407.00079, Table 1: hit ratio by cache capacity."""

import altair as alt
import numpy as np
import pandas as pd

from mooncake_companion.charts.theme import PALETTE, finish
from mooncake_companion.charts.workloads import panels, title

MODELLED, REPORTED = "modelled", "reported"
_DASHES: list[list[float]] = [[1, 0], [8, 3], [4, 3], [1.5, 3]]
_CAPACITY_TICKS = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
_ALL_BLOCKS = 1_000_000
"""Where room for all blocks is drawn: so far to the right of the largest capacity that both have a label."""


def capacity(table: pd.DataFrame) -> alt.ConcatChart:
    """Hit ratio of one cache by its capacity, a panel a workload.

    Parameters
    ----------
    table : DataFrame
        ``origin`` ("modelled" or "reported"), ``workload``, ``capacity_tokens``, ``hit_ratio``.
    """
    lines = _base(table).transform_filter(alt.datum.origin == MODELLED).mark_line(color=PALETTE["dram"])
    chart = panels(table, _sized(lines + _points(table)))
    return finish(chart, name="cache-capacity", description=_describe(table), table=table)


def block_sizes(table: pd.DataFrame) -> alt.ConcatChart:
    """How far the hit ratio is from the reported one, a line a block size.

    Parameters
    ----------
    table : DataFrame
        ``workload``, ``capacity_tokens``, ``block_tokens``, ``hit_ratio``, ``error_points``.
    """
    sizes: list[float] = sorted(table["block_tokens"].astype(float).unique())
    base = _base(table).encode(
        alt.Y("error_points:Q").title("Modelled less reported (percentage points)"),
        alt.StrokeDash("block_tokens:O")
        .title("Tokens per block")
        .scale(domain=sizes, range=[dash for dash, _ in zip(_DASHES, sizes, strict=False)]),
    )
    zero = alt.Chart(table).mark_rule(color=PALETTE["reported"]).encode(alt.YDatum(0))
    lines = base.mark_line(color=PALETTE["dram"]) + base.mark_point(color=PALETTE["dram"], size=25, opacity=1)
    largest = table.assign(error=table["error_points"].abs()).groupby("block_tokens")["error"].max()
    worst = ", ".join(f"{error:.1f} with blocks of {size}" for size, error in largest.items())
    return finish(
        panels(table, _sized(zero + lines)),
        name="cache-capacity-block-sizes",
        description=(
            "Difference of the modelled to the reported hit ratio by cache capacity, a line a block size. "
            f"Largest difference in percentage points: {worst} tokens."
        ),
        table=table,
    )


def policies(table: pd.DataFrame) -> alt.LayerChart:
    """Hit ratio by eviction policy and capacity; what the report states as points, a shape a policy.

    Parameters
    ----------
    table : DataFrame
        ``origin``, ``title`` of the policy, ``capacity_blocks`` (infinite: room for all), ``capacity``
        (it as text), ``hit_ratio``.
    """
    base = (
        alt.Chart(table)
        .transform_calculate(place=f"isValid(datum.capacity_blocks) ? datum.capacity_blocks : {_ALL_BLOCKS}")
        .encode(
            alt.X("place:Q")
            .title("Cache capacity (blocks, logarithmic)")
            .scale(type="log", nice=False, padding=12)
            .axis(
                values=[*_CAPACITY_TICKS, _ALL_BLOCKS],
                labelExpr=f"datum.value === {_ALL_BLOCKS} ? 'all' : format(datum.value, '~s')",
                labelOverlap="greedy",
                labelSeparation=4,
                grid=False,
            ),
            alt.Y("hit_ratio:Q").title("Blocks found in the cache").axis(format="%"),
            tooltip=[
                alt.Tooltip("title:N").title("Policy"),
                alt.Tooltip("origin:N").title("Origin"),
                alt.Tooltip("capacity:N").title("Capacity (blocks)"),
                alt.Tooltip("hit_ratio:Q", format=".1%").title("Found in the cache"),
            ],
        )
    )
    # No domains: a reader may add a policy.
    dash = (
        alt.StrokeDash("title:N")
        .title("Modelled")
        .sort(None)
        .scale(range=_DASHES)
        .legend(symbolType="stroke", symbolSize=500)
    )
    shape = alt.Shape("title:N").title("Reported").sort(None).scale(range=["circle", "square", "triangle"])
    lines = base.transform_filter(alt.datum.origin == MODELLED).mark_line(color=PALETTE["dram"]).encode(dash)
    points = (
        base.transform_filter(alt.datum.origin == REPORTED)
        .mark_point(filled=False, size=60, strokeWidth=1.75, opacity=1, color=PALETTE["reported"])
        .encode(shape)
    )
    chart = (lines + points).resolve_legend(strokeDash="independent", shape="independent")
    return finish(
        chart.properties(width=560, height=260),
        name="cache-policies",
        description=_describe_policies(table),
        table=table,
    )


def _describe_policies(table: pd.DataFrame) -> str:
    most = table[np.isinf(table["capacity_blocks"])].groupby("origin")["hit_ratio"].max()
    at_all = ", ".join(f"{origin} {ratio:.0%}" for origin, ratio in most.items())
    return (
        "Hit ratio of one cache by eviction policy and capacity in blocks; lines modelled, points reported. "
        f"With room for all blocks: {at_all}."
    )


def _base(table: pd.DataFrame) -> alt.Chart:
    return alt.Chart(table).encode(
        alt.X("capacity_tokens:Q")
        .title("Cache capacity (tokens, logarithmic)")
        .scale(type="log")
        .axis(format="~s", tickCount=5),
        alt.Y("hit_ratio:Q").title("Prompt tokens found in the cache").axis(format="%"),
        tooltip=[
            alt.Tooltip("workload:N").title("Workload"),
            alt.Tooltip("origin:N").title("Origin"),
            alt.Tooltip("capacity_tokens:Q", format=",").title("Capacity (tokens)"),
            alt.Tooltip("hit_ratio:Q", format=".1%").title("Found in the cache"),
        ],
    )


def _points(table: pd.DataFrame) -> alt.Chart:
    """What the paper reports: hollow, so that a line beneath is seen."""
    points: alt.Chart = (
        _base(table)
        .transform_filter(alt.datum.origin == REPORTED)
        .mark_point(filled=False, size=60, strokeWidth=1.75, opacity=1, color=PALETTE["reported"])
    )
    return points


def _sized(layers: alt.LayerChart) -> alt.LayerChart:
    sized: alt.LayerChart = layers.properties(width=230, height=170)
    return sized


def _largest_error(modelled: pd.DataFrame, table: pd.DataFrame) -> float:
    """Largest difference of hit ratios where both are given."""
    keys = ["workload", "capacity_tokens"]
    both = modelled.merge(table[table["origin"] == REPORTED], on=keys, suffixes=("", "_reported"))
    return float((both["hit_ratio"] - both["hit_ratio_reported"]).abs().max())


def _describe(table: pd.DataFrame) -> str:
    modelled = table[table["origin"] == MODELLED]
    largest = ", ".join(
        f"{title(str(name))} {rows['hit_ratio'].max():.0%}"
        for name, rows in modelled.groupby("workload", sort=False)
    )
    text = f"Lines: modelled hit ratio of one LRU cache by its capacity; at most {largest}."
    if (table["origin"] == REPORTED).any():
        text += (
            " Points: reported; largest difference "
            f"{100 * _largest_error(modelled, table):.1f} percentage points."
        )
    return text
