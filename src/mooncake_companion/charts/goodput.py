"""Chart of goodput under offered load: what each system serves within both limits, and the rest's fate."""

import altair as alt
import pandas as pd

from mooncake_companion.charts.theme import PALETTE, colours, finish, singled_out
from mooncake_companion.charts.workloads import in_order, title

SYSTEMS = {
    "Mooncake": ("mooncake", [1, 0], "diamond"),
    "Mooncake, no rejection": ("mooncake", [6, 4], "diamond"),
    "Mooncake, no rejection, no cache": ("mooncake", [2, 2], "diamond"),
    "vLLM": ("vllm", [1, 0], "triangle-up"),
    "vLLM Prefix Caching": ("vllm_prefix", [1, 0], "square"),
    "vLLM Chunked Prefill": ("vllm_chunked", [1, 0], "circle"),
}
"""Systems by their names in the tables, to colour, dash and shape of the reported marks."""
REPORTED = ("Mooncake", "vLLM", "vLLM Prefix Caching", "vLLM Chunked Prefill")
_LINES = alt.Legend(title="Lines: modelled", columns=2, symbolType="stroke", symbolSize=500)
_MARKS = alt.Legend(title="Grey marks: reported", columns=1)
FATES = {
    "within_share": ("Within both limits", "within_limits"),
    "slow_share": ("Rhythm too slow", "slow_rhythm"),
    "late_first_token_share": ("First token too late", "late_first_token"),
    "wasted_share": ("Rejected after its prefill (wasted)", "wasted"),
    "rejected_share": ("Rejected on arrival", "rejected"),
}
"""What becomes of a request: columns of the table, to titles and colours, from the bottom up."""


def under_load(
    table: pd.DataFrame, *, tbt_limit_s: float = 0.1, system: str = "Mooncake"
) -> alt.VConcatChart:
    """Goodput by offered load for all systems, above what becomes of one system's requests.

    Workload, TBT limit and the system of the lower panel are chosen; a click in the legend singles
    systems out.

    Parameters
    ----------
    table : DataFrame
        ``origin`` ("modelled" or "reported"), ``workload``, ``system``, ``tbt_limit_s``,
        ``offered_requests_per_s``, ``goodput_requests_per_s`` and the shares of `FATES`.
    tbt_limit_s : float
    system : str
        What is chosen at first.
    """
    workloads, limits = in_order(table), sorted(table["tbt_limit_s"].unique().tolist())
    chosen = (
        alt.param(
            name="goodput_workload",
            value=workloads[0],
            bind=alt.binding_select(
                options=workloads, labels=[title(each) for each in workloads], name="Workload "
            ),
        ),
        alt.param(
            name="goodput_limit",
            value=tbt_limit_s,
            bind=alt.binding_radio(
                options=limits, labels=[f"{1e3 * limit:.0f} ms" for limit in limits], name="TBT limit "
            ),
        ),
        alt.param(
            name="goodput_system",
            value=system,
            bind=alt.binding_select(options=list(SYSTEMS), name="Fates under "),
        ),
    )
    here = alt.Chart(table).transform_filter(
        "datum.workload == goodput_workload && datum.tbt_limit_s == goodput_limit"
    )
    chart = alt.vconcat(_goodput(here), _fates(here), spacing=24).resolve_scale(
        color="independent", strokeDash="independent", shape="independent"
    )
    return finish(
        chart.add_params(*chosen), name="goodput", description=_describe(table, tbt_limit_s), table=table
    )


def _goodput(here: alt.Chart) -> alt.LayerChart:
    menu, opacity = singled_out("goodput_shown", "system", SYSTEMS)
    base = here.transform_joinaggregate(top="max(goodput_requests_per_s)").encode(
        alt.X("offered_requests_per_s:Q").title("Offered (requests/s)").scale(nice=False),
        alt.Y("goodput_requests_per_s:Q").title("Goodput (requests/s)"),
        tooltip=[
            alt.Tooltip("system:N").title("System"),
            alt.Tooltip("origin:N").title("Origin"),
            alt.Tooltip("offered_requests_per_s:Q", format=".2f").title("Offered (requests/s)"),
            alt.Tooltip("goodput_requests_per_s:Q", format=".2f").title("Goodput (requests/s)"),
            alt.Tooltip("within_share:Q", format=".1%").title("Within both limits"),
        ],
    )
    lines = (
        base.transform_filter("datum.origin == 'modelled'")
        .mark_line(point={"size": 30})
        .encode(
            alt.Color("system:N", legend=_LINES).scale(
                domain=list(SYSTEMS), range=[PALETTE[colour] for colour, *_ in SYSTEMS.values()]
            ),
            alt.StrokeDash("system:N", legend=_LINES).scale(
                domain=list(SYSTEMS), range=[dash for _, dash, _ in SYSTEMS.values()]
            ),
            opacity=opacity,
        )
        .add_params(menu)
    )
    served = (
        base.transform_filter("datum.origin == 'modelled' && datum.system == 'Mooncake'")
        .transform_filter("datum.offered_requests_per_s <= 1.1 * datum.top")
        .mark_line(color="#808080", strokeWidth=1, strokeDash=[2, 3], tooltip=None)
        .encode(alt.Y("offered_requests_per_s:Q"))
    )
    reported = (
        base.transform_filter("datum.origin == 'reported'")
        .mark_point(color=PALETTE["reported"], filled=True, size=75)
        .encode(
            alt.Shape("system:N", legend=_MARKS).scale(
                domain=list(REPORTED), range=[SYSTEMS[system][2] for system in REPORTED]
            ),
            opacity=opacity,
        )
    )
    chart: alt.LayerChart = (served + lines + reported).properties(width=560, height=280)
    return chart


def _fates(here: alt.Chart) -> alt.LayerChart:
    named = " : ".join(f"datum.column == '{column}' ? '{label}'" for column, (label, _) in FATES.items())
    rank = " : ".join(f"datum.column == '{column}' ? {at}" for at, column in enumerate(FATES))
    base = here.transform_filter("datum.origin == 'modelled' && datum.system == goodput_system").encode(
        alt.X("offered_requests_per_s:Q").title("Offered (requests/s)").scale(nice=False)
    )
    areas = (
        base.transform_fold(list(FATES), as_=["column", "share"])
        .transform_calculate(fate=f"{named} : ''", rank=f"{rank} : 9")
        .mark_area(opacity=1, tooltip=None)
        .encode(
            alt.Y("share:Q", stack="zero")
            .title("Share of the requests")
            .axis(format="%")
            .scale(domain=[0, 1]),
            alt.Color("fate:N", legend=alt.Legend(title=None, columns=2)).scale(
                colours(dict(FATES.values()))
            ),
            alt.Order("rank:Q"),
        )
    )
    # An area tells its first row alone; these, which nobody sees, tell each load's.
    told = base.mark_rule(opacity=0, strokeWidth=14).encode(
        tooltip=[
            alt.Tooltip("system:N").title("System"),
            alt.Tooltip("offered_requests_per_s:Q", format=".2f").title("Offered (requests/s)"),
            *(alt.Tooltip(f"{column}:Q", format=".1%").title(label) for column, (label, _) in FATES.items()),
        ]
    )
    chart: alt.LayerChart = (areas + told).properties(width=560, height=170)
    return chart


def _describe(table: pd.DataFrame, tbt_limit_s: float) -> str:
    rows = table[(table["origin"] == "modelled") & (table["tbt_limit_s"] == tbt_limit_s)]
    told = []
    for workload in in_order(rows):
        highest = (
            rows[rows["workload"] == workload].groupby("system", sort=False)["goodput_requests_per_s"].max()
        )
        each = ", ".join(f"{system} {rate:.2f}" for system, rate in highest.items())
        told.append(f"{title(workload)}: {each}")
    return (
        "Above: requests per second within both limits by offered load, a line for each system, one workload "
        "and TBT limit at a time. Below: what becomes of one system's requests. Highest goodput (requests/s) "
        f"with a TBT limit of {1e3 * tbt_limit_s:.0f} ms. {'. '.join(told)}."
    )
