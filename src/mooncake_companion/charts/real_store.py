"""Chart of the real Mooncake Store beside models of its cache: hit ratio by capacity."""

import altair as alt
import pandas as pd

from mooncake_companion.charts.theme import PALETTE, finish

REAL, STORE_RULE = "Real Mooncake Store", "Model of its rule"
_DASHES = {STORE_RULE: [1, 0], "LRU at 0.9 of the capacity": [2, 3], "LRU": [8, 4]}


def hit_ratios(table: pd.DataFrame) -> alt.LayerChart:
    """Hit ratio by capacity; lines: modelled, diamonds: the real store.

    Parameters
    ----------
    table : DataFrame
        ``cache`` (`REAL`, or the name of a model), ``capacity_blocks``, ``hits``, ``hit_ratio``,
        ``points``.
    """
    base = alt.Chart(table).encode(
        alt.X("capacity_blocks:Q")
        .title("Capacity (blocks)")
        .scale(type="log", base=2)
        .axis(format=",", values=sorted(table["capacity_blocks"].unique().tolist())[::2]),
        alt.Y("hit_ratio:Q").title("Blocks found").axis(format="%").scale(zero=True),
        tooltip=[
            alt.Tooltip("cache:N").title("Cache"),
            alt.Tooltip("capacity_blocks:Q", format=",").title("Capacity (blocks)"),
            alt.Tooltip("hits:Q", format=",").title("Blocks found"),
            alt.Tooltip("hit_ratio:Q", format=".2%").title("Share"),
            alt.Tooltip("points:Q", format="+.2f").title("More than the store (points)"),
        ],
    )
    lines = (
        base.transform_filter(alt.datum.cache != REAL)
        .mark_line(color=PALETTE["dram"])
        .encode(
            alt.StrokeDash("cache:N", legend=alt.Legend(title=None, columns=1, symbolSize=600)).scale(
                domain=list(_DASHES), range=list(_DASHES.values())
            )
        )
    )
    marks = (
        base.transform_filter(alt.datum.cache == REAL)
        .mark_point(filled=False, size=150, strokeWidth=2, color=PALETTE["reported"], opacity=1)
        .encode(
            alt.Shape("cache:N", legend=alt.Legend(title=None, orient="bottom")).scale(
                domain=[REAL], range=["diamond"]
            )
        )
    )
    return finish(lines + marks, name="real-store-hits", description=_describe(table), table=table)


def _describe(table: pd.DataFrame) -> str:
    real = table[table["cache"] == REAL]
    told = ", ".join(f"{row.hit_ratio:.1%} with {row.capacity_blocks:,} blocks" for row in real.itertuples())
    furthest = table.groupby("cache")["points"].max().drop(REAL)
    apart = ", ".join(f"{cache} {points:.2f} points" for cache, points in furthest.items())
    return f"Blocks found in the real Mooncake Store: {told}. Most that a model finds more: {apart}."
