"""Answers returned to the prefill pool: what it moves and what it gains."""

import dataclasses

import pytest

from mooncake_companion import traces
from mooncake_companion.errors import InputError
from mooncake_companion.experiments import returned_answers
from mooncake_companion.experiments.returned_answers import GAINS, Params
from mooncake_companion.simulator import simulate

SMALL = Params(trace="conversation-standin", nodes=4, prefill_nodes=2, replicates=2)


@pytest.fixture(scope="module")
def head():
    return traces.load(SMALL.trace).head(600)


@pytest.fixture(scope="module")
def tables(head):
    """Gains and totals on the head of the stand-in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traces, "load", lambda name: head)
        return returned_answers.run(SMALL), returned_answers.totals(SMALL)


def test_every_setting_has_every_gain_within_its_range(tables):
    gains, _ = tables
    settings = gains.groupby(["workload", "varied", "cache_tokens_per_node", "bandwidth_gbit_per_s"])
    assert settings.ngroups == 5 + 4
    assert set(settings["gain"].apply(tuple)) == {GAINS}
    assert ((gains["low"] <= gains["mean"]) & (gains["mean"] <= gains["high"])).all()
    assert gains.attrs["provenance"]["parameters"]["replicates"] == 2
    assert set(gains["origin"]) == {"modelled"}


def test_a_gain_is_the_difference_of_two_replays(head):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traces, "load", lambda name: head)
        gains = returned_answers.run(dataclasses.replace(SMALL, replicates=1))
    without, kept = (simulate(head, SMALL.cluster(return_answers=returns)) for returns in (False, True))
    own = gains.query("varied == 'capacity' and cache_tokens_per_node == 3_000_000").set_index("gain")["mean"]
    assert own["hit_ratio_points"] == pytest.approx(100 * (kept.hit_ratio - without.hit_ratio))
    assert own["ttft_saved_pct"] == pytest.approx(100 * (1 - kept.ttft_s.mean() / without.ttft_s.mean()))
    same = gains.query("varied == 'bandwidth' and bandwidth_gbit_per_s == 800").set_index("gain")["mean"]
    assert same.to_dict() == own.to_dict(), "the setting itself is on both axes"


def test_what_returns_is_small_beside_what_is_streamed_and_hits_stay_below_the_bound(tables, head):
    _, totals = tables
    (row,) = totals.to_dict("records")
    kept = simulate(head, SMALL.cluster(return_answers=True)).counters
    assert row["returned_bytes"] == kept["returned_bytes"] > 0
    assert row["returned_share_pct"] == pytest.approx(100 * kept["returned_bytes"] / kept["streamed_bytes"])
    assert row["requests"] == len(head)
    assert 0 < row["continued_requests"] < len(head)
    assert 0 < row["too_late_pct"] < 100
    for suffix in ("without", "with"):
        assert row[f"hit_ratio_pct_{suffix}"] <= row[f"infinite_hit_ratio_pct_{suffix}"]
    assert row["infinite_hit_ratio_pct_without"] < row["infinite_hit_ratio_pct_with"]


@pytest.mark.slow
def test_a_conversation_gains_about_a_percent_and_synthetic_nothing():
    table = returned_answers.run(Params()).set_index(["workload", "gain"]).query("varied == 'capacity'")
    conversation = table.loc[("conversation", "ttft_saved_pct")]
    assert conversation["mean"].between(0, 3).all()
    roomy = table.query("cache_tokens_per_node >= 3_000_000").loc[("synthetic", "ttft_saved_pct")]
    assert roomy["mean"].abs().max() < 0.5


def test_a_split_that_leaves_no_decode_node_is_refused():
    with pytest.raises(InputError, match="prefill_nodes"):
        Params(nodes=4, prefill_nodes=4)
