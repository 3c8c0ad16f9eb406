"""Algorithm 1 and its baselines on cases small enough to check by hand."""

import math

import pytest

from mooncake_companion.simulator.scheduler import (
    NO_NODE,
    DecodeCandidate,
    Estimates,
    PrefillView,
    Prefix,
    Routing,
    candidates,
    choose,
    choose_decode,
)


def prefill_s(input_tokens, prefix):
    """A token takes 1 s to compute, or 1.5 s to read from SSD beside that."""
    seconds = max(float(input_tokens - prefix.tokens), 1.5 * prefix.ssd_tokens)
    return seconds, seconds


ESTIMATES = Estimates(prefill_s=prefill_s, transfer_s=lambda tokens: tokens / 8)


def view_of(prefixes, queue_s, memory=None):
    prefixes = [p if isinstance(p, Prefix) else Prefix(p) for p in prefixes]
    memory = prefixes if memory is None else [Prefix(tokens) for tokens in memory]
    return PrefillView(input_tokens=100, prefixes=prefixes, memory_prefixes=memory, queue_s=queue_s)


def pick(routing, prefix_tokens, queue_s, *, threshold=2.0, draw=0.0, memory=None, shortlist_nodes=0):
    view = view_of(prefix_tokens, queue_s, memory)
    fetching = threshold if routing is Routing.GLOBAL_CACHE_AWARE else math.inf
    choices = candidates(view, ESTIMATES, balancing_threshold=fetching)
    return choose(routing, choices, draw, shortlist_nodes)


def test_a_node_far_behind_the_best_prefix_fetches_the_difference():
    chosen = pick(Routing.GLOBAL_CACHE_AWARE, [80, 16], [50.0, 0.0])
    assert (chosen.node, chosen.source_node) == (1, 0)
    assert (chosen.local_tokens, chosen.fetched_tokens, chosen.reused_tokens) == (16, 64, 80)
    assert chosen.ttft_s == 64 / 8 + 0.0 + 20.0


def test_a_node_near_the_best_prefix_recomputes():
    chosen = pick(Routing.GLOBAL_CACHE_AWARE, [80, 40], [50.0, 0.0], threshold=2.0)
    assert (chosen.node, chosen.fetched_tokens, chosen.source_node) == (1, 0, NO_NODE)
    assert chosen.ttft_s == 60.0


def test_a_node_without_any_prefix_needs_no_division():
    chosen = pick(Routing.GLOBAL_CACHE_AWARE, [8, 0], [100.0, 0.0], threshold=1e9)
    assert (chosen.node, chosen.fetched_tokens) == (1, 8)
    assert pick(Routing.GLOBAL_CACHE_AWARE, [0, 0], [0.0, 0.0]).fetched_tokens == 0


def test_local_routing_weighs_queue_against_its_own_prefix_and_never_fetches():
    assert pick(Routing.LOCAL_CACHE_AWARE, [80, 0], [70.0, 0.0]).node == 0
    chosen = pick(Routing.LOCAL_CACHE_AWARE, [80, 0], [90.0, 0.0])
    assert (chosen.node, chosen.fetched_tokens) == (1, 0)


@pytest.mark.parametrize(("shortlist_nodes", "node"), [(0, 0), (1, 1), (2, 3), (3, 0), (9, 0)])
def test_a_shortlist_hides_the_longest_prefix_behind_a_longer_queue(shortlist_nodes, node):
    """Queues of 0, 1 and 2 s are listed first, of equal ones the lower node."""
    prefix_tokens, queue_s = [80, 0, 70, 40], [2.0, 0.0, 2.0, 1.0]
    chosen = pick(Routing.LOCAL_CACHE_AWARE, prefix_tokens, queue_s, shortlist_nodes=shortlist_nodes)
    assert chosen.node == node


def test_load_balancing_looks_at_the_queue_alone():
    assert pick(Routing.LOAD_BALANCING, [80, 0], [1.0, 0.5]).node == 1


@pytest.mark.parametrize(("draw", "node"), [(0.0, 0), (0.49, 0), (0.5, 1), (0.999999, 1)])
def test_random_follows_its_draw(draw, node):
    assert pick(Routing.RANDOM, [80, 0], [1.0, 0.5], draw=draw).node == node


@pytest.mark.parametrize("routing", [r for r in Routing if r is not Routing.RANDOM])
def test_of_equal_nodes_the_lowest_is_chosen_and_is_the_source(routing):
    assert pick(routing, [8, 8, 8], [1.0, 1.0, 1.0]).node == 0
    view = view_of([0, 8, 8], [0.0] * 3)
    assert candidates(view, ESTIMATES, balancing_threshold=1.0)[0].source_node == 1


def test_a_prefix_on_ssd_is_read_if_the_prefill_then_ends_no_later():
    whole = Prefix(tokens=60, ssd_tokens=30)
    assert pick(Routing.LOCAL_CACHE_AWARE, [whole], [0.0], memory=[30])[1:4] == (60, 0, 30)
    slow = Prefix(tokens=60, ssd_tokens=50)
    assert pick(Routing.LOCAL_CACHE_AWARE, [slow], [0.0], memory=[10])[1:4] == (60, 0, 50), "75 s, not 90"
    slower = Prefix(tokens=60, ssd_tokens=59)
    chosen = pick(Routing.LOCAL_CACHE_AWARE, [slower], [0.0], memory=[30])
    assert chosen[1:4] == (30, 0, 0)
    assert chosen.prefill_s == 70.0


def test_nobody_reads_from_the_ssd_of_another_node():
    whole = Prefix(tokens=90, ssd_tokens=10)
    chosen = pick(Routing.GLOBAL_CACHE_AWARE, [whole, 0], [500.0, 0.0], memory=[40, 0])
    assert (chosen.node, chosen.source_node, chosen.fetched_tokens) == (1, 0, 40)


def test_of_decode_nodes_the_one_with_the_smallest_kv_cache_is_chosen():
    choices = [DecodeCandidate(0, 1, 90, 1.0), DecodeCandidate(1, 9, 10, 2.0), DecodeCandidate(2, 1, 10, 2.0)]
    assert choose_decode(choices).node == 1
