"""arXiv, Figures 2 and 7, and FAST'25, Figure 14: single actions."""

import dataclasses

import pytest

from mooncake_companion import reported
from mooncake_companion.experiments import latency_breakdown, layerwise, two_phases
from mooncake_companion.hardware import load_node


def reported_values(module):
    values = module.claims()
    return {claim_id: (value, reported.claim(claim_id)) for claim_id, value in values.items()}


def test_figure_2_comes_out_within_a_tenth_with_nothing_fitted_on_it():
    compared = reported_values(two_phases)
    assert len(compared) == 64
    assert max(abs(value / said - 1) for value, said in compared.values()) < 0.1


def test_everything_is_over_its_largest_value():
    table = two_phases.run(two_phases.Params()).query("origin == 'modelled'")
    largest = table.groupby("stage")[["normalized_latency", "normalized_throughput"]].max()
    assert (largest == 1).all(axis=None)


def test_a_longer_context_makes_batches_cost_more():
    at_8k = two_phases.claims()["arxiv.fig02.decoding.latency.b1"]
    at_32k = two_phases.claims(two_phases.Params(decode_context_tokens=32768))[
        "arxiv.fig02.decoding.latency.b1"
    ]
    assert at_32k < at_8k


def test_figure_14_stacks_add_up_and_only_prefill_sees_the_cache():
    values = latency_breakdown.claims()
    for length in ("8k", "128k"):
        for pct in (0, 95):
            parts = [
                values[f"fast25.fig14.{part}.{length}.prefix{pct}"] for part in latency_breakdown.COMPONENTS
            ]
            assert values[f"fast25.fig14.total.{length}.prefix{pct}"] == pytest.approx(sum(parts))
        for part in ("transfer", "load_cache", "decode"):
            assert (
                values[f"fast25.fig14.{part}.{length}.prefix0"]
                == values[f"fast25.fig14.{part}.{length}.prefix95"]
            )
        reused = values[f"fast25.fig14.prefill.{length}.prefix95"]
        assert reused < 0.2 * values[f"fast25.fig14.prefill.{length}.prefix0"]
    assert values["fast25.fig14.transfer.128k.prefix0"] == pytest.approx(
        0.4937, abs=5e-4
    )  # 42.9 GB at 87 GB/s
    assert values["fast25.fig14.load_bw.8k"] == pytest.approx(128)


def test_the_network_fitted_on_figure_12_carries_figure_14s_transfers():
    compared = reported_values(latency_breakdown)
    errors = [value / said - 1 for name, (value, said) in compared.items() if ".transfer" in name]
    assert len(errors) == 15
    assert max(map(abs, errors)) < 0.05


def test_figure_14_tells_every_component_reported_and_modelled():
    table = latency_breakdown.run(latency_breakdown.Params())
    counts = table.groupby("origin")["component"].value_counts().to_dict()
    assert counts == {("modelled", part): 10 for part in latency_breakdown.COMPONENTS} | {
        ("reported", part): 10 for part in (*latency_breakdown.COMPONENTS, "schedule")
    }


def test_storing_layer_by_layer_leaves_the_last_layer():
    values = layerwise.claims()
    store_s = 8000 * 327_680 / 128e9
    assert values["arxiv.fig07.serialized.8000"] == pytest.approx(store_s)
    assert values["arxiv.fig07.layer_wise.8000"] == pytest.approx(store_s / 80)


def test_a_slow_link_cannot_hide_behind_the_computation(monkeypatch):
    slow = dataclasses.replace(load_node("a800"), host_to_device_bytes_per_s=1e9)
    monkeypatch.setattr(layerwise, "load_node", lambda name: slow)
    values = layerwise.claims()
    assert values["arxiv.fig07.layer_wise.8000"] > 1
    assert values["arxiv.fig07.layer_wise.8000"] < values["arxiv.fig07.serialized.8000"]
