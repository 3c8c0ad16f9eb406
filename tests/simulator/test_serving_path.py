"""The serving path: laws that hold for every replay, and queueing theory where it applies."""

import dataclasses
import itertools
import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooncake_companion.costs import decode_step_time, prefill_time
from mooncake_companion.errors import InputError
from mooncake_companion.simulator import Admission, Outcome, Routing, decisions, reference, simulate
from mooncake_companion.simulator.clock import Order
from mooncake_companion.simulator.serving_path import requests_of
from mooncake_companion.traces import Trace
from mooncake_companion.traces.answers import answer_blocks
from tests.simulator.small import (
    CALIBRATION,
    MODEL,
    NODE,
    cluster,
    replace_node,
    small_conversations,
    small_settings,
    small_traces,
)

engines = pytest.mark.parametrize("engine", ["reference", "fast"])


def run(trace, setting, seed=0, engine="fast"):
    return simulate(trace, cluster(**setting), rng=np.random.default_rng(seed), engine=engine)


@given(small_traces(), small_settings, st.integers(0, 2**32 - 1))
@settings(max_examples=300)
def test_every_request_meets_one_fate_and_no_byte_is_lost(trace, setting, seed):
    result = run(trace, setting, seed)
    finished = result.outcome == Outcome.FINISHED
    prefilled = result.outcome != Outcome.REJECTED_AT_ARRIVAL
    decoded = finished & (result.output_tokens > 1)

    assert len(result) == len(trace)
    assert (np.isfinite(result.first_token_s) == prefilled).all()
    assert (np.isfinite(result.finish_s) == finished).all()
    least_tokens = 2 if setting["first_interval_counts"] else 3
    assert (np.isfinite(result.tbt_s) == finished & (result.output_tokens >= least_tokens)).all()
    if setting["admission"] is Admission.NONE:
        assert finished.all()

    assert (result.cached_tokens < result.input_tokens).all()
    assert ((result.fetched_tokens > 0) == (result.source_node >= 0)).all()
    assert (np.isfinite(result.fetched_s) == (result.fetched_tokens > 0)).all()
    assert (result.source_node[prefilled] != result.prefill_node[prefilled]).all()
    assert result.counters["fetched_bytes"] == result.fetched_tokens.sum() * MODEL.kv_bytes_per_token
    assert result.counters["loaded_bytes"] == result.input_tokens[decoded].sum() * MODEL.kv_bytes_per_token
    sent = (prefilled if setting["kv_streaming"] else finished) & (result.output_tokens > 1)
    assert result.counters["streamed_bytes"] == result.input_tokens[sent].sum() * MODEL.kv_bytes_per_token


@given(small_traces(), small_settings)
@settings(max_examples=200)
def test_what_comes_first_comes_first(trace, setting):
    result = run(trace, setting)
    order = [result.arrival_s, result.start_s, result.first_token_s, result.join_s, result.finish_s]
    for earlier, later in itertools.pairwise(order):
        assert not (later < earlier).any()
    assert not (result.start_s < result.fetched_s).any()
    took_s = result.first_token_s - result.start_s
    if setting["pipeline_nodes"] == 1:
        assert np.array_equal(result.first_token_s, result.start_s + result.prefill_s, equal_nan=True), (
            "a prefill takes what Conductor estimated"
        )
    else:  # in a pipeline at least that: chunks of the one before may be in the way
        assert not (took_s < result.prefill_s - 1e-9).any()
    order = [result.first_token_s, result.loaded_s, result.join_s]
    for earlier, later in itertools.pairwise([result.streamed_s, *order[1:]]):
        assert not (later < earlier).any()


@given(small_traces(), small_settings)
@settings(max_examples=200)
def test_no_gpu_is_busy_twice_and_no_memory_overfull(trace, setting):
    result, nodes = run(trace, setting), cluster(**setting)
    for node in range(nodes.prefill_instances):
        mine = (result.prefill_node == node) & np.isfinite(result.start_s)
        if nodes.pipeline_nodes == 1:
            assert (result.start_s[mine][1:] >= result.first_token_s[mine][:-1]).all()
        else:  # its last stage gives out first tokens in the order of starts
            assert (np.diff(result.start_s[mine]) > 0).all()
            assert (np.diff(result.first_token_s[mine]) > 0).all()
    tokens = result.input_tokens + result.output_tokens
    for node in range(nodes.decode_nodes):
        mine = (result.decode_node == node) & np.isfinite(result.join_s)
        for at_s in result.join_s[mine]:
            in_batch = mine & (result.join_s <= at_s) & (result.finish_s > at_s)
            assert tokens[in_batch].sum() <= nodes.vram_tokens


@given(small_traces(), small_settings)
@settings(max_examples=100)
def test_littles_law(trace, setting):
    """The area under the number in the system is the sum of the times spent there."""
    result = run(trace, setting)
    there = result.outcome == Outcome.FINISHED
    arrival_s, leave_s = result.arrival_s[there], result.finish_s[there]
    times_s = np.unique(np.concatenate([arrival_s, leave_s]))
    present = [((arrival_s <= t) & (leave_s > t)).sum() for t in times_s[:-1]]
    assert (present * np.diff(times_s)).sum() == pytest.approx((leave_s - arrival_s).sum())


@engines
def test_second_turn_reuses_the_first_only_after_its_prefill_ended(engine):
    turns = [(0.0, 1024, 1, [0, 1]), (0.5, 1536, 1, [0, 1, 2]), (9.0, 1536, 1, [0, 1, 2])]
    result = run(Trace.from_requests(turns), {"prefill_nodes": 1}, engine=engine)
    assert result.cached_tokens.tolist() == [0, 0, 1535]


@engines
def test_a_prompt_that_is_cached_whole_still_computes_its_last_token(engine):
    trace = Trace.from_requests([(0.0, 1024, 1, [0, 1]), (9.0, 1024, 1, [0, 1])])
    result = run(trace, {"prefill_nodes": 1}, engine=engine)
    assert result.prefill_s[1] == prefill_time(NODE, MODEL, 1024, 1023, calibration=CALIBRATION)


@engines
@pytest.mark.parametrize("layerwise", [True, False])
def test_loading_and_storing_hide_behind_computation_layer_by_layer(engine, layerwise):
    """A slow host link: 1 s for 4,096 tokens. The second turn loads 60,000 and stores 1,440."""
    node = replace_node(host_to_device_bytes_per_s=4096.0 * MODEL.kv_bytes_per_token)
    turns = [(0.0, 60_000, 1, range(118)), (99.0, 61_440, 1, [*range(117), 200, 201, 202])]
    setting = {"node": node, "prefill_nodes": 1, "cache_tokens_per_node": 10**6, "layerwise": layerwise}
    result = run(Trace.from_requests(turns), setting, engine=engine)
    assert result.cached_tokens.tolist() == [0, 117 * 512]
    for turn, (tokens, cached) in enumerate([(60_000, 0), (61_440, 117 * 512)]):
        parts_s = [
            prefill_time(node, MODEL, tokens, cached, calibration=CALIBRATION),
            cached / 4096,
            (tokens - cached) / 4096,
        ]
        expected_s = max(parts_s) if layerwise else sum(parts_s)
        assert result.prefill_s[turn] == pytest.approx(expected_s, rel=1e-12)


@engines
def test_a_fetched_prefix_stays_where_it_was_fetched_to(engine):
    """Each time another long prompt keeps node 0 busy; node 1 fetches once, then has its own copy."""
    prompt, tokens = list(range(60)), 60 * 512
    others = [[100 * k + level for level in range(60)] for k in (1, 2)]
    arrivals = [(0.0, prompt), (20.0, others[0]), (20.0, prompt), (40.0, others[1]), (40.0, prompt)]
    trace = Trace.from_requests([(t, tokens, 1, blocks) for t, blocks in arrivals])
    result = run(trace, {"prefill_nodes": 2, "cache_tokens_per_node": 10**6}, engine=engine)
    assert result.prefill_node.tolist() == [0, 0, 1, 0, 1]
    assert result.source_node.tolist() == [-1, -1, 0, -1, -1]
    assert result.fetched_tokens[2] == result.local_tokens[4] == tokens - 1


@engines
def test_one_request_by_hand(engine):
    """Alone in the cluster: prefill, transfer after it, load, then a step a token."""
    tokens, answer = 1000, 4
    setting = {"kv_streaming": False, "transfer_startup_s": 0.25}
    result = run(Trace.from_requests([(1.0, tokens, answer, [0, 1])]), setting, engine=engine)
    size_bytes = tokens * MODEL.kv_bytes_per_token
    first_token_s = 1.0 + prefill_time(NODE, MODEL, tokens, calibration=CALIBRATION)
    transfers_s = size_bytes / NODE.nic_bytes_per_s + size_bytes / NODE.host_to_device_bytes_per_s
    join_s = first_token_s + 0.25 + transfers_s
    contexts = range(tokens, tokens + answer - 1)
    steps_s = [decode_step_time(NODE, MODEL, 1, context, calibration=CALIBRATION) for context in contexts]
    assert result.first_token_s[0] == first_token_s
    assert result.join_s[0] == pytest.approx(join_s, rel=1e-12)
    assert result.finish_s[0] == pytest.approx(join_s + sum(steps_s), rel=1e-12)
    assert result.tbt_s[0] == pytest.approx(join_s - first_token_s + steps_s[0], rel=1e-9)


@engines
def test_the_decode_node_with_the_smallest_kv_cache_is_chosen(engine):
    """One long context weighs more than two short ones."""
    sizes = [8000, 500, 500, 500]
    trace = Trace.from_requests(
        [(0.0, n, 40, range(100 * k, 100 * k + -(-n // 512))) for k, n in enumerate(sizes)]
    )
    result = run(trace, {"prefill_nodes": 4, "decode_nodes": 2}, engine=engine)
    assert result.decode_node.tolist() == [0, 1, 1, 1]


@engines
def test_streaming_hides_the_transfer_behind_the_prefill(engine):
    trace = Trace.from_requests([(0.0, 8000, 4, list(range(16)))])
    after, along = (run(trace, {"kv_streaming": on}, engine=engine) for on in (False, True))
    transfer_s = 8000 * MODEL.kv_bytes_per_token / NODE.nic_bytes_per_s
    assert after.join_s[0] - along.join_s[0] == pytest.approx(transfer_s, rel=1e-9)


@engines
def test_a_hot_holder_is_congested(engine):
    """Two nodes that fetch from one at the same time take twice as long as one alone."""
    prompt, tokens = list(range(40)), 40 * 512
    busy = [900 + level for level in range(60)]
    slow = replace_node(nic_bytes_per_s=10e9)

    def fetched_s(copies):
        arrivals = [(0.0, tokens, 1, prompt), (30.0, 60 * 512, 1, busy)] + [
            (30.0, tokens, 1, prompt)
        ] * copies
        setting = {"node": slow, "cache_tokens_per_node": 10**6, "kvcache_balancing_threshold": 1.0}
        result = run(Trace.from_requests(arrivals), setting, engine=engine)
        assert (result.source_node[2:] == 0).all()
        return result.fetched_s[2:] - 30.0

    alone_s = (tokens - 1) * MODEL.kv_bytes_per_token / 10e9
    assert fetched_s(1) == pytest.approx([alone_s], rel=1e-9)
    assert fetched_s(2) == pytest.approx([2 * alone_s] * 2, rel=1e-9)


@engines
def test_those_without_room_wait_in_order_and_nobody_is_preempted(engine):
    """Memory for one request at a time: the second joins at the boundary where the first leaves."""
    small = replace_node(hbm_bytes=19_870_000_000)
    tokens = cluster(node=small).vram_tokens - 200
    blocks = -(-tokens // 512)
    arrivals = [(0.0, tokens, 100, list(range(1000 * k, 1000 * k + blocks))) for k in range(3)]
    setting = {"node": small, "prefill_nodes": 3, "decode_nodes": 1}
    result = run(Trace.from_requests(arrivals), setting, engine=engine)
    assert result.join_s[1:].tolist() == result.finish_s[:-1].tolist()


@pytest.mark.parametrize("service", ["constant", "exponential"])
def test_waiting_in_front_of_one_node_is_that_of_theory(service):
    """Poisson arrivals at one node without cache: M/D/1, and M/M/1 with exponential prompts.

    The calibration makes prefill time proportional to the prompt.
    """
    rng, load, requests = np.random.default_rng(1), 0.6, 40_000
    tokens = np.full(requests, 4096)
    if service == "exponential":
        tokens = np.maximum(1, rng.exponential(4096, requests).astype(int))
    plain = dataclasses.replace(CALIBRATION, prefill_overhead_s=1e-12, attention_utilisation=1e12)
    service_s = prefill_time(NODE, MODEL, tokens.astype(float), calibration=plain)
    arrival_s = np.cumsum(rng.exponential(service_s.mean() / load, requests))
    trace = Trace.from_requests(
        [
            (t, n, 1, range(1000 * i, 1000 * i - (-n // 512)))
            for i, (t, n) in enumerate(zip(arrival_s.tolist(), tokens.tolist(), strict=True))
        ]
    )
    setting = {"calibration": plain, "prefill_nodes": 1, "cache_tokens_per_node": 0}
    waits_s = run(trace, setting).wait_s
    factor = 0.5 if service == "constant" else 1.0
    expected_s = factor * load / (1 - load) * service_s.mean()
    batches = waits_s.reshape(20, -1).mean(axis=1)
    spread_s = batches.std(ddof=1) / math.sqrt(len(batches))
    assert waits_s.mean() == pytest.approx(expected_s, abs=4 * spread_s)
    assert spread_s < 0.1 * expected_s


@given(small_traces() | small_conversations(), small_settings)
@settings(max_examples=150)
def test_nothing_is_left_when_all_is_done(trace, setting):
    """No pin, no transfer, no share of a decode node: whoever leaves gives everything back."""
    requests = requests_of(trace, answer_blocks(trace) if setting["return_answers"] else None)
    path = reference._ServingPath(requests, cluster(**setting), 512, [0.0] * len(requests), ())
    for index, request in enumerate(requests):
        path.clock.at(request.arrival_s, Order.ARRIVE, index, partial(path.arrive, index))
    path.clock.run()
    for cache in path.caches.caches:
        assert not cache._pins
    assert not path.transfers._flows
    assert not path._held
    assert not path._fetching
    for node in path.prefillers:
        assert (node.busy, len(node.queue), node.queued_s) == (False, 0, 0.0)
    for node in path.decoders:
        left = (node.context_tokens, node.reserved_tokens, node.assigned_sequences, node.assigned_tokens)
        assert left == (0, 0, 0, 0)
        assert node.present == (0, 0)
        assert not node.decodes


@engines
def test_the_next_request_finds_the_other_decode_node_less_loaded(engine):
    trace = Trace.from_requests([(0.5 * k, 600, 400, [2 * k, 2 * k + 1]) for k in range(4)])
    assert run(trace, {}, engine=engine).decode_node.tolist() == [0, 1, 0, 1]


@engines
def test_context_is_right_after_another_sequence_has_left(engine):
    """One sequence joins and leaves; the other's later steps are as if it had been alone."""
    long, short = (0.0, 1000, 200, [0, 1]), (0.0, 1000, 5, [7, 8])
    setting = {"decode_nodes": 1, "prefill_nodes": 2}
    alone = run(Trace.from_requests([long]), setting, engine=engine)
    both = run(Trace.from_requests([long, short]), setting, engine=engine)
    sequence_s = step_s(2, 2001) - step_s(1, 1000)
    late_s = both.finish_s[0] - alone.finish_s[0]
    assert 0 < late_s < 6 * sequence_s + 0.01


@engines
@pytest.mark.parametrize("first_counts", [True, False])
def test_tbt_is_the_mean_of_the_longest_tenth_rounded_up(engine, first_counts):
    """13 tokens alone: twelve intervals, the first of them long (transfer, load); two make the mean."""
    trace = Trace.from_requests([(0.0, 1000, 13, [0, 1])])
    setting = {"kv_streaming": False, "transfer_startup_s": 1.0, "first_interval_counts": first_counts}
    result = run(trace, setting, engine=engine)
    longest_s = step_s(1, 1010)
    if first_counts:
        longest_s = result.join_s[0] - result.first_token_s[0] + step_s(1, 1000)
    assert result.tbt_s[0] == pytest.approx((longest_s + step_s(1, 1011)) / 2, rel=1e-9)


def step_s(sequences, context_tokens):
    return decode_step_time(NODE, MODEL, sequences, context_tokens, calibration=CALIBRATION)


@engines
@pytest.mark.parametrize("routing", ["load_balancing", Routing.LOAD_BALANCING])
def test_words_name_routings_and_admissions(engine, routing):
    trace = Trace.from_requests([(0.0, 600, 2, [0, 1])] * 3)
    assert run(trace, {"routing": routing, "admission": "early"}, engine=engine).prefill_node.tolist() == [
        0,
        1,
        2,
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"routing": "globul"}, "Cluster.routing must be one of global_cache_aware"),
        ({"admission": "erly"}, "Cluster.admission must be one of none"),
        ({"kvcache_balancing_threshold": 0.5}, "kvcache_balancing_threshold must be finite and at least 1"),
        ({"transfer_startup_s": -0.5}, "transfer_startup_s must be finite and at least 0"),
        ({"transfer_startup_s": math.nan}, "transfer_startup_s must be finite"),
        ({"cache_tokens_per_node": -512}, "cache_tokens_per_node must be finite and at least 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, words):
    with pytest.raises(InputError, match=words):
        cluster(**changes)


def test_an_unknown_engine_is_refused():
    with pytest.raises(InputError, match="'fast' or 'reference'"):
        simulate(Trace.from_requests([(0.0, 10, 1, [0])]), cluster(), engine="Fast")


@engines
def test_same_generator_same_run(engine):
    trace = Trace.from_requests([(float(i // 4), 700, 9, [i, 1000 + i]) for i in range(40)])
    one, other = (run(trace, {"routing": Routing.RANDOM}, 5, engine).frame() for _ in range(2))
    assert one.equals(other)


def test_random_routing_wants_a_generator():
    with pytest.raises(InputError, match="rng"):
        simulate(Trace.from_requests([(0.0, 10, 1, [0])]), cluster(routing=Routing.RANDOM))


def test_a_request_that_no_decode_node_can_hold_is_refused():
    small = replace_node(hbm_bytes=19_870_000_000)
    tokens = cluster(node=small).vram_tokens
    trace = Trace.from_requests([(0.0, 10, 1, [0]), (0.0, tokens, 1, range(-(-tokens // 512)))])
    with pytest.raises(InputError, match=f"request 1 of handmade has {tokens + 1} tokens"):
        simulate(trace, cluster(node=small))


def test_a_pool_needs_a_node():
    with pytest.raises(InputError, match="prefill_nodes"):
        cluster(prefill_nodes=0)


def test_a_model_must_fit():
    with pytest.raises(InputError, match=r"LLaMA3-70B does not fit on .*: its weights take 141 GB"):
        cluster(node=replace_node(hbm_bytes=10_000_000_000))


def test_the_decision_record_holds_every_candidate():
    trace = Trace.from_requests([(0.0, 1024, 9, [0, 1]), (9.0, 1536, 9, [0, 1, 2]), (9.5, 10, 1, [7])])
    prefill, decode = decisions(trace, cluster(), [1])
    assert prefill["node"].tolist() == [0, 1, 2]
    assert prefill["local_tokens"].tolist() == [1024, 0, 0]
    assert (prefill["ttft_s"] == prefill["transfer_s"] + prefill["queue_s"] + prefill["prefill_s"]).all()
    assert prefill["chosen"].tolist() == (prefill["ttft_s"] == prefill["ttft_s"].min()).tolist()
    assert decode["node"].tolist() == [0, 1]
    assert decode["step_s"].tolist() == [step_s(1, 1536)] * 2
    assert decode["chosen"].tolist() == [True, False]
    result = simulate(trace, cluster())
    assert prefill.query("chosen")["node"].item() == result.prefill_node[1]
    with pytest.raises(InputError, match="no request 3; expected 0 to 2"):
        decisions(trace, cluster(), [3])


def test_recording_is_off_unless_asked_for():
    requests = requests_of(Trace.from_requests([(0.0, 1024, 1, [0, 1])] * 2))
    records = reference.replay(requests, cluster(), block_tokens=512, draws=[0.0] * 2, recorded=[1]).records
    assert [len(record.choices) for record in records] == [0, 3]


# Tiers


def long_prompt(number, blocks=20):
    return list(range(1000 * number, 1000 * number + blocks))


@engines
def test_a_prefix_that_fell_to_ssd_is_read_from_there(engine):
    """DRAM for 20 blocks: the second prompt pushes the first to SSD; it comes back up for the third."""
    turns = [(50.0 * k, 20 * 512, 1, long_prompt(which)) for k, which in enumerate((0, 1, 0))]
    setting = {"prefill_nodes": 1, "ssd_cache_tokens_per_node": 10**6}
    result = run(Trace.from_requests(turns), setting, engine=engine)
    assert result.ssd_tokens.tolist() == [0, 0, 20 * 512 - 1]
    assert result.action.tolist() == ["recompute", "recompute", "hydrate"]
    assert result.counters["demoted_to_ssd"] == 40
    assert result.counters["promoted_from_ssd"] == 20
    assert result.counters["evictions"] == 0


@engines
def test_reading_a_slow_ssd_takes_its_time_and_a_slower_one_is_left_alone(engine):
    def turn(bytes_per_s):
        node = replace_node(ssd_read_bytes_per_s=bytes_per_s)
        turns = [(50.0 * k, 20 * 512, 1, long_prompt(which)) for k, which in enumerate((0, 1, 0))]
        setting = {"node": node, "prefill_nodes": 1, "ssd_cache_tokens_per_node": 10**6}
        result = run(Trace.from_requests(turns), setting, engine=engine)
        return result.prefill_s[2], result.ssd_tokens[2]

    tokens = 20 * 512 - 1
    computed_s = prefill_time(NODE, MODEL, tokens + 1, calibration=CALIBRATION)
    reading_s = 0.9 * computed_s
    assert turn(tokens * MODEL.kv_bytes_per_token / reading_s) == (pytest.approx(reading_s), tokens)
    assert turn(tokens * MODEL.kv_bytes_per_token / (1.1 * computed_s)) == (computed_s, 0)


@engines
def test_what_is_in_vram_need_not_be_loaded(engine):
    """A host link of 1 s for 4,096 tokens; the last 16 of 40 blocks were pushed to DRAM."""
    node = replace_node(host_to_device_bytes_per_s=4096.0 * MODEL.kv_bytes_per_token)
    turns = [(99.0 * k, 40 * 512, 1, long_prompt(0, 40)) for k in range(2)]
    setting = {"node": node, "prefill_nodes": 1, "layerwise": False, "cache_tokens_per_node": 10**6}
    result = run(
        Trace.from_requests(turns), setting | {"vram_cache_tokens_per_node": 24 * 512}, engine=engine
    )
    computed_s = prefill_time(NODE, MODEL, 40 * 512, 40 * 512 - 1, calibration=CALIBRATION)
    assert result.vram_tokens[1] == 24 * 512
    assert result.prefill_s[1] == pytest.approx(computed_s + (16 * 512 - 1) / 4096 + 1 / 4096)


@engines
@pytest.mark.parametrize("least", [1, 2, 3, 10**6])
def test_a_cold_block_migrates_and_a_hot_one_is_replicated(engine, least):
    """Node 0 has the prompt and is busy, so node 1 fetches it at the second asking, and then a third."""
    prompt, tokens = long_prompt(0, 60), 60 * 512
    arrivals = [(0.0, prompt), (20.0, long_prompt(1, 60)), (20.0, prompt), (60.0, prompt)]
    trace = Trace.from_requests([(t, tokens, 1, blocks) for t, blocks in arrivals])
    setting = {"prefill_nodes": 2, "cache_tokens_per_node": 10**6, "replicate_after_uses": least}
    result = run(trace, setting, engine=engine)
    moves = least > 2
    assert result.action[2] == ("migrate" if moves else "replicate")
    assert result.migrated_blocks[2] == (60 if moves else 0)
    assert result.prefill_node.tolist() == [0, 0, 1, 1 if moves else 0], "the copy is where it moved to"
    assert result.counters["evictions"] == 0


@given(small_traces(), small_settings)
@settings(max_examples=100)
def test_nobody_looks_at_a_tier_that_is_not_there(trace, setting):
    result = run(trace, setting)
    if not setting["vram_cache_tokens_per_node"]:
        assert not result.vram_tokens.any()
    if not setting["ssd_cache_tokens_per_node"]:
        assert not result.ssd_tokens.any()
        assert not result.counters["demoted_to_ssd"]
    assert (result.vram_tokens + result.ssd_tokens <= result.local_tokens).all()
    assert ((result.migrated_blocks > 0) <= (result.fetched_tokens > 0)).all()


def test_probes_see_the_caches_after_all_else():
    seen = []
    requests = requests_of(Trace.from_requests([(0.0, 600, 1, [0, 1])]))
    end_s = prefill_time(NODE, MODEL, 600, calibration=CALIBRATION)
    reference.replay(
        requests,
        cluster(),
        block_tokens=512,
        draws=[0.0],
        probe_s=[0.0, end_s],
        probe=lambda now_s, caches: seen.append((now_s, caches.holders(1))),
    )
    assert seen == [(0.0, 0), (end_s, 1)]


# Pipelines


def pipelined(stages, **more):
    calibration = dataclasses.replace(CALIBRATION, prefill_overhead_s=0.25)
    return more | {"pipeline_nodes": stages, "prefill_nodes": stages, "calibration": calibration}


@engines
@pytest.mark.parametrize("tokens", [10_000, 10_240, 700])
def test_a_pipeline_takes_what_its_closed_form_says(engine, tokens):
    """Chunks of 1,024 through three stages; the sum over chunks, and the longest handed over twice."""
    trace = Trace.from_requests([(0.0, tokens, 1, range(-(-tokens // 512)))])
    result = run(trace, pipelined(3), engine=engine)
    assert result.first_token_s[0] == pytest.approx(result.prefill_s[0], rel=1e-12)
    setting = cluster(**pipelined(3))
    plain = dataclasses.replace(setting.calibration, prefill_overhead_s=1e-300)
    ends = [*range(1024, tokens, 1024), tokens]
    chunks_s = [
        prefill_time(NODE, MODEL, last, first, calibration=plain) / 3
        for first, last in zip([0, *ends[:-1]], ends, strict=True)
    ]
    hops_s = [(last - first) * 8192 * 2 / 100e9 for first, last in zip([0, *ends[:-1]], ends, strict=True)]
    handover_s = max(chunk + hop for chunk, hop in zip(chunks_s, hops_s, strict=True))
    assert result.prefill_s[0] == pytest.approx(0.25 + sum(chunks_s) + 2 * handover_s, rel=1e-12)


@engines
def test_a_pipeline_takes_up_the_next_prompt_when_its_first_stage_is_free(engine):
    trace = Trace.from_requests([(0.0, 8192, 1, long_prompt(k, 16)) for k in range(4)])
    result = run(trace, pipelined(4, cache_tokens_per_node=0), engine=engine)
    calibration = pipelined(4)["calibration"]
    first_stage_s = 0.25 + (prefill_time(NODE, MODEL, 8192, calibration=calibration) - 0.25) / 4
    assert (result.start_s[1:] < result.first_token_s[:-1]).all(), "chunks of two prompts at once"
    assert np.diff(result.first_token_s) == pytest.approx([first_stage_s] * 3, rel=1e-9)


@engines
def test_a_pipeline_of_one_is_a_node(engine):
    trace = Trace.from_requests([(0.3 * k, 3000, 4, long_prompt(k % 3, 6)) for k in range(20)])
    one, other = (
        run(trace, {"pipeline_nodes": 1, "pipeline_chunk_tokens": n}, engine=engine) for n in (64, 4096)
    )
    assert one.frame().equals(other.frame())


@engines
def test_long_prompts_are_sooner_through_a_longer_pipeline(engine):
    trace = Trace.from_requests([(0.0, 100_000, 1, range(196))])
    ttft_s = [run(trace, pipelined(stages), engine=engine).ttft_s[0] for stages in (1, 2, 4, 8)]
    assert all(later < 0.6 * sooner for sooner, later in itertools.pairwise(ttft_s))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pipeline_nodes": 2}, "3 prefill nodes cannot be shared out to pipelines of 2"),
        ({"eviction": "mru"}, "Cluster.eviction must be one of lru, lfu"),
        ({"replicate_after_uses": 0}, "replicate_after_uses"),
        ({"ssd_cache_tokens_per_node": -1}, "ssd_cache_tokens_per_node must be finite and at least 0"),
    ],
)
def test_tiers_and_pipelines_that_make_no_sense_are_refused(changes, words):
    with pytest.raises(InputError, match=words):
        cluster(**changes)
