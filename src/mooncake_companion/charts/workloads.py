"""The papers' workloads in words, and a panel for each."""

import altair as alt
import pandas as pd

TITLES = {
    "conversation": "Conversation",
    "toolagent": "Tool and agent",
    "synthetic": "Synthetic",
    "all": "All three",
}

TITLE_OF = (
    " : ".join(f"datum.workload == '{name}' ? '{title}'" for name, title in TITLES.items())
    + " : datum.workload"
)
"""Vega expression for the title of a row's ``workload``."""


def title(workload: str) -> str:
    """A workload's title; its name if it is none of the papers'."""
    return TITLES.get(workload, workload)


def in_order(table: pd.DataFrame) -> list[str]:
    """The workloads of a table, the papers' in their order, then others.

    >>> in_order(pd.DataFrame({"workload": ["mine", "synthetic", "conversation"]}))
    ['conversation', 'synthetic', 'mine']
    """
    there = set(table["workload"])
    return [name for name in TITLES if name in there] + sorted(there - set(TITLES))


def panels(table: pd.DataFrame, chart: alt.LayerChart) -> alt.ConcatChart:
    """A chart once for each workload of its table, two in a row, on common scales.

    Not a facet: Vega-Lite orders a facet's panels by the data, whatever order is asked for.
    """
    each = [
        chart.transform_filter(alt.datum.workload == name).properties(
            title=alt.Title(title(name), anchor="middle", fontWeight="normal", fontSize=12)
        )
        for name in in_order(table)
    ]
    joined: alt.ConcatChart = alt.concat(*each, columns=2).resolve_scale(x="shared", y="shared")
    return joined
