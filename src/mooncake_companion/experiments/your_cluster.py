"""Another cluster than the papers': other GPUs, models, networks, limits and traces."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mooncake_companion import traces
from mooncake_companion.errors import InputError
from mooncake_companion.experiments.end_to_end import MOONCAKE, SYSTEMS
from mooncake_companion.hardware import load_node
from mooncake_companion.live.your_cluster import (
    BYTES,
    PERCENTILES,
    Params,
    break_even_rows,
    model_rows,
    models_of,
    nodes_of,
    short_name,
)
from mooncake_companion.llm import load_model
from mooncake_companion.parameters import Value, describe
from mooncake_companion.presets import is_file, read, table_of
from mooncake_companion.simulator import Outcome, Result, simulate

__all__ = [
    "BYTES",
    "PERCENTILES",
    "PREFIX_TOKENS",
    "SPEEDUPS",
    "Params",
    "break_even",
    "by_model",
    "by_node",
    "distributions",
    "provenance",
    "replayed",
    "results",
    "run",
    "settings",
    "summary",
    "tabulated",
    "told",
]

SPEEDUPS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
"""How many times as fast the trace is replayed, in `by_node`."""
PREFIX_TOKENS = (1024, 8192, 32_768, 131_072)
"""Prefixes in `break_even`, beside the chosen one."""


def settings(path: Path) -> dict[str, Value]:
    """What a user's file says of the cluster: its table ``[cluster]``, and itself as node and model.

    Parameters
    ----------
    path : Path
        A TOML file. Tables ``[node]``, ``[model]`` and ``[cluster]`` may each be missing; the last
        has names and values as `Params` declares them.

    Raises
    ------
    InputError
        Names the file, the table, the field and the value, and what would be right.
    """
    if not is_file(str(path)):
        raise InputError(f"{path} is no TOML file: its name must end in .toml")
    found: dict[str, Value] = {}
    tables = read(path)
    for table, load in (("node", load_node), ("model", load_model)):
        if table in tables:
            load(str(path))
            found[table] = str(path)
    if "cluster" not in tables:
        if not found:
            table_of(path, "cluster")  # says what there is instead
        return found
    declared = {each.name: each for each in describe(Params)}
    for name, value in table_of(path, "cluster").items():
        if name not in declared:
            raise InputError(
                f"{path}, table [cluster]: unknown field {name!r}; valid ones are {', '.join(declared)}"
            )
        try:
            found[name] = declared[name].validate(value)
        except InputError as error:
            raise InputError(f"{path}, table [cluster]: {error}") from None
    return found


def replayed(params: Params) -> traces.Trace:
    """The trace, as fast as it is to come."""
    trace = traces.load(params.trace, block_tokens=params.block_tokens)
    return dataclasses.replace(trace, arrival_s=trace.arrival_s / params.arrival_speedup)


def results(params: Params, systems: Sequence[str] = (MOONCAKE,)) -> Iterator[tuple[str, Result]]:
    """The replay of the trace by each system, as soon as it is done."""
    trace = replayed(params)
    for system in systems:
        yield system, simulate(trace, params.cluster(system))


def run(params: Params, systems: Sequence[str] = tuple(SYSTEMS)) -> pd.DataFrame:
    """What becomes of the trace on the cluster, a row for each system; columns as of `summary`."""
    return tabulated(params, dict(results(params, systems)))


def tabulated(params: Params, replays: Mapping[str, Result]) -> pd.DataFrame:
    """The table of `run`, from replays that are there already."""
    table = pd.DataFrame([summary(params, system, result) for system, result in replays.items()])
    table.attrs["provenance"] = provenance(params)
    return table


def summary(params: Params, system: str, result: Result) -> dict[str, Any]:
    """The replay of a trace by one system in numbers.

    Returns
    -------
    dict
        ``system``; ``requests``, ``finished``, ``rejected_at_arrival``, ``rejected_after_prefill``,
        ``late`` (finished, but outside a limit); ``ttft_…_s`` and ``tbt_…_s`` (mean and percentiles of
        those that have one); ``effective_capacity`` (share of all requests within both limits);
        ``goodput_requests_per_s`` (these, over the time from the first to the last arrival, as in
        `goodput`; NaN if they are one); ``hit_ratio``; ``fetched_bytes``, ``streamed_bytes``,
        ``loaded_bytes`` (0 on coupled nodes); ``gpu_s`` (all GPUs, from the first arrival to the last
        token), ``prefill_gpu_s`` (in prefills alone; a prompt in chunks counts whole iterations) and
        ``gpu_s_per_good_request``.
    """
    gpus = params.gpu_node.gpus * (params.prefill_nodes + params.decode_nodes)
    finished = result.outcome == Outcome.FINISHED
    good = int(result.meets(ttft_s=params.ttft_limit_s, tbt_s=params.tbt_limit_s).sum())
    ends_s = np.concatenate([result.arrival_s, result.finish_s, result.first_token_s])
    span_s = float(np.nanmax(ends_s) - result.arrival_s[0])
    offered_s = float(result.arrival_s[-1] - result.arrival_s[0])
    gpu_s = gpus * span_s
    return {
        "system": system,
        "requests": len(result),
        "finished": int(finished.sum()),
        "rejected_at_arrival": int((result.outcome == Outcome.REJECTED_AT_ARRIVAL).sum()),
        "rejected_after_prefill": int((result.outcome == Outcome.REJECTED_AFTER_PREFILL).sum()),
        "late": int(finished.sum()) - good,
        **_spread("ttft", result.ttft_s),
        **_spread("tbt", result.tbt_s),
        "effective_capacity": good / len(result),
        "goodput_requests_per_s": good / offered_s if offered_s else np.nan,
        "hit_ratio": result.hit_ratio,
        **{name: result.counters.get(name, 0) for name in BYTES},
        "gpu_s": gpu_s,
        "prefill_gpu_s": params.gpu_node.gpus * float(np.nansum(result.prefill_s)),
        "gpu_s_per_good_request": gpu_s / good if good else np.nan,
    }


def distributions(system: str, result: Result, points: int = 200) -> pd.DataFrame:
    """Share of the requests with a TTFT and a TBT up to x, of those that have one.

    Columns: ``system``, ``metric`` ("ttft", "tbt"), ``seconds``, ``share``.
    """
    shares = np.linspace(0, 1, points)
    parts = []
    for metric, values_s in (("ttft", result.ttft_s), ("tbt", result.tbt_s)):
        if np.isfinite(values_s).any():
            seconds = np.nanquantile(values_s, shares)
            parts.append(pd.DataFrame({"metric": metric, "seconds": seconds, "share": shares}))
    empty = pd.DataFrame({"metric": [], "seconds": [], "share": []})
    return pd.concat(parts or [empty], ignore_index=True).assign(system=system)


def by_node(params: Params) -> pd.DataFrame:
    """The same trace and model on every node preset, and on the chosen node if it is none.

    Returns
    -------
    DataFrame
        A row for each ``node`` (name), ``host_time`` and ``speedup`` (on top of
        `Params.arrival_speedup`). Columns: these, ``title``, ``chosen``, ``fits`` and the numbers of
        `summary` for Mooncake; NaN where the model does not fit.
    """
    trace = replayed(params)
    rows: list[dict[str, Any]] = []
    for name, node in nodes_of(params).items():
        told = {"node": name, "title": node.title, "chosen": name == short_name(params.node)}
        for host_time in (True, False):
            for speedup in SPEEDUPS:
                row = told | {"host_time": host_time, "speedup": speedup}
                try:
                    cluster = params.cluster(MOONCAKE, node=node, host_time=host_time)
                except InputError:
                    rows.append(row | {"fits": False})
                    continue
                faster = dataclasses.replace(trace, arrival_s=trace.arrival_s / speedup)
                numbers = summary(params, MOONCAKE, simulate(faster, cluster))
                rows.append(row | {"fits": True} | numbers)
    table = pd.DataFrame(rows)
    table.attrs["provenance"] = provenance(params)
    return table


def by_model(params: Params) -> pd.DataFrame:
    """What each model keeps of a token and holds in weights; the chosen one among them.

    Columns: ``model`` (name), ``title``, ``chosen``, ``kv_bytes_per_token``, ``weights_bytes``,
    ``parameters``, ``active_parameters``, ``cache_tokens`` (what the cache of a node holds).
    """
    rows = model_rows(models_of(params), short_name(params.model), params.cache_bytes_per_node)
    table = pd.DataFrame(rows)
    table.attrs["provenance"] = {"parameters": dataclasses.asdict(params)}
    return table


def break_even(params: Params) -> pd.DataFrame:
    """Bandwidth from which on loading a prefix beats computing it, by model, node and prefix.

    Returns
    -------
    DataFrame
        Columns: ``model``, ``node`` (names), ``model_title``, ``node_title``, ``cached_tokens``,
        ``break_even_bytes_per_s`` (Equation 2, at the GPUs' peak), ``fitted_break_even_bytes_per_s``
        (at the speed that they reach), ``network_bytes_per_s`` (line rate), ``network_share`` (the
        first over the third: below 1, fetching pays), ``fits`` and ``vram_tokens`` (KV cache that GPU
        memory holds beside the weights).
    """
    lengths = sorted({*PREFIX_TOKENS, params.cached_tokens})
    rows = break_even_rows(params, nodes_of(params), lengths)
    table = pd.DataFrame(rows)
    table.attrs["provenance"] = {"parameters": dataclasses.asdict(params)}
    return table


def told(
    params: Params, served: pd.DataFrame, nodes: pd.DataFrame, models: pd.DataFrame, bandwidths: pd.DataFrame
) -> dict[str, float | str]:
    """What the chapter says in words, by the names that its text uses.

    Parameters
    ----------
    params : Params
    served, nodes, models, bandwidths : DataFrame
        As `run`, `by_node`, `by_model` and `break_even` return them.
    """
    pairs = bandwidths.query("cached_tokens == @params.cached_tokens and fits").to_dict("records")
    by_rate = sorted(pairs, key=lambda pair: float(pair["break_even_bytes_per_s"]))
    least, most = by_rate[0], by_rate[-1]
    fitting = nodes[nodes["fits"]].to_dict("records")
    replays = {(row["node"], row["host_time"], row["speedup"]): row for row in fitting}
    means = {
        row["node"]: row["ttft_mean_s"]
        for (_, host, speedup), row in replays.items()
        if host and speedup == 1
    }
    first, fastest, double = next(iter(means)), min(means, key=means.__getitem__), SPEEDUPS[3]
    presets, kept = nodes_of(params), models["kv_bytes_per_token"]
    found: dict[str, Any] = {
        "trace source": provenance(params)["trace_source"],
        "node title": load_node(params.node).title,
        "model title": load_model(params.model).title,
        "least": least["break_even_bytes_per_s"] / 1e9,
        "least model": least["model_title"],
        "least node": least["node"],
        "most": most["break_even_bytes_per_s"] / 1e9,
        "most model": most["model_title"],
        "most node": most["node"],
        "ratio": most["break_even_bytes_per_s"] / least["break_even_bytes_per_s"],
        "within": 100 * sum(pair["network_share"] < 1 for pair in pairs) / len(pairs),
        "first node": first,
        "fastest node": fastest,
        "peak ratio": presets[fastest].flops_per_s / presets[first].flops_per_s,
        "double": double,
        "goodput": served.set_index("system").to_dict("index")[MOONCAKE]["goodput_requests_per_s"],
        "kv ratio": kept.max() / kept.min(),
        "ttft first": means[first],
        "ttft fastest": means[fastest],
        "tbt first": replays[first, True, 1.0]["tbt_p50_s"],
        "tbt first without": replays[first, False, 1.0]["tbt_p50_s"],
        "tbt fastest": replays[fastest, True, 1.0]["tbt_p50_s"],
        "tbt fastest without": replays[fastest, False, 1.0]["tbt_p50_s"],
        "capacity with": 100 * replays[fastest, True, double]["effective_capacity"],
        "capacity without": 100 * replays[fastest, False, double]["effective_capacity"],
    }
    return {name: value if isinstance(value, str) else float(value) for name, value in found.items()}


def provenance(params: Params) -> dict[str, Any]:
    """What a table was made from."""
    trace = traces.load(params.trace, block_tokens=params.block_tokens)
    return {
        "trace": trace.name,
        "trace_sha256": trace.sha256,
        "trace_source": trace.source,
        "parameters": dataclasses.asdict(params),
    }


def _spread(metric: str, values_s: np.ndarray) -> dict[str, float]:
    known = values_s[np.isfinite(values_s)]
    quantiles = np.percentile(known, PERCENTILES) if len(known) else np.full(len(PERCENTILES), np.nan)
    return {
        f"{metric}_mean_s": float(known.mean()) if len(known) else np.nan,
        **{f"{metric}_p{q}_s": float(value) for q, value in zip(PERCENTILES, quantiles, strict=True)},
    }
