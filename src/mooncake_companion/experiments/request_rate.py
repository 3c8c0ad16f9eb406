"""arXiv 2407.00079, Figures 11 and 12: the request rate that small clusters bear."""

import dataclasses

import numpy as np
import pandas as pd

from mooncake_companion import reported, traces
from mooncake_companion.errors import CompanionError
from mooncake_companion.live.request_rate import BASELINE, DATASETS, SYSTEMS, Params
from mooncake_companion.simulator import simulate

__all__ = [
    "BASELINE",
    "DATASETS",
    "LEAVES_FIGURE",
    "SYSTEMS",
    "Params",
    "claims",
    "first_limits",
    "highest_rates",
    "on_every_dataset",
    "run",
    "tested_rates",
]

LEAVES_FIGURE = 2
"""`off_scale` of a reading where a line leaves the figure, which is at no tested rate."""


def tested_rates(dataset: str) -> tuple[float, ...]:
    """Requests per second at which the paper tested a data set, in rising order."""
    drawn = _drawn(dataset)
    return tuple(sorted({float(f"{rate:.3g}") for rate in drawn["request_rate_rps"]}))


def run(params: Params) -> pd.DataFrame:
    """Percentiles of TTFT and TBT by request rate, over their limits, beside the paper's.

    Returns
    -------
    DataFrame
        A row for each ``origin`` ("modelled", "reported"), ``metric`` ("ttft", "tbt"), ``system``
        and ``request_rate_per_s``. Columns: these, ``seconds`` (NaN where the paper does not say)
        and ``over_limit`` (1 is the limit).
    """
    trace = traces.load(params.dataset)
    rates = tested_rates(params.dataset)
    rows = [
        {"metric": metric, "system": system, "request_rate_per_s": rate, "seconds": seconds}
        for system in SYSTEMS
        for rate in rates
        for metric, seconds in _percentiles_s(params, trace, system, rate).items()
    ]
    table = pd.DataFrame(rows)
    lowest = table[table["request_rate_per_s"] == rates[0]].groupby("metric")["seconds"].min()
    limits_s = lowest * pd.Series({"ttft": params.ttft_multiple, "tbt": params.tbt_multiple})
    table["over_limit"] = table["seconds"] / table["metric"].map(limits_s)
    table = pd.concat([table.assign(origin="modelled"), _reported(params.dataset)], ignore_index=True)
    table = table[["origin", "metric", "system", "request_rate_per_s", "seconds", "over_limit"]]
    table.attrs["provenance"] = {
        "trace": trace.name,
        "trace_sha256": trace.sha256,
        "trace_source": trace.source,
        "parameters": dataclasses.asdict(params),
    }
    return table


def on_every_dataset(params: Params = Params()) -> pd.DataFrame:  # noqa: B008 - it is frozen
    """What `run` says of each data set, in one table.

    Returns
    -------
    DataFrame
        As of `run`, and ``dataset``; ``attrs["provenance"]`` has all traces.
    """
    tables = {name: run(dataclasses.replace(params, dataset=name)) for name in DATASETS}
    table = pd.concat([each.assign(dataset=name) for name, each in tables.items()], ignore_index=True)
    given = dataclasses.asdict(params)
    del given["dataset"]
    table.attrs["provenance"] = {
        "trace_source": "; ".join(each.attrs["provenance"]["trace_source"] for each in tables.values()),
        "parameters": given,
    }
    return table


def highest_rates(table: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Highest rate up to which every tested one keeps the limits; 0 if the lowest does not.

    Parameters
    ----------
    table : DataFrame
        As `run` returns it.

    Returns
    -------
    dict of dict of float
        By system, modelled: ``ttft``, ``tbt`` and ``both``, in requests/s.
    """
    modelled = table[table["origin"] == "modelled"]
    over = modelled.pivot(index=["system", "request_rate_per_s"], columns="metric", values="over_limit")
    over["both"] = over.max(axis=1)
    kept = (over <= 1).groupby(level="system").cummin()
    rates = kept.index.get_level_values("request_rate_per_s").to_numpy()
    highest = kept.mul(rates, axis=0).groupby(level="system").max()
    return {str(system): {str(k): float(v) for k, v in row.items()} for system, row in highest.iterrows()}


def first_limits(table: pd.DataFrame) -> pd.DataFrame:
    """Which limit each system breaks first as the request rate rises.

    Parameters
    ----------
    table : DataFrame
        As `on_every_dataset` returns it.

    Returns
    -------
    DataFrame
        Indexed by ``origin`` and ``dataset``, a column for each system: "ttft", "tbt", "both" (at the same
        tested rate) or "none".
    """
    found: dict[tuple[str, str], dict[str, str]] = {}
    for (origin, dataset, system), rows in table.groupby(["origin", "dataset", "system"], sort=False):
        over = rows[rows["over_limit"] > 1]
        broken = over[over["request_rate_per_s"] == over["request_rate_per_s"].min()]["metric"].unique()
        first = "none" if not len(broken) else broken[0] if len(broken) == 1 else "both"
        found.setdefault((str(origin), str(dataset)), {})[str(system)] = str(first)
    return pd.DataFrame.from_dict(found, orient="index").rename_axis(["origin", "dataset"])


def claims(params: Params = Params()) -> dict[str, float]:  # noqa: B008 - it is frozen
    """Modelled values of the paper's claims by their id, in the unit of each claim.

    All data sets are replayed, whatever `params` has; one that cannot be had gives no values.
    """
    found: dict[str, float] = {}
    gains: dict[str, float] = {}
    for name, dataset in DATASETS.items():
        try:
            rates = highest_rates(run(dataclasses.replace(params, dataset=name)))
        except CompanionError:
            continue
        for system, suffix in SYSTEMS.items():
            for limit in ("ttft", "tbt", "both"):
                claim = "arxiv." + dataset.claim.format(f"max_rate_{limit}")
                found[f"{claim}.{suffix}"] = rates[system][limit]
                if system != BASELINE and rates[BASELINE][limit]:
                    claim = "arxiv." + dataset.claim.format(f"gain_{limit}")
                    gain = rates[system][limit] / rates[BASELINE][limit] - 1
                    found[f"{claim}.{suffix}"] = 100 * gain
        gain_id = "arxiv." + dataset.claim.format("gain_both") + ".mooncake_3p1d"
        if gain_id in found:
            gains[name] = found[gain_id]
            found["arxiv." + dataset.claim.format("gain")] = found[gain_id]
    simulated = [gain for name, gain in gains.items() if name.startswith("simulated")]
    if simulated:
        found["arxiv.fig12.gain_min"] = min(simulated)
        found["arxiv.fig12.gain_max"] = found["arxiv.headline.sim_gain"] = max(simulated)
    known = set(reported.claims()["id"])
    return {claim: value for claim, value in found.items() if claim in known}


def _percentiles_s(params: Params, trace: traces.Trace, system: str, rate: float) -> dict[str, float]:
    own_rate = (len(trace) - 1) / float(trace.arrival_s[-1] - trace.arrival_s[0])
    replayed = dataclasses.replace(trace, arrival_s=trace.arrival_s * (own_rate / rate))
    result = simulate(replayed, params.cluster(system))
    return {
        "ttft": float(np.percentile(result.ttft_s, params.percentile)),
        "tbt": float(np.nanpercentile(result.tbt_s, params.percentile)),
    }


def _drawn(dataset: str) -> pd.DataFrame:
    """Readings of the data set's panel at tested rates."""
    title = DATASETS[dataset].title
    public = reported.figure("arxiv_fig11").rename(columns={"dataset": "panel"})
    simulated = reported.figure("arxiv_fig12").rename(columns={"prompt_length": "panel"})
    drawn = pd.concat([public, simulated])
    return drawn[(drawn["panel"] == title) & (drawn["off_scale"] != LEAVES_FIGURE)]


def _reported(dataset: str) -> pd.DataFrame:
    drawn = _drawn(dataset)
    return pd.DataFrame(
        {
            "origin": "reported",
            "metric": drawn["metric"].str.removeprefix("norm_p90_"),
            "system": drawn["system"],
            "request_rate_per_s": drawn["request_rate_rps"],
            "seconds": np.nan,
            "over_limit": drawn["value_over_slo"],
        }
    )
