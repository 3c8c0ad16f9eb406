"""Charts of a cluster of one's own: by node, by model, by both, and of one trace's latencies."""

import altair as alt
import pandas as pd

from mooncake_companion.charts.theme import HEAT, PALETTE, colours, finish

SYSTEMS = {
    "Mooncake": "mooncake",
    "vLLM": "vllm",
    "vLLM Prefix Caching": "vllm_prefix",
    "vLLM Chunked Prefill": "vllm_chunked",
}
"""Systems by their names in the tables, to their colours."""

_WHITE_ABOVE = 0.775
"""Where on `HEAT`, from 0 to 1, white text has more contrast than black."""
_TIMES = [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000]
_RHYTHMS = [0.015, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2, 0.3, 0.5, 1, 2, 3, 5, 10]
_HOST = {"true": "as fitted on FAST'25, Figure 15", "false": "hidden behind the GPUs"}
_KEPT = {
    "KV cache of a token (KB)": "datum.kv_bytes_per_token / 1e3",
    "Weights (GB)": "datum.weights_bytes / 1e9",
    "Tokens that a node's cache holds (millions)": "datum.cache_tokens / 1e6",
    "Weights that a token uses (billions)": "datum.active_parameters / 1e9",
}
_BREAK_EVEN = {
    "Equation 2, GPUs at their peak (GB/s)": "datum.break_even_bytes_per_s / 1e9",
    "at the speed that they reach (GB/s)": "datum.fitted_break_even_bytes_per_s / 1e9",
    "Equation 2 over the network's line rate (%)": "100 * datum.network_share",
}


def by_node(table: pd.DataFrame, *, ttft_limit_s: float, tbt_limit_s: float) -> alt.HConcatChart:
    """TTFT, TBT and goodput of one trace on every node; replay speed and host time to choose.

    Parameters
    ----------
    table : DataFrame
        ``node``, ``host_time``, ``speedup``, ``fits``, ``ttft_p50_s``, ``ttft_p90_s``, ``tbt_p50_s``,
        ``tbt_p90_s``, ``goodput_requests_per_s``, ``effective_capacity``.
    ttft_limit_s, tbt_limit_s : float
        The limits, drawn as dashed lines.
    """
    speeds = sorted(table["speedup"].unique().tolist())
    speed = alt.param(
        name="speed",
        value=1,
        bind=alt.binding_select(options=speeds, labels=[f"× {each:g}" for each in speeds], name="Replay "),
    )
    host = alt.param(
        name="host",
        value="true",
        bind=alt.binding_radio(options=list(_HOST), labels=list(_HOST.values()), name="Host's work "),
    )
    y = alt.Y("node:N").title(None).sort(None).axis(ticks=False)
    base = alt.Chart(table).transform_filter("datum.speedup == speed && toString(datum.host_time) == host")
    tooltip = [
        alt.Tooltip("node:N").title("Node"),
        alt.Tooltip("ttft_p50_s:Q", format=",.2f").title("TTFT, median (s)"),
        alt.Tooltip("ttft_p90_s:Q", format=",.2f").title("TTFT, 90 % (s)"),
        alt.Tooltip("tbt_p50_s:Q", format=".3f").title("TBT, median (s)"),
        alt.Tooltip("tbt_p90_s:Q", format=".3f").title("TBT, 90 % (s)"),
        alt.Tooltip("effective_capacity:Q", format=".1%").title("Within both limits"),
        alt.Tooltip("goodput_requests_per_s:Q", format=".2f").title("Goodput (requests/s)"),
    ]

    def times(metric: str, colour: str, ticks: list[float]) -> alt.LayerChart:
        x = alt.X(f"{metric}_p50_s:Q").title([f"{metric.upper()} (s, logarithmic)", "dot: median, bar: 90 %"])
        x = x.scale(type="log", nice=False, padding=6).axis(
            values=ticks, labelOverlap="greedy", labelSeparation=4
        )
        there = base.transform_filter("datum.fits").encode(y, x, tooltip=tooltip)
        limit = base.transform_aggregate(count="count()").transform_calculate(limit=f"{metric}_limit_s")
        return (
            there.mark_rule(color=PALETTE[colour], strokeWidth=2).encode(alt.X2(f"{metric}_p90_s:Q"))
            + there.mark_point(color=PALETTE[colour], size=80, opacity=1)
            + there.mark_tick(color=PALETTE[colour], thickness=3, height=14, opacity=1).encode(
                alt.X(f"{metric}_p90_s:Q")
            )
            + limit.mark_rule(color=PALETTE["reported"], strokeDash=[4, 3]).encode(alt.X("limit:Q"))
        ).properties(width=120, height=alt.Step(30))

    goodput = base.transform_calculate(
        shown="datum.fits ? format(datum.goodput_requests_per_s, '.2f') : 'does not fit'",
        value="datum.fits ? datum.goodput_requests_per_s : 0",
        with_label="1.4 * datum.value",  # room for the numbers, whatever is chosen
    ).encode(y, alt.X("value:Q").title(["Goodput (requests/s)", "within both limits"]), tooltip=tooltip)
    bars = (
        goodput.mark_bar(color=PALETTE["mooncake"], height={"band": 0.6})
        + goodput.mark_text(align="left", dx=4).encode(alt.Text("shown:N"))
        + goodput.mark_point(opacity=0).encode(alt.X("with_label:Q"), tooltip=alt.value(None))
    )
    chart = alt.hconcat(
        times("ttft", "prefill", _TIMES),
        times("tbt", "decode", _RHYTHMS),
        bars.properties(width=120, height=alt.Step(30)),
    )
    limits = {"ttft_limit_s": ttft_limit_s, "tbt_limit_s": tbt_limit_s}
    return finish(
        chart.add_params(host, speed, *(alt.param(name=name, value=value) for name, value in limits.items())),
        name="cluster-nodes",
        description=_describe_nodes(table),
        table=table,
    )


def by_model(table: pd.DataFrame) -> alt.LayerChart:
    """What each model keeps of a token, holds in weights, and what of it fits a node's cache.

    Parameters
    ----------
    table : DataFrame
        ``title``, ``kv_bytes_per_token``, ``weights_bytes``, ``active_parameters``, ``cache_tokens``.
    """
    base = (
        alt.Chart(table)
        .transform_calculate(value=_chosen("kept", _KEPT))
        .transform_calculate(with_label="1.2 * datum.value")  # room for the numbers on narrow pages
        .encode(
            alt.Y("title:N").title(None).sort(None).axis(ticks=False),
            alt.X("value:Q").title(None),
            tooltip=[
                alt.Tooltip("title:N").title("Model"),
                alt.Tooltip("kv_bytes_per_token:Q", format=",").title("KV cache of a token (bytes)"),
                alt.Tooltip("weights_bytes:Q", format=".4s").title("Weights (bytes)"),
                alt.Tooltip("parameters:Q", format=".4s").title("Parameters"),
                alt.Tooltip("active_parameters:Q", format=".4s").title("of these, a token uses"),
                alt.Tooltip("cache_tokens:Q", format=",").title("Tokens that the cache holds"),
            ],
        )
    )
    layers = (
        base.mark_bar(color=PALETTE["dram"], height={"band": 0.65})
        + base.mark_text(align="left", dx=4).encode(alt.Text("value:Q", format=",.3~r"))
        + base.mark_point(opacity=0).encode(alt.X("with_label:Q"), tooltip=alt.value(None))
    )
    return finish(
        layers.add_params(_select("kept", _KEPT, "Show ")).properties(
            height=alt.Step(30), title=_heading("kept")
        ),
        name="cluster-models",
        description=_describe_models(table),
        table=table,
    )


def break_even(table: pd.DataFrame, *, cached_tokens: int) -> alt.LayerChart:
    """Break-even bandwidth of Equation 2 by model and node; prefix and quantity to choose.

    Parameters
    ----------
    table : DataFrame
        ``model``, ``node``, ``model_title``, ``node_title``, ``cached_tokens``,
        ``break_even_bytes_per_s``, ``fitted_break_even_bytes_per_s``, ``network_bytes_per_s``,
        ``network_share``, ``fits``.
    cached_tokens : int
        The prefix that is chosen at first.
    """
    lengths = sorted(table["cached_tokens"].unique().tolist())
    prefix = alt.param(
        name="prefix",
        value=cached_tokens,
        bind=alt.binding_select(
            options=lengths, labels=[f"{tokens:,} tokens" for tokens in lengths], name="Cached prefix "
        ),
    )
    base = (
        alt.Chart(table)
        .transform_filter("datum.cached_tokens == prefix")
        .transform_calculate(value=_chosen("rate", _BREAK_EVEN))
        .encode(
            alt.X("node:N")
            .title(None)
            .sort(None)
            .axis(labelAngle=0, labelFontSize=10, labelOverlap=False, orient="top", ticks=False),
            alt.Y("model_title:N").title(None).sort(None).axis(ticks=False),
            tooltip=[
                alt.Tooltip("model_title:N").title("Model"),
                alt.Tooltip("node_title:N").title("Node"),
                alt.Tooltip("fits:N").title("Fits"),
                alt.Tooltip("break_even_bytes_per_s:Q", format=".3s").title("Equation 2 (bytes/s)"),
                alt.Tooltip("fitted_break_even_bytes_per_s:Q", format=".3s").title("at the speed reached"),
                alt.Tooltip("network_bytes_per_s:Q", format=".3s").title("Network (bytes/s)"),
                alt.Tooltip("network_share:Q", format=".1%").title("Equation 2 over network"),
            ],
        )
    )
    fits = base.transform_filter("datum.fits")
    hot = fits.transform_joinaggregate(least="min(value)", most="max(value)").transform_calculate(
        heat="log(datum.value / datum.least) / log(datum.most / datum.least)"
    )
    layers = (
        fits.mark_rect(stroke=None).encode(
            alt.Color("value:Q", legend=None).scale(type="log", range=list(HEAT), interpolate="rgb")
        )
        + hot.mark_text(fontWeight="bold", fontSize=11).encode(
            alt.Text("value:Q", format=".3~r"),
            color=alt.condition(f"datum.heat > {_WHITE_ABOVE}", alt.value("white"), alt.value("black")),
        )
        + base.transform_filter("!datum.fits").mark_text(opacity=0.8).encode(alt.TextValue("–"))
    )
    return finish(
        layers.add_params(prefix, _select("rate", _BREAK_EVEN, "Bandwidth ")).properties(
            width=400, height=alt.Step(34), title=_heading("rate")
        ),
        name="cluster-break-even",
        description=_describe_break_even(table, cached_tokens),
        table=table,
    )


def latencies(table: pd.DataFrame) -> alt.HConcatChart:
    """Share of one trace's requests with a TTFT and a TBT up to x, a line a system.

    Parameters
    ----------
    table : DataFrame
        ``system`` (of `SYSTEMS`), ``metric`` ("ttft" or "tbt"), ``seconds``, ``share``.
    """

    def panel(metric: str, title: str) -> alt.Chart:
        return (
            alt.Chart(table)
            .transform_filter(f"datum.metric == '{metric}' && datum.seconds > 0")
            .mark_line()
            .encode(
                alt.X("seconds:Q").title(title).scale(type="log", nice=False).axis(values=_TIMES),
                alt.Y("share:Q").title("Share of the requests").axis(format="%"),
                alt.Color("system:N", legend=alt.Legend(title=None, columns=2)).scale(colours(SYSTEMS)),
                tooltip=[
                    alt.Tooltip("system:N").title("System"),
                    alt.Tooltip("seconds:Q", format=",.3f").title("Up to (s)"),
                    alt.Tooltip("share:Q", format=".0%").title("Share of the requests"),
                ],
            )
            .properties(width=260, height=240)
        )

    chart = alt.hconcat(panel("ttft", "TTFT (s, logarithmic)"), panel("tbt", "TBT (s, logarithmic)"))
    return finish(chart, name="simulated-latencies", description=_describe_latencies(table), table=table)


def _select(name: str, quantities: dict[str, str], label: str) -> alt.Parameter:
    options = list(quantities)
    return alt.param(name=name, value=options[0], bind=alt.binding_select(options=options, name=label))


def _heading(name: str) -> alt.TitleParams:
    """What a drop-down says, as a chart's heading."""
    return alt.TitleParams(text=alt.ExprRef(name), fontSize=12, fontWeight="normal", offset=10)


def _chosen(name: str, quantities: dict[str, str]) -> str:
    """Vega expression for the quantity that a drop-down names."""
    *others, (_, last) = quantities.items()
    return "".join(f'{name} == "{title}" ? {value} : ' for title, value in others) + last


def _describe_nodes(table: pd.DataFrame) -> str:
    shown = table[(table["speedup"] == 1) & table["host_time"]]
    parts = [
        f"{row.node} TTFT {row.ttft_p50_s:.2f} s, TBT {row.tbt_p50_s:.3f} s, "
        f"{row.goodput_requests_per_s:.2f} requests/s within both limits"
        if row.fits
        else f"{row.node}: the model does not fit"
        for row in shown.itertuples()
    ]
    return f"The same trace on every node. Medians at the trace's own speed: {'; '.join(parts)}."


def _describe_models(table: pd.DataFrame) -> str:
    kept = zip(table["title"], table["kv_bytes_per_token"], strict=True)
    parts = [f"{title} {kv_bytes / 1e3:,.0f} KB" for title, kv_bytes in kept]
    return f"KV cache that each model keeps of a token: {', '.join(parts)}."


def _describe_break_even(table: pd.DataFrame, cached_tokens: int) -> str:
    shown = table[(table["cached_tokens"] == cached_tokens) & table["fits"]]
    rows = shown.sort_values("break_even_bytes_per_s").to_dict("records")
    ends = " to ".join(
        f"{row['break_even_bytes_per_s'] / 1e9:.1f} GB/s for {row['model_title']} on {row['node']}"
        for row in (rows[0], rows[-1])
    )
    return (
        f"Bandwidth above which loading a prefix of {cached_tokens:,} tokens beats computing it (Equation "
        f"2), by model and node: from {ends}."
    )


def _describe_latencies(table: pd.DataFrame) -> str:
    parts = []
    for (system, metric), rows in table.groupby(["system", "metric"], sort=False):
        middle = rows["seconds"].to_numpy()[int((rows["share"] - 0.5).abs().to_numpy().argmin())]
        parts.append(f"{system} {str(metric).upper()} {middle:.3f} s")
    return f"Share of the requests by latency. Medians: {', '.join(parts) or 'none'}."
