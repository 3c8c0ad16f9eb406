"""Charts of the questions that readers ask."""

import altair as alt
import pandas as pd

from mooncake_companion.charts.theme import PALETTE, colours, finish, shapes
from mooncake_companion.charts.workloads import TITLE_OF, in_order, panels, title

MODELLED, REPORTED = "modelled", "reported"

_FIRST_WORDS = "split(datum.label, ' ')[0] + ' ' + split(datum.label, ' ')[1]"
_TWO_LINES = (
    f"length(datum.label) > 15 ? [{_FIRST_WORDS}, substring(datum.label, length({_FIRST_WORDS}) + 1)] "
    ": datum.label"
)
"""Labels for narrow screens."""

_EDGE_POINTS = 12
_FARTHEST = "requests with any hit"
"""A way to count that is off the chart everywhere, so that its row has room for a label."""
_DASHED = "Dashed: reported"
_CACHES = {"local": "local_cache_aware", "global": "global_cache_aware"}
_QUANTITIES = {"Hit rate (%)": "hit_rate_pct", "Prefill time (s)": "prefill_gpu_time_s"}
_WAYS = {
    "moved once into VRAM": ("vram", [1, 0]),
    "read from own DRAM": ("dram", [6, 3]),
    "read from another node": ("network", [2, 3]),
}


def counts(table: pd.DataFrame) -> alt.LayerChart:
    """How far each way to count hits moves the hit ratio; a grey line where it would have to be.

    Parameters
    ----------
    table : DataFrame
        ``origin`` ("modelled" or "reported": what is needed), ``workload``, ``definition``,
        ``capacity_blocks`` (infinite: room for all), ``hit_ratio``, ``points``.
    """
    shown = table.assign(capacity=[_blocks(blocks) for blocks in table["capacity_blocks"]])
    shown = shown.drop(columns="capacity_blocks")
    shown.attrs = table.attrs
    capacities = list(dict.fromkeys(shown["capacity"]))
    capacity = alt.param(
        name="counts_capacity",
        value=capacities[-1],
        bind=alt.binding_radio(options=capacities, name="Cache (blocks) "),
    )
    modelled = shown[shown["origin"] == MODELLED]
    workloads = in_order(modelled)
    ways = list(dict.fromkeys(modelled["definition"]))
    base = (
        alt.Chart(shown)
        .transform_filter("datum.capacity === counts_capacity")
        .transform_calculate(
            panel=f"({TITLE_OF}) + (indexof(datum.trace, 'standin') < 0 ? '' : ' (stand-in)')",
            at=f"clamp(datum.points, -{_EDGE_POINTS}, {_EDGE_POINTS})",
        )
    )
    tooltip = [
        alt.Tooltip("definition:N").title("Counted"),
        alt.Tooltip("panel:N").title("Trace"),
        alt.Tooltip("origin:N").title("Origin"),
        alt.Tooltip("capacity:N").title("Cache (blocks)"),
        alt.Tooltip("hit_ratio:Q", format=".1%").title("Hit ratio"),
        alt.Tooltip("points:Q", format="+.1f").title("Moved by (points)"),
    ]
    x = (
        alt.X("at:Q")
        .title("Moves the hit ratio by (points)")
        .axis(tickCount=6)
        .scale(domain=[-_EDGE_POINTS, _EDGE_POINTS], nice=False)
    )
    dots = base.transform_filter(alt.datum.origin == MODELLED)
    is_standin = modelled.groupby("workload")["trace"].agg(lambda names: "standin" in names.iloc[0])
    names = [title(name) + (" (stand-in)" if is_standin[name] else "") for name in workloads]
    marks = dots.mark_point(filled=True, size=75, opacity=1).encode(
        x,
        alt.Y("definition:N")
        .title(None)
        .sort(ways)
        .scale(type="band")
        .axis(grid=True, ticks=False, domain=False, labelExpr=_TWO_LINES),
        alt.Color("panel:N")
        .title(None)
        .scale(domain=names, range=[PALETTE.get(name, PALETTE["dram"]) for name in workloads]),
        alt.Shape("panel:N").title(None).scale(shapes(names)),
        tooltip=tooltip,
    )
    needed = base.transform_filter(alt.datum.origin == REPORTED)
    rule = needed.mark_rule(color=PALETTE["reported"], strokeDash=[5, 4], strokeWidth=2).encode(
        alt.X("at:Q"), tooltip=tooltip
    )
    label = (
        needed.transform_calculate(said="'needed ' + format(datum.points, '+.1f')")
        .mark_text(align="left", dx=5, fontSize=11)
        .encode(alt.X("at:Q"), alt.YDatum(_FARTHEST), alt.Text("said:N"))
    )
    chart = rule + marks + label
    return finish(
        chart.add_params(capacity).properties(height=alt.Step(30)),
        name="hit-rate-counts",
        description=_describe_counts(table),
        table=shown,
    )


def explanations(table: pd.DataFrame) -> alt.ConcatChart:
    """Hit rate of local and global caches under each explanation; dashed: reported.

    Parameters
    ----------
    table : DataFrame
        ``origin``, ``workload``, ``explanation`` (empty where reported), ``cache`` ("local", "global"),
        ``hit_rate_pct``, ``prefill_gpu_time_s``.
    """
    quantity = alt.param(
        name="explained",
        value=next(iter(_QUANTITIES)),
        bind=alt.binding_radio(options=list(_QUANTITIES), name="Show "),
    )
    of = " : ".join(f"explained === '{name}' ? datum.{field}" for name, field in _QUANTITIES.items())
    base = (
        alt.Chart(table)
        .transform_calculate(value=f"{of} : 0")
        .encode(
            alt.X("value:Q").title("Hit rate (%) or prefill (s)").axis(tickCount=5),
            alt.Color("cache:N").title(_DASHED).scale(colours(_CACHES)),
            tooltip=[
                alt.Tooltip("explanation:N").title("Changed"),
                alt.Tooltip("cache:N").title("Cache"),
                alt.Tooltip("origin:N").title("Origin"),
                alt.Tooltip("hit_rate_pct:Q", format=".1f").title("Hit rate (%)"),
                alt.Tooltip("prefill_gpu_time_s:Q", format=".2f").title("Prefill time (s)"),
            ],
        )
    )
    names = [name for name in dict.fromkeys(table["explanation"]) if name]
    bars = (
        base.transform_filter(alt.datum.origin == MODELLED)
        .mark_bar(height={"band": 0.85})
        .encode(
            alt.Y("explanation:N")
            .title(None)
            .sort(names)
            .axis(ticks=False, domain=False, labelExpr=_TWO_LINES),
            alt.YOffset("cache:N").sort(list(_CACHES)),
        )
    )
    reported = base.transform_filter(alt.datum.origin == REPORTED).mark_rule(
        strokeDash=[5, 4], strokeWidth=2.25
    )
    ends = base.transform_filter(alt.datum.origin == REPORTED).mark_point(size=60)
    ends = ends.encode(alt.Shape("cache:N").title(_DASHED).scale(shapes(_CACHES)), y=alt.value(0))
    without_bars = (  # as in a page, which replays one trace
        alt.Chart(table)
        .transform_joinaggregate(origins="distinct(origin)")
        .transform_filter("datum.origins === 1 && datum.origin === 'reported' && datum.cache === 'local'")
        .mark_text(text="not replayed", align="left", fontSize=11)
        .encode(x=alt.value(3), y=alt.value(10))
    )
    layers = bars + reported + ends + without_bars
    chart = panels(table, layers.properties(width=190, height=alt.Step(16)))
    return finish(
        chart.add_params(quantity),
        name="local-cache-explanations",
        description=_describe_explanations(table),
        table=table,
    )


def thresholds(table: pd.DataFrame) -> alt.HConcatChart:
    """Mean TTFT and fetched bytes by the balancing threshold, for the network that is chosen.

    Parameters
    ----------
    table : DataFrame
        ``threshold``, ``nic_bytes_per_s``, ``mean_ttft_s``, ``fetched_bytes`` (mean per request),
        ``fetched_share``, ``hit_ratio``.
    """
    rates = sorted(table["nic_bytes_per_s"].unique().tolist())
    network = alt.param(
        name="threshold_network",
        value=rates[-1],
        bind=alt.binding_radio(
            options=rates,
            labels=[f"{8 * rate / 1e9:g} Gbit/s" for rate in rates],
            name="Network of a node ",
        ),
    )
    base = (
        alt.Chart(table)
        .transform_calculate(
            fetched_gb="datum.fetched_bytes / 1e9",
            gbit="datum.nic_bytes_per_s * 8 / 1e9",
            chosen="datum.nic_bytes_per_s === threshold_network",
        )
        .encode(
            alt.X("threshold:Q").title("kvcache_balancing_threshold").scale(type="log").axis(tickCount=4),
            alt.Detail("nic_bytes_per_s:N"),
            tooltip=[
                alt.Tooltip("threshold:Q", format="g").title("Threshold"),
                alt.Tooltip("gbit:Q", format="g").title("Network (Gbit/s)"),
                alt.Tooltip("mean_ttft_s:Q", format=".3f").title("Mean TTFT (s)"),
                alt.Tooltip("fetched_gb:Q", format=".2f").title("Fetched (GB a request)"),
                alt.Tooltip("fetched_share:Q", format=".1%").title("Requests that fetch"),
                alt.Tooltip("hit_ratio:Q", format=".1%").title("Prompt tokens reused"),
            ],
        )
    )

    def panel(y: alt.Y) -> alt.LayerChart:
        all_of_them = base.mark_line(color=PALETTE["network"], opacity=1, strokeWidth=1).encode(y)
        one = base.transform_filter("datum.chosen")
        colour = PALETTE["global_cache_aware"]
        layers = all_of_them + one.mark_line(color=colour, strokeWidth=3).encode(y)
        sized: alt.LayerChart = (
            layers + one.mark_point(color=colour, size=60, opacity=1).encode(y)
        ).properties(width=250, height=220)
        return sized

    chart = alt.hconcat(
        panel(alt.Y("mean_ttft_s:Q").title("Mean TTFT (s)").scale(zero=False)),
        panel(alt.Y("fetched_gb:Q").title("Fetched (GB a request)")),
        spacing=24,
    )
    return finish(
        chart.add_params(network),
        name="balancing-threshold-bytes",
        description=_describe_thresholds(table),
        table=table,
    )


def remote_reads(table: pd.DataFrame) -> alt.LayerChart:
    """Time per token by the length of the answer and where the KV cache is read.

    Parameters
    ----------
    table : DataFrame
        ``way`` (moved, or read from DRAM or afar), ``batch``, ``output_tokens``, ``mean_token_s``,
        ``first_wait_s``, ``step_s``, ``read_bytes``.
    """
    batches = sorted(table["batch"].unique().tolist())
    batch = alt.param(
        name="remote_batch",
        value=batches[0],
        bind=alt.binding_radio(options=batches, name="Requests decoding together "),
    )
    names = list(_WAYS)
    base = (
        alt.Chart(table)
        .transform_filter("datum.batch === remote_batch")
        .transform_calculate(
            mean_token_ms="1000 * datum.mean_token_s",
            first_wait_ms="1000 * datum.first_wait_s",
            step_ms="1000 * datum.step_s",
            read_gb="datum.read_bytes / 1e9",
        )
        .encode(
            alt.X("output_tokens:Q")
            .title("Answer (tokens, logarithmic)")
            .scale(type="log", nice=False)
            .axis(tickCount=4),
            alt.Y("mean_token_ms:Q")
            .title("Time per token (ms, logarithmic)")
            .scale(type="log", nice=False, zero=False)
            .axis(tickCount=5),
            alt.Color("way:N")
            .title(None)
            .scale(domain=names, range=[PALETTE[colour] for colour, _ in _WAYS.values()])
            .legend(columns=1),
            tooltip=[
                alt.Tooltip("way:N").title("KV cache"),
                alt.Tooltip("batch:Q").title("Requests decoding together"),
                alt.Tooltip("output_tokens:Q", format=",").title("Answer (tokens)"),
                alt.Tooltip("mean_token_ms:Q", format=",.1f").title("Time per token (ms)"),
                alt.Tooltip("first_wait_ms:Q", format=",.0f").title("of it before the first (ms)"),
                alt.Tooltip("step_ms:Q", format=",.1f").title("Each step (ms)"),
                alt.Tooltip("read_gb:Q", format=",.1f").title("Over the link, in all (GB)"),
            ],
        )
    )
    dashed = [{"test": f"datum.way === '{way}'", "value": dash} for way, (_, dash) in _WAYS.items()]
    lines = base.mark_line().encode(alt.StrokeDashValue([1, 0], condition=dashed))
    shape = alt.Shape("way:N").title(None).legend(columns=1).scale(shapes(names))
    chart = lines + base.mark_point(size=45).encode(shape)
    return finish(
        chart.add_params(batch).properties(height=260),
        name="remote-kv-reads",
        description=_describe_remote(table),
        table=table,
    )


def _blocks(blocks: float) -> str:
    return "room for all" if blocks == float("inf") else f"{blocks / 1000:g}k"


def _describe_counts(table: pd.DataFrame) -> str:
    unbounded = table[table["capacity_blocks"] == float("inf")]
    needed = unbounded.loc[unbounded["origin"] == REPORTED, "points"].iloc[0]
    parts = [
        f"{title(str(workload))}: "
        + ", ".join(f"{row.definition} {row.points:+.1f}" for row in rows.itertuples())
        for workload, rows in unbounded[unbounded["origin"] == MODELLED].groupby("workload", sort=False)
    ]
    return (
        "Percentage points by which each way to count hits moves the hit ratio of an unbounded cache; "
        f"{needed:+.1f} would be needed. {'. '.join(parts)}."
    )


def _describe_explanations(table: pd.DataFrame) -> str:
    parts = [
        f"{title(str(workload))}, {str(explanation) or 'reported'}: "
        + ", ".join(f"{row.cache} {row.hit_rate_pct:.0f} %" for row in rows.itertuples())
        for (workload, explanation), rows in table.groupby(["workload", "explanation"], sort=False)
    ]
    return (
        "Hit rate with local caches and with a global one, one change at a time; dashed: reported. "
        f"{'. '.join(parts)}."
    )


def _describe_thresholds(table: pd.DataFrame) -> str:
    parts = []
    for rate, rows in table.groupby("nic_bytes_per_s"):
        ends = rows.sort_values("threshold").iloc[[0, -1]]
        (low, high), (few, many) = ends["mean_ttft_s"], ends["threshold"]
        parts.append(
            f"{8 * float(str(rate)) / 1e9:g} Gbit/s: {low:.2f} s at a threshold of {few:g}, "
            f"{high:.2f} s at {many:g}"
        )
    return f"Mean time to first token and fetched bytes by balancing threshold. {'; '.join(parts)}."


def _describe_remote(table: pd.DataFrame) -> str:
    longest = table[table["output_tokens"] == table["output_tokens"].max()]
    parts = [
        f"{batch} together: "
        + ", ".join(f"{row.way} {1000 * row.mean_token_s:.0f} ms" for row in rows.itertuples())
        for batch, rows in longest.groupby("batch")
    ]
    return (
        "Time per token by the length of the answer and where the prompt's KV cache is read. At "
        f"{longest['output_tokens'].iloc[0]:,} tokens, {'; '.join(parts)}."
    )
