"""The fast engine gives what the reference gives, request by request."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooncake_companion import traces
from mooncake_companion.costs import load_calibration
from mooncake_companion.simulator import Admission, Batching, Routing, simulate
from mooncake_companion.simulator.reference import replay
from mooncake_companion.simulator.serving_path import replica_counts, requests_of
from mooncake_companion.traces import Trace
from tests.simulator.small import (
    cluster,
    coupled,
    coupled_settings,
    replace_node,
    small_conversations,
    small_settings,
    small_traces,
)


def assert_equal(trace, nodes, seed):
    reference, fast = (
        simulate(trace, nodes, rng=np.random.default_rng(seed), engine=engine)
        for engine in ("reference", "fast")
    )
    assert fast.counters == reference.counters
    one, other = reference.frame(), fast.frame()
    for column in one.columns.drop("tbt_s"):
        np.testing.assert_array_equal(other[column], one[column], err_msg=column)
    np.testing.assert_allclose(other["tbt_s"], one["tbt_s"], rtol=1e-9)


def on_small_clusters(trace, setting, seed):
    """To the last bit, but for TBT, whose sum runs in another order."""
    assert_equal(trace, cluster(**setting), seed)


def on_small_coupled_clusters(trace, setting):
    assert_equal(trace, coupled(**setting), 0)


disaggregated = given(small_traces() | small_conversations(), small_settings, st.integers(0, 2**32 - 1))
together = given(small_traces(), coupled_settings)

test_on_small_clusters = settings(max_examples=300)(disaggregated(on_small_clusters))
test_on_small_coupled_clusters = settings(max_examples=300)(together(on_small_coupled_clusters))
test_on_thousands_of_clusters = pytest.mark.slow(
    settings(max_examples=3000)(disaggregated(on_small_clusters))
)
test_on_thousands_of_coupled_clusters = pytest.mark.slow(
    settings(max_examples=3000)(together(on_small_coupled_clusters))
)


@given(
    small_traces(max_requests=60) | small_conversations(max_turns=60),
    small_settings,
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=300)
def test_with_the_fitted_constants(trace, setting, seed):
    assert_equal(trace, cluster(**setting, calibration=load_calibration()), seed)


@given(
    small_traces() | small_conversations(),
    small_settings,
    st.lists(st.floats(0, 100), max_size=5).map(sorted),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=300)
def test_replicas_are_counted_at_the_same_instants(trace, setting, times_s, seed):
    nodes = cluster(**{**setting, "return_answers": False})
    times_s = sorted([*times_s, *trace.arrival_s[:3]])  # an instant at which something happens, too
    blocks = np.unique(trace.block_ids)
    expected = []
    replay(
        requests_of(trace),
        nodes,
        block_tokens=trace.block_tokens,
        draws=np.random.default_rng(seed).random(len(trace)).tolist(),
        probe_s=times_s,
        probe=lambda _now_s, caches: expected.append([caches.holders(block).bit_count() for block in blocks]),
    )
    counts = replica_counts(trace, nodes, blocks, np.array(times_s), rng=np.random.default_rng(seed))
    np.testing.assert_array_equal(counts, np.array(expected).reshape(counts.shape))


@pytest.mark.parametrize("streaming", [True, False])
def test_when_heap_flows_and_batches_outgrow_their_first_size(streaming):
    """400 requests at once: hundreds of transfers under way, and batches of over a hundred."""
    trace = Trace.from_requests([(0.0, 600, 60, [2 * k, 2 * k + 1]) for k in range(400)])
    slow = replace_node(nic_bytes_per_s=2e8, host_to_device_bytes_per_s=1e9)
    setting = {"node": slow, "prefill_nodes": 200, "decode_nodes": 2, "kv_streaming": streaming}
    assert_equal(trace, cluster(**setting), 0)
    assert_equal(trace, coupled(nodes=2), 0)
    result = simulate(trace, cluster(**setting))
    in_batch = [((result.join_s <= t) & (result.finish_s > t)).sum() for t in result.join_s]
    assert max(in_batch) > 2 * 64 + 2


def test_when_hundreds_of_answers_return_at_once():
    trace = Trace.from_requests([(0.0, 1000, 60, [2 * k, 2 * k + 1]) for k in range(400)])
    setting = {"prefill_nodes": 200, "decode_nodes": 2, "return_answers": True}
    assert_equal(trace, cluster(**setting), 0)
    result = simulate(trace, cluster(**setting))
    assert result.counters["returned_bytes"] == 400 * 512 * 327_680
    assert max(np.unique(result.finish_s, return_counts=True)[1]) > 64


def test_when_flows_outgrow_their_first_size_two_at_once():
    """The end of a prefill starts a load and the next stream when 63 of 64 places are taken.

    A write past the end need not show; run with NUMBA_BOUNDSCHECK=1 it does.
    """
    rng = np.random.default_rng(218)
    arrival_s, blocks = np.cumsum(rng.exponential(0.5, 120)), rng.integers(1, 6, 120)
    trace = Trace.from_requests(
        [
            (float(t), 512 * int(n), 5, range(100 * k, 100 * k + int(n)))
            for k, (t, n) in enumerate(zip(arrival_s, blocks, strict=True))
        ]
    )
    slow = replace_node(host_to_device_bytes_per_s=3e8, nic_bytes_per_s=1e9)
    assert_equal(trace, cluster(node=slow, prefill_nodes=3, decode_nodes=2), 0)


@given(small_traces(), small_settings, st.integers(1, 2**40))
@settings(max_examples=50)
def test_whatever_the_block_ids_are(trace, setting, factor):
    """Ids name blocks; their size and gaps change nothing."""
    renamed = dataclasses.replace(trace, block_ids=trace.block_ids * factor)
    one, other = (
        simulate(t, cluster(**setting), rng=np.random.default_rng(0)).frame() for t in (trace, renamed)
    )
    assert one.equals(other)


def test_tokens_times_the_bytes_of_one_do_not_overflow():
    """A prompt of 3 GB of KV cache, of which 2 to the 31st bytes would be left in 32 bits."""
    trace = Trace.from_requests(
        [(0.0, 10_000, 2, range(20)), (1e3, 20_000, 2, [*range(20), *range(100, 120)])]
    )
    frames = [simulate(trace, cluster(), engine=engine).frame() for engine in ("fast", "reference")]
    assert frames[0].dtypes.drop("action").equals(frames[1].dtypes.drop("action"))
    moved_bytes = frames[0]["local_tokens"].to_numpy() * 327_680
    assert moved_bytes.tolist() == [0, 10_240 * 327_680]


@pytest.mark.slow
@pytest.mark.parametrize("batching", Batching)
def test_on_busy_coupled_nodes(batching):
    trace = traces.load("synthetic-standin").head(1500)
    assert_equal(trace, coupled(nodes=4, batching=batching, calibration=load_calibration()), 0)


@pytest.mark.slow
@pytest.mark.parametrize("admission", Admission)
@pytest.mark.parametrize("name", ["conversation-standin", "synthetic-standin"])
def test_on_a_busy_cluster(name, admission):
    setting = {
        "prefill_nodes": 4,
        "decode_nodes": 2,
        "cache_tokens_per_node": 10**6,
        "routing": Routing.GLOBAL_CACHE_AWARE,
        "admission": admission,
        "tbt_limit_s": 0.045,
    }
    trace = traces.load(name).head(1500)
    assert_equal(trace, cluster(**setting, calibration=load_calibration()), 0)
