"""arXiv 2407.00079, section 7: what must hold of every run, and what is said of the released trace."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from mooncake_companion import reported, traces
from mooncake_companion.errors import CompanionError
from mooncake_companion.experiments import overload
from mooncake_companion.experiments.overload import REJECTING, TITLES, Params
from mooncake_companion.simulator import Admission

BASELINE, EARLY, PREDICTION = (TITLES[admission] for admission in REJECTING)
SMALL = Params(trace="conversation-standin", prefill_nodes=2, decode_nodes=8, arrival_speedup=0.5)


@pytest.fixture(scope="module")
def released():
    try:
        trace = traces.load(Params().trace, download=False)
    except CompanionError as reason:
        pytest.skip(str(reason))
    if trace.origin != "released":
        pytest.skip(f"the released {trace.name} trace is not on this machine; set MOONCAKE_TRACES")
    return overload.run(Params())


def rejected(table, column="rejected"):
    return table.query("origin == 'modelled'").set_index("policy")[column]


def test_policies_reject_in_the_reported_order(released):
    """Table 3: 4,183, 3,771 and 3,589 of 23,000."""
    counts = rejected(released)
    assert counts[BASELINE] > counts[EARLY] > counts[PREDICTION] > 0


def test_earlier_policies_waste_less_prefill_and_meet_the_limits_more_often(released):
    wasted, good = rejected(released, "prefill_wasted_share"), rejected(released, "goodput_requests_per_s")
    assert wasted[BASELINE] > 1.5 * wasted[EARLY] > 3 * wasted[PREDICTION]
    assert good[BASELINE] < good[EARLY] < good[PREDICTION]


def test_decode_is_asked_for_more_than_it_can_do(released):
    modelled = released.query("origin == 'modelled'")
    assert (modelled["offered_decode_load"] > 1).all()
    assert (modelled["decode_nodes"] <= Params().decode_nodes).all()


@pytest.fixture(scope="module")
def head():
    return traces.load(SMALL.trace).head(1500)


@pytest.fixture
def small(head, monkeypatch):
    monkeypatch.setattr(traces, "load", lambda name: head)


@pytest.fixture(scope="module")
def table(head):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traces, "load", lambda name: head)
        return overload.run(SMALL)


def test_counts_add_up_and_reported_rows_are_the_papers(table):
    modelled = table.query("origin == 'modelled'").set_index("policy")
    assert list(modelled.index) == [TITLES[admission] for admission in Admission]
    parts = modelled["rejected_at_arrival"] + modelled["rejected_after_prefill"]
    assert (parts == modelled["rejected"]).all()
    finished = modelled["requests"] * modelled["within_limits_share"] + modelled["late"]
    np.testing.assert_allclose(finished + modelled["rejected"], modelled["requests"])
    assert modelled.loc[TITLES[Admission.NONE], "rejected"] == 0
    shares = table.query("origin == 'reported'").set_index("policy")["rejected_share"].round(3)
    assert shares.to_dict() == {BASELINE: 0.182, EARLY: 0.164, PREDICTION: 0.156}
    assert table.attrs["provenance"]["trace"] == "conversation-standin-head-1500"


def test_demand_by_hand():
    """Requests that are all alike: what fills a node is a whole number of them."""
    requests = [(10.0 * k, 9_000, 1_000, range(18 * k, 18 * k + 18)) for k in range(11)]
    alike = traces.Trace.from_requests(requests)
    asked = overload.demand(alike, Params(tbt_limit_s=50.0))
    memory = Params().cluster(Admission.NONE, 1).vram_tokens
    assert asked.sequences == memory // 10_000
    step_s = asked.mean_decode_s / 999
    assert asked.nodes == pytest.approx(11 * 999 / 100 * step_s / asked.sequences)


@pytest.mark.parametrize(("asked", "stated", "taken"), [(0.4, 8, 1), (5.7, 8, 5), (9.3, 8, 8), (3.0, 2, 2)])
def test_decode_nodes_are_the_stated_ones_or_so_few_that_they_are_overloaded(asked, stated, taken):
    demand = overload.Demand(nodes=asked, sequences=10, mean_decode_s=20.0)
    assert overload.overloaded_decode_nodes(demand, Params(decode_nodes=stated)) == taken


def test_the_prediction_takes_the_decode_time_that_rejects_fewest_or_the_one_it_is_told(small, table):
    by_time = overload.decode_time_sweep(SMALL).query("policy == @PREDICTION")
    assert rejected(table)[PREDICTION] == by_time["rejected"].min()
    told = overload.run(dataclasses.replace(SMALL, predicted_decode_s=7.5))
    assert rejected(told, "predicted_decode_s")[PREDICTION] == 7.5


def test_more_is_rejected_the_more_is_offered(small):
    swept = overload.sweep(SMALL, speedups=(0.25, 0.5, 1.0))
    shares = swept.pivot(index="arrival_speedup", columns="policy", values="rejected_share")
    assert (shares.diff().iloc[1:] > 0).all(axis=None)
    loads = swept.groupby("arrival_speedup")["offered_decode_load"].first()
    assert loads[0.5] == pytest.approx(2 * loads[0.25])


def test_with_identical_requests_early_rejection_swings_and_prediction_wastes_nothing():
    """Figure 10: the swing is the policy's doing, for nothing else varies."""
    table = overload.mechanism(Params())
    swings = overload.swing(table).set_index("policy")
    assert swings["prefill_std"][EARLY] > 1.3 * swings["prefill_std"][PREDICTION]
    assert swings["decode_std"][EARLY] > 2 * swings["decode_std"][PREDICTION]
    assert swings["decode_mean"][EARLY] < swings["decode_mean"][PREDICTION]
    assert swings["prefill_mean"].idxmax() == BASELINE
    assert swings["correlation"][EARLY] < 0


def test_the_swing_grows_with_the_prefill_and_shrinks_with_prefill_nodes():
    """Section 7.3 says so of early rejection."""
    table = overload.swing_sweep(Params(), input_tokens=(8192, 98_304), prefill_nodes=(4, 16))
    early = table[table["policy"] == EARLY].set_index(["varied", "value"])["prefill_std"]
    assert early["Prompt tokens", 98_304] > 1.5 * early["Prompt tokens", 8192]
    assert early["Prefill nodes", 4] > 1.5 * early["Prefill nodes", 16]


def test_replicates_differ_only_by_the_trace_s_ticks(small, head):
    table = overload.spread(dataclasses.replace(SMALL, replicates=2))
    assert table.groupby("replicate")["policy"].apply(list).tolist() == [[BASELINE, EARLY, PREDICTION]] * 2
    assert table["requests"].eq(len(head)).all()
    assert table.groupby("policy")["rejected"].nunique().max() == 2, "ticks of 3 s: the draws matter"
    again = overload.spread(dataclasses.replace(SMALL, replicates=2))
    assert again.equals(table), "same seed, same table"


@pytest.mark.slow
def test_the_reported_order_does_not_hang_on_when_in_a_tick_requests_come(released):
    means = overload.spread(Params()).groupby("policy")["rejected"].mean()
    assert means[BASELINE] > means[EARLY] > means[PREDICTION]


def test_series_cover_twenty_minutes_and_hold_the_reported_ones(released):
    table = overload.series(Params())
    spans = table.groupby(["origin", "policy", "pool"])["time_s"].agg(["min", "max"])
    assert (spans["min"] == 0).all()
    assert (spans["max"] >= 1170).all()
    row = overload.swing(table).query("origin == 'reported'").iloc[0]
    for pool, name in (("prefill", "prefill"), ("decode", "decoding")):
        for statistic in ("mean", "min", "max"):
            stated = reported.claim(f"arxiv.fig09.load_{statistic}.{name}")
            assert 100 * row[f"{pool}_{statistic}"] == pytest.approx(stated, abs=0.1)
    assert row["correlation"] == pytest.approx(reported.claim("arxiv.fig09.correlation"), abs=0.01)


def test_claims_are_rows_of_the_record(released):
    values = overload.claims()
    assert set(values) <= set(reported.claims()["id"])
    assert len(values) == 3 + 9
    assert values["arxiv.table3.rejected.early"] == pytest.approx(
        23_000 * rejected(released, "rejected_share")[EARLY]
    )


def test_orders_are_told_by_load():
    shares = {1.0: (30, 20, 10), 2.0: (30, 40, 10), 3.0: (30, 20, 20)}
    rows = [
        {"offered_decode_load": load, "policy": TITLES[admission], "rejected": count}
        for load, counts in shares.items()
        for admission, count in zip(REJECTING, counts, strict=True)
    ]
    found = overload.orders(pd.DataFrame(rows))
    assert found["as_stated"].tolist() == [True, False, False]
    assert found["prediction_fewest"].tolist() == [True, True, False]


def test_the_mechanism_comes_with_the_length_that_is_set():
    params = Params(identical_input_tokens=20_480)
    table = overload.mechanism_by_length(params, input_tokens=(8192,))
    assert sorted(table["input_tokens"].unique()) == [8192, 20_480]
    own = table[table["input_tokens"] == 20_480].drop(columns="input_tokens").reset_index(drop=True)
    pd.testing.assert_frame_equal(own, overload.mechanism(params))
