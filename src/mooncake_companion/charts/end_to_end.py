"""Charts of FAST'25, Figures 1, 6, 7 and 8: TBT, effective capacity and prefill time of four systems."""

import altair as alt
import pandas as pd

from mooncake_companion.charts.theme import PALETTE, colours, dashes, finish, singled_out
from mooncake_companion.charts.workloads import TITLE_OF, in_order, title

SYSTEMS = {
    "Mooncake": "mooncake",
    "vLLM": "vllm",
    "vLLM Prefix Caching": "vllm_prefix",
    "vLLM Chunked Prefill": "vllm_chunked",
}
"""Systems by their names in the tables, to their colours."""
SHAPES = ("diamond", "triangle-up", "square", "circle")
"""Of the reported marks, in the order of `SYSTEMS`."""

LINES = alt.Legend(title="Lines: modelled", columns=2, symbolType="stroke", symbolSize=500)
MARKS = alt.Legend(title="Grey marks: reported", columns=1)

_LIMITS = {"capacity_100ms": "100 ms", "capacity_200ms": "200 ms", "capacity_300ms": "300 ms"}


def tbt(table: pd.DataFrame) -> alt.LayerChart:
    """Share of the requests with a TBT up to x, by system; the workload is chosen.

    Parameters
    ----------
    table : DataFrame
        ``origin`` ("modelled" or "reported"), ``workload``, ``system``, ``tbt_s``, ``share``.
    """
    menu, opacity = singled_out("tbt_system", "system", SYSTEMS)
    base = (
        alt.Chart(table)
        .transform_filter("datum.workload == tbt_workload")
        .transform_calculate(tbt_ms="1e3 * datum.tbt_s")
        .encode(
            alt.X("tbt_ms:Q")
            .title("Time between tokens (ms, logarithmic)")
            .scale(type="log", domain=[20, 1000], nice=False)
            .axis(values=[20, 50, 100, 200, 300, 500, 1000], grid=True, labelSeparation=4),
            alt.Y("share:Q").title("Requests up to it").axis(format="%"),
            tooltip=[
                alt.Tooltip("system:N").title("System"),
                alt.Tooltip("origin:N").title("Origin"),
                alt.Tooltip("tbt_ms:Q", format=",.0f").title("TBT (ms)"),
                alt.Tooltip("share:Q", format=".1%").title("Requests up to it"),
            ],
        )
    )
    modelled = (
        base.transform_filter("datum.origin == 'modelled'")
        .mark_line(clip=True)
        .encode(
            alt.Color("system:N", legend=LINES).scale(colours(SYSTEMS)),
            alt.StrokeDash("system:N", legend=LINES).scale(dashes(SYSTEMS)),
            opacity=opacity,
        )
    )
    reported = (
        base.transform_filter("datum.origin == 'reported'")
        .mark_point(color=PALETTE["reported"], filled=True, size=36, clip=True)
        .encode(_shape(), opacity=opacity)
    )
    chart = (modelled + reported).add_params(_workload_menu(table, "tbt_workload"), menu)
    chart = chart.resolve_legend(shape="independent")
    return finish(
        chart.properties(height=320), name="tbt-distribution", description=_describe_tbt(table), table=table
    )


def capacity(table: pd.DataFrame) -> alt.LayerChart:
    """Share of the requests within each TBT limit, by system; the workload is chosen.

    Parameters
    ----------
    table : DataFrame
        ``origin``, ``workload``, ``system``, ``capacity_100ms``, ``capacity_200ms``, ``capacity_300ms``.
    """
    named = " : ".join(f"datum.column == '{column}' ? '{label}'" for column, label in _LIMITS.items())
    base = (
        alt.Chart(table)
        .transform_filter("datum.workload == capacity_workload")
        .transform_fold(list(_LIMITS), as_=["column", "share"])
        .transform_calculate(limit=f"{named} : ''")
        .encode(
            alt.X("share:Q").title("Requests within the limit").axis(format="%").scale(domain=[0, 1]),
            alt.Y("limit:N").title("TBT limit").sort(list(_LIMITS.values())).axis(ticks=False),
            alt.YOffset("system:N").sort(list(SYSTEMS)).scale(paddingInner=0.15),
            tooltip=[
                alt.Tooltip("system:N").title("System"),
                alt.Tooltip("origin:N").title("Origin"),
                alt.Tooltip("limit:N").title("TBT limit"),
                alt.Tooltip("share:Q", format=".1%").title("Requests within it"),
            ],
        )
    )
    chart = _bars(base).add_params(_workload_menu(table, "capacity_workload"))
    return finish(chart, name="effective-capacity", description=_describe_capacity(table), table=table)


def prefill_time(table: pd.DataFrame) -> alt.LayerChart:
    """Mean GPU time of a prefill, by workload and system.

    Parameters
    ----------
    table : DataFrame
        ``origin``, ``workload``, ``system``, ``prefill_s``.
    """
    base = (
        alt.Chart(table)
        .transform_calculate(panel=TITLE_OF)
        .encode(
            alt.X("prefill_s:Q").title("Mean GPU time of a prefill (s)"),
            alt.Y("panel:N").title(None).sort([title(name) for name in in_order(table)]).axis(ticks=False),
            alt.YOffset("system:N").sort(list(SYSTEMS)).scale(paddingInner=0.15),
            tooltip=[
                alt.Tooltip("system:N").title("System"),
                alt.Tooltip("origin:N").title("Origin"),
                alt.Tooltip("panel:N").title("Workload"),
                alt.Tooltip("prefill_s:Q", format=".2f").title("Prefill (s)"),
            ],
        )
    )
    return finish(
        _bars(base), name="prefill-gpu-time", description=_describe_prefill_time(table), table=table
    )


def _bars(base: alt.Chart) -> alt.LayerChart:
    """Coloured bars for what is modelled, grey diamonds for what is reported."""
    bars = (
        base.transform_filter("datum.origin == 'modelled'")
        .mark_bar()
        .encode(
            alt.Color(
                "system:N",
                legend=alt.Legend(title="Bars: modelled; diamonds: reported", columns=2, titleLimit=320),
            ).scale(colours(SYSTEMS))
        )
    )
    reported = base.transform_filter("datum.origin == 'reported'").mark_point(
        shape="diamond",
        size=80,
        filled=True,
        fill="white",
        stroke=PALETTE["reported"],
        strokeWidth=2,
        opacity=1,
    )
    chart: alt.LayerChart = (bars + reported).properties(height=alt.Step(19))
    return chart


def _shape() -> alt.Shape:
    return alt.Shape("system:N", legend=MARKS).scale(domain=list(SYSTEMS), range=list(SHAPES))


def _workload_menu(table: pd.DataFrame, name: str) -> alt.Parameter:
    workloads = in_order(table)
    return alt.param(
        name=name,
        value=workloads[0],
        bind=alt.binding_select(
            options=workloads, labels=[title(each) for each in workloads], name="Workload "
        ),
    )


def _describe_tbt(table: pd.DataFrame) -> str:
    medians = []
    for workload in in_order(table):
        rows = table[(table["workload"] == workload) & (table["origin"] == "modelled")]
        told = ", ".join(
            f"{system} {1e3 * float(curve['tbt_s'].iloc[(curve['share'] - 0.5).abs().argmin()]):.0f} ms"
            for system, curve in rows.groupby("system", sort=False)
        )
        medians.append(f"{title(workload)}: {told}")
    return (
        "Cumulative share of the requests by their time between tokens, a line for each system, one workload "
        f"at a time; grey marks: as reported. Modelled medians. {'. '.join(medians)}."
    )


def _describe_capacity(table: pd.DataFrame) -> str:
    rows = table[table["system"] == "Mooncake"]
    told = [
        f"{title(str(row.workload))}, {row.origin}: {row.capacity_100ms:.0%}, {row.capacity_200ms:.0%} and "
        f"{row.capacity_300ms:.0%}"
        for row in rows.itertuples()
    ]
    return (
        "Share of the requests within a TBT limit of 100, 200 and 300 ms, by system, one workload at a time; "
        f"diamonds: reported. Mooncake's: {'; '.join(told)}."
    )


def _describe_prefill_time(table: pd.DataFrame) -> str:
    told = [
        f"{title(str(workload))}, {origin}: "
        + ", ".join(f"{row.system} {row.prefill_s:.2f} s" for row in rows.itertuples())
        for (workload, origin), rows in table.groupby(["workload", "origin"], sort=False)
    ]
    return f"Mean GPU time of a prefill by system. {'. '.join(told)}."
