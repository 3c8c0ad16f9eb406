"""FAST'25, Figures 12 and 13: transfers by size and by bandwidth."""

import pytest

from mooncake_companion import reported, traces
from mooncake_companion.costs import load_calibration
from mooncake_companion.errors import InputError
from mooncake_companion.experiments import network_bandwidth, transfer_latency
from mooncake_companion.simulator import simulate


def test_a_method_reaches_the_fitted_share_of_either_network():
    table = transfer_latency.run(transfer_latency.Params()).query("origin == 'modelled'")
    assert set(table["method"]) == {"transfer engine"}
    line_rate = table["network"].map({"4x200Gbps": 100e9, "8x400Gbps": 400e9})
    share = table["bytes_per_s"] / line_rate
    assert share.to_numpy() == pytest.approx(load_calibration().network_utilisation)


def test_reported_readings_are_whole_and_unclipped():
    read = transfer_latency.run(transfer_latency.Params()).query("origin == 'reported'")
    assert len(read) == (reported.figure("fast25_fig12")["clipped"] == 0).sum()
    assert read.groupby("network")["method"].nunique().tolist() == [3, 3]


def test_startup_comes_on_top():
    without = transfer_latency.claims()
    later = transfer_latency.claims(transfer_latency.Params(startup_s=0.5))
    assert set(without) <= set(reported.claims()["id"])
    for claim_id in (claim_id for claim_id in without if ".latency." in claim_id):
        assert later[claim_id] == pytest.approx(without[claim_id] + 0.5)


SMALL = network_bandwidth.Params(trace="synthetic-standin", nodes=8, prefill_nodes=4)


@pytest.fixture(scope="module")
def seconds():
    """Modelled seconds by series and bandwidth, on the head of the stand-in."""
    head = traces.load(SMALL.trace).head(800)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traces, "load", lambda name: head)
        table = network_bandwidth.run(SMALL)
        values = network_bandwidth.claims(SMALL)
    assert table.attrs["provenance"]["parameters"]["prefill_nodes"] == 4
    assert set(values) <= set(reported.claims()["id"])
    modelled = table[table["origin"] == "modelled"]
    assert len(modelled) == len(values) == (table["origin"] == "reported").sum() == 22
    recompute_s = values["fast25.fig13.ttft_recompute"]
    assert recompute_s > values["fast25.fig13.avg_ttft.400gbps"], "without a cache there is more to compute"
    return modelled.pivot(index="bandwidth_gbit_per_s", columns="series", values="seconds")


def test_transfers_take_longer_than_in_theory_and_theory_is_bytes_over_line_rate(seconds):
    assert (seconds["transfer_time_real"] > seconds["transfer_time_theoretical"]).loc[24:400].all()
    head = traces.load(SMALL.trace).head(800)
    for rate in (24.0, 100.0, 400.0):
        fetched = simulate(head, SMALL.cluster(rate)).fetched_tokens
        fetched_bytes = fetched[fetched > 0].mean() * 327_680
        assert seconds["transfer_time_theoretical"].loc[rate] == pytest.approx(
            fetched_bytes / (rate * 1e9 / 8)
        )


def test_a_faster_network_shortens_ttft(seconds):
    assert seconds["avg_ttft"].loc[24] > seconds["avg_ttft"].loc[100]


def test_a_split_without_decode_nodes_is_refused():
    with pytest.raises(InputError, match="prefill_nodes: 4 leaves no node of 4 to decode"):
        network_bandwidth.Params(nodes=4, prefill_nodes=4)


def test_splits_hold_one_run_each_and_what_is_reported_once(monkeypatch):
    head = traces.load(SMALL.trace).head(200)
    monkeypatch.setattr(traces, "load", lambda name: head)
    table = network_bandwidth.splits(SMALL, (4, 5))
    modelled = table[table["origin"] == "modelled"]
    assert modelled.groupby("prefill_nodes").size().to_dict() == {4: 22, 5: 22}
    assert table[table["origin"] == "reported"]["prefill_nodes"].isna().all()
    alone = network_bandwidth.run(SMALL).query("origin == 'modelled'")["seconds"]
    assert modelled.query("prefill_nodes == 4")["seconds"].to_numpy() == pytest.approx(
        alone.to_numpy(), nan_ok=True
    )


def test_streams_are_shared_among_the_prefill_nodes(monkeypatch):
    head = traces.load(SMALL.trace).head(200)
    monkeypatch.setattr(traces, "load", lambda name: head)
    taken = network_bandwidth.streamed_gbit_per_s(SMALL) * SMALL.prefill_nodes * 1e9 / 8
    assert taken * head.arrival_s[-1] == pytest.approx(head.input_tokens.sum() * 327_680)
