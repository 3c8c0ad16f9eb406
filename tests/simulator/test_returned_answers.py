"""Answers that go back to the prefill pool: what moves, what stays, and who finds it."""

import numpy as np
import pytest
from hypothesis import given, settings

from mooncake_companion.errors import InputError
from mooncake_companion.simulator import Outcome, decisions, simulate
from mooncake_companion.traces import Trace
from mooncake_companion.traces.answers import answer_blocks
from tests.simulator.small import MODEL, cluster, replace_node, small_conversations, small_settings

BLOCK_BYTES = 512 * MODEL.kv_bytes_per_token
FIRST_TURN, SECOND_TURN = (0.0, 1000, 600, [0, 1]), (90.0, 1700, 2, [0, 10, 11, 12])
engines = pytest.mark.parametrize("engine", ["fast", "reference"])


def replayed(requests, engine="fast", **setting):
    nodes = cluster(**{"prefill_nodes": 1, "return_answers": True} | setting)
    return simulate(Trace.from_requests(requests), nodes, engine=engine)


@engines
def test_the_next_turn_finds_prompt_and_answer(engine):
    kept = replayed([FIRST_TURN, SECOND_TURN], engine)
    lost = replayed([FIRST_TURN, SECOND_TURN], engine, return_answers=False)
    assert kept.cached_tokens.tolist() == [0, 3 * 512]
    assert lost.cached_tokens.tolist() == [0, 512], "of the prompt alone, its full block"
    assert kept.ttft_s[1] < lost.ttft_s[1]
    assert (kept.counters["returned_bytes"], lost.counters["returned_bytes"]) == (2 * BLOCK_BYTES, 0)
    assert kept.counters["fetched_bytes"] == 0


@engines
@pytest.mark.parametrize("startup_s", [0.0, 0.5])
def test_an_answer_is_there_when_its_transfer_has_ended_and_not_before(engine, startup_s):
    slow = {"node": replace_node(nic_bytes_per_s=1e8), "transfer_startup_s": startup_s}
    finish_s = replayed([FIRST_TURN], engine, **slow).finish_s[0]
    there_s = finish_s + startup_s + 2 * BLOCK_BYTES / 1e8
    for arrival_s, cached in ((there_s - 0.001, 512), (there_s + 0.001, 3 * 512)):
        result = replayed([FIRST_TURN, (arrival_s, *SECOND_TURN[1:])], engine, **slow)
        assert result.cached_tokens[1] == cached


@engines
def test_nothing_returns_to_a_node_that_no_longer_has_the_prompt(engine):
    other = (2.0, 5 * 512, 1, range(100, 105))
    result = replayed([FIRST_TURN, other, SECOND_TURN], engine, cache_tokens_per_node=5 * 512)
    assert result.counters["returned_bytes"] == 0
    assert result.cached_tokens.tolist() == [0, 0, 0]


@engines
def test_the_prompt_is_not_evicted_while_its_answer_is_under_way(engine):
    slow = {"node": replace_node(nic_bytes_per_s=1e8), "cache_tokens_per_node": 4 * 512}
    finish_s = replayed([FIRST_TURN], engine, **slow).finish_s[0]
    other = (finish_s - 0.25, 4 * 512, 1, range(100, 104))
    result = replayed([FIRST_TURN, other, SECOND_TURN], engine, **slow)
    assert finish_s < result.first_token_s[1] < finish_s + 2 * BLOCK_BYTES / 1e8
    assert result.cached_tokens[2] == 3 * 512


@engines
def test_of_prompt_and_answer_the_end_is_evicted_first(engine):
    other = (60.0, 2 * 512, 1, [100, 101])
    result = replayed([FIRST_TURN, other, SECOND_TURN], engine, cache_tokens_per_node=4 * 512)
    assert result.first_token_s[1] < SECOND_TURN[0]
    assert result.cached_tokens[2] == 2 * 512


@given(small_conversations(max_output_tokens=600), small_settings)
@settings(max_examples=100)
def test_bytes_that_return_are_those_of_answers_that_ended(trace, setting):
    nodes = cluster(**setting)
    result = simulate(trace, nodes, rng=np.random.default_rng(0))
    finished = result.outcome == Outcome.FINISHED
    blocks = np.diff(answer_blocks(trace).block_offsets)[finished].sum()
    returned = result.counters["returned_bytes"]
    assert returned % BLOCK_BYTES == 0
    if not nodes.return_answers:
        assert returned == 0
    elif (nodes.cache_tokens_per_node, nodes.vram_cache_tokens_per_node) == (10**6, 0) and (
        nodes.replicate_after_uses == 1
    ):
        assert returned == blocks * BLOCK_BYTES, "nothing was evicted or migrated, and all had room"
    else:
        assert returned <= blocks * BLOCK_BYTES


def test_decisions_see_the_same_answers():
    requests = [FIRST_TURN, SECOND_TURN, (150.0, 2000, 2, [0, 10, 11, 20])]
    trace, nodes = Trace.from_requests(requests), cluster(prefill_nodes=1, return_answers=True)
    chosen = decisions(trace, nodes, [0, 1, 2]).prefill.query("chosen")
    assert chosen["local_tokens"].tolist() == simulate(trace, nodes).local_tokens.tolist()
    assert chosen["local_tokens"].tolist() == [0, 3 * 512, 3 * 512]


def test_belady_is_refused():
    with pytest.raises(InputError, match=r"return_answers.*belady"):
        cluster(return_answers=True, eviction="belady")
