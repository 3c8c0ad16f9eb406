"""The coupled baselines: laws of every replay, and cases small enough to check by hand."""

import numpy as np
import pytest
from hypothesis import given, settings

from mooncake_companion.costs import decode_step_time, prefill_cost, prefill_time
from mooncake_companion.errors import InputError
from mooncake_companion.simulator import Batching, simulate
from mooncake_companion.traces import Trace
from tests.simulator.small import (
    CALIBRATION,
    MODEL,
    NODE,
    coupled,
    coupled_settings,
    replace_node,
    small_traces,
)

engines = pytest.mark.parametrize("engine", ["reference", "fast"])
WHOLE = [Batching.PLAIN, Batching.PREFIX_CACHING]


def prefill_s(tokens, cached_tokens=0):
    return prefill_time(NODE, MODEL, tokens, cached_tokens, calibration=CALIBRATION)


def step_s(sequences, context_tokens):
    """A step of the baselines, whose host does not work while the GPUs compute."""
    return decode_step_time(
        NODE, MODEL, sequences, context_tokens, calibration=CALIBRATION, overlapping=False
    )


@given(small_traces(), coupled_settings)
@settings(max_examples=300)
def test_laws_of_every_replay(trace, setting):
    nodes = coupled(**setting)
    result = simulate(trace, nodes)
    assert np.isfinite(result.finish_s).all()
    assert (result.arrival_s <= result.start_s).all()
    assert (result.start_s < result.first_token_s).all()
    assert (np.isfinite(result.tbt_s) == (result.output_tokens > 2 - setting["first_interval_counts"])).all()
    assert (result.cached_tokens < result.input_tokens).all()
    if setting["batching"] is not Batching.PREFIX_CACHING:
        assert not result.cached_tokens.any()
    tokens = result.input_tokens + result.output_tokens
    for node in range(nodes.nodes):
        mine = result.prefill_node == node
        assert (np.diff(result.start_s[mine]) >= 0).all(), "a node takes requests in order"
        if setting["batching"] is not Batching.PREFIX_CACHING:
            for at_s in result.start_s[mine]:
                held = mine & (result.start_s <= at_s) & (result.finish_s > at_s)
                assert tokens[held].sum() <= nodes.vram_tokens


@given(small_traces(), coupled_settings)
@settings(max_examples=100)
def test_littles_law(trace, setting):
    result = simulate(trace, coupled(**setting))
    times_s = np.unique(np.concatenate([result.arrival_s, result.finish_s]))
    present = [((result.arrival_s <= t) & (result.finish_s > t)).sum() for t in times_s[:-1]]
    assert (present * np.diff(times_s)).sum() == pytest.approx((result.finish_s - result.arrival_s).sum())


@engines
@pytest.mark.parametrize("batching", WHOLE)
def test_a_prompt_that_arrives_stops_the_decode_of_another(engine, batching):
    """What disaggregation is for: the stall of one request is the prefill of the other."""
    trace = Trace.from_requests([(0.0, 1000, 30, [0, 1]), (1.2, 4000, 1, range(10, 18))])
    result = simulate(trace, coupled(nodes=1, batching=batching), engine=engine)
    assert result.first_token_s[0] == prefill_s(1000)
    assert result.tbt_s[0] > prefill_s(4000) / 3
    alone = simulate(trace.head(1), coupled(nodes=1, batching=batching), engine=engine)
    delay_s = result.finish_s[0] - alone.finish_s[0]
    assert delay_s == pytest.approx(prefill_s(4000), rel=1e-9)


@engines
@pytest.mark.parametrize("overlaps", [True, False])
def test_the_host_works_along_with_the_gpus_or_after_them(engine, overlaps):
    """Six answers of one instant: with overlap the longer of the two counts, without it their sum."""
    trace = Trace.from_requests([(0.0, 500, 2, [index]) for index in range(6)])
    result = simulate(trace, coupled(nodes=1, host_overlaps=overlaps), engine=engine)
    gpus_s = step_s(6, 3000) - 6 * CALIBRATION.host_sequence_s - CALIBRATION.decode_overhead_s
    host_s = 6 * CALIBRATION.host_sequence_s
    assert host_s > gpus_s
    expected_s = CALIBRATION.decode_overhead_s + (host_s if overlaps else gpus_s + host_s)
    assert result.finish_s[0] - result.first_token_s[0] == pytest.approx(expected_s, rel=1e-9)


@engines
def test_chunks_let_decode_go_on(engine):
    """The same two requests: no interval is as long as the whole prefill, but more are long."""
    trace = Trace.from_requests([(0.0, 1000, 30, [0, 1]), (1.2, 4000, 1, range(10, 18))])
    plain, chunked = (
        simulate(trace, coupled(nodes=1, batching=b, chunk_tokens=500), engine=engine)
        for b in (Batching.PLAIN, Batching.CHUNKED_PREFILL)
    )
    assert chunked.tbt_s[0] < plain.tbt_s[0]
    assert chunked.first_token_s[1] > plain.first_token_s[1]


@engines
def test_prompts_of_one_instant_share_an_iteration_and_its_overhead(engine):
    trace = Trace.from_requests([(0.0, 1000, 1, [0, 1]), (0.0, 2000, 1, range(10, 14))])
    overhead_s = prefill_cost(NODE, MODEL, CALIBRATION).overhead_s
    together = simulate(trace, coupled(nodes=1), engine=engine)
    assert together.first_token_s == pytest.approx([prefill_s(1000) + prefill_s(2000) - overhead_s] * 2)
    apart = simulate(trace, coupled(nodes=1, max_batched_tokens=2000), engine=engine)
    assert apart.first_token_s == pytest.approx([prefill_s(1000), prefill_s(1000) + prefill_s(2000)])


@engines
def test_chunked_request_by_hand(engine):
    """1,000 tokens in chunks of 400: three iterations, then a step a token."""
    trace = Trace.from_requests([(0.0, 1000, 3, [0, 1])])
    setting = {"nodes": 1, "batching": Batching.CHUNKED_PREFILL, "chunk_tokens": 400}
    result = simulate(trace, coupled(**setting), engine=engine)
    cost = prefill_cost(NODE, MODEL, CALIBRATION)
    chunks_s = [cost.token_s * tokens for tokens in (400, 400, 200)]
    weights_s = step_s(1, 0) - CALIBRATION.decode_overhead_s - CALIBRATION.host_sequence_s
    expected_s = sum(CALIBRATION.decode_overhead_s + max(weights_s, chunk_s) for chunk_s in chunks_s)
    expected_s += cost.overhead_s + cost.pair_s * 1000**2
    assert result.first_token_s[0] == pytest.approx(expected_s, rel=1e-12)
    assert result.finish_s[0] == pytest.approx(expected_s + step_s(1, 1000) + step_s(1, 1001), rel=1e-12)


@engines
def test_prefix_caching_reuses_what_is_still_in_memory(engine):
    turns = [(0.0, 1024, 2, [0, 1]), (9.0, 1500, 2, [0, 1, 2])]
    setting = {"nodes": 1, "batching": Batching.PREFIX_CACHING}
    result = simulate(Trace.from_requests(turns), coupled(**setting), engine=engine)
    assert result.cached_tokens.tolist() == [0, 1024]
    assert result.first_token_s[1] == 9.0 + prefill_s(1500, 1024)
    small = replace_node(hbm_bytes=19_700_000_000)
    filler = [(4.0, 2000, 2, [10, 11, 12, 13])]
    assert coupled(node=small).vram_tokens // 512 < 7
    result = simulate(
        Trace.from_requests([turns[0], *filler, turns[1]]), coupled(**setting, node=small), engine=engine
    )
    assert result.cached_tokens.tolist() == [0, 0, 0]
    assert result.counters["evictions"] > 0


@engines
def test_requests_go_to_the_node_with_the_fewest(engine):
    trace = Trace.from_requests([(0.0, 1000, 50, [3 * k, 3 * k + 1]) for k in range(5)])
    result = simulate(trace, coupled(nodes=3), engine=engine)
    assert result.prefill_node.tolist() == [0, 1, 2, 0, 1]


def test_prefix_caching_has_room_for_whole_blocks_only():
    nodes = coupled(batching=Batching.PREFIX_CACHING, node=replace_node(hbm_bytes=19_870_000_000))
    tokens, blocks = nodes.vram_tokens, -(-nodes.vram_tokens // 512)
    trace = Trace.from_requests([(0.0, tokens - 1, 1, range(blocks))])
    with pytest.raises(InputError, match=f"holds {tokens // 512 * 512}"):
        simulate(trace, nodes)


def test_one_by_one_no_two_requests_are_in_work_together():
    trace = Trace.from_requests([(0.25 * k, 1000 + k, 5, [2 * k, 2 * k + 1]) for k in range(20)])
    for batching in Batching:
        for engine in ("reference", "fast"):
            result = simulate(trace, coupled(nodes=2, batching=batching, max_sequences=1), engine=engine)
            for node in range(2):
                mine = np.flatnonzero(result.decode_node == node)
                assert len(mine) > 1
                assert (result.start_s[mine][1:] >= result.finish_s[mine][:-1]).all()
