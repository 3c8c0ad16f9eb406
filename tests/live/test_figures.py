"""The live figures against the experiments, and that a browser's Python can import them."""

import dataclasses
import json
import math
import subprocess
import sys

import numpy as np
import pytest

from mooncake_companion import traces
from mooncake_companion.errors import InputError
from mooncake_companion.experiments import (
    byte_flows,
    cache_capacity,
    cache_snapshot,
    deployment_timeline,
    node_split,
    prefill_scheduling,
    storage_for_compute,
    transfer_tax,
    walkthrough,
    your_cluster,
)
from mooncake_companion.hardware import load_node
from mooncake_companion.live import byte_flows as live_byte_flows
from mooncake_companion.live import your_cluster as live_cluster
from mooncake_companion.live.cache_capacity import PolicyParams
from mooncake_companion.live.figures import LIVE, answer, compute
from mooncake_companion.live.slices import MOST_REQUESTS, Slice
from mooncake_companion.live.watched import watch
from mooncake_companion.publish import live, registry
from mooncake_companion.simulator import Routing, simulate
from mooncake_companion.simulator.eviction import POLICIES
from mooncake_companion.simulator.serving_path import requests_of
from mooncake_companion.simulator.timeline import timeline

REQUESTS = 60


def head(name):
    return traces.load(name).head(REQUESTS)


@pytest.fixture(scope="module")
def conversation():
    return head("conversation")


def close(row, expected):
    for name, value in expected.items():
        if isinstance(value, str):
            assert row[name] == value
        else:
            assert row[name] == pytest.approx(value, rel=1e-9, abs=1e-12, nan_ok=True), name


def test_prefill_scheduling_gives_what_the_experiment_gives(conversation):
    given = {"nodes": "5", "prefill_nodes": "2", "arrival_speedup": "1.5", "nic_bytes_per_s": "5e9"}
    outcome, _ = compute("prefill-scheduling-ttft", given, live.slice_of(conversation))
    params = prefill_scheduling.Params(
        nodes=5, prefill_nodes=2, arrival_speedup=1.5, nic_bytes_per_s=5e9, replicates=1
    )
    faster = dataclasses.replace(conversation, arrival_s=conversation.arrival_s / 1.5)
    assert [row["policy"] for row in outcome.rows] == list(prefill_scheduling.TITLES.values())
    for row, routing in zip(outcome.rows, Routing, strict=True):
        rng = np.random.default_rng(0).spawn(1)[0]
        result = simulate(faster, params.cluster(routing, 2), rng=rng)
        close(row, prefill_scheduling.box_statistics(result.ttft_s))
        close(row, {"hit_ratio": result.hit_ratio, "mean_low_s": result.ttft_s.mean()})
    assert len({row["mean_s"] for row in outcome.rows}) > 1


def test_the_map_of_actions_is_the_experiments():
    outcome, told = compute("prefix-actions", {"model": "llama3-70b", "new_tokens": "3000"}, None)
    expected = storage_for_compute.actions(storage_for_compute.Params(new_tokens=3000)).to_dict("records")
    for row, same in zip(outcome.rows, expected, strict=True):
        close(row, same)
    assert told == "Modelled here, in your browser, with new_tokens = 3000, all else as published."


def alike(rows, table):
    """Rows with the columns and the values of a table, in its order."""
    expected = table.to_dict("records")
    assert len(rows) == len(expected) > 0
    for row, same in zip(rows, expected, strict=True):
        assert row.keys() == same.keys()
        close(row, same)


@pytest.mark.parametrize("node", storage_for_compute.NODES)
def test_the_break_even_bandwidths_are_the_experiments(node):
    given = {"node": node, "model": "llama3-70b", "cached_tokens": "5000"}
    outcome, told = compute("prefix-break-even", given, None)
    table = storage_for_compute.run(storage_for_compute.Params(cached_tokens=5000))
    alike(outcome.rows, table[(table["origin"] == "modelled") & (table["node"] == node)])
    assert outcome.fixed == {"line_node": node}
    (at,) = (row for row in outcome.rows if row["cached_tokens"] == 5000)
    assert f"At 5,000 tokens: {at['break_even_bytes_per_s'] / 1e9:.1f} GB/s" in outcome.description
    assert told.endswith("What is reported is as in the paper, for its own setting.")


def test_half_the_gpus_ask_for_half_the_bandwidth():
    whole, half = (compute("prefix-break-even", {"gpus": gpus}, None)[0].rows for gpus in ("8", "4"))
    for one, other in zip(whole, half, strict=True):
        assert other["break_even_bytes_per_s"] == pytest.approx(one["break_even_bytes_per_s"] / 2)
        assert other["link_bytes_per_s"] == one["link_bytes_per_s"]


def test_the_transfer_tax_is_the_experiments():
    given = {"node": "h800", "model": "llama3-70b", "bandwidth_gbit_per_s": "200"}
    outcome, _ = compute("transfer-tax", given, None)
    table = transfer_tax.run(transfer_tax.Params(node="h800"))
    table = table[(table["origin"] == "modelled") & (table["bandwidth_gbit_per_s"] == 200)]
    order = {(row["quantity"], row["input_tokens"]): row for row in outcome.rows}
    alike([order[each] for each in zip(table["quantity"], table["input_tokens"], strict=True)], table)
    assert outcome.fixed["tax_bandwidth"] == 200
    drawn = transfer_tax.run(transfer_tax.Params()).query("origin == 'reported'")["seconds"]
    seconds = [row["seconds"] for row in outcome.rows] + drawn.tolist()
    assert outcome.fixed["tax_least_s"] < min(seconds) < max(seconds) < outcome.fixed["tax_most_s"]


def test_the_break_even_of_every_model_and_node_is_the_experiments():
    given = {"cached_tokens": "20000", "network_gbit_per_s": "100"}
    outcome, _ = compute("cluster-break-even", given, None)
    table = your_cluster.break_even(your_cluster.Params(cached_tokens=20_000, network_gbit_per_s=100.0))
    alike(outcome.rows, table[table["cached_tokens"] == 20_000])
    assert outcome.fixed == {"prefix": 20_000}
    pairs = [compute("cluster-break-even", {"gpus": gpus}, None)[0].rows for gpus in ("8", "1")]
    fitting = [sum(row["fits"] for row in rows) for rows in pairs]
    assert fitting[0] > fitting[1] > 0


def test_a_cluster_is_the_experiments_on_every_node():
    trace = traces.load("synthetic").head(2 * REQUESTS)
    limits = {"ttft_limit_s": "8", "tbt_limit_s": "0.08"}
    given = {"prefill_nodes": "3", "decode_nodes": "2", "arrival_speedup": "8", "network_gbit_per_s": "50"}
    outcome, _ = compute("cluster-nodes", given | limits, live.slice_of(trace))
    told = {name: float(value) for name, value in limits.items()}
    params = your_cluster.Params(prefill_nodes=3, decode_nodes=2, network_gbit_per_s=50.0, **told)
    faster = dataclasses.replace(trace, arrival_s=trace.arrival_s / 8)
    for row in outcome.rows:
        cluster = params.cluster("Mooncake", node=load_node(row["node"]), host_time=row["host_time"])
        expected = your_cluster.summary(params, "Mooncake", simulate(faster, cluster))
        close(row, expected)
        assert row["fits"]
        assert row.keys() == expected.keys() | {"node", "title", "chosen", "host_time", "speedup", "fits"}
    assert any(row["fetched_bytes"] for row in outcome.rows)
    assert len({row["node"] for row in outcome.rows}) * 2 == len(outcome.rows)
    assert len({row["effective_capacity"] for row in outcome.rows}) > 3
    assert outcome.fixed == {"speed": 1} | told


def test_a_node_without_room_has_no_numbers_in_a_cluster(conversation):
    params = live_cluster.Params(model="deepseek-v3", node="h200")
    outcome = live_cluster.by_node(params, live.slice_of(conversation), lambda *_: None)
    fits = {row["node"]: row["fits"] for row in outcome.rows}
    assert fits["h200"]
    assert not fits["a800"]
    without = [row for row in outcome.rows if not row["fits"]]
    assert all(row.keys() == outcome.rows[-1].keys() for row in without)
    assert all(math.isnan(row["ttft_p50_s"]) for row in without)
    assert "a800: the model does not fit" in outcome.description


def test_blocks_are_as_long_as_those_of_the_released_traces():
    assert your_cluster.Params().block_tokens == traces.BLOCK_TOKENS


def test_node_split_gives_what_the_experiment_gives():
    trace = traces.load("synthetic").head(REQUESTS)
    given = {"nodes": "4", "least_prefill_nodes": "1", "most_prefill_nodes": "3", "tbt_limit_s": "0.04"}
    outcome, _ = compute("node-split", given, live.slice_of(trace))
    params = node_split.Params(nodes=4, least_prefill_nodes=1, most_prefill_nodes=3, tbt_limit_s=0.04)
    for row, split in zip(outcome.rows, (1, 2, 3), strict=True):
        close(row, node_split._row(params, trace, split))
    assert 0 < outcome.rows[0]["effective_share"] < 1


DEPLOYMENTS = {
    "nodes": "4",
    "prefill_nodes": "2",
    "chunk_tokens": "1000",
    "cache_tokens_per_node": "1000000",
    "arrival_speedup": "3",
}


@pytest.fixture(scope="module")
def conversations():
    """The part of the trace that the deployments serve, and the setting in which they do here."""
    given = {name: type(getattr(deployment_timeline.Params(), name))(x) for name, x in DEPLOYMENTS.items()}
    params = deployment_timeline.Params(replayed_s=60, window_start_s=20, **given)
    return params, deployment_timeline.at_own_pace(params)


@pytest.fixture(scope="module")
def deployments(conversations):
    return deployment_timeline.replays(conversations[0])


@pytest.mark.parametrize("mode", deployment_timeline.MODES)
def test_the_engines_are_watched_alike_with_numpy_and_without(conversations, deployments, mode):
    params, trace = conversations
    cluster = params.cluster(mode)
    faster = dataclasses.replace(trace, arrival_s=trace.arrival_s / 3)
    watched = watch(requests_of(faster), cluster, block_tokens=trace.block_tokens)
    assert len(watched.iterations) > 1000
    assert watched.iterations == timeline(faster, cluster).iterations
    finish_s = [record.finish_s for record in watched.records]
    assert finish_s == deployments[mode].result.finish_s.tolist()


@pytest.mark.parametrize(
    ("figure", "table", "more"),
    [
        ("deployment-timeline", deployment_timeline.window, {"window_start_s": "20"}),
        ("latency-budget", deployment_timeline.budget, {"node": "a800"}),
    ],
)
def test_the_deployments_are_those_of_the_experiment(conversations, deployments, figure, table, more):
    params, trace = conversations
    outcome, told = compute(figure, DEPLOYMENTS | more, live.slice_of(trace))
    assert f"of {len(trace)} requests of the first 180 s of one conversation in 4 of the conversation" in told
    assert (deployments["Disaggregated"].result.fetched_tokens > 0).any()
    expected = table(params, deployments)
    assert len(outcome.rows) == len(expected) > 100
    for row, same in zip(outcome.rows, expected.to_dict("records"), strict=True):
        assert list(row) == list(same)
        close(row, same)


def test_the_window_takes_all_that_comes_before_its_end_and_no_more(conversations):
    _, trace = conversations
    _, told = compute("deployment-timeline", {"window_start_s": "20"}, live.slice_of(trace))
    assert f"on the first {(trace.arrival_s < 32).sum()} of {len(trace)} requests" in told
    _, told = compute("latency-budget", {"requests": "30"}, live.slice_of(trace))
    assert f"on the first 30 of {len(trace)} requests" in told


def test_the_axes_of_the_timeline_hold_what_is_computed(conversations):
    given = DEPLOYMENTS | {"window_start_s": "31"}
    outcome, _ = compute("deployment-timeline", given, live.slice_of(conversations[1]))
    ends = outcome.fixed
    intervals_ms = [1000 * row["seconds"] for row in outcome.rows if row["kind"] == "interval"]
    assert ends["least_ms"] < min(intervals_ms) < max(intervals_ms) < ends["most_ms"]
    assert ends["shown_from_s"] == 31 == min(row["start_s"] for row in outcome.rows)
    assert ends["shown_until_s"] == 43 == max(row["end_s"] for row in outcome.rows)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"window_start_s": "899"}, "parameter window_start_s: no node works between 899.0 s and 911.0 s"),
        ({"window_start_s": "900"}, "parameter window_start_s: the replay ends at 900.0 s"),
        ({"prefill_nodes": "4"}, "parameter prefill_nodes: 4 leaves no node of 4"),
    ],
)
def test_a_timeline_without_sense_is_refused(conversations, given, told):
    with pytest.raises(InputError, match=told):
        compute("deployment-timeline", given, live.slice_of(conversations[1]))


def test_a_request_that_no_node_can_hold_is_refused(conversations):
    sliced = live.slice_of(conversations[1])
    longer = sliced.requests[3]._replace(input_tokens=10**7)
    requests = [*sliced.requests[:3], longer, *sliced.requests[4:]]
    for mode in deployment_timeline.MODES:
        with pytest.raises(InputError, match=r"request 3 has 10000\d\d\d tokens, but a node's memory"):
            watch(requests, conversations[0].cluster(mode), block_tokens=sliced.block_tokens)


def test_a_slice_is_of_what_the_figure_replays_at_the_pace_of_the_trace():
    params = deployment_timeline.Params(arrival_speedup=3.0, replayed_s=20, window_start_s=5)
    trace = live._replayed("latency-budget", dataclasses.asdict(params))
    assert trace.arrival_s.tolist() == (3 * deployment_timeline.replayed(params).arrival_s).tolist()
    assert 50 < trace.arrival_s[-1] < 60
    assert live._replayed("node-split", {"trace": "synthetic"}) == traces.load("synthetic")


@pytest.mark.parametrize("request_number", [0, 17, REQUESTS - 1])
def test_the_walkthrough_weighs_as_the_experiment_does(conversation, request_number):
    given = {"request": str(request_number), "nodes": "5", "prefill_nodes": "3", "arrival_speedup": "2"}
    outcome, told = compute("request-walkthrough", given, live.slice_of(conversation))
    assert f"first {request_number + 1} of {REQUESTS}" in told
    params = walkthrough.Params(nodes=5, prefill_nodes=3)
    faster = dataclasses.replace(conversation, arrival_s=conversation.arrival_s / 2)
    weighed = walkthrough._weigh(faster, params.cluster(), [request_number])
    expected = walkthrough._rows(f"Request {request_number}", weighed, request_number).to_dict("records")
    assert len(outcome.rows) == len(expected) == 5
    for row, same in zip(outcome.rows, expected, strict=True):
        close(row, {name: value for name, value in same.items() if value == value})
        assert row.keys() <= same.keys()


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
    with pytest.raises(InputError, match=r"parameter node: .* holds 9,000 tokens .* has 16,386"):
        compute("cache-byte-flows", {}, live.slice_of(conversation))


def test_a_slice_survives_the_way_to_the_page(conversation):
    sliced = live.slice_of(conversation)
    assert Slice.from_json(json.loads(json.dumps(sliced.to_json()))).to_json() == sliced.to_json()
    assert sliced.trace_requests == REQUESTS
    assert len(live.slice_of(traces.load("conversation")).requests) == MOST_REQUESTS


def test_every_live_figure_is_in_the_register_and_shows_parameters_that_are_declared():
    for name, figure in LIVE.items():
        assert name in registry.figures()
        assert len(figure.fields()) >= 2


@pytest.mark.parametrize(
    ("given", "field", "told"),
    [
        ({"prefill_nodes": "70"}, "prefill_nodes", "out of range; expected 1 to 63 nodes"),
        ({"prefill_nodes": ""}, "prefill_nodes", "'' is not a whole number"),
        ({"prefill_nodes": "16"}, "prefill_nodes", "leaves no node"),
        ({"requests": "1e9"}, "requests", "expected 20 to 1000 requests"),
        ({"nic_bytes_per_s": "nan"}, "nic_bytes_per_s", "out of range"),
    ],
)
def test_a_bad_value_is_refused_with_its_field_as_on_the_command_line(conversation, given, field, told):
    sliced = json.dumps(live.slice_of(conversation).to_json())
    answered = json.loads(answer("prefill-scheduling-ttft", json.dumps(given), sliced, lambda *_: None))
    assert answered.keys() == {"error", "field"}
    assert answered["field"] == field
    assert told in answered["error"]
    with pytest.raises(InputError, match="parameter"):
        compute("prefill-scheduling-ttft", given, live.slice_of(conversation))


def test_the_wheel_runs_where_there_is_nothing_but_the_standard_library(tmp_path, conversation):
    wheel = live.build_wheel(live._checkout_of_package(), tmp_path)
    again = live.build_wheel(live._checkout_of_package(), tmp_path / "again")
    assert wheel.read_bytes() == again.read_bytes()
    sliced = tmp_path / "slice.json"
    sliced.write_text(json.dumps(live.slice_of(conversation).to_json()))
    code = f"""
import sys
sys.path.insert(0, {str(wheel)!r})
import zipfile
zipfile.ZipFile({str(wheel)!r}).extractall("unpacked")
sys.path[0] = "unpacked"
from mooncake_companion.live.figures import LIVE, answer
for name, figure in LIVE.items():
    sliced = open({str(sliced)!r}).read() if figure.replays else ""
    answered = answer(name, '{{"window_start_s": "5"}}', sliced, lambda done, parts: None)
    assert '"rows"' in answered, answered
print(sorted(name for name in sys.modules if name.split(".")[0] in ("numpy", "pandas", "numba", "scipy")))
"""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.stderr == ""
    assert done.stdout.strip() == "[]"
