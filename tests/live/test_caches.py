"""The live figures of the tiered cache against the experiments."""

import dataclasses
import math

import numpy as np
import pytest
from tests.live.small import REQUESTS, alike, close

from mooncake_companion import traces
from mooncake_companion.errors import InputError
from mooncake_companion.experiments import (
    byte_flows,
    cache_capacity,
    cache_snapshot,
    prefix_choices,
)
from mooncake_companion.live import byte_flows as live_byte_flows
from mooncake_companion.live.answers import compute
from mooncake_companion.live.cache_capacity import PolicyParams
from mooncake_companion.live.prefix_choices import Choice, window_rows
from mooncake_companion.publish import live
from mooncake_companion.simulator.eviction import POLICIES
from mooncake_companion.simulator.scheduler import Action


@pytest.mark.parametrize("other", sorted(POLICIES.keys() - cache_capacity.TABLE_1_POLICIES))
def test_policies_hit_as_in_the_experiment(monkeypatch, other):
    trace = traces.load("synthetic").head(300)
    params = PolicyParams(other_policy=other, least_capacity_blocks=30, most_capacity_blocks=3000)
    given = {"other_policy": other, "least_capacity_blocks": "30", "most_capacity_blocks": "3000"}
    outcome, _ = compute("cache-policies", given, live.slice_of(trace))
    monkeypatch.setattr(traces, "load", lambda name: trace)
    monkeypatch.setattr(cache_capacity, "TABLE_1_BLOCKS", tuple(params.capacities_blocks))
    monkeypatch.setattr(cache_capacity.reported, "claim", lambda claim: math.nan)
    table = cache_capacity.policies(cache_capacity.Params(), names=tuple(params.policies))
    expected = table.query("origin == 'modelled'").to_dict("records")
    for row, same in zip(outcome.rows, expected, strict=True):
        assert row.keys() == same.keys()
        close(row, same)
    ratios = {row["hit_ratio"] for row in outcome.rows if row["policy"] == other}
    assert len(ratios) > 5


def test_a_cache_above_all_blocks_finds_what_room_for_all_finds(conversation):
    sliced = live.slice_of(conversation)
    given = {"least_capacity_blocks": "150000", "most_capacity_blocks": "200000"}
    outcome, _ = compute("cache-policies", given, sliced)
    blocks = conversation.block_ids
    assert len(outcome.rows) == 9
    for row in outcome.rows:
        assert row["hit_ratio"] == pytest.approx(1 - len(np.unique(blocks)) / len(blocks), rel=1e-12)
    with pytest.raises(InputError, match="parameter most_capacity_blocks: 50 is less"):
        compute("cache-policies", {"most_capacity_blocks": "50"}, sliced)


@pytest.mark.parametrize(("eviction", "nodes"), [("lru", 2), ("lfu", 3)])
def test_the_tiers_hold_what_they_hold_in_the_experiment(conversation, monkeypatch, eviction, nodes):
    given = {"requests": "45", "prefill_nodes": str(nodes), "vram_blocks": "0", "eviction": eviction}
    outcome, told = compute("cache-block-heat", given, live.slice_of(conversation))
    assert f"first 45 of {REQUESTS}" in told
    monkeypatch.setattr(traces, "load", lambda name: conversation)
    params = cache_snapshot.Params(requests=45, prefill_nodes=nodes, vram_blocks=0, eviction=eviction)
    expected = cache_snapshot.run(params).drop(columns="copies").to_dict("records")
    assert outcome.rows == expected
    assert {row["tier"] for row in outcome.rows} == {"DRAM", "SSD"}
    assert outcome.offered == {"node": list(range(nodes))}


def test_snapshots_of_a_short_time_stay_apart(conversation):
    given = {"requests": "4"}
    with pytest.raises(InputError, match="parameter requests: 4 are too few"):
        compute("cache-block-heat", given, live.slice_of(conversation))
    dense = live.slice_of(dataclasses.replace(conversation, arrival_s=np.arange(REQUESTS) / 10))
    outcome, _ = compute("cache-block-heat", given | {"requests": str(REQUESTS)}, dense)
    assert len({row["time_s"] for row in outcome.rows}) == 10


def test_tiers_without_any_room_are_refused(conversation):
    given = {"vram_blocks": "0", "dram_blocks": "0", "ssd_blocks": "0"}
    with pytest.raises(InputError, match="parameter dram_blocks: 0"):
        compute("cache-block-heat", given, live.slice_of(conversation))


def test_bytes_flow_as_in_the_experiment(conversation, monkeypatch):
    given = {
        "requests": str(REQUESTS),
        "input_tokens": "5000",
        "reused_tokens": "2048",
        "nic_bytes_per_s": "3e9",
        "ssd_read_bytes_per_s": "5e9",
        "cache_tokens_per_node": "20000",
        "node": "h800",
        "model": "qwen2.5-72b",
    }
    outcome, _ = compute("cache-byte-flows", given, live.slice_of(conversation))
    monkeypatch.setattr(traces, "load", lambda name: conversation)
    values = {name: float(value) for name, value in given.items() if name.endswith("_per_s")}
    values |= {name: int(value) for name, value in given.items() if name.endswith("_tokens")}
    params = byte_flows.Params(
        **values, cache_tokens_per_node=20_000, node=given["node"], model=given["model"]
    )
    expected = byte_flows.run(params)
    expected["scenario"] = expected["scenario"].str.replace("Whole trace", f"First {REQUESTS} requests")
    for row, same in zip(outcome.rows, expected.to_dict("records"), strict=True):
        assert row.keys() == same.keys()
        close(row, same)
    assert outcome.offered["scenario"] == list(expected["scenario"].unique())
    assert {row["way"] for row in outcome.rows} == set(byte_flows.WAYS)
    assert {row["critical"] for row in outcome.rows} == {True, False}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"model": "deepseek-v3"}, "parameter model: DeepSeek-V3 does not fit"),
        ({"node": "h100"}, "parameter ssd_read_bytes_per_s: how fast the SSDs of 8 × NVIDIA H100"),
        ({"reused_tokens": "1"}, "parameter reused_tokens: 1 is out of range"),
    ],
)
def test_what_cannot_flow_is_refused_beside_its_field(conversation, given, told):
    with pytest.raises(InputError, match=told):
        compute("cache-byte-flows", given, live.slice_of(conversation))


def test_a_request_beyond_a_nodes_memory_is_refused(conversation, monkeypatch):
    monkeypatch.setattr(live_byte_flows.Cluster, "vram_tokens", 9000)
    with pytest.raises(InputError, match=r"parameter node: request 0 has 16386 tokens, .* holds 9000"):
        compute("cache-byte-flows", {}, live.slice_of(conversation))


def test_choices_are_the_experiments(busy_hour, monkeypatch):
    trace = busy_hour.head(250)
    given = {"prefill_nodes": "3", "decode_nodes": "2", "cache_tokens_per_node": "200000"}
    given |= {"hot_from_uses": "4", "kvcache_balancing_threshold": "1.5"}
    outcome, _ = compute(
        "prefix-choices", given | {"count_every_s": "7", "requests": "250"}, live.slice_of(trace)
    )
    monkeypatch.setattr(traces, "load", lambda name: trace)
    params = prefix_choices.Params(
        prefill_nodes=3,
        decode_nodes=2,
        cache_tokens_per_node=200_000,
        hot_from_uses=4,
        kvcache_balancing_threshold=1.5,
        window_s=7.0,
    )
    alike(outcome.rows, prefix_choices.run(params))
    made = {row["action"] for row in outcome.rows if row["requests"]}
    assert made == {"hydrate", "recompute", "migrate", "replicate"}
    assert outcome.fixed == {"window_s": 7}


@pytest.mark.parametrize("tokens", ["0", "5", "10000000000"])
def test_choices_are_all_counted_whatever_room_there_is(conversation, tokens):
    given = {"cache_tokens_per_node": tokens, "count_every_s": "600"}
    outcome, _ = compute("prefix-choices", given, live.slice_of(conversation))
    for setting in {row["setting"] for row in outcome.rows}:
        assert sum(row["requests"] for row in outcome.rows if row["setting"] == setting) == REQUESTS


def test_choices_are_counted_in_their_windows():
    choices = [
        Choice(1.0, Action.HYDRATE, 1000, 512, 0.5),
        Choice(9.0, Action.HYDRATE, 3000, 1024, 1.5),
        Choice(9.5, Action.RECOMPUTE, 700, 0, 0.25),
        Choice(25.0, Action.REPLICATE, 4000, 2048, 2.0),
    ]
    counted = {(row["time_s"], row["action"]): row for row in window_rows(choices, 10.0)}
    assert len(counted) == 2 * len(Action)
    hydrated = {"requests": 2, "share": 2 / 3, "reused_tokens": 1536, "mean_ttft_s": 1.0}
    close(counted[0.0, "hydrate"], hydrated | {"mean_input_tokens": 2000, "mean_reused_tokens": 768})
    close(counted[20.0, "replicate"], {"requests": 1, "share": 1.0, "mean_ttft_s": 2.0})
    close(counted[20.0, "hydrate"], {"requests": 0, "share": 0.0, "mean_ttft_s": math.nan})
