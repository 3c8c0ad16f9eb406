"""The live figures against the experiments, and that a browser's Python can import them."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
from tests.live.small import REQUESTS, close

from mooncake_companion import traces
from mooncake_companion.errors import InputError
from mooncake_companion.experiments import (
    node_split,
    prefill_scheduling,
    walkthrough,
)
from mooncake_companion.live.answers import answer, compute
from mooncake_companion.live.figures import LIVE
from mooncake_companion.live.slices import MOST_REQUESTS, Slice
from mooncake_companion.publish import live, registry
from mooncake_companion.simulator import Routing, simulate


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
    given = {"window_start_s": "5", "window_s": "5", "sample_s": "5"}  # as it lasts seconds
    code = f"""
import sys
sys.path.insert(0, {str(wheel)!r})
import zipfile
zipfile.ZipFile({str(wheel)!r}).extractall("unpacked")
sys.path[0] = "unpacked"
from mooncake_companion.live.answers import answer
from mooncake_companion.live.figures import LIVE
for name, figure in LIVE.items():
    sliced = open({str(sliced)!r}).read() if figure.replays else ""
    answered = answer(name, {json.dumps(given)!r}, sliced, lambda done, parts: None)
    assert '"rows"' in answered, answered
print(sorted(name for name in sys.modules if name.split(".")[0] in ("numpy", "pandas", "numba", "scipy")))
"""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.stderr == ""
    assert done.stdout.strip() == "[]"
