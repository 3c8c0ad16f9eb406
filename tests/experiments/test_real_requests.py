"""TTFT and TBT on 20 nodes: the rules of the experiment, on a stand-in."""

import pytest

from mooncake_companion import reported
from mooncake_companion.errors import InputError
from mooncake_companion.experiments import real_requests
from mooncake_companion.experiments.real_requests import MOONCAKE, Params

STANDIN = Params(trace="synthetic-standin")


def test_claims_cover_the_figure_and_agree_with_each_other():
    claimed = real_requests.claims(STANDIN)
    stated = {
        row.id
        for row in reported.claims().itertuples()
        if row.id.startswith("arxiv.fig13.") and ".slo" not in row.id
    }
    assert stated <= claimed.keys()
    ours, theirs = claimed["arxiv.fig13.tbt_ok_mooncake"], claimed["arxiv.fig13.tbt_ok_vllm"]
    assert claimed["arxiv.fig13.gain"] == pytest.approx(100 * (ours / theirs - 1))
    for metric in ("ttft", "tbt"):
        low, middle, high = (claimed[f"arxiv.fig13.{metric}_p{p}.mooncake_10p10d"] for p in (50, 90, 99))
        assert low <= middle <= high


def test_modelled_beside_reported():
    table = real_requests.run(STANDIN)
    assert set(table["origin"]) == {"modelled", "reported"}
    assert set(table["metric"]) == {"ttft", "tbt"}
    line = table[(table["origin"] == "modelled") & (table["system"] == MOONCAKE) & (table["metric"] == "tbt")]
    assert line["share"].is_monotonic_increasing
    assert line["seconds"].is_monotonic_increasing
    assert "stand-in" in table.attrs["provenance"]["trace_source"]


def test_a_split_without_decode_nodes_is_refused():
    with pytest.raises(InputError, match="prefill_nodes: 20 leaves no node of 20 to decode"):
        Params(prefill_nodes=20)
