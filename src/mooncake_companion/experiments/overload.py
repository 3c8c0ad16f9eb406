"""arXiv 2407.00079, section 7: what is turned away under overload, and how the pools' loads swing.

Table 3 (requests rejected by three ways to admit them), Figure 9 (load of both pools over time with
early rejection) and Figure 10 (a sketch of why it swings, and of what prediction changes).
"""

import dataclasses
from collections.abc import Iterable

import numpy as np
import pandas as pd

from mooncake_companion import reported, traces
from mooncake_companion.live import overload as setting
from mooncake_companion.live.overload import (
    ALIKE_INTERVAL_S,
    ALIKE_S,
    DECODE_TIMES,
    MACHINES,
    REJECTING,
    SETTLED_S,
    TITLES,
    TRACE,
    WINDOW_S,
    Demand,
    Params,
    decode_times_s,
    overloaded_decode_nodes,
)
from mooncake_companion.simulator import Admission, Cluster, Outcome, Result, load_series, simulate

__all__ = [
    "DECODE_TIMES",
    "REJECTING",
    "TITLES",
    "TRACE",
    "Demand",
    "Params",
    "claims",
    "decode_time_sweep",
    "demand",
    "mechanism",
    "mechanism_by_length",
    "orders",
    "overloaded_decode_nodes",
    "run",
    "series",
    "spread",
    "sweep",
    "swing",
    "swing_sweep",
]

SPEEDUPS = (1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 3.0)
"""Replay speeds of `sweep`."""


def demand(trace: traces.Trace, params: Params) -> Demand:
    """What `trace` asks of decode nodes; see `live.overload.demand`."""
    columns = trace.input_tokens.tolist(), trace.output_tokens.tolist()
    return setting.demand(*columns, float(trace.arrival_s[-1]), params)


def run(params: Params) -> pd.DataFrame:
    """What becomes of the requests under each policy, beside Table 3.

    Returns
    -------
    DataFrame
        A row for each policy (``origin`` "modelled"), and one for each that Table 3 has ("reported",
        with ``rejected`` and ``rejected_share`` alone). Columns: ``origin``, ``policy``, ``requests``,
        ``rejected``, ``rejected_at_arrival``, ``rejected_after_prefill`` (their prefill was wasted),
        ``late`` (done, but outside a limit), ``rejected_share`` and ``within_limits_share`` of all
        requests, ``goodput_requests_per_s``, ``answer_tokens_share`` (made, of all answers),
        ``prefill_busy_share`` and ``prefill_wasted_share`` (of the prefill pool's time),
        ``rejected_input_tokens`` (mean prompt of those turned away), ``offered_decode_load`` (over what
        the pool can do), ``decode_nodes`` and ``predicted_decode_s`` (t_d; for prediction alone).
    """
    trace = _replayed(params)
    nodes = overloaded_decode_nodes(demand(trace, params), params)
    rows = _rows(trace, params, nodes, Admission)
    stated = [reported.claim(f"arxiv.table3.rejected.{name}") for name in ("baseline", "early", "predicted")]
    drawn = pd.DataFrame(
        {
            "origin": "reported",
            "policy": [TITLES[admission] for admission in REJECTING],
            "requests": reported.claim("arxiv.fig08.requests"),
            "rejected": stated,
        }
    )
    table = pd.concat([pd.DataFrame(rows), drawn], ignore_index=True)
    table["rejected_share"] = table["rejected"] / table["requests"]
    table.attrs["provenance"] = _provenance(params, trace)
    return table


def sweep(params: Params, speedups: Iterable[float] = SPEEDUPS) -> pd.DataFrame:
    """`run`'s modelled rows at other replay speeds, with the decode nodes of `params`' own speed.

    Columns as of `run`, and ``arrival_speedup``.
    """
    nodes = overloaded_decode_nodes(demand(_replayed(params), params), params)
    rows: list[dict[str, object]] = []
    for speedup in speedups:
        varied = dataclasses.replace(params, arrival_speedup=float(speedup))
        each = _rows(_replayed(varied), varied, nodes, REJECTING)
        rows.extend({"arrival_speedup": float(speedup), **row} for row in each)
    table = pd.DataFrame(rows)
    table["rejected_share"] = table["rejected"] / table["requests"]
    table.attrs["provenance"] = _provenance(params, _replayed(params))
    return table


def decode_time_sweep(params: Params, multiples: Iterable[float] = DECODE_TIMES) -> pd.DataFrame:
    """Requests rejected by prediction for each t_d, and by the other policies, which have none.

    Columns: ``policy``, ``multiple`` (t_d over the mean decode time), ``predicted_decode_s``,
    ``rejected_at_arrival``, ``rejected_after_prefill``, ``rejected``.
    """
    trace = _replayed(params)
    asked = demand(trace, params)
    nodes = overloaded_decode_nodes(asked, params)
    rows = []
    for admission in REJECTING:
        for multiple in multiples:
            decode_s = multiple * asked.mean_decode_s
            result = simulate(trace, params.cluster(admission, nodes, decode_s))
            counts = _counts(result)
            rows.append(
                {"policy": TITLES[admission], "multiple": multiple, "predicted_decode_s": decode_s, **counts}
            )
    table = pd.DataFrame(rows)
    table.attrs["provenance"] = _provenance(params, trace)
    return table


def series(params: Params) -> pd.DataFrame:
    """Load of both pools over 20 minutes under each rejecting policy, beside Figure 9.

    The modelled cluster has the 20 machines of the figure, half of them prefill nodes (assumed), and
    each is offered as much as in `run`; the window is the last 20 minutes of arrivals. Decode nodes
    follow the rule of `Params`.

    Returns
    -------
    DataFrame
        ``origin``, ``policy``, ``pool`` ("Prefill" or "Decode"), ``time_s`` from the window's start,
        ``load`` (1 is the limit); the reported rows have early rejection alone.
    """
    prefill_nodes = MACHINES // 2
    observed = dataclasses.replace(
        params,
        prefill_nodes=prefill_nodes,
        decode_nodes=MACHINES - prefill_nodes,
        arrival_speedup=params.arrival_speedup * prefill_nodes / params.prefill_nodes,
    )
    trace = _replayed(observed)
    asked = demand(trace, observed)
    nodes = overloaded_decode_nodes(asked, observed)
    start_s = max(0.0, float(trace.arrival_s[-1]) - WINDOW_S)
    tables = [
        _load_table(cluster, result, start_s, WINDOW_S)
        for cluster, result in _each(trace, observed, nodes, asked, REJECTING)
    ]
    drawn = reported.figure("arxiv_fig09")
    drawn = drawn.assign(
        origin="reported",
        policy=TITLES[Admission.EARLY],
        pool=drawn["pool"].map({"prefill": "Prefill", "decoding": "Decode"}),
        load=drawn["load_pct"] / 100,
    )
    table = pd.concat([*tables, drawn.drop(columns="load_pct")], ignore_index=True)
    table.attrs["provenance"] = _provenance(params, trace)
    return table


def mechanism(params: Params) -> pd.DataFrame:
    """Load of both pools when all requests are alike and come evenly, under each rejecting policy.

    Nothing is random then, and t_d is what every request really takes, so that what swings is the
    policy's doing: Figure 10 made by the model. See `live.overload.identical` for the requests.

    Returns
    -------
    DataFrame
        Columns as of `series`, without reported rows: the figure is a sketch, not a measurement.
    """
    alike = setting.identical(params)
    trace = traces.Trace.from_requests([request[:4] for request in alike.requests()])
    tables = []
    for admission in REJECTING:
        cluster = params.cluster(admission, alike.decode_nodes, alike.decode_s)
        result = simulate(trace, cluster)
        tables.append(_load_table(cluster, result, SETTLED_S, ALIKE_S - SETTLED_S, ALIKE_INTERVAL_S))
    table = pd.concat(tables, ignore_index=True)
    table.attrs["provenance"] = _provenance(params, trace)
    return table


def mechanism_by_length(
    params: Params, input_tokens: Iterable[int] = (8192, 16_384, 32_768, 65_536, 98_304)
) -> pd.DataFrame:
    """`mechanism` for prompts of several lengths, that of `params` among them.

    Columns as of `mechanism`, and ``input_tokens``.
    """
    tables = [
        mechanism(dataclasses.replace(params, identical_input_tokens=tokens)).assign(input_tokens=tokens)
        for tokens in sorted({*input_tokens, params.identical_input_tokens})
    ]
    table = pd.concat(tables, ignore_index=True)
    table.attrs["provenance"] = mechanism(params).attrs["provenance"]
    return table


def orders(sweep_table: pd.DataFrame) -> pd.DataFrame:
    """How the policies come by requests rejected, by what is offered.

    Parameters
    ----------
    sweep_table : DataFrame
        As `sweep` returns it.

    Returns
    -------
    DataFrame
        Indexed by ``offered_decode_load``; ``as_stated``: whether in the order of Table 3, the baseline
        rejecting most; ``prediction_fewest``: whether prediction rejects fewest.
    """
    rejected = sweep_table.pivot(index="offered_decode_load", columns="policy", values="rejected")
    rejected = rejected[[TITLES[admission] for admission in REJECTING]]
    fewer = rejected.diff(axis="columns").iloc[:, 1:] < 0
    others = rejected.iloc[:, :-1].min(axis="columns")
    return pd.DataFrame(
        {"as_stated": fewer.all(axis="columns"), "prediction_fewest": rejected.iloc[:, -1] < others}
    )


def swing(table: pd.DataFrame) -> pd.DataFrame:
    """Mean, least, greatest and standard deviation of each pool's load, and how they go together.

    Parameters
    ----------
    table : DataFrame
        As `series` and `mechanism` return it.

    Returns
    -------
    DataFrame
        ``origin``, ``policy``; ``mean``, ``min``, ``max`` and ``std`` of each pool, as
        ``prefill_mean`` and so on; and ``correlation`` of the two loads at the same time.
    """
    rows = []
    for (origin, policy), loads in table.groupby(["origin", "policy"], sort=False):
        wide = loads.pivot(index="time_s", columns="pool", values="load")
        statistics = {
            f"{pool.lower()}_{name}": float(wide[pool].agg(name))
            for pool in ("Prefill", "Decode")
            for name in ("mean", "min", "max", "std")
        }
        correlation = float(wide["Prefill"].corr(wide["Decode"]))
        rows.append({"origin": origin, "policy": policy, **statistics, "correlation": correlation})
    return pd.DataFrame(rows)


def swing_sweep(
    params: Params,
    input_tokens: Iterable[int] = (8192, 16_384, 32_768, 65_536, 98_304),
    prefill_nodes: Iterable[int] = (2, 4, 8, 16),
) -> pd.DataFrame:
    """How far the loads of `mechanism` swing, by prompt length and by prefill nodes.

    Section 7.3 says that the swing grows with longer prefills and with fewer prefill machines.

    Returns
    -------
    DataFrame
        As of `swing`, and ``varied`` ("Prompt tokens" or "Prefill nodes") and ``value``.
    """
    settings = [
        ("Prompt tokens", tokens, dataclasses.replace(params, identical_input_tokens=tokens))
        for tokens in input_tokens
    ]
    settings += [
        ("Prefill nodes", nodes, dataclasses.replace(params, prefill_nodes=nodes)) for nodes in prefill_nodes
    ]
    tables = [swing(mechanism(varied)).assign(varied=title, value=value) for title, value, varied in settings]
    table = pd.concat(tables, ignore_index=True)
    table.attrs["provenance"] = mechanism(params).attrs["provenance"]
    return table


def spread(params: Params) -> pd.DataFrame:
    """`run`'s modelled rows when requests come at random times within the trace's ticks.

    A released trace may tell arrivals by ticks (3 s in the conversation trace) and not when in a tick.
    Each replicate draws that anew, in file order; t_d is chosen in each as in `run`.

    Returns
    -------
    DataFrame
        ``replicate``, ``policy``, ``rejected``, ``rejected_share``, ``goodput_requests_per_s`` and the
        other columns of `run`'s modelled rows. Without ticks all replicates are alike.
    """
    trace = _replayed(params)
    tick_s = traces.tick_s(trace) or 0.0
    nodes = overloaded_decode_nodes(demand(trace, params), params)
    rows: list[dict[str, object]] = []
    for replicate, rng in enumerate(np.random.default_rng(params.seed).spawn(params.replicates)):
        arrival_s = np.sort(trace.arrival_s + tick_s * rng.random(len(trace)))
        drawn = dataclasses.replace(trace, arrival_s=arrival_s)
        rows.extend({"replicate": replicate, **row} for row in _rows(drawn, params, nodes, REJECTING))
    table = pd.DataFrame(rows)
    table["rejected_share"] = table["rejected"] / table["requests"]
    table.attrs["provenance"] = _provenance(params, trace)
    return table


def claims(params: Params = Params()) -> dict[str, float]:  # noqa: B008 - it is frozen
    """Modelled values of Table 3 and Figure 9 by claim id.

    Notes
    -----
    Rejected requests are scaled to the 23,000 of Table 3. Figure 9 shows a production cluster whose
    requests and split are not known; see `series`. Figure 10's levels are drawn, not measured, and
    have no counterpart.
    """
    modelled = run(params).query("origin == 'modelled'").set_index("policy")["rejected_share"]
    requests = reported.claim("arxiv.fig08.requests")
    values = {
        f"arxiv.table3.rejected.{name}": requests * float(modelled[TITLES[admission]])
        for admission, name in zip(REJECTING, ("baseline", "early", "predicted"), strict=True)
    }
    early = series(params).query("origin == 'modelled' and policy == @TITLES['early']")
    swings = swing(early).to_dict("records")[0]
    for pool, name in (("prefill", "prefill"), ("decode", "decoding")):
        for statistic in ("mean", "min", "max", "std"):
            values[f"arxiv.fig09.load_{statistic}.{name}"] = 100 * float(swings[f"{pool}_{statistic}"])
    return values | {"arxiv.fig09.correlation": float(swings["correlation"])}


def _replayed(params: Params) -> traces.Trace:
    trace = traces.load(params.trace)
    return dataclasses.replace(trace, arrival_s=trace.arrival_s / params.arrival_speedup)


def _each(
    trace: traces.Trace, params: Params, nodes: int, asked: Demand, admissions: Iterable[Admission]
) -> list[tuple[Cluster, Result]]:
    """A run of each policy; prediction with its t_d."""
    runs = []
    for admission in admissions:
        tried = decode_times_s(params, admission, asked)
        clusters = [params.cluster(admission, nodes, decode_s) for decode_s in tried]
        results = [simulate(trace, cluster) for cluster in clusters]
        runs.append(min(zip(clusters, results, strict=True), key=lambda run: _counts(run[1])["rejected"]))
    return runs


def _rows(
    trace: traces.Trace, params: Params, nodes: int, admissions: Iterable[Admission]
) -> list[dict[str, object]]:
    asked = demand(trace, params)
    return [
        _row(cluster, result, asked.nodes / nodes)
        for cluster, result in _each(trace, params, nodes, asked, admissions)
    ]


def _counts(result: Result) -> dict[str, int]:
    at_arrival = int((result.outcome == Outcome.REJECTED_AT_ARRIVAL).sum())
    after_prefill = int((result.outcome == Outcome.REJECTED_AFTER_PREFILL).sum())
    return {
        "rejected": at_arrival + after_prefill,
        "rejected_at_arrival": at_arrival,
        "rejected_after_prefill": after_prefill,
    }


def _row(cluster: Cluster, result: Result, offered_decode_load: float) -> dict[str, object]:
    finished, wasted = result.outcome == Outcome.FINISHED, result.outcome == Outcome.REJECTED_AFTER_PREFILL
    duration_s = float(result.arrival_s[-1])
    pool_s = cluster.prefill_nodes * duration_s
    good = int(result.meets(ttft_s=cluster.ttft_limit_s, tbt_s=cluster.tbt_limit_s).sum())
    predictive = cluster.admission is Admission.PREDICTIVE
    return {
        "origin": "modelled",
        "policy": TITLES[cluster.admission],
        "requests": len(result),
        **_counts(result),
        "late": int(finished.sum()) - good,
        "within_limits_share": good / len(result),
        "goodput_requests_per_s": good / duration_s,
        "answer_tokens_share": float(result.output_tokens[finished].sum() / result.output_tokens.sum()),
        "prefill_busy_share": float(np.nansum(result.prefill_s)) / pool_s,
        "prefill_wasted_share": float(result.prefill_s[wasted].sum()) / pool_s,
        "rejected_input_tokens": float(result.input_tokens[~finished].mean())
        if not finished.all()
        else np.nan,
        "offered_decode_load": offered_decode_load,
        "decode_nodes": cluster.decode_nodes,
        "predicted_decode_s": cluster.predicted_decode_s if predictive else np.nan,
    }


def _load_table(
    cluster: Cluster, result: Result, start_s: float, length_s: float, interval_s: float = 15.0
) -> pd.DataFrame:
    """The two loads within a window, a row for each pool and time."""
    loads = load_series(result, cluster, interval_s=interval_s)
    loads["time_s"] -= interval_s * np.ceil(start_s / interval_s)
    window = loads[(loads["time_s"] >= 0) & (loads["time_s"] <= length_s)]
    window = window.rename(columns={"prefill_load": "Prefill", "decode_load": "Decode"})
    table = window.melt(id_vars="time_s", var_name="pool", value_name="load")
    return table.assign(origin="modelled", policy=TITLES[cluster.admission])


def _provenance(params: Params, trace: traces.Trace) -> dict[str, object]:
    return {
        "trace": trace.name,
        "trace_sha256": trace.sha256,
        "trace_source": trace.source,
        "parameters": dataclasses.asdict(params),
    }
