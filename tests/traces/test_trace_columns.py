import pickle

import numpy as np
import pytest
from hypothesis import given
from trace_strategies import BLOCK, traces

from mooncake_companion.errors import InputError
from mooncake_companion.traces import (
    Trace,
    describe,
    infinite_cache_hit_ratio,
    infinite_cache_leading_hits,
    tick_s,
)

COLUMNS = {
    "arrival_s": [0.0, 1.0],
    "input_tokens": [600, 700],
    "output_tokens": [1, 1],
    "block_ids": [0, 1, 0, 2],
    "block_offsets": [0, 2, 4],
}


def trace_of(**changed):
    return Trace(name="t", origin="file", source="t", sha256="", **{**COLUMNS, **changed})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"arrival_s": []}, "arrival_s: is empty"),
        ({"arrival_s": [0.0, np.nan]}, "arrival_s: request 1 must be finite"),
        ({"arrival_s": [-1.0, 0.0]}, "arrival_s: request 0 must be finite and at least 0"),
        ({"arrival_s": [2.0, 1.0]}, "arrival_s: request 1 must not be below"),
        ({"input_tokens": [600]}, "input_tokens: must have 2 entries"),
        ({"output_tokens": [1, 0]}, "output_tokens: request 1 must be at least 1"),
        ({"block_offsets": [0, 4]}, "block_offsets: must have 3 entries"),
        ({"block_offsets": [0, 2, 3]}, "block_offsets: must span"),
        ({"input_tokens": [600, 1025]}, "block_offsets: request 1 must give ceil"),
        ({"block_ids": [0, 1, 0, -2]}, "block_ids: request 1 must be at least 0"),
        ({"block_ids": [0, 1, 2, 1]}, "block_ids: request 1 has an id with two different predecessors"),
        ({"block_ids": [0, 1, 1, 2]}, "block_ids: request 1 has an id with two different predecessors"),
        ({"block_ids": [0, 0, 1, 2]}, "block_ids: request 0 has an id with two different predecessors"),
        ({"block_tokens": 0}, "block_tokens: must be at least 1"),
    ],
)
def test_columns_that_do_not_fit_are_refused_by_name(changed, message):
    with pytest.raises(InputError, match=message):
        trace_of(**changed)


def test_columns_are_copies_that_cannot_be_written():
    mine = np.array([0.0, 1.0])
    trace = trace_of(arrival_s=mine)
    mine[0] = 0.5
    assert trace.arrival_s[0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        trace.arrival_s[0] = 0.5


def test_a_trace_stays_itself_on_its_way_to_another_process():
    trace = Trace.from_requests([(0.0, 600, 1, [0, 1])])
    there = pickle.loads(pickle.dumps(trace))
    assert there == trace
    assert there.source == trace.source
    assert not there.block_ids.flags.writeable


def leading_hits_one_by_one(trace):
    """The definition, slowly: blocks from the start that any earlier request has brought."""
    seen, hits = set(), []
    for request in range(len(trace)):
        ids = trace.blocks_of(request).tolist()
        hits.append(next((at for at, block in enumerate(ids) if block not in seen), len(ids)))
        seen.update(ids)
    return hits


@given(trace=traces())
def test_infinite_cache_hits_are_those_of_the_definition(trace):
    hits = leading_hits_one_by_one(trace)
    assert infinite_cache_leading_hits(trace).tolist() == hits
    cached = [min(h * BLOCK, n - 1) for h, n in zip(hits, trace.input_tokens.tolist(), strict=True)]
    assert infinite_cache_hit_ratio(trace) == pytest.approx(sum(cached) / trace.input_tokens.sum())


def test_the_last_token_of_a_repeated_prompt_is_computed():
    trace = Trace.from_requests([(0.0, 512, 1, [0]), (0.0, 512, 1, [0])])
    assert infinite_cache_hit_ratio(trace) == 511 / 1024


@given(trace=traces())
def test_a_head_is_what_its_requests_alone_would_be(trace):
    half = (len(trace) + 1) // 2
    head = trace.head(half)
    rows = zip(trace.arrival_s, trace.input_tokens, trace.output_tokens, strict=True)
    alone = Trace.from_requests(
        [(*row, trace.blocks_of(i)) for i, row in enumerate(list(rows)[:half])], block_tokens=BLOCK
    )
    assert head == alone
    assert (head == trace) == (half == len(trace))
    assert hash(head) == hash(alone)


def test_a_head_says_of_what_and_has_a_request():
    trace = trace_of()
    assert trace.head(1).source == "first 1 requests of: t"
    assert trace.head(5) is trace
    with pytest.raises(InputError, match="at least 1, got 0"):
        trace.head(0)


def test_ticks_are_found_and_not_made_up():
    ticks = [3.0 * (i // 5) for i in range(50)]
    steps = [3.0 * i for i in range(50)]
    spread = np.cumsum(np.random.default_rng(0).exponential(1.0, 50)).tolist()
    found = [
        tick_s(Trace.from_requests([(t, 1, 1, [i]) for i, t in enumerate(times)]))
        for times in (ticks, steps, spread)
    ]
    assert found == [3.0, None, None]


def test_a_description_of_a_single_request_has_no_rate():
    table = describe(trace_of().head(1))
    assert (table["requests"], table["requests_per_s"], table["duration_s"]) == (1, None, 0.0)


def test_released_traces_have_their_published_measures(released):
    """Requests and mean lengths as in the release's README; hit ratios to the digits printed elsewhere."""
    expected = {"conversation": (12031, 12035, 343, 0.374, 3.0), "synthetic": (3993, 15325, 149, 0.651, None)}
    table = describe(released)
    assert (
        table["requests"],
        round(table["input_tokens_mean"]),
        round(table["output_tokens_mean"]),
        round(table["infinite_cache_hit_ratio"], 3),
        table["tick_s"],
    ) == expected[released.name]
    digits = {"conversation": 0.37362, "synthetic": 0.65124}
    assert round(infinite_cache_hit_ratio(released), 5) == digits[released.name]
