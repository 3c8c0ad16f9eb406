"""Charts of FAST'25, section 2.2: what a cached prefix saves, and what it takes to bring it."""

import altair as alt
import pandas as pd

from mooncake_companion.charts.theme import PALETTE, colours, finish

NODES = {"a800": "8 × A800", "h800": "8 × H800"}
"""Node presets by their labels; a table may have others, which go by their names."""
ACTIONS = {
    "hydrate": "lift it from a slower tier where it lies",
    "recompute": "compute it again",
    "migrate": "fetch it; the holder lets go of it",
    "replicate": "fetch it; both keep it",
}
"""What is done for a prompt's start, and in other words."""

_LINES = {
    "break_even_bytes_per_s": "Equation 2, GPUs at their peak",
    "fitted_break_even_bytes_per_s": "the same at the speed they reach",
}
_LINKS = {
    "dram_bytes_per_s": ("Host link", "dram"),
    "network_bytes_per_s": ("Network", "network"),
    "ssd_bytes_per_s": ("SSD", "ssd"),
}
_BINARY = alt.Axis(values=[1024 * 2**power for power in range(8)], labelExpr="datum.value / 1024 + 'k'")
_RATES = alt.Axis(values=[0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000])
_IN_MEMORY = 'place == "in another node\'s DRAM"'


def break_even(table: pd.DataFrame) -> alt.LayerChart:
    """Bandwidth from which on loading a prefix is faster than computing it, by its length.

    Parameters
    ----------
    table : DataFrame
        ``origin`` ("modelled" or "reported"), ``node``, ``cached_tokens``, ``break_even_bytes_per_s``;
        modelled rows also ``fitted_break_even_bytes_per_s`` and the line rates ``network_bytes_per_s``,
        ``dram_bytes_per_s`` and ``ssd_bytes_per_s``.
    """
    nodes = list(dict.fromkeys(table["node"]))
    node = alt.param(
        name="line_node",
        value=nodes[0],
        bind=alt.binding_radio(options=nodes, labels=[NODES.get(each, each) for each in nodes], name="Node "),
    )
    base = alt.Chart(table).transform_filter("datum.node == line_node")
    modelled = base.transform_filter("datum.origin == 'modelled'")
    y = alt.Y("gb:Q").title("Bandwidth (GB/s, logarithmic)").scale(type="log").axis(_RATES)
    x = alt.X("cached_tokens:Q").title("Cached prefix (tokens, logarithmic)")
    x = x.scale(type="log", base=2, nice=False).axis(_BINARY)
    lines = (
        modelled.transform_fold(list(_LINES), as_=["column", "value"])
        .transform_calculate(gb="datum.value / 1e9", line=_named("column", _LINES))
        .mark_line(color=PALETTE["prefill"])
        .encode(
            x,
            y,
            alt.StrokeDash("line:N", legend=alt.Legend(title=None, columns=1, symbolSize=600)).scale(
                domain=list(_LINES.values()), range=[[1, 0], [6, 4]]
            ),
            tooltip=[
                alt.Tooltip("line:N").title("Loading is faster above"),
                alt.Tooltip("cached_tokens:Q", format=",").title("Prefix (tokens)"),
                alt.Tooltip("gb:Q", format=".2f").title("Bandwidth (GB/s)"),
                alt.Tooltip("saved_flops:Q", format=".3s").title("Saved (FLOP)"),
                alt.Tooltip("saved_s:Q", format=".2f").title("Saved (s)"),
            ],
        )
    )
    links = (
        modelled.transform_fold(list(_LINKS), as_=["column", "value"])
        .transform_filter("isValid(datum.value)")  # not every node's SSDs are known
        .transform_calculate(
            gb="datum.value / 1e9",
            link=_named("column", {name: title for name, (title, _) in _LINKS.items()}),
        )
        .transform_aggregate(
            gb="mean(gb)", first="min(cached_tokens)", last="max(cached_tokens)", groupby=["link"]
        )
        .encode(y, alt.Detail("link:N"))
    )
    rules = links.mark_rule(strokeWidth=1.75).encode(
        alt.Color("link:N", legend=None).scale(colours(dict(_LINKS.values()))),
        tooltip=[
            alt.Tooltip("link:N").title("Line rate of"),
            alt.Tooltip("gb:Q", format=",.0f").title("GB/s"),
        ],
    )
    # The network is named at the other end and from below: its line may be next to another one.
    left = links.transform_filter("datum.link != 'Network'").mark_text(align="left", dx=4, dy=-8)
    right = links.transform_filter("datum.link == 'Network'").mark_text(align="right", dx=-4, dy=9)
    names = left.encode(alt.X("first:Q"), alt.Text("link:N")) + right.encode(
        alt.X("last:Q"), alt.Text("link:N")
    )
    reported = (
        base.transform_filter("datum.origin == 'reported'")
        .transform_calculate(gb="datum.break_even_bytes_per_s / 1e9")
        .mark_point(
            shape="diamond",
            size=130,
            filled=True,
            fill="white",
            stroke=PALETTE["reported"],
            strokeWidth=2.5,
            opacity=1,
        )
        .encode(
            x,
            y,
            tooltip=[
                alt.Tooltip("origin:N").title("Origin"),
                alt.Tooltip("cached_tokens:Q", format=",").title("Prefix (tokens)"),
                alt.Tooltip("gb:Q", format=".0f").title("Bandwidth (GB/s)"),
            ],
        )
    )
    return finish(
        (lines + rules + names + reported).add_params(node).properties(height=300),
        name="prefix-break-even",
        description=_describe_break_even(table),
        table=table,
    )


def actions(table: pd.DataFrame, *, replicate_after_uses: int) -> alt.LayerChart:
    """Which way to a prompt's start has the first token soonest, over prefix length and bandwidth.

    Parameters
    ----------
    table : DataFrame
        ``node``; ``cached_tokens`` and ``bytes_per_s`` with their cells' edges ``_low``, ``_high``;
        ``break_even_bytes_per_s``; and the TTFT by way, ``recompute_s``, ``fetch_s``, ``ssd_s``,
        ``holder_s``.
    replicate_after_uses : int
        Requests that ask for a prefix make it worth a second copy.
    """
    nodes = list(dict.fromkeys(table["node"]))
    base = (
        alt.Chart(table)
        .transform_filter("datum.node == map_node")
        .transform_calculate(
            hydrate_s=f"{_IN_MEMORY} ? datum.holder_s + queue : datum.ssd_s",
            other_s=f"{_IN_MEMORY} ? datum.fetch_s : 1e9",
            compute_s=f"{_IN_MEMORY} && rule == 'Algorithm 1' ? 1e9 : datum.recompute_s",
        )
        .transform_calculate(
            action="datum.hydrate_s <= min(datum.other_s, datum.compute_s) ? 'hydrate' : "
            "datum.other_s <= datum.compute_s ? "
            f"(uses >= {replicate_after_uses} ? 'replicate' : 'migrate') : 'recompute'",
            ttft_s="min(datum.hydrate_s, datum.other_s, datum.compute_s)",
            low="datum.bytes_per_s_low / 1e9",
            high="datum.bytes_per_s_high / 1e9",
            gb="datum.bytes_per_s / 1e9",
            rate="datum.break_even_bytes_per_s / 1e9",
            lift="format(datum.hydrate_s, ',.2f') + ' s'",
            fetch=f"{_IN_MEMORY} ? format(datum.fetch_s, ',.2f') + ' s' : 'no other node has it'",
            compute="format(datum.recompute_s, ',.2f') + ' s'",
        )
    )
    x = alt.X("cached_tokens_low:Q").title("Cached prefix (tokens, logarithmic)")
    x = x.scale(type="log", base=2, nice=False).axis(_BINARY)
    y = alt.Y("low:Q").title("Bandwidth of the way it comes by (GB/s, logarithmic)")
    y = y.scale(type="log", nice=False).axis(_RATES)
    cells = base.mark_rect(strokeWidth=0.4).encode(
        x,
        y,
        alt.X2("cached_tokens_high:Q"),
        alt.Y2("high:Q"),
        alt.Color("action:N", legend=alt.Legend(title=None, columns=4)).scale(
            colours({action: action for action in ACTIONS})
        ),
        alt.Stroke("action:N", legend=None).scale(colours({action: action for action in ACTIONS})),
        tooltip=[
            alt.Tooltip("action:N").title("Soonest"),
            alt.Tooltip("ttft_s:Q", format=",.2f").title("First token (s)"),
            alt.Tooltip("lift:N").title("Where it lies"),
            alt.Tooltip("fetch:N").title("Fetched"),
            alt.Tooltip("compute:N").title("Computed again"),
            alt.Tooltip("cached_tokens:Q", format=",").title("Prefix (tokens)"),
            alt.Tooltip("gb:Q", format=".2f").title("Bandwidth (GB/s)"),
        ],
    )
    # Named where they lie, in black on a white edge: colour is not all that tells them apart.
    named = (
        base.transform_calculate(log_x="log(datum.cached_tokens)", log_y="log(datum.gb)")
        .transform_aggregate(log_x="median(log_x)", log_y="median(log_y)", groupby=["action"])
        .transform_calculate(at_x="exp(datum.log_x)", at_y="exp(datum.log_y)")
        .encode(alt.X("at_x:Q"), alt.Y("at_y:Q"), alt.Text("action:N"))
    )
    names = named.mark_text(
        fontWeight="bold", color="white", stroke="white", strokeWidth=5
    ) + named.mark_text(fontWeight="bold", color="black")
    line = base.transform_aggregate(rate="mean(rate)", groupby=["cached_tokens"]).encode(
        alt.X("cached_tokens:Q"), alt.Y("rate:Q")
    )
    chart = (
        cells
        + line.mark_line(color="white", strokeWidth=4)
        + line.mark_line(color="black", strokeDash=[6, 4])
        + names
    )
    chart = chart.add_params(
        alt.param(
            name="map_node",
            value=nodes[0],
            bind=alt.binding_radio(
                options=nodes, labels=[NODES.get(each, each) for each in nodes], name="Node "
            ),
        ),
        alt.param(
            name="place",
            value="in another node's DRAM",
            bind=alt.binding_radio(
                options=["in another node's DRAM", "on the node's own SSD"], name="The prefix lies "
            ),
        ),
        alt.param(
            name="rule",
            value="the fastest",
            bind=alt.binding_radio(options=["the fastest", "Algorithm 1"], name="Chosen by "),
        ),
        alt.param(
            name="queue",
            value=1,
            bind=alt.binding_range(min=0, max=10, step=0.1, name="Queue at the holder (s) "),
        ),
        alt.param(
            name="uses",
            value=2,
            bind=alt.binding_range(min=2, max=10, step=1, name="Requests that asked for it "),
        ),
    )
    return finish(
        chart.properties(height=380),
        name="prefix-actions",
        description=_describe_actions(table),
        table=table,
    )


def _named(column: str, titles: dict[str, str]) -> str:
    """Vega expression for the title of what a column says."""
    *others, (_, last) = titles.items()
    tests = [f"datum.{column} == '{name}' ? '{title}' : " for name, title in others]
    return "".join(tests) + f"'{last}'"


def _describe_break_even(table: pd.DataFrame) -> str:
    parts = []
    for node, rows in table.groupby("node", sort=False):
        modelled = rows[rows["origin"] == "modelled"].sort_values("cached_tokens")
        gb = modelled["break_even_bytes_per_s"].iloc[[0, -1]] / 1e9
        tokens = modelled["cached_tokens"].iloc[[0, -1]]
        parts.append(
            f"{NODES.get(str(node), node)}: {gb.iloc[0]:.1f} GB/s at {tokens.iloc[0]:,} tokens, "
            f"{gb.iloc[1]:.1f} GB/s at {tokens.iloc[1]:,}"
        )
    return (
        "Line: bandwidth above which loading a cached prefix is faster than computing it (Equation 2), by "
        f"its length, below the line rates of host link, network and SSD. {'; '.join(parts)}."
    )


def _describe_actions(table: pd.DataFrame) -> str:
    shown = table[table["node"] == table["node"].iloc[0]]
    fetched = (shown["fetch_s"] < shown["recompute_s"]).mean()
    return (
        "Map of what has the first token soonest, by the length of the cached prefix and the bandwidth of "
        "the way that it comes by: hydrate, recompute, migrate or replicate; dashed: Equation 2. Fetching "
        f"beats computing in {fetched:.0%} of the cells."
    )
