"""The gain profile is what the papers' experiments say, and nothing else."""

import math

import pytest

from mooncake_companion import reported
from mooncake_companion.experiments import end_to_end, gain_profile, real_requests, request_rate
from mooncake_companion.experiments.gain_profile import WORKLOADS


@pytest.fixture
def table(monkeypatch):
    modelled = {
        "arxiv.fig12.gain_both.16k.mooncake_3p1d": 300.0,
        "arxiv.fig12.max_rate_both.16k.mooncake_3p1d": request_rate.tested_rates("simulated-16k")[-1],
        "arxiv.fig12.gain_both.32k.mooncake_3p1d": 50.0,
        "arxiv.fig12.max_rate_both.32k.mooncake_3p1d": 0.2,
    }
    monkeypatch.setattr(end_to_end, "claims", lambda params: {"fast25.fig01.gain.100ms": 400.0})
    monkeypatch.setattr(request_rate, "claims", lambda params: modelled)
    monkeypatch.setattr(real_requests, "claims", lambda params: {"arxiv.fig13.gain": 60.0})
    return gain_profile.run(end_to_end.Systems()).set_index(["workload", "variant", "origin"])


def test_every_gain_is_a_claim_of_the_papers():
    known = set(reported.claims()["id"])
    for workload in WORKLOADS:
        assert set(workload.gains.values()) <= known
        assert set(workload.ceilings.values()) <= known
        assert workload.ceilings.keys() <= workload.gains.keys()


def test_values_are_the_claims_as_ratios(table):
    assert table.loc[("Conversation", "100 ms", "modelled"), "gain"] == 4.0
    assert table.loc[("Conversation", "100 ms", "reported"), "gain"] == 4.98
    assert table.loc[("Real requests", "100 ms", "reported"), "gain"] == 0.75
    assert math.isnan(table.loc[("L-Eval", "both limits", "modelled"), "gain"]), "no value, no mark"


def test_a_gain_up_to_the_highest_tested_rate_is_a_lower_bound(table):
    bound = table["at_least"]
    assert bound[("Simulated, 16k", "both limits", "modelled")]
    assert not bound[("Simulated, 32k", "both limits", "modelled")]
    assert not bound[("Simulated, 16k", "both limits", "reported")]
    assert bound[("Simulated, 32k", "both limits", "reported")], "as the note of that claim says"
    assert not bound[("Conversation", "100 ms", "reported")]
