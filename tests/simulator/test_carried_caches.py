"""A trace split at an idle moment: what comes after it is the same if the caches are carried over.

Only the reference engine can be handed caches; that the compiled one agrees with it is shown elsewhere.
"""

from functools import partial

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from mooncake_companion.simulator import reference
from mooncake_companion.simulator.clock import Order
from mooncake_companion.simulator.serving_path import requests_of
from mooncake_companion.traces import Trace
from mooncake_companion.traces.answers import answer_blocks
from tests.simulator.small import cluster, small_conversations, small_settings, small_traces

GAP_S = 2.0**14
"""Long enough for everything here to end."""


def split(trace, share):
    """The trace with an idle moment in it, and how many requests come before that."""
    count = int(share * len(trace))
    lines = requests_of(trace)
    moved = [
        (arrival_s + (GAP_S if index >= count else 0.0), tokens, answer, list(blocks))
        for index, (arrival_s, tokens, answer, blocks, _) in enumerate(lines)
    ]
    return Trace.from_requests(moved), count


def path_of(requests, nodes, draws):
    """A replay that is set up but not run."""
    path = reference._ServingPath(requests, nodes, 512, draws, ())
    for index, request in enumerate(requests):
        path.clock.at(request.arrival_s, Order.ARRIVE, index, partial(path.arrive, index))
    return path


def carry_over(path, later):
    """What outlives an idle moment: the caches, and how often each block was asked for."""
    later.caches = path.caches
    later._asked = path._asked


@given(small_traces() | small_conversations(), st.floats(0, 1), small_settings, st.integers(0, 2**32 - 1))
def test_a_trace_may_be_split_where_nothing_happens(trace, share, setting, seed):
    """Times, nodes and counts of every request, to the last bit; counters add up."""
    assume(setting["eviction"] != "belady")  # which looks ahead
    nodes, (trace, count) = cluster(**setting), split(trace, share)
    requests = requests_of(trace, answer_blocks(trace) if nodes.return_answers else None)
    draws = np.random.default_rng(seed).random(len(trace)).tolist()
    whole = path_of(requests, nodes, draws)
    whole.clock.run()
    assert not any(record.finish_s >= GAP_S for record in whole.records[:count])

    first, second = path_of(requests[:count], nodes, draws), path_of(requests[count:], nodes, draws[count:])
    first.clock.run()
    carry_over(first, second)
    second.clock.run()

    assert repr(first.records) == repr(whole.records[:count]), "NaN is NaN"
    assert repr(second.records) == repr(whole.records[count:])
    steps = first.counters()["decode_steps"]
    assert second.counters() | {"decode_steps": steps + second.counters()["decode_steps"]} == whole.counters()
    sent = zip(first.transfers.sent_bytes, second.transfers.sent_bytes, strict=True)
    assert [one + other for one, other in sent] == whole.transfers.sent_bytes


def test_without_its_caches_a_trace_may_not_be_split():
    """The same prompt on either side: so the test above can fail."""
    trace, _ = split(Trace.from_requests([(0.0, 1024, 1, [0, 1])] * 2), 0.5)
    nodes, requests = cluster(prefill_nodes=1), requests_of(trace)
    first, second, forgetful = (path_of(part, nodes, [0.0]) for part in (requests[:1], *[requests[1:]] * 2))
    first.clock.run()
    carry_over(first, second)
    for path in (second, forgetful):
        path.clock.run()
    assert [path.records[0].choice.local_tokens for path in (second, forgetful)] == [1023, 0]
