"""Metamorphic tests: change the input in a way whose effect is known, and look for that effect.

None of them knows a right result; each knows how two results must lie to each other. Where both are to be
equal they are asked to be so to the last bit, unless a test says why not.
"""

import dataclasses
import math
from functools import partial

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from mooncake_companion.simulator import Admission, Routing, simulate
from mooncake_companion.simulator.clock import Clock
from mooncake_companion.simulator.eviction import replay
from mooncake_companion.simulator.replay_fast import hits_by_capacity
from mooncake_companion.simulator.transfer import Transfers, link_capacities
from mooncake_companion.traces import Trace
from tests.simulator.small import cluster, coupled, coupled_settings, small_settings, small_traces

engines = st.sampled_from(["reference", "fast"])
seeds = st.integers(0, 2**32 - 1)
NOT_TIMES = [
    "input_tokens",
    "output_tokens",
    "local_tokens",
    "vram_tokens",
    "ssd_tokens",
    "fetched_tokens",
    "migrated_blocks",
    "prefill_node",
    "source_node",
    "decode_node",
    "outcome",
]
TIMES = [
    "arrival_s",
    "fetched_s",
    "start_s",
    "first_token_s",
    "streamed_s",
    "loaded_s",
    "join_s",
    "finish_s",
    "tbt_s",
    "prefill_s",
]


def joined(first, second, gap_s):
    """One trace after the other; the second one's arrivals count from `gap_s` on."""
    return dataclasses.replace(
        first,
        arrival_s=np.concatenate((first.arrival_s, gap_s + second.arrival_s)),
        input_tokens=np.concatenate((first.input_tokens, second.input_tokens)),
        output_tokens=np.concatenate((first.output_tokens, second.output_tokens)),
        block_ids=np.concatenate((first.block_ids, second.block_ids)),
        block_offsets=np.concatenate(
            (first.block_offsets, first.block_offsets[-1] + second.block_offsets[1:])
        ),
    )


class Given:
    """A generator whose numbers are known beforehand."""

    def __init__(self, draws):
        self._draws = np.array(draws)

    def random(self, size):
        assert size == len(self._draws)
        return self._draws


# Faster links


def durations(flows, capacities):
    """Seconds of flows that are released together, each from a node to another."""
    clock, ends_s = Clock(), [math.nan] * len(flows)
    transfers = Transfers(clock, capacities)

    def note(number):
        ends_s[number] = clock.now_s

    for number, (source, target, size_bytes) in enumerate(flows):
        transfers.send(number, source, target, size_bytes, partial(note, number))
    clock.run()
    return np.array(ends_s)


flows = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(1, 10**9)), min_size=1, max_size=12
)
widths = st.lists(st.integers(1, 3), min_size=5, max_size=5)


@given(flows, widths, st.floats(1e8, 1e11))
def test_doubling_all_bandwidths_halves_the_time_of_flows_released_together(flows, widths, bytes_per_s):
    slow, fast = (
        durations(flows, link_capacities(widths, factor * bytes_per_s, factor * bytes_per_s))
        for factor in (1, 2)
    )
    assert np.isfinite(slow).all()
    assert (fast == slow / 2).all()


@given(flows, widths, st.floats(1e8, 1e11), st.floats(1, 10))
def test_faster_links_never_raise_the_time_of_flows_released_together(flows, widths, bytes_per_s, factor):
    slow, fast = (
        durations(flows, link_capacities(widths, rate, rate)) for rate in (bytes_per_s, factor * bytes_per_s)
    )
    assert (fast <= slow * (1 + 1e-9)).all()


@given(flows, widths, st.permutations(range(5)))
def test_flows_do_not_care_what_nodes_are_called(flows, widths, names):
    """To rounding: rates are found link by link, in the order of their numbers."""
    renamed = [(names[source], names[target], size) for source, target, size in flows]
    renamed_widths = [widths[names.index(node)] for node in range(5)]
    one = durations(flows, link_capacities(widths, 1e9, 1e9))
    other = durations(renamed, link_capacities(renamed_widths, 1e9, 1e9))
    np.testing.assert_allclose(other, one, rtol=1e-9)


# Larger caches

streams = st.lists(st.integers(0, 30), max_size=300)


@given(streams, st.integers(0, 20), st.integers(0, 20))
def test_a_larger_lru_cache_never_hits_less(blocks, capacity, more):
    small, large = replay("lru", blocks, capacity), replay("lru", blocks, capacity + more)
    assert small <= large
    assert hits_by_capacity("lru", blocks, [capacity, capacity + more]).tolist() == [small, large]


@given(streams, st.integers(0, 20))
def test_beladys_optimum_hits_no_less_than_lru_and_no_less_when_larger(blocks, capacity):
    optimum = hits_by_capacity("belady", blocks, [capacity, capacity + 1])
    assert replay("lru", blocks, capacity) <= optimum[0] <= optimum[1]


def test_a_larger_fifo_cache_may_hit_less():
    """Belady's anomaly: what holds for LRU is no law of nature, so the test above can fail."""
    blocks = [1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5]
    assert (replay("fifo", blocks, 3), replay("fifo", blocks, 4)) == (3, 2)


# All times scaled


def scaled_cluster(nodes, factor):
    """The same deployment with everything slower: seconds times a factor, rates over it."""
    node = dataclasses.replace(
        nodes.node,
        **{
            name: getattr(nodes.node, name) / factor
            for name in (
                "peak_flops_per_s",
                "hbm_bytes_per_s",
                "host_to_device_bytes_per_s",
                "nic_bytes_per_s",
                "ssd_read_bytes_per_s",
            )
        },
    )
    seconds = ("prefill_overhead_s", "decode_overhead_s", "host_sequence_s")
    constants = {name: factor * getattr(nodes.calibration, name) for name in seconds}
    limits = {
        field.name: factor * getattr(nodes, field.name)
        for field in dataclasses.fields(nodes)
        if field.name.endswith("_s")
    }
    return dataclasses.replace(
        nodes, node=node, calibration=dataclasses.replace(nodes.calibration, **constants), **limits
    )


def assert_scaled(trace, nodes, factor, seed, engine):
    slower = dataclasses.replace(trace, arrival_s=factor * trace.arrival_s)
    one = simulate(trace, nodes, rng=np.random.default_rng(seed), engine=engine)
    other = simulate(slower, scaled_cluster(nodes, factor), rng=np.random.default_rng(seed), engine=engine)
    assert other.counters == one.counters
    for name in TIMES:
        np.testing.assert_array_equal(getattr(other, name), factor * getattr(one, name), err_msg=name)
    for name in NOT_TIMES:
        np.testing.assert_array_equal(getattr(other, name), getattr(one, name), err_msg=name)


powers_of_two = st.sampled_from([0.125, 0.5, 2.0, 1024.0])
"""With which nothing is rounded."""


@given(small_traces(), small_settings, powers_of_two, seeds, engines)
def test_scaling_all_times_scales_all_results(trace, setting, factor, seed, engine):
    assert_scaled(trace, cluster(**setting), factor, seed, engine)


@given(small_traces(), coupled_settings, powers_of_two, engines)
def test_scaling_all_times_scales_all_results_of_coupled_nodes(trace, setting, factor, engine):
    assert_scaled(trace, coupled(**setting), factor, 0, engine)


# Names


@given(small_traces(), small_settings, st.data(), engines)
def test_permuting_node_names_changes_nothing_but_names(trace, setting, data, engine):
    """Random routing, as every other one breaks ties by the node's number."""
    nodes = cluster(**(setting | {"routing": Routing.RANDOM}))
    count = nodes.prefill_instances
    names = data.draw(st.permutations(range(count)))
    chosen = data.draw(st.lists(st.integers(0, count - 1), min_size=len(trace), max_size=len(trace)))
    one, other = (
        simulate(trace, nodes, rng=Given([(node + 0.5) / count for node in routed]), engine=engine)
        for routed in (chosen, [names[node] for node in chosen])
    )
    assert other.counters == one.counters
    assert other.prefill_node.tolist() == [names[node] if node >= 0 else node for node in one.prefill_node]
    for name in [*TIMES, *NOT_TIMES]:
        if name != "prefill_node":
            np.testing.assert_array_equal(getattr(other, name), getattr(one, name), err_msg=name)


# Idle moments

GAP_S = 2.0**14
"""Long enough for everything here to end."""


def later(result, first):
    """The rows from `first` on."""
    return {name: getattr(result, name)[first:] for name in [*TIMES, *NOT_TIMES]}


@given(small_traces(max_requests=15), small_traces(max_requests=15), small_settings, seeds, engines)
def test_without_caches_nothing_is_carried_over_an_idle_moment(before, after, setting, seed, engine):
    """What comes after it is as if nothing had been before.

    The engine begins with empty caches and takes none over, so this is as far as a trace can be split.
    """
    empty = {name: 0 for name in setting if name.endswith("cache_tokens_per_node")}
    nodes = cluster(**(setting | empty))
    draws = np.random.default_rng(seed).random(len(before) + len(after))
    whole = simulate(joined(before, after, GAP_S), nodes, rng=Given(draws), engine=engine)
    assert not (whole.finish_s[: len(before)] >= GAP_S).any()
    alone = dataclasses.replace(after, arrival_s=GAP_S + after.arrival_s)
    part = simulate(alone, nodes, rng=Given(draws[len(before) :]), engine=engine)
    for name, values in later(whole, len(before)).items():
        np.testing.assert_array_equal(values, getattr(part, name), err_msg=name)


@given(small_traces(max_requests=15), small_traces(max_requests=15), small_settings, seeds, engines)
def test_how_long_an_idle_moment_lasts_changes_nothing_but_the_clock(before, after, setting, seed, engine):
    """Caches and counts are carried over it unchanged; times differ by rounding, so no exact ties."""
    jitter = np.cumsum(np.random.default_rng(seed).random(len(after)) / 64)
    after = dataclasses.replace(after, arrival_s=after.arrival_s + np.round(jitter * 2**20) / 2**20)
    nodes = cluster(**setting)
    one, other = (
        simulate(joined(before, after, gap_s), nodes, rng=np.random.default_rng(seed), engine=engine)
        for gap_s in (GAP_S, 2 * GAP_S)
    )
    assert other.counters == one.counters
    for name, values in later(one, len(before)).items():
        moved = getattr(other, name)[len(before) :]
        if name in NOT_TIMES or name == "prefill_s":
            np.testing.assert_array_equal(moved, values, err_msg=name)
        else:
            shift_s = 0.0 if name == "tbt_s" else GAP_S
            np.testing.assert_allclose(moved, values + shift_s, rtol=0, atol=1e-6, err_msg=name)


@given(small_traces(), small_settings, seeds, engines)
def test_the_future_does_not_change_the_past(trace, setting, seed, engine):
    """What ended before the last request came is the same without it."""
    assume(len(trace) > 1)
    assume(setting["eviction"] != "belady")  # which looks ahead
    nodes, draws = cluster(**setting), np.random.default_rng(seed).random(len(trace))
    whole = simulate(trace, nodes, rng=Given(draws), engine=engine)
    start = simulate(trace.head(len(trace) - 1), nodes, rng=Given(draws[:-1]), engine=engine)
    past = start.finish_s < trace.arrival_s[-1]
    for name in [*TIMES, *NOT_TIMES]:
        np.testing.assert_array_equal(getattr(whole, name)[:-1][past], getattr(start, name)[past], name)


# More and faster nodes, first come, first served

FIRST_COME = {
    "routing": Routing.LOAD_BALANCING,
    "admission": Admission.NONE,
    "cache_tokens_per_node": 0,
    "decode_nodes": 1,
}


def prompts_alone(trace):
    """The same prompts, each with an answer of one token, so that nothing is decoded."""
    return dataclasses.replace(trace, output_tokens=np.ones_like(trace.output_tokens))


@given(small_traces(max_requests=60), st.integers(1, 6), st.integers(1, 3), engines)
def test_more_nodes_let_no_request_wait_longer(trace, nodes, more, engine):
    """One queue in effect, as each request goes where work ends first (Kiefer and Wolfowitz, 1955).

    Holds for every request, not only on average: no cache, so that all nodes take equally long.
    """
    few, many = (
        simulate(prompts_alone(trace), cluster(prefill_nodes=count, **FIRST_COME), engine=engine).wait_s
        for count in (nodes, nodes + more)
    )
    assert (many <= few + 1e-9).all()


@given(small_traces(max_requests=60), st.integers(1, 4), st.floats(1, 4), engines)
def test_faster_nodes_let_no_request_wait_longer(trace, nodes, factor, engine):
    slow = cluster(prefill_nodes=nodes, **FIRST_COME)
    node = dataclasses.replace(slow.node, peak_flops_per_s=factor * slow.node.peak_flops_per_s)
    fast = dataclasses.replace(slow, node=node)
    waits_s = [simulate(prompts_alone(trace), each, engine=engine).wait_s for each in (slow, fast)]
    assert (waits_s[1] <= waits_s[0] + 1e-9).all()


def test_with_caches_another_node_may_make_a_request_wait_longer():
    """Where prefixes are reused it is no law: each of two nodes gets the prompt that the other one has."""
    one, other, last = (range(first, first + 100) for first in (0, 1000, 2000))
    arrivals = [(0.0, one), (0.0, other), (100.0, other), (100.0, one), (101.0, last)]
    trace = Trace.from_requests([(now_s, 51_200, 1, list(blocks)) for now_s, blocks in arrivals])
    setting = {"routing": Routing.LOAD_BALANCING, "cache_tokens_per_node": 10**6}
    few, many = (simulate(trace, cluster(prefill_nodes=count, **setting)).wait_s[-1] for count in (1, 2))
    assert many > few + 1
