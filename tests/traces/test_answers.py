"""What a trace knows of its answers, against the rule written out request by request."""

import pytest
from hypothesis import example, given, settings
from tests.simulator.small import small_conversations
from trace_strategies import traces

from mooncake_companion.traces import (
    Trace,
    infinite_cache_hit_ratio,
)
from mooncake_companion.traces.answers import (
    UNCONTINUED,
    answer_blocks,
    infinite_cache_hit_ratio_with_answers,
    next_turns,
)

any_trace = given(traces(max_requests=40) | small_conversations(max_turns=40, max_output_tokens=900))


def prompts(trace):
    rows = zip(
        trace.arrival_s.tolist(), trace.input_tokens.tolist(), trace.output_tokens.tolist(), strict=True
    )
    return [(*row, trace.blocks_of(request).tolist()) for request, row in enumerate(rows)]


def by_the_rule(trace):
    rows, turns = prompts(trace), {}
    for later, (later_s, later_tokens, _, later_blocks) in enumerate(rows):
        for before in reversed(range(later)):
            arrival_s, tokens, output_tokens, blocks = rows[before]
            full = tokens // trace.block_tokens
            goes_on = 0 < full < len(later_blocks) and blocks[:full] == later_blocks[:full]
            fits = arrival_s < later_s and tokens + output_tokens <= later_tokens
            if before not in turns and goes_on and fits:
                behind = later_blocks[full]
                if not any(behind in row[3] for row in rows[:later]):
                    turns[before] = later
                    break
    return [turns.get(request, UNCONTINUED) for request in range(len(rows))]


@any_trace
@settings(max_examples=300)
def test_next_turns_are_those_of_the_rule(trace):
    assert next_turns(trace).tolist() == by_the_rule(trace)


@any_trace
@settings(max_examples=200)
@example(Trace.from_requests([(0.0, 1000, 600, [7, 8]), (9.0, 1700, 400, [7, 9, 10, 11])]))
def test_answers_are_whole_blocks_between_the_prompt_and_what_was_computed(trace):
    answers, turns, rows = answer_blocks(trace), next_turns(trace), prompts(trace)
    unknown = []
    for request, (_, tokens, output_tokens, _) in enumerate(rows):
        ids, full = answers.of(request).tolist(), tokens // trace.block_tokens
        computed = tokens + output_tokens - 1
        assert (full + len(ids)) * trace.block_tokens <= computed < (full + len(ids) + 1) * trace.block_tokens
        if turns[request] == UNCONTINUED:
            unknown += ids
        else:
            assert ids == rows[turns[request]][3][full : full + len(ids)]
    assert len(set(unknown)) == len(unknown)
    assert not set(unknown) & set(trace.block_ids.tolist())


@any_trace
@settings(max_examples=100)
def test_answers_only_add_to_what_an_infinite_cache_has(trace):
    most = infinite_cache_hit_ratio_with_answers(trace)
    assert infinite_cache_hit_ratio(trace) <= most < 1
    if not len(answer_blocks(trace).block_ids):
        assert most == infinite_cache_hit_ratio(trace)


def test_a_prompt_goes_on_with_the_latest_that_fits_and_each_is_gone_on_with_once():
    said = [(0.0, 1000, 50, [0, 1]), (1.0, 1000, 50, [0, 2]), (2.0, 1000, 9000, [0, 3])]
    later = [(4.0, 1200, 5, [0, 10, 11]), (5.0, 1200, 5, [0, 20, 21]), (6.0, 1200, 5, [0, 30, 31])]
    assert next_turns(Trace.from_requests([*said, *later])).tolist() == [4, 3, -1, -1, -1, -1]


@pytest.mark.parametrize(
    ("later", "why"),
    [
        ((0.0, 1200, 5, [0, 10, 11]), "of the same instant"),
        ((5.0, 1049, 5, [0, 10, 11]), "shorter than prompt and answer"),
        ((5.0, 1200, 5, [9, 10, 11]), "of another beginning"),
        ((5.0, 1000, 5, [0, 1]), "the same prompt again"),
    ],
)
def test_what_does_not_go_on(later, why):
    trace = Trace.from_requests([(0.0, 1000, 50, [0, 1]), later])
    assert next_turns(trace).tolist() == [-1, -1], why


def test_what_the_released_traces_show(released):
    """Conversations go on; the synthetic trace's documents are asked anew instead."""
    continued = (next_turns(released) != UNCONTINUED).mean()
    gained = infinite_cache_hit_ratio_with_answers(released) - infinite_cache_hit_ratio(released)
    expected = {"conversation": (0.405, 0.0125), "synthetic": (0.074, 0.0002)}[released.name]
    assert (continued, gained) == pytest.approx(expected, abs=5e-4)
