"""What nodes do over time: the engines watched change nothing, and no work is lost or done twice."""

import dataclasses
from collections import defaultdict
from itertools import groupby, pairwise

import numpy as np
import pytest
from hypothesis import given, settings

from mooncake_companion.errors import InputError
from mooncake_companion.simulator import Cluster, Routing, simulate
from mooncake_companion.simulator.reference import tbt_seconds
from mooncake_companion.simulator.timeline import timeline
from mooncake_companion.traces import Trace
from tests.simulator.small import cluster, coupled, coupled_settings, small_conversations, small_traces


def check(trace, served):
    watched, plain = timeline(trace, served), simulate(trace, served, engine="reference")
    for column in dataclasses.fields(plain):
        if column.name != "counters":
            np.testing.assert_array_equal(getattr(watched.result, column.name), getattr(plain, column.name))
    check_nodes(watched)
    check_prompts(watched)
    check_tokens(watched, served)
    return watched


def check_nodes(watched):
    for _, iterations in groupby(watched.iterations, key=lambda each: each.node):
        iterations = list(iterations)
        assert all(each.start_s <= each.end_s for each in iterations)
        assert all(before.end_s <= after.start_s for before, after in pairwise(iterations))


def check_prompts(watched):
    """Each prompt's tokens behind its cached prefix are computed once, in order."""
    reached = watched.result.cached_tokens.copy()
    for each in sorted(watched.iterations, key=lambda each: each.start_s):
        for chunk in each.chunks:
            assert chunk.first == reached[chunk.request] < chunk.last
            reached[chunk.request] = chunk.last
    assert (reached == watched.result.input_tokens).all()


def check_tokens(watched, served):
    """Tokens and their intervals are those of the result."""
    ends_s = defaultdict(list)
    for each in sorted(watched.iterations, key=lambda each: each.end_s):
        for request in each.decoded:
            ends_s[request].append(each.end_s)
    for request, output_tokens in enumerate(watched.result.output_tokens.tolist()):
        times_s = [float(watched.result.first_token_s[request]), *ends_s[request]]
        assert len(times_s) == output_tokens
        intervals_s = [after - before for before, after in pairwise(times_s)]
        tbt_s = tbt_seconds(intervals_s, served.first_interval_counts)
        assert tbt_s == pytest.approx(watched.result.tbt_s[request], nan_ok=True)


@given(small_traces())
@settings(max_examples=60, deadline=None)
def test_two_pools_are_watched_whole(trace):
    watched = check(trace, cluster())
    prefills_s = sum(each.end_s - each.start_s for each in watched.iterations if each.chunks)
    assert prefills_s == pytest.approx(watched.result.prefill_s.sum())
    assert sum(bool(each.decoded) for each in watched.iterations) == watched.result.counters["decode_steps"]


@given(small_traces(), coupled_settings)
@settings(max_examples=60, deadline=None)
def test_one_pool_is_watched_whole(trace, setting):
    check(trace, coupled(**setting))


@given(small_traces())
@settings(max_examples=20, deadline=None)
def test_only_a_coupled_node_does_both(trace):
    for served in (cluster(), coupled()):
        kinds = defaultdict(set)
        for each in timeline(trace, served).iterations:
            kinds[each.node] |= {bool(each.chunks)}
            assert not (each.chunks and each.decoded)
        if isinstance(served, Cluster):
            assert all(len(kind) == 1 for kind in kinds.values())
            assert all((node < served.prefill_instances) == (True in kind) for node, kind in kinds.items())


def test_pipelines_have_no_such_timeline():
    trace = Trace.from_requests([(0.0, 600, 2, [0, 1])])
    with pytest.raises(InputError, match="pipeline_nodes"):
        timeline(trace, cluster(prefill_nodes=4, pipeline_nodes=2))


@given(small_conversations())
@settings(max_examples=30, deadline=None)
def test_answers_that_return_are_watched_as_well(trace):
    check(trace, cluster(return_answers=True))


def test_random_routing_is_refused():
    trace = Trace.from_requests([(0.0, 600, 2, [0, 1])])
    with pytest.raises(InputError, match="draws nothing at random"):
        timeline(trace, cluster(routing=Routing.RANDOM))
