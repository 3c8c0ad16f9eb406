"""Charts of arXiv 2407.00079, Figures 11 and 12: the slowest tenth by request rate."""

import altair as alt
import pandas as pd

from mooncake_companion.charts.theme import PALETTE, finish

SYSTEMS = {
    "Mooncake-[3P+1D]": ("mooncake", [1, 0], "diamond"),
    "Mooncake-[2P+2D]": ("mooncake", [6, 4], "square"),
    "vLLM-[4M]": ("vllm", [1, 0], "triangle-up"),
}
"""Systems by their names in the tables, to colour, dash and shape of the reported marks."""
DATASETS = {
    "arxiv-summarization": "ArXiv summarization",
    "l-eval": "L-Eval",
    "simulated-16k": "Simulated, 16k tokens",
    "simulated-32k": "Simulated, 32k tokens",
    "simulated-64k": "Simulated, 64k tokens",
    "simulated-128k": "Simulated, 128k tokens",
}
METRICS = {"ttft": "Time to first token", "tbt": "Time between tokens"}
TOP = 1.2
"""Where the papers' axes end: what is drawn there only says that the limit is exceeded."""
_LINES = alt.Legend(title="Lines: modelled", columns=1, symbolType="stroke", symbolSize=500)
_MARKS = alt.Legend(title="Grey marks: reported", columns=1)


def over_limits(table: pd.DataFrame, *, dataset: str = "l-eval") -> alt.HConcatChart:
    """90th percentile of TTFT and TBT over their limits by request rate; the data set is chosen.

    Parameters
    ----------
    table : DataFrame
        ``origin`` ("modelled" or "reported"), ``dataset``, ``metric`` ("ttft" or "tbt"), ``system``,
        ``request_rate_per_s``, ``over_limit``, ``seconds``.
    dataset : str
        What is chosen at first.
    """
    names = [name for name in DATASETS if name in set(table["dataset"])]
    menu = alt.param(
        name="rate_dataset",
        value=dataset,
        bind=alt.binding_select(options=names, labels=[DATASETS[name] for name in names], name="Data set "),
    )
    chart = alt.hconcat(*(_panel(table, metric) for metric in METRICS), spacing=24)
    return finish(chart.add_params(menu), name="request-rate", description=_describe(table), table=table)


def _panel(table: pd.DataFrame, metric: str) -> alt.LayerChart:
    systems, heading = list(SYSTEMS), f"{METRICS[metric]} over its limit"
    base = (
        alt.Chart(table)
        .transform_filter(f"datum.dataset == rate_dataset && datum.metric == '{metric}'")
        .transform_calculate(
            shown=f"min(datum.over_limit, {TOP})",
            told="isValid(datum.seconds) ? format(datum.seconds, ',.3f') + ' s' : 'not stated'",
            times=f"datum.over_limit >= {TOP} ? 'over' : format(datum.over_limit, '.2f')",
        )
        .encode(
            alt.X("request_rate_per_s:Q").title("Requests/s").axis(tickCount=6),
            alt.Y("shown:Q")
            .title(heading)
            .scale(domain=[0, TOP])
            .axis(values=[0, 0.25, 0.5, 0.75, 1], format=".2f"),
            tooltip=[
                alt.Tooltip("system:N").title("System"),
                alt.Tooltip("origin:N").title("Origin"),
                alt.Tooltip("request_rate_per_s:Q").title("Requests/s"),
                alt.Tooltip("times:N").title("90th percentile over its limit"),
                alt.Tooltip("told:N").title("90th percentile"),
            ],
        )
    )
    lines = (
        base.transform_filter("datum.origin == 'modelled'")
        .mark_line(point={"size": 30})
        .encode(
            alt.Color("system:N", legend=_LINES).scale(
                domain=systems, range=[PALETTE[colour] for colour, *_ in SYSTEMS.values()]
            ),
            alt.StrokeDash("system:N", legend=_LINES).scale(
                domain=systems, range=[dash for _, dash, _ in SYSTEMS.values()]
            ),
        )
    )
    marks = (
        base.transform_filter("datum.origin == 'reported'")
        .mark_point(color=PALETTE["reported"], filled=True, size=75, opacity=1)
        .encode(
            alt.Shape(
                "system:N",
                legend=_MARKS,
            ).scale(  # in another order than the lines', so that their legends stay apart
                domain=systems[::-1], range=[shape for *_, shape in SYSTEMS.values()][::-1]
            )
        )
    )
    rule = (
        alt.Chart(table)
        .transform_aggregate(rows="count()")
        .transform_calculate(limit="1")
        .mark_rule(strokeDash=[2, 3], color="#808080", tooltip=None)
        .encode(alt.Y("limit:Q").title(heading))
    )
    chart: alt.LayerChart = (rule + lines + marks).properties(width=290, height=260)
    return chart


def _describe(table: pd.DataFrame) -> str:
    told = []
    modelled = table[table["origin"] == "modelled"]
    for name, title in DATASETS.items():
        rows = modelled[modelled["dataset"] == name]
        if rows.empty:
            continue
        over = rows.pivot(index=["system", "request_rate_per_s"], columns="metric", values="over_limit")
        kept = over[(over <= 1).all(axis=1)].reset_index()
        rates = kept.groupby("system")["request_rate_per_s"].max().reindex(list(SYSTEMS))
        each = ", ".join(
            f"{system} {'none' if pd.isna(rate) else f'{rate:g}'}" for system, rate in rates.items()
        )
        told.append(f"{title}: {each}")
    return (
        "90th percentile of the time to first token and of the time between tokens, over their limits, by "
        "request rate, one data set at a time; grey marks: reported. Highest tested rates (requests/s) "
        f"within both limits, modelled. {'. '.join(told)}."
    )
