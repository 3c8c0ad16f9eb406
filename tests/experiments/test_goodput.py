"""Goodput under offered load: shares that balance, and peaks and knees that follow from them."""

import numpy as np
import pandas as pd
import pytest

from mooncake_companion import reported, traces
from mooncake_companion.experiments import end_to_end, goodput
from mooncake_companion.experiments.goodput import BARE_MOONCAKE, OPEN_MOONCAKE, SYSTEMS, Params
from mooncake_companion.parameters import describe

FATES = ["within_share", "late_first_token_share", "slow_share", "rejected_share", "wasted_share"]


@pytest.fixture(scope="module")
def table():
    return goodput.run(Params(), workloads=("synthetic-standin",), speedups=(0.5, 1.0, 3.0))


def by(table, *keys):
    return table.set_index(list(keys))


def test_every_request_has_one_fate(table):
    assert len(table) == 3 * 3 * len(SYSTEMS)
    assert table[FATES].sum(axis=1).to_numpy() == pytest.approx(np.ones(len(table)))
    offered, good = table["offered_requests_per_s"], table["goodput_requests_per_s"]
    assert good.to_numpy() == pytest.approx((offered * table["within_share"]).to_numpy())
    trace = traces.load("synthetic-standin")
    own_rate = len(trace) / trace.arrival_s[-1]
    assert set(offered.round(6)) == {round(speed * own_rate, 6) for speed in (0.5, 1.0, 3.0)}


def test_only_mooncake_turns_requests_away_and_keeps_its_goodput(table):
    turned_away = table.groupby("system")[["rejected_share", "wasted_share"]].max().sum(axis=1)
    assert turned_away.pop("Mooncake") > 0.1
    assert (turned_away == 0).all()
    fast = table[(table["arrival_speedup"] == 3.0) & (table["tbt_limit_s"] == 0.1)].set_index("system")
    assert (
        fast.loc["Mooncake", "goodput_requests_per_s"] > 3 * fast.loc[OPEN_MOONCAKE, "goodput_requests_per_s"]
    )


def test_a_looser_limit_never_serves_fewer(table):
    shares = table.pivot(index=["system", "arrival_speedup"], columns="tbt_limit_s", values="within_share")
    assert (shares.diff(axis="columns").iloc[:, 1:].to_numpy() >= -1e-12).all()


def test_without_its_cache_mooncake_serves_no_more(table):
    shares = table.pivot(index=["tbt_limit_s", "arrival_speedup"], columns="system", values="within_share")
    assert (shares[BARE_MOONCAKE] <= shares[OPEN_MOONCAKE] + 0.01).all()
    assert (shares[BARE_MOONCAKE] < shares[OPEN_MOONCAKE]).any()


def test_the_open_mooncake_is_that_of_the_end_to_end_figures(table):
    rows = end_to_end.run(end_to_end.Params(trace="synthetic-standin")).set_index("system")
    here = table[(table["arrival_speedup"] == 1.0) & (table["tbt_limit_s"] == 0.2)].set_index("system")
    for system, name in ((OPEN_MOONCAKE, "Mooncake"), ("vLLM", "vLLM")):
        late = here.loc[system, "late_first_token_share"]
        assert rows.loc[name, "capacity_200ms"] == pytest.approx(
            here.loc[system, "within_share"] + late, abs=late + 1e-12
        )


def line(shares, offered=(1.0, 2.0, 3.0)):
    return pd.DataFrame(
        {
            "origin": "modelled",
            "workload": "w",
            "system": "s",
            "tbt_limit_s": 0.1,
            "offered_requests_per_s": offered,
            "within_share": shares,
            "goodput_requests_per_s": np.array(offered) * shares,
        }
    )


@pytest.mark.parametrize(
    ("shares", "peak", "at", "knee"),
    [
        ((1.0, 0.95, 0.75), 2.25, 3.0, 2.25),
        ((1.0, 0.8, 0.1), 1.6, 2.0, 1.5),
        ((1.0, 1.0, 0.95), 2.85, 3.0, np.inf),
        ((0.5, 0.2, 0.95), 2.85, 3.0, np.nan),
    ],
)
def test_peaks_and_knees(shares, peak, at, knee):
    row = goodput.peaks(line(shares)).loc[("w", 0.1, "s")]
    assert row["peak_requests_per_s"] == pytest.approx(peak)
    assert row["peak_offered_requests_per_s"] == at
    assert row["knee_requests_per_s"] == pytest.approx(knee, nan_ok=True)


def test_gains_are_over_the_best_baseline(table):
    gains = goodput.gains(table)
    here = table[(table["arrival_speedup"] == 1.0) & (table["tbt_limit_s"] == 0.1)].set_index("system")[
        "within_share"
    ]
    best = here[list(end_to_end.BATCHINGS)].max()
    assert gains[("synthetic-standin", 0.1, 1.0)] == pytest.approx(here[OPEN_MOONCAKE] / best - 1)


def test_reported_marks_are_the_papers_capacity_at_the_traces_own_rate(monkeypatch):
    head = traces.load("synthetic-standin").head(60)
    monkeypatch.setattr(traces, "load", lambda name: head)
    table = goodput.run(Params(), workloads=("synthetic",), speedups=(2.0,))
    mark = by(table[table["origin"] == "reported"], "system", "tbt_limit_s").loc[("vLLM", 0.1)]
    assert mark["within_share"] == pytest.approx(reported.claim("fast25.fig07.capacity.vllm.100ms") / 100)
    assert mark["offered_requests_per_s"] == pytest.approx(len(head) / head.arrival_s[-1])
    assert mark["goodput_requests_per_s"] == pytest.approx(
        mark["within_share"] * mark["offered_requests_per_s"]
    )


def test_admission_may_be_chosen_but_not_switched_off():
    admission = next(each for each in describe(Params) if each.name == "admission")
    assert admission.choices == ("baseline", "early", "predictive")
