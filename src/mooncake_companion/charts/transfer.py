"""Charts of FAST'25, section 5.4, and of a hot holder's link."""

import altair as alt
import pandas as pd

from mooncake_companion.charts.theme import PALETTE, colours, finish, shapes

METHODS = ("transfer engine", "tcp", "gloo")
COMPONENTS = {
    "schedule": ("Scheduling (reported only)", "reported"),
    "prefill": ("Prefill", "prefill"),
    "transfer": ("Transfer to the decode node", "network"),
    "load_cache": ("Load into GPU memory", "dram"),
    "decode": ("Decode", "decode"),
}
"""Components of a request's time, in their order, to their titles and colours."""

_METHOD_NAMES = "datum.label == 'tcp' ? 'TCP' : datum.label == 'gloo' ? 'Gloo' : 'Transfer engine'"
_BEFORE_DECODE = "until decode begins"
_COPIES = {"copies are not kept": "migrate", "each node keeps its copy": "replicate"}


def latency(table: pd.DataFrame) -> alt.LayerChart:
    """Seconds of a transfer by its size; line: modelled transfer engine, grey marks: reported.

    Parameters
    ----------
    table : DataFrame
        ``origin`` ("modelled" or "reported"), ``network``, ``method``, ``transferred_bytes``,
        ``transfer_s``, ``bytes_per_s``.
    """
    networks = list(dict.fromkeys(table["network"]))
    base = (
        alt.Chart(table)
        .transform_filter("datum.network == latency_network")
        .transform_calculate(size="datum.transferred_bytes / 1e9", rate="datum.bytes_per_s / 1e9")
        .encode(
            alt.X("size:Q").title("Size (GB)").axis(values=list(range(0, 101, 20))),
            alt.Y("transfer_s:Q").title("Time of the transfer (s)"),
            tooltip=[
                alt.Tooltip("method:N").title("Method"),
                alt.Tooltip("origin:N").title("Origin"),
                alt.Tooltip("size:Q", format=".0f").title("Size (GB)"),
                alt.Tooltip("transfer_s:Q", format=".3f").title("Time (s)"),
                alt.Tooltip("rate:Q", format=".1f").title("Rate (GB/s)"),
            ],
        )
    )
    modelled = base.transform_filter("datum.origin == 'modelled'").mark_line(color=PALETTE["network"])
    reported = (
        base.transform_filter("datum.origin == 'reported'")
        .mark_point(size=70, filled=True, color=PALETTE["reported"], opacity=1)
        .encode(
            alt.Shape(
                "method:N",
                legend=alt.Legend(
                    title="Reported", symbolFillColor=PALETTE["reported"], labelExpr=_METHOD_NAMES
                ),
            ).scale(domain=list(METHODS), range=["diamond", "square", "triangle-up"])
        )
    )
    labels = [network.replace("x", " × ").replace("Gbps", " Gbit/s") for network in networks]
    chart = (modelled + reported).add_params(
        alt.param(
            name="latency_network",
            value=networks[0],
            bind=alt.binding_radio(options=networks, labels=labels, name="Network of a node "),
        )
    )
    return finish(
        chart.properties(height=280),
        name="transfer-latency",
        description=_describe_latency(table),
        table=table,
    )


def breakdown(table: pd.DataFrame) -> alt.Chart:
    """Where the time of one request goes, by prompt length; solid: modelled, pale: reported.

    Parameters
    ----------
    table : DataFrame
        ``origin``, ``input_tokens``, ``cached_pct``, ``component`` (keys of `COMPONENTS`), ``seconds``.
    """
    named = " : ".join(f"datum.component == '{name}' ? '{title}'" for name, (title, _) in COMPONENTS.items())
    order = " : ".join(f"datum.component == '{name}' ? {rank}" for rank, name in enumerate(COMPONENTS))
    lengths = [f"{tokens // 1024}k" for tokens in sorted(table["input_tokens"].unique().tolist())]
    shares = sorted(table["cached_pct"].unique().tolist())
    chart = (
        alt.Chart(table)
        .transform_filter("datum.cached_pct == breakdown_cached")
        .transform_filter(
            f"breakdown_part != '{_BEFORE_DECODE}' || datum.component != 'decode'",
        )
        .transform_calculate(
            length="datum.input_tokens / 1024 + 'k'", what=f"{named} : ''", rank=f"{order} : 9"
        )
        .mark_bar(stroke=PALETTE["reported"], height={"band": 0.85})
        .encode(
            alt.Y("length:N").title("Prompt (tokens)").sort(lengths),
            alt.YOffset("origin:N").sort(["modelled", "reported"]),
            alt.X("seconds:Q").title("Time (s)"),
            alt.Color("what:N", legend=alt.Legend(title=None, columns=2, symbolStrokeWidth=0)).scale(
                colours(dict(COMPONENTS.values()))
            ),
            alt.FillOpacityValue(0.3, condition={"test": "datum.origin == 'modelled'", "value": 1}),
            alt.StrokeWidthValue(1.25, condition={"test": "datum.origin == 'modelled'", "value": 0}),
            alt.Order("rank:Q"),
            tooltip=[
                alt.Tooltip("what:N").title("Part"),
                alt.Tooltip("origin:N").title("Origin"),
                alt.Tooltip("length:N").title("Prompt (tokens)"),
                alt.Tooltip("cached_pct:Q").title("Cached (%)"),
                alt.Tooltip("seconds:Q", format=",.3f").title("Seconds"),
            ],
        )
        .add_params(
            alt.param(
                name="breakdown_cached",
                value=shares[0],
                bind=alt.binding_radio(
                    options=shares, labels=[f"{share} %" for share in shares], name="Cached prefix "
                ),
            ),
            alt.param(
                name="breakdown_part",
                value="whole request",
                bind=alt.binding_radio(options=["whole request", _BEFORE_DECODE], name="Shown "),
            ),
        )
    )
    return finish(
        chart.properties(height=alt.Step(18)),
        name="latency-breakdown",
        description=_describe_breakdown(table),
        table=table,
    )


def under_way(table: pd.DataFrame, *, bandwidth_gbit_per_s: int) -> alt.Chart:
    """Bytes of a hot prefix that are on their way between nodes, over time; the network on a radio.

    Parameters
    ----------
    table : DataFrame
        ``bandwidth_gbit_per_s``, ``time_s``, ``under_way_bytes``, ``received_bytes``.
    bandwidth_gbit_per_s : int
        Where the radio starts.
    """
    bandwidths = sorted(table["bandwidth_gbit_per_s"].unique().tolist())
    chart = (
        alt.Chart(table)
        .transform_filter("datum.bandwidth_gbit_per_s == hot_bandwidth")
        .transform_calculate(gb="datum.under_way_bytes / 1e9", received="datum.received_bytes / 1e9")
        .mark_area(color=PALETTE["network"], stroke=PALETTE["network"], interpolate="step-after")
        .encode(
            alt.X("time_s:Q").title("Time since the first request (s)").scale(nice=False),
            alt.Y("gb:Q").title("Hot prefix under way (GB)"),
            alt.FillOpacityValue(0.35),
            tooltip=[
                alt.Tooltip("time_s:Q", format=".1f").title("Time (s)"),
                alt.Tooltip("gb:Q", format=",.0f").title("Under way (GB)"),
                alt.Tooltip("received:Q", format=",.0f").title("Received (GB)"),
            ],
        )
        .add_params(
            alt.param(
                name="hot_bandwidth",
                value=bandwidth_gbit_per_s,
                bind=alt.binding_radio(options=bandwidths, name="Network of a node (Gbit/s) "),
            )
        )
    )
    return finish(
        chart.properties(height=220),
        name="hot-holder-under-way",
        description=_describe_under_way(table),
        table=table,
    )


def waits(table: pd.DataFrame) -> alt.LayerChart:
    """Mean wait for a hot prefix by the load on its holder's link, with copies kept or not.

    Parameters
    ----------
    table : DataFrame
        ``copies``, ``offered_load``, ``requests_per_s``, ``fetches``, ``wait_s``, ``alone_s``.
    """
    base = alt.Chart(table).encode(
        alt.X("offered_load:Q")
        .title("Bytes asked for, over what the holder can send")
        .axis(format="%", tickCount=6),
        alt.Y("wait_s:Q")
        .title("Mean wait for the prefix (s, logarithmic)")
        .scale(type="log")
        .axis(values=[0.001, 0.01, 0.1, 1, 10, 100]),
        alt.Color("copies:N", legend=alt.Legend(title=None)).scale(colours(_COPIES)),
        tooltip=[
            alt.Tooltip("copies:N").title("Copies"),
            alt.Tooltip("offered_load:Q", format=".0%").title("Load"),
            alt.Tooltip("requests_per_s:Q", format=".2f").title("Requests/s"),
            alt.Tooltip("fetches:Q", format=",").title("Transfers"),
            alt.Tooltip("wait_s:Q", format=",.3f").title("Mean wait (s)"),
            alt.Tooltip("alone_s:Q", format=",.3f").title("One transfer alone (s)"),
        ],
    )
    shape = alt.Shape("copies:N", legend=alt.Legend(title=None)).scale(shapes(_COPIES))
    return finish(
        (base.mark_line() + base.mark_point(size=60).encode(shape)).properties(height=240),
        name="hot-holder-waits",
        description=_describe_waits(table),
        table=table,
    )


def _describe_latency(table: pd.DataFrame) -> str:
    shown = table[(table["method"] == METHODS[0]) & table["transferred_bytes"].between(39e9, 41e9)]
    told = "; ".join(
        f"{row.network}, {row.origin}: {row.transfer_s:.3f} s"
        for row in shown.sort_values(["network", "origin"]).itertuples()
    )
    return f"Time of a transfer between two nodes by its size. Transfer engine at 40 GB: {told}."


def _describe_breakdown(table: pd.DataFrame) -> str:
    longest = table[table["input_tokens"] == table["input_tokens"].max()]
    sums = longest.groupby(["cached_pct", "origin"])["seconds"].sum()
    told = "; ".join(
        f"{cached} % cached, {origin}: {total:.1f} s" for (cached, origin), total in sums.items()
    )
    return (
        "Stacked bars of where the time of one request goes, by prompt length. Sums at "
        f"{longest['input_tokens'].iloc[0]:,} tokens: {told}."
    )


def _describe_under_way(table: pd.DataFrame) -> str:
    most = table.groupby("bandwidth_gbit_per_s")["under_way_bytes"].max() / 1e9
    told = ", ".join(f"{gb:,.0f} GB at {bandwidth} Gbit/s" for bandwidth, gb in most.items())
    return f"Area: bytes of a hot prefix on their way between nodes over time, at most {told}."


def _describe_waits(table: pd.DataFrame) -> str:
    ends = table[table["offered_load"] == table["offered_load"].max()].set_index("copies")["wait_s"]
    told = ", ".join(f"{copies}: {wait_s:.3f} s" for copies, wait_s in ends.items())
    return (
        "Lines: mean wait for a hot prefix by the load on its holder's link. At a load of "
        f"{table['offered_load'].max():.0%}, {told}."
    )
