import numpy as np
import pytest

from mooncake_companion import reported, traces
from mooncake_companion.experiments import workloads
from mooncake_companion.traces import Trace

PARAMS = workloads.Params(download=False)


@pytest.fixture(scope="module")
def table():
    return workloads.run(PARAMS)


@pytest.fixture(scope="module")
def claims():
    return workloads.claims(PARAMS)


def test_every_workload_is_measured_and_says_on_which_trace(table):
    modelled = table.query("origin == 'modelled'")
    assert set(modelled["workload"]) == {*traces.registered(), *traces.generated()}
    assert modelled.groupby("workload")["quantity"].count().nunique() == 1
    assert np.isfinite(modelled["value"]).all()
    for name in traces.generated():
        assert set(modelled.query("workload == @name")["trace"]) == {f"{name}-standin"}
    assert "toolagent" in table.attrs["provenance"]["trace_source"]


def test_reported_values_are_beside_modelled_ones_of_the_same_unit(table):
    printed = table.query("origin == 'reported'").set_index("claim")
    assert printed["value"]["fast25.table2.synthetic.input"] == 15325
    assert printed["value"]["arxiv.table2.l_eval.cache_ratio"] == 80
    units = table.groupby("quantity")["unit"].nunique()
    assert (units == 1).all()


def test_claims_are_of_the_list_and_finite(claims):
    known = set(reported.claims()["id"])
    assert set(claims) <= known
    assert np.isfinite(list(claims.values())).all()
    assert workloads.setup_claims(PARAMS) <= set(claims)


def test_what_a_stand_in_was_made_from_is_setup():
    setup = workloads.setup_claims(PARAMS)
    if traces.load("arxiv", download=False).origin == "standin":
        assert {"arxiv.fig05.input_length.first_bin", "arxiv.trace.output", "arxiv.fig06.max"} <= setup
        assert not {"arxiv.fig06.cdf.1", "arxiv.trace.unused_blocks", "arxiv.trace.input"} & setup
    assert "arxiv.table2.l_eval.input" in setup


def test_released_traces_give_table_2(claims):
    """Lengths and numbers to the printed digits; the papers' cache ratios count finer blocks."""
    for name in ("conversation", "synthetic"):
        if traces.load(name, download=False).origin != "released":
            pytest.skip(f"the released {name} trace is not on this machine")
        for quantity in ("requests", "input", "output"):
            claim = f"fast25.table2.{name}.{quantity}"
            assert round(claims[claim]) == reported.claim(claim)
            assert claim not in workloads.setup_claims(PARAMS)
        ratio = f"fast25.table2.{name}.cache_ratio"
        assert reported.claim(ratio) - 3 < claims[ratio] < reported.claim(ratio)


def test_histograms_have_every_request_once():
    table = workloads.length_histograms(PARAMS)
    sums = table.groupby(["origin", "quantity"])["requests"].sum()
    assert (sums == 23_608).all()
    assert len(table) == 160


def test_block_hits_are_those_of_a_small_trace():
    """Blocks 0, 1 and 2 are asked for 3, 1 and 2 times."""
    trace = Trace.from_requests([(0.0, 1024, 1, [0, 1]), (0.0, 1024, 1, [0, 2]), (0.0, 1024, 1, [0, 2])])
    assert workloads.block_hit_counts(trace).tolist() == [3, 1, 2]
    assert workloads._hit_count_claims(trace)["arxiv.fig06.cdf.2"] == pytest.approx(2 / 3)


def test_distributions_of_block_hits_rise_to_one():
    table = workloads.block_hits(PARAMS)
    for _, rows in table.query("origin == 'modelled'").groupby("workload"):
        assert rows["cdf"].is_monotonic_increasing
        assert rows["cdf"].iloc[-1] == 1.0
    assert set(table.query("origin == 'reported'")["workload"]) == {"arxiv"}


def test_another_trace_can_take_a_workloads_place():
    changed = workloads.claims(workloads.Params(conversation="simulated-16k", download=False))
    assert changed["fast25.table2.conversation.input"] == 16384


# What the chapter draws

TURNS = [
    (0.0, 1024, 10, [1, 2]),
    (3.0, 512, 20, [1]),
    (3.0, 2000, 30, [1, 2, 3, 4]),
    (63.5, 2048, 40, [1, 2, 3, 4]),
]


@pytest.fixture
def turns(monkeypatch):
    trace = Trace.from_requests(TURNS, name="turns")
    monkeypatch.setattr(workloads.Params, "load", lambda _self: {"conversation": trace, "l-eval": trace})


def test_distributions_are_those_of_the_requests(turns):
    table = workloads.distributions(PARAMS)
    assert set(table["workload"]) == {"conversation"}, "services alone"
    at = table.set_index(["quantity", "level"])["value"]
    assert at["Prompt (tokens)", 1.0] == 2048
    assert at["Answer (tokens)", 0.5] == 25
    known = [0, 511 / 512, 1024 / 2000, 2047 / 2048]
    for level in (0.5, 1.0):
        assert at["Share of the prompt known", level] == pytest.approx(np.quantile(known, level))


def test_the_age_of_a_prefix_is_that_of_its_last_block_and_one_block_alone_has_none(turns):
    """The second request reuses one block; the others 2 blocks after 3 s, and 4 after 60.5 s."""
    ages = workloads.distributions(PARAMS).query("quantity.str.startswith('Age')")
    assert ages["value"].min() == pytest.approx(3.0 + 57.5 * ages["level"].min())
    assert ages["value"].max() == 60.5


def test_arrivals_are_counted_in_whole_minutes_and_the_first_by_the_second(turns):
    minutes = workloads.arrivals(PARAMS).query("view == 'By the minute'")
    assert minutes["requests"].tolist() == [3], "the second minute is not whole"
    seconds = workloads.arrivals(PARAMS).query("view == 'First two minutes'").set_index("time_s")["requests"]
    assert seconds[3.0] == 2


def test_every_printed_number_is_compared(table):
    compared = workloads.comparison(table)
    assert len(compared) == (table["origin"] == "reported").sum()
    row = compared.query("workload == 'synthetic' and quantity == 'mean input length'").iloc[0]
    assert row["error"] == pytest.approx(row["modelled"] / 15325 - 1)
    assert compared.query("reported == 0")["error"].isna().all()
