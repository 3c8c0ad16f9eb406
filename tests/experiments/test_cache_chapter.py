"""What the chapter on the tiered cache shows: blocks by tier, bytes by way, choices over time."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from mooncake_companion import traces
from mooncake_companion.experiments import (
    byte_flows,
    cache_sharing,
    cache_snapshot,
    prefix_choices,
    tiered_cache,
)
from mooncake_companion.simulator import Action, simulate, traffic_series
from mooncake_companion.traces import Trace

SMALL = cache_snapshot.Params(trace="toolagent-standin", requests=120, snapshots=4)


@pytest.fixture(scope="module")
def snapshot():
    return cache_snapshot.run(SMALL)


# Blocks by tier


def test_no_tier_holds_more_than_it_can_and_no_cell_is_taken_twice(snapshot):
    room = {"VRAM": SMALL.vram_blocks, "DRAM": SMALL.dram_blocks, "SSD": SMALL.ssd_blocks}
    for (_, _, tier), rows in snapshot.groupby(["time_s", "node", "tier"]):
        assert rows["slot"].is_unique
        assert rows["slot"].max() < room[tier]
    assert not snapshot.duplicated(["time_s", "node", "block"]).any(), "a block is in one tier of a node"


def test_holders_and_copies_are_those_that_hold_the_block(snapshot):
    nodes = snapshot.groupby(["time_s", "block"])["node"].agg(lambda held: ", ".join(map(str, sorted(held))))
    told = snapshot.set_index(["time_s", "block"])["holders"]
    assert (told == nodes.reindex(told.index)).all()
    assert (snapshot["copies"] == snapshot["holders"].str.count(",") + 1).all()
    assert snapshot["copies"].max() > 1


def test_a_block_keeps_its_cell_as_long_as_it_stays_in_its_tier(snapshot):
    for (_, tier, _), rows in snapshot.groupby(["node", "tier", "block"]):
        at = rows.sort_values("time_s")
        steps = at["time_s"].map(sorted(snapshot["time_s"].unique()).index).diff()
        assert (at["slot"].diff()[steps == 1] == 0).all(), tier


def test_uses_are_counted_up_to_the_snapshot(snapshot):
    trace = traces.load(SMALL.trace).head(SMALL.requests)
    last = snapshot[snapshot["time_s"] == snapshot["time_s"].max()]
    every = np.unique(trace.block_ids, return_counts=True)[1]
    assert last["uses"].max() == every.max()
    growth = snapshot.groupby(["block", "time_s"])["uses"].first().groupby("block").diff().dropna()
    assert (growth >= 0).all()
    assert (snapshot["age_s"] >= 0).all()


def test_tiers_are_summed_up_by_hand(snapshot):
    last = snapshot[snapshot["time_s"] == snapshot["time_s"].max()]
    ssd = last[last["tier"] == "SSD"]
    row = cache_snapshot.tiers(snapshot).loc["SSD"]
    assert row["blocks"] == len(ssd)
    assert row["used_once_share"] == pytest.approx((ssd["uses"] == 1).sum() / len(ssd))


# Bytes by way

FLOWS = byte_flows.Params(trace="conversation-standin")


@pytest.fixture(scope="module")
def head():
    return traces.load("conversation-standin").head(400)


@pytest.fixture(scope="module")
def flows(head):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traces, "load", lambda name: head)
        return byte_flows.run(FLOWS)


def moved(flows, scenario):
    return flows[flows["scenario"] == scenario].set_index("way")


def test_each_scenario_moves_what_its_name_says(flows):
    token_bytes = FLOWS.cluster(1).model.kv_bytes_per_token
    prompt, known = FLOWS.input_tokens * token_bytes, FLOWS.reused_tokens * token_bytes
    cold = moved(flows, "Cold prompt")["bytes"].to_dict()
    assert cold == {"store": prompt, "stream": prompt, "decode_load": prompt}
    assert moved(flows, "Prefix in VRAM")["bytes"].to_dict() == cold | {"store": prompt - known}
    assert moved(flows, "Prefix in DRAM")["bytes"]["prefix_load"] == known
    assert moved(flows, "Prefix on SSD")["bytes"]["ssd_read"] == known
    assert moved(flows, "Prefix on another node")["bytes"]["fetch"] == known


def test_only_what_cannot_be_hidden_is_on_the_critical_path(flows):
    def critical(scenario):
        rows = moved(flows, scenario)
        return set(rows.index[rows["critical"]])

    assert critical("Prefix in DRAM") == {"decode_load"}
    assert critical("Prefix on another node") == {"fetch", "decode_load"}
    assert critical("Prefix in DRAM, late hand-over") == {"stream", "decode_load"}
    assert critical("Prefix in DRAM, nothing overlapped") == {"prefix_load", "store", "stream", "decode_load"}


def test_delays_add_up_to_when_decode_begins_if_nothing_overlaps(flows):
    times = byte_flows.times(FLOWS)["decode_start_s"]
    hidden = times["Prefix in DRAM"] - moved(flows, "Prefix in DRAM")["delay_s"].sum()
    exposed = times["Prefix in DRAM, nothing overlapped"]
    delays = moved(flows, "Prefix in DRAM, nothing overlapped")["delay_s"].sum()
    assert exposed - delays == pytest.approx(hidden), "what is left is the computation"


def test_a_slow_drive_delays_decode_or_is_not_read():
    slow = dataclasses.replace(FLOWS, ssd_read_bytes_per_s=4e9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(traces, "load", lambda name: Trace.from_requests([(0.0, 1024, 2, [0, 1])]))
        read = moved(byte_flows.run(slow), "Prefix on SSD")
        slower = moved(byte_flows.run(dataclasses.replace(slow, ssd_read_bytes_per_s=1e9)), "Prefix on SSD")
    assert read["critical"]["ssd_read"]
    assert "ssd_read" not in slower.index


def test_the_whole_traces_bytes_are_the_engines(flows, head):
    cluster = FLOWS.cluster(FLOWS.prefill_nodes, FLOWS.decode_nodes)
    totals = traffic_series(simulate(head, cluster), cluster).iloc[-1]
    rows = moved(flows, "Whole trace, DRAM alone")
    for way, column in {
        "fetch": "fetch_received_bytes",
        "stream": "stream_received_bytes",
        "decode_load": "load_received_bytes",
        "prefix_load": "dram_read_bytes",
        "store": "dram_written_bytes",
    }.items():
        assert rows["bytes"][way] * len(head) == pytest.approx(totals[column])
    assert (flows["delayed_share"] <= 1).all()


# Choices

CHOICES = prefix_choices.Params(trace="conversation-standin")


@pytest.fixture
def short(head, monkeypatch):
    monkeypatch.setattr(traces, "load", lambda name: head)


def test_every_request_is_counted_once_in_each_setting(short, head):
    table = prefix_choices.run(CHOICES)
    assert (table.groupby("setting")["requests"].sum() == len(head)).all()
    np.testing.assert_allclose(table.groupby(["setting", "time_s"])["share"].sum(), 1)
    reasons = prefix_choices.reasons(CHOICES)
    assert set(reasons["reason"]) <= set(prefix_choices.REASONS)
    by_action = reasons.groupby(["setting", "action"])["requests"].sum()
    counted = table.groupby(["setting", "action"])["requests"].sum()
    assert (by_action == counted[counted > 0]).all()


def test_settings_do_what_they_are_called(short):
    shares = tiered_cache.choice_shares(prefix_choices.run(CHOICES))["requests_pct"].unstack()
    assert shares.loc["Nothing is fetched", [Action.REPLICATE, Action.MIGRATE]].sum() == 0
    assert shares.loc["A fetched prefix is copied", Action.MIGRATE] == 0
    assert shares.loc["Only hot blocks are copied", Action.MIGRATE] > 0
    np.testing.assert_allclose(shares.sum(axis="columns"), 100)


# The chapter's parameters and sums


def test_each_experiment_gets_the_chapters_values_and_else_its_own():
    params = tiered_cache.Params(cache_tokens_per_node=10**6, heat_trace="synthetic", shortlist_nodes=3)
    assert params.sharing == cache_sharing.Params(cache_tokens_per_node=10**6, shortlist_nodes=3)
    assert params.flows.cache_tokens_per_node == params.choices.cache_tokens_per_node == 10**6
    assert params.snapshot == cache_snapshot.Params(trace="synthetic")
    assert tiered_cache.Params().capacity.block_tokens == 16


def sharing_table():
    rows = [
        ("conversation", "local", 17.0, 1.5),
        ("conversation", "global", 34.0, 1.2),
        ("synthetic", "local", 25.0, 2.0),
        ("synthetic", "global", 60.0, 1.0),
    ]
    table = pd.DataFrame(rows, columns=["workload", "cache", "hit_rate_pct", "prefill_gpu_time_s"])
    return table.assign(origin="modelled")


def test_the_best_gain_is_the_largest_of_a_workload():
    assert tiered_cache.best_gain(sharing_table()) == (pytest.approx(2.4), pytest.approx(0.5))


@pytest.mark.parametrize(("weighed", "hits"), [(2, 17.0), (3, 21.0), (0, 33.0), (64, 33.0)])
def test_local_hits_are_read_at_the_shortlist_that_is_set(weighed, hits):
    listed = pd.DataFrame(
        {"shortlist_nodes": [1.0, 2.0, 4.0, 10.0], "hit_rate_pct": [13.0, 17.0, 21.0, 33.0]}
    )
    unbounded = listed.assign(hit_rate_pct=listed["hit_rate_pct"] + 1, rule="shortlist, unbounded caches")
    stated = pd.DataFrame({"shortlist_nodes": [np.nan], "hit_rate_pct": [16.9], "rule": ["as reported"]})
    table = pd.concat([listed.assign(rule="shortlist"), unbounded, stated])
    found = tiered_cache.local_hits(table.assign(workload="conversation", cache="local"), weighed)
    assert (found["as set"], found["as set, unbounded caches"]) == (hits, hits + 1)
    assert (found["all nodes"], found["reported"]) == (33.0, 16.9)


def test_a_move_that_is_not_there_is_nothing(flows):
    assert tiered_cache.move(flows, "Cold prompt", "fetch") == {
        "gigabytes": 0,
        "delay_ms": 0,
        "delayed_pct": 0,
    }
    assert tiered_cache.move(flows, "Cold prompt", "decode_load")["delayed_pct"] == 100
