"""The prefill pool: laws that hold for every replay, and queueing theory where it applies."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooncake_companion.costs import Calibration, prefill_time
from mooncake_companion.errors import InputError
from mooncake_companion.hardware import load_node
from mooncake_companion.llm import load_model
from mooncake_companion.simulator import Cluster, Routing, simulate
from mooncake_companion.traces import Trace

# Constants that are exact in binary: a second of overhead and near to nothing else.
CALIBRATION = Calibration(
    prefill_overhead_s=1.0, linear_utilisation=0.5, attention_utilisation=0.5, network_utilisation=1.0
)


def cluster(**changes):
    setting = {
        "node": load_node("a800"),
        "model": load_model("llama3-70b"),
        "calibration": CALIBRATION,
        "prefill_nodes": 3,
        "cache_tokens_per_node": 20 * 512,
        "routing": Routing.GLOBAL_CACHE_AWARE,
        "kvcache_balancing_threshold": 2.0,
    }
    return Cluster(**(setting | changes))


@st.composite
def small_traces(draw):
    """Up to 30 requests whose prompts are paths in a small tree of blocks."""
    requests, now_s = [], 0.0
    for _ in range(draw(st.integers(1, 30))):
        now_s += draw(st.sampled_from([0.0, 0.25, 1.0, 8.0]))
        root, depth = draw(st.integers(0, 3)), draw(st.integers(1, 8))
        tokens = 512 * depth - draw(st.integers(0, 511))
        requests.append((now_s, tokens, 1, [100 * root + level for level in range(depth)]))
    return Trace.from_requests(requests)


settings_of_pool = st.fixed_dictionaries(
    {
        "prefill_nodes": st.integers(1, 4),
        "cache_tokens_per_node": st.sampled_from([0, 512, 5 * 512, 10**6]),
        "routing": st.sampled_from(Routing),
        "kvcache_balancing_threshold": st.sampled_from([1.0, 1.5, 4.0]),
    }
)


@given(small_traces(), settings_of_pool, st.integers(0, 2**32 - 1))
@settings(max_examples=300)
def test_laws_of_every_replay(trace, setting, seed):
    result = simulate(trace, cluster(**setting), rng=np.random.default_rng(seed))
    start_s = result.arrival_s + result.ttft_s - result.prefill_s

    assert len(result) == len(trace)
    assert (result.cached_tokens < result.input_tokens).all()
    assert np.allclose(start_s, result.arrival_s + np.maximum(result.queue_s, result.transfer_s), rtol=1e-12)
    assert ((result.fetched_tokens > 0) == (result.source_node >= 0)).all()
    assert ((result.transfer_s > 0) == (result.fetched_tokens > 0)).all()
    assert (result.source_node != result.prefill_node).all()
    if setting["routing"] is not Routing.GLOBAL_CACHE_AWARE:
        assert not result.fetched_tokens.any()
    if not setting["cache_tokens_per_node"]:
        assert not result.cached_tokens.any()
    for node in range(setting["prefill_nodes"]):
        mine = result.prefill_node == node
        ends_s = (start_s + result.prefill_s)[mine]
        assert (start_s[mine][1:] >= ends_s[:-1] - 1e-9).all(), "a node worked on two requests at once"


@given(small_traces(), settings_of_pool)
@settings(max_examples=50)
def test_the_area_under_the_queue_is_the_sum_of_the_waits(trace, setting):
    result = simulate(trace, cluster(**setting), rng=np.random.default_rng(0))
    start_s = result.arrival_s + result.ttft_s - result.prefill_s
    times_s = np.unique(np.concatenate([result.arrival_s, start_s]))
    waiting = [((result.arrival_s <= t) & (start_s > t)).sum() for t in times_s[:-1]]
    assert (waiting * np.diff(times_s)).sum() == pytest.approx((start_s - result.arrival_s).sum())


def test_second_turn_reuses_the_first_only_after_its_prefill_ended():
    turns = [(0.0, 1024, 1, [0, 1]), (0.5, 1536, 1, [0, 1, 2]), (9.0, 1536, 1, [0, 1, 2])]
    result = simulate(Trace.from_requests(turns), cluster(prefill_nodes=1))
    assert result.cached_tokens.tolist() == [0, 0, 1535]


def test_a_prompt_that_is_cached_whole_still_computes_its_last_token():
    result = simulate(
        Trace.from_requests([(0.0, 1024, 1, [0, 1]), (9.0, 1024, 1, [0, 1])]), cluster(prefill_nodes=1)
    )
    expected_s = prefill_time(
        load_node("a800"), load_model("llama3-70b"), 1024, 1023, calibration=CALIBRATION
    )
    assert result.prefill_s[1] == expected_s


def test_a_fetched_prefix_stays_where_it_was_fetched_to():
    """Each time another long prompt keeps node 0 busy; node 1 fetches once, then has its own copy."""
    prompt, tokens = list(range(60)), 60 * 512
    others = [[100 * k + level for level in range(60)] for k in (1, 2)]
    arrivals = [(0.0, prompt), (20.0, others[0]), (20.0, prompt), (40.0, others[1]), (40.0, prompt)]
    trace = Trace.from_requests([(t, tokens, 1, blocks) for t, blocks in arrivals])
    result = simulate(trace, cluster(prefill_nodes=2, cache_tokens_per_node=10**6))
    assert result.prefill_node.tolist() == [0, 0, 1, 0, 1]
    assert result.source_node.tolist() == [-1, -1, 0, -1, -1]
    assert result.fetched_tokens[2] == result.local_tokens[4] == tokens - 1


def test_waiting_in_front_of_one_node_is_that_of_an_m_d_1_queue():
    """Poisson arrivals, equal prompts, no cache: Pollaczek and Khinchine's formula."""
    rng, load, requests = np.random.default_rng(1), 0.7, 20_000
    service_s = float(prefill_time(load_node("a800"), load_model("llama3-70b"), 512, calibration=CALIBRATION))
    arrival_s = np.cumsum(rng.exponential(service_s / load, requests))
    trace = Trace.from_requests([(t, 512, 1, [i]) for i, t in enumerate(arrival_s.tolist())])
    waits_s = simulate(trace, cluster(prefill_nodes=1, cache_tokens_per_node=0)).queue_s
    expected_s = load * service_s / (2 * (1 - load))
    batches = waits_s.reshape(20, -1).mean(axis=1)
    spread_s = batches.std(ddof=1) / math.sqrt(len(batches))
    assert waits_s.mean() == pytest.approx(expected_s, abs=4 * spread_s)
    assert spread_s < 0.1 * expected_s


def test_same_generator_same_run():
    trace = Trace.from_requests([(float(i // 4), 700, 1, [i, 1000 + i]) for i in range(40)])
    runs = [
        simulate(trace, cluster(routing=Routing.RANDOM), rng=np.random.default_rng(5)).frame()
        for _ in range(2)
    ]
    assert runs[0].equals(runs[1])


def test_random_routing_wants_a_generator():
    trace = Trace.from_requests([(0.0, 10, 1, [0])])
    with pytest.raises(InputError, match="rng"):
        simulate(trace, cluster(routing=Routing.RANDOM))


def test_a_pool_needs_a_node():
    with pytest.raises(InputError, match="prefill_nodes"):
        cluster(prefill_nodes=0)
