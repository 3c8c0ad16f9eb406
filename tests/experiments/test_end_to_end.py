"""FAST'25, Figures 1, 7 and 8 on the released traces, and the experiment's own rules."""

import numpy as np
import pytest

from mooncake_companion import reported, traces
from mooncake_companion.errors import CompanionError, InputError
from mooncake_companion.experiments import end_to_end
from mooncake_companion.experiments.end_to_end import MOONCAKE, SYSTEMS, Params

STANDIN = Params(trace="synthetic-standin")


def released(workload):
    """What the experiment says of a workload, if its released trace is on this machine."""
    try:
        trace = traces.load(workload, download=False)
    except CompanionError as reason:
        pytest.skip(str(reason))
    if trace.origin != "released":
        pytest.skip(f"the released {workload} trace is not on this machine; set MOONCAKE_TRACES")
    return end_to_end.run(Params(trace=workload)).set_index(["origin", "system"])


@pytest.fixture(scope="module")
def table():
    return end_to_end.run(STANDIN)


@pytest.mark.parametrize("workload", ["conversation", "synthetic"])
def test_capacity_is_near_the_papers(workload):
    """Within 16 points in every cell; a model of decode without the host is 45 points off in Figure 1."""
    rows = released(workload)
    for limit in ("100ms", "200ms", "300ms"):
        error = rows.loc["modelled", f"capacity_{limit}"] - rows.loc["reported", f"capacity_{limit}"]
        assert error.abs().max() < 0.16, limit


def test_mooncakes_tbt_in_figure_1_is_predicted():
    rows = released("conversation")
    modelled, drawn = rows.loc[("modelled", MOONCAKE)], rows.loc[("reported", MOONCAKE)]
    assert modelled["tbt_mean_s"] == pytest.approx(drawn["tbt_mean_s"], rel=0.05)
    assert modelled["tbt_p50_s"] == pytest.approx(drawn["tbt_p50_s"], rel=0.05)


def test_prefill_takes_least_with_mooncake_and_most_in_chunks():
    for workload in ("conversation", "synthetic"):
        prefill_s = released(workload).loc["modelled", "prefill_s"]
        ordered = [MOONCAKE, "vLLM Prefix Caching", "vLLM", "vLLM Chunked Prefill"]
        assert prefill_s.sort_values().index.tolist() == ordered


def test_claims_are_the_papers_and_follow_from_the_table(monkeypatch, table):
    monkeypatch.setattr(end_to_end, "run", lambda params: table)
    monkeypatch.setattr(end_to_end, "FIGURES", {"synthetic": "fig07"})
    claimed = end_to_end.claims()
    assert claimed.keys() <= set(reported.claims()["id"])
    rows = table.query("origin == 'modelled'").set_index("system")
    ours = rows.loc[MOONCAKE, "capacity_100ms"]
    best = rows.drop(MOONCAKE)["capacity_100ms"].max()
    assert claimed["fast25.fig07.gain.100ms"] == pytest.approx(100 * (ours / best - 1))
    assert claimed["fast25.fig07.capacity.mooncake.100ms"] == pytest.approx(100 * ours)
    assert claimed["fast25.fig07.tbt_p50.vllm"] == pytest.approx(1e3 * rows.loc["vLLM", "tbt_p50_s"])
    assert len([claim for claim in claimed if ".fig07." in claim]) == 43
    missing = {c for c in reported.claims()["id"] if c.startswith("fast25.fig07.")} - claimed.keys()
    assert not missing


def test_curves_end_where_the_table_says(table):
    curves = end_to_end.curves(STANDIN, points=50)
    assert set(curves["origin"]) == {"modelled"}, "a stand-in's name is none of the paper's"
    for system in SYSTEMS:
        line = curves[curves["system"] == system]
        assert (line["share"].diff().dropna() >= 0).all()
        at_1s = np.interp(1.0, line["tbt_s"], line["share"])
        row = table[(table["system"] == system) & (table["origin"] == "modelled")].iloc[0]
        assert at_1s == pytest.approx(row["capacity_1000ms"], abs=0.01)
    assert "stand-in" in curves.attrs["provenance"]["trace_source"]


def test_all_workloads_in_one_table(monkeypatch):
    monkeypatch.setattr(end_to_end, "FIGURES", {"synthetic-standin": "fig07", "l-eval": "fig06"})
    systems = end_to_end.Systems(nodes=4, prefill_nodes=2)
    together = end_to_end.on_every_workload(lambda params: end_to_end.curves(params, points=5), systems)
    assert set(together["workload"]) == {"synthetic-standin", "l-eval"}
    assert together.attrs["provenance"]["parameters"]["nodes"] == 4
    assert together.attrs["provenance"]["trace_source"].count("stand-in") >= 2


def test_reported_curves_are_thinned_out_and_not_changed():
    drawn = reported.figure("fast25_fig07")
    thin = reported.along(drawn, "capacity_pct", by=["series"], marks=11)
    assert set(thin.index) < set(drawn.index)
    assert thin.equals(drawn.loc[thin.index])
    for _, curve in thin.groupby("series"):
        assert len(curve) <= 11
        assert curve["capacity_pct"].diff().max() < 12, "evenly up the axis"


def test_a_workload_that_cannot_be_had_is_left_out(monkeypatch):
    def none(name):
        raise CompanionError(f"no trace {name}")

    monkeypatch.setattr(traces, "load", none)
    assert end_to_end.claims() == {}


def test_a_split_without_decode_nodes_is_refused():
    with pytest.raises(InputError, match="prefill_nodes: 16 leaves no node of 16 to decode"):
        Params(prefill_nodes=16)
