"""The live figures against the experiments, and that a browser's Python can import them."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest

from mooncake_companion import traces
from mooncake_companion.errors import InputError
from mooncake_companion.experiments import (
    end_to_end,
    goodput,
    node_split,
    overload,
    prefill_scheduling,
    storage_for_compute,
    walkthrough,
)
from mooncake_companion.live import overload as live_overload
from mooncake_companion.live.figures import LIVE, answer, compute
from mooncake_companion.live.goodput import FATES as goodput_fates
from mooncake_companion.live.slices import MOST_REQUESTS, Slice
from mooncake_companion.publish import live, registry
from mooncake_companion.simulator import Routing, simulate

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


def test_node_split_gives_what_the_experiment_gives():
    trace = traces.load("synthetic").head(REQUESTS)
    given = {"nodes": "4", "least_prefill_nodes": "1", "most_prefill_nodes": "3", "tbt_limit_s": "0.04"}
    outcome, _ = compute("node-split", given, live.slice_of(trace))
    params = node_split.Params(nodes=4, least_prefill_nodes=1, most_prefill_nodes=3, tbt_limit_s=0.04)
    for row, split in zip(outcome.rows, (1, 2, 3), strict=True):
        close(row, node_split._row(params, trace, split))
    assert 0 < outcome.rows[0]["effective_share"] < 1


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


@pytest.mark.parametrize("admission", ["early", "predictive"])
def test_goodput_is_the_experiments(busy_hour, admission):
    given = {"nodes": "4", "prefill_nodes": "2", "ttft_limit_s": "20", "tbt_limit_s": "0.2"}
    given |= {"highest_speedup": "2", "admission": admission, "requests": "300"}
    outcome, _ = compute("goodput", given, live.slice_of(busy_hour))
    params = goodput.Params(nodes=4, prefill_nodes=2, ttft_limit_s=20.0, admission=admission)
    trace = busy_hour.head(300)
    rows = {(row["system"], row["arrival_speedup"]): row for row in outcome.rows}
    assert len(rows) == len(outcome.rows) == 5 * len(goodput.SYSTEMS)
    for speedup in (0.4, 2.0):
        faster = dataclasses.replace(trace, arrival_s=trace.arrival_s / speedup)
        for system, limit_s, result in goodput._replays(params, faster):
            if limit_s == 0.2:
                shares = goodput._shares(result, 20.0, limit_s)
                offered = {"offered_requests_per_s": 300 / faster.arrival_s[-1], "tbt_limit_s": limit_s}
                close(rows.pop((system, speedup)), shares | offered)
    assert all(sum(row[fate] for fate in goodput_fates) == pytest.approx(1) for row in outcome.rows)
    assert {fate for fate in goodput_fates if any(row[fate] for row in outcome.rows)} == set(goodput_fates)
    assert outcome.fixed == {"goodput_workload": "conversation", "goodput_limit": 0.2}


def test_the_systems_rhythms_are_the_experiments(busy_hour, monkeypatch):
    given = {"nodes": "4", "prefill_nodes": "2", "arrival_speedup": "0.5", "chunk_tokens": "1000"}
    monkeypatch.setattr(traces, "load", lambda name: busy_hour.head(200))
    params = end_to_end.Params(nodes=4, prefill_nodes=2, arrival_speedup=0.5, chunk_tokens=1000)
    sliced = live.slice_of(busy_hour.head(200))
    for figure, measure in (("effective-capacity", end_to_end.run), ("tbt-distribution", end_to_end.curves)):
        outcome, _ = compute(figure, given, sliced)
        expected = measure(params).query("origin == 'modelled'").to_dict("records")
        for row, same in zip(outcome.rows, expected, strict=True):
            close(row, same)
            assert row.keys() == same.keys() | {"workload"}
    assert len({row["share"] for row in outcome.rows}) > 50


def overloaded(trace, *, speedup, **settings):
    faster = dataclasses.replace(trace, arrival_s=trace.arrival_s / speedup)
    params = overload.Params(arrival_speedup=speedup, **settings)
    return faster, params, overload.demand(faster, params)


BUSY = {"prefill_nodes": "8", "arrival_speedup": "2", "tbt_limit_s": "0.06", "ttft_limit_s": "28"}
"""With so much, and one decode node, each policy turns others away."""


@pytest.fixture(scope="module")
def busy_hour():
    return traces.load("conversation").head(400)


@pytest.fixture(scope="module")
def busy(busy_hour):
    return overloaded(busy_hour, speedup=2.0, prefill_nodes=8, tbt_limit_s=0.06, ttft_limit_s=28.0)


@pytest.mark.parametrize("decode_nodes", [0, 1])
def test_what_is_rejected_is_what_the_experiment_rejects(busy_hour, busy, decode_nodes):
    trace, params, asked = busy
    given = BUSY | {"decode_pool_nodes": str(decode_nodes), "requests": "400"}
    outcome, _ = compute("overload-rejected", given, live.slice_of(busy_hour))
    nodes = decode_nodes or overload.overloaded_decode_nodes(asked, params)
    expected = overload._rows(trace, params, nodes, overload.REJECTING)
    for row, same in zip(outcome.rows, expected, strict=True):
        close(row, same)
        assert row.keys() == same.keys() | {"rejected_share"}
        assert row["rejected_at_arrival"] + row["rejected_after_prefill"] == row["rejected"] > 0
    if decode_nodes:
        assert len({row["rejected"] for row in outcome.rows}) == 3
    assert outcome.rows[0]["decode_nodes"] == nodes


def test_the_decode_node_rule_takes_fewer_where_the_slice_overloads_no_more(busy_hour):
    given = {"arrival_speedup": "1", "requests": "400"}
    outcome, _ = compute("overload-rejected", given, live.slice_of(busy_hour))
    assert {row["decode_nodes"] for row in outcome.rows} == {1}


def test_pool_loads_are_the_experiments(busy_hour, busy):
    trace, params, asked = busy
    given = {name: BUSY[name] for name in ("tbt_limit_s", "ttft_limit_s")} | {
        "prefill_pool_nodes": "8",
        "decode_pool_nodes": "1",
        "replay_speedup": "2",
        "requests": "400",
    }
    outcome, told = compute("overload-pool-loads", given, live.slice_of(busy_hour))
    interval_s = trace.arrival_s[-1] / 60
    expected = [
        row
        for cluster, result in overload._each(trace, params, 1, asked, overload.REJECTING)
        for row in overload._load_table(cluster, result, 0.0, 1200.0, interval_s).to_dict("records")
    ]
    for row, same in zip(outcome.rows, expected, strict=True):
        close(row, same)
        assert row.keys() == same.keys()
    assert max(row["load"] for row in outcome.rows) > 0.9
    assert told.endswith("is left out.")


def test_long_replays_show_the_last_twenty_minutes_as_the_book_does(conversation):
    speedup = float(conversation.arrival_s[-1]) / 1500
    given = {"replay_speedup": repr(speedup), "prefill_pool_nodes": "2", "decode_pool_nodes": "1"}
    outcome, _ = compute("overload-pool-loads", given, live.slice_of(conversation))
    trace, params, asked = overloaded(conversation, speedup=speedup, prefill_nodes=2)
    runs = overload._each(trace, params, 1, asked, overload.REJECTING)
    expected = [
        row
        for cluster, result in runs
        for row in overload._load_table(cluster, result, 300.0, 1200.0).to_dict("records")
    ]
    for row, same in zip(outcome.rows, expected, strict=True):
        close(row, same)


def test_decode_times_are_tried_as_in_the_experiment(busy_hour, monkeypatch):
    monkeypatch.setattr(traces, "load", lambda name: busy_hour)
    params = overload.Params(arrival_speedup=2.0, prefill_nodes=8, tbt_limit_s=0.06, ttft_limit_s=28.0)
    expected = overload.decode_time_sweep(params).to_dict("records")
    outcome, _ = compute("overload-decode-time", BUSY | {"requests": "400"}, live.slice_of(busy_hour))
    for row, same in zip(outcome.rows, expected, strict=True):
        close(row, same)
        assert row.keys() == same.keys()
    assert len({row["rejected"] for row in outcome.rows[-7:]}) == 3


@pytest.mark.parametrize("given", [{}, {"identical_input_tokens": "30000", "prefill_nodes": "2"}])
def test_identical_requests_load_the_pools_as_in_the_experiment(given):
    outcome, _ = compute("overload-mechanism", given, None)
    params = overload.Params(**{name: int(value) for name, value in given.items()})
    expected = overload.mechanism_by_length(params, input_tokens=()).to_dict("records")
    for row, same in zip(outcome.rows, expected, strict=True):
        close(row, same)
        assert row.keys() == same.keys()
    assert outcome.fixed == {"length": params.identical_input_tokens}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"tbt_limit_s": "0.01"}, "tbt_limit_s: within 0.01 s a decode node has no room for one request"),
        ({"identical_input_tokens": "1024"}, "identical_input_tokens: 30,783 prompts of 1,024 tokens"),
        (
            {"prefill_nodes": "64", "identical_input_tokens": "8192", "identical_prefill_excess": "0.1"},
            "identical_prefill_excess: with 0.1 no answer of at least 200 tokens",
        ),
    ],
)
def test_identical_requests_that_cannot_be_had_are_refused(given, told, monkeypatch):
    monkeypatch.setattr(live_overload, "_MOST_DECODE_NODES", 20)
    answered = json.loads(answer("overload-mechanism", json.dumps(given), "", lambda *_: None))
    assert told in answered["error"]
    assert answered["field"] == told.partition(":")[0]


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
from mooncake_companion.live.goodput import FATES as goodput_fates
from mooncake_companion.live.figures import LIVE, answer
for name, figure in LIVE.items():
    sliced = open({str(sliced)!r}).read() if figure.replays else ""
    answered = answer(name, "{{}}", sliced, lambda done, parts: None)
    assert '"rows"' in answered, answered
print(sorted(name for name in sys.modules if name.split(".")[0] in ("numpy", "pandas", "numba", "scipy")))
"""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.stderr == ""
    assert done.stdout.strip() == "[]"
