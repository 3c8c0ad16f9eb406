"""The live figures of the serving path against the experiment."""

import dataclasses

import pytest
from tests.live.small import close

from mooncake_companion import traces
from mooncake_companion.errors import InputError
from mooncake_companion.experiments import (
    deployment_timeline,
)
from mooncake_companion.live.answers import compute
from mooncake_companion.publish import live
from mooncake_companion.simulator.watched import watch

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
