"""Decisions just at a limit: what happens at equality, on ties, and where there is nothing to weigh."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooncake_companion.simulator.overload import (
    Admission,
    DecodeLoad,
    Limits,
    is_full,
    largest_batch,
    mean_load,
    predicted_load,
    share_of_limits,
)
from mooncake_companion.simulator.scheduler import (
    NO_NODE,
    Action,
    Candidate,
    DecodeCandidate,
    Estimates,
    PrefillView,
    Prefix,
    Routing,
    candidates,
    choose,
    choose_decode,
)

NEVER = Estimates(prefill_s=lambda tokens, prefix: (0.0, 0.0), transfer_s=lambda tokens: 1e9)


def computing_s(input_tokens, prefix):
    """A second a token, half of which takes up the node; three for one that is read from SSD."""
    whole_s = float(input_tokens - prefix.tokens + 3 * prefix.ssd_tokens)
    return whole_s, whole_s / 2


ESTIMATES = Estimates(prefill_s=computing_s, transfer_s=lambda tokens: 0.25 + tokens / 8)


def view(prefixes, queue_s, memory=None):
    return PrefillView(100, prefixes, prefixes if memory is None else memory, queue_s)


def candidate(node, queue_s=0.0, prefill_s=0.0, transfer_s=0.0):
    return Candidate(node, 0, 0, 0, 0, NO_NODE, transfer_s, queue_s, prefill_s, prefill_s)


# What users write and read: these words stand in presets, results and figures


def test_words_of_routing_action_and_admission():
    assert [*Routing] == ["global_cache_aware", "local_cache_aware", "load_balancing", "random"]
    assert [*Action] == ["recompute", "hydrate", "migrate", "replicate"]
    assert [*Admission] == ["none", "baseline", "early", "predictive"]
    assert NO_NODE == -1, "as results have it"


def test_a_prefix_lies_in_dram_unless_it_says_otherwise():
    assert Prefix(7) == Prefix(tokens=7, vram_tokens=0, ssd_tokens=0)


# Algorithm 1


def test_every_term_of_a_candidate():
    """Node 0 has 60 tokens in memory, 10 of them in VRAM; node 1 has 20, and fetches 40."""
    prefixes = [Prefix(60, vram_tokens=10), Prefix(20, vram_tokens=5)]
    first, second = candidates(view(prefixes, [7.0, 3.0]), ESTIMATES, balancing_threshold=2.0)
    assert first == Candidate(
        node=0,
        local_tokens=60,
        vram_tokens=10,
        ssd_tokens=0,
        fetched_tokens=0,
        source_node=NO_NODE,
        transfer_s=0.0,
        queue_s=7.0,
        prefill_s=40.0,
        busy_s=20.0,
    )
    assert second == Candidate(
        node=1,
        local_tokens=20,
        vram_tokens=5,
        ssd_tokens=0,
        fetched_tokens=40,
        source_node=0,
        transfer_s=0.25 + 40 / 8,
        queue_s=3.0,
        prefill_s=40.0,
        busy_s=20.0,
    )
    assert (first.reused_tokens, second.reused_tokens) == (60, 60)
    assert (first.ttft_s, second.ttft_s) == (47.0, 48.25)


@pytest.mark.parametrize(("own", "fetched"), [(39, 41), (40, 0), (41, 0)])
def test_at_the_threshold_a_node_computes(own, fetched):
    """80 is twice 40: the text of section 4 has the node compute there."""
    found = candidates(view([Prefix(80), Prefix(own)], [0.0, 0.0]), ESTIMATES, balancing_threshold=2.0)
    assert found[1].fetched_tokens == fetched


def test_who_does_not_fetch_is_not_asked_how_long_it_would_take():
    choices = candidates(view([Prefix(9), Prefix(9)], [0.0, 0.0]), NEVER, balancing_threshold=1.0)
    assert [choice.transfer_s for choice in choices] == [0.0, 0.0]
    alone = candidates(view([Prefix(9), Prefix(0)], [0.0, 0.0]), NEVER, balancing_threshold=math.inf)
    assert [choice.fetched_tokens for choice in alone] == [0, 0], "an infinite threshold: nobody fetches"


@pytest.mark.parametrize(("ssd_tokens", "read"), [(9, True), (10, True), (11, False)])
def test_ssd_is_read_if_the_prefill_ends_no_later(ssd_tokens, read):
    """30 tokens less to compute, and three seconds for each of those on SSD."""
    whole = Prefix(60, ssd_tokens=ssd_tokens)
    (choice,) = candidates(view([whole], [0.0], [Prefix(30)]), ESTIMATES, balancing_threshold=math.inf)
    tokens = (60, ssd_tokens) if read else (30, 0)
    prefill_s = 40.0 + 3 * ssd_tokens if read else 70.0
    assert (choice.local_tokens, choice.ssd_tokens) == tokens
    assert (choice.prefill_s, choice.busy_s) == (prefill_s, prefill_s / 2)


# Choices


ties = st.lists(st.sampled_from([0.0, 1.0, 2.0]), min_size=1, max_size=6)


@given(ties, ties)
def test_of_equal_nodes_the_lowest(queue_s, prefill_s):
    choices = [candidate(node, *terms) for node, terms in enumerate(zip(queue_s, prefill_s, strict=False))]
    sums = [choice.ttft_s for choice in choices]
    assert choose(Routing.GLOBAL_CACHE_AWARE, choices, 0.9).node == sums.index(min(sums))
    queues = [choice.queue_s for choice in choices]
    assert choose(Routing.LOAD_BALANCING, choices, 0.9).node == queues.index(min(queues))


@given(ties, ties, st.integers(1, 6))
def test_a_shortlist_is_those_with_the_shortest_queues(queue_s, prefill_s, length):
    """Of equally long ones the lower nodes; among the listed the least sum, of equal ones the lowest node."""
    choices = [candidate(node, *terms) for node, terms in enumerate(zip(queue_s, prefill_s, strict=False))]
    listed = sorted((choice.queue_s, choice.node) for choice in choices)[:length]
    least = min((choices[node].ttft_s, node) for _, node in listed)
    assert choose(Routing.LOCAL_CACHE_AWARE, choices, 0.9, length).node == least[1]


def test_within_a_shortlist_the_lowest_node_wins_a_tie_and_not_the_shortest_queue():
    """Equal sums: node 1 waits less, but node 0 comes first."""
    choices = [candidate(0, queue_s=2.0, prefill_s=1.0), candidate(1, queue_s=1.0, prefill_s=2.0)]
    assert choose(Routing.LOCAL_CACHE_AWARE, choices, 0.0, 2).node == 0


def test_without_a_shortlist_all_are_weighed():
    choices = [candidate(0, queue_s=1.0, prefill_s=5.0), candidate(1, queue_s=3.0, prefill_s=1.0)]
    assert choose(Routing.LOCAL_CACHE_AWARE, choices, 0.0).node == 1
    assert choose(Routing.LOCAL_CACHE_AWARE, choices, 0.0, 1).node == 0


@pytest.mark.parametrize("nodes", [1, 3, 7])
def test_random_routing_gives_every_node_the_same_share(nodes):
    choices = [candidate(node) for node in range(nodes)]
    drawn = [choose(Routing.RANDOM, choices, (k + 0.5) / (10 * nodes)).node for k in range(10 * nodes)]
    assert drawn == [node for node in range(nodes) for _ in range(10)]


def test_decode_goes_by_tokens_and_not_by_step_sequences_or_number():
    choices = [DecodeCandidate(0, 1, 30, 1.0), DecodeCandidate(1, 9, 10, 9.0), DecodeCandidate(2, 2, 10, 2.0)]
    assert choose_decode(choices).node == 1


# Overload


LIMITS = Limits(step_s=lambda sequences, tokens: sequences + tokens / 100, tbt_s=5.0, vram_tokens=250)


@pytest.mark.parametrize(
    ("load", "tokens", "full"),
    [
        (DecodeLoad(2, 100), 100, False),  # a step of exactly 5 s
        (DecodeLoad(2, 100), 101, True),
        (DecodeLoad(0, 150), 100, False),  # exactly 250 tokens
        (DecodeLoad(0, 150), 101, True),
        (DecodeLoad(3.0, 99.0), 1, False),
        (DecodeLoad(3.5, 99.0), 1, True),  # the mean of a pool
    ],
)
def test_a_limit_may_be_reached_and_not_passed(load, tokens, full):
    assert is_full(load, tokens, LIMITS) is full


def test_either_limit_alone_makes_full():
    roomy = LIMITS._replace(vram_tokens=10**9)
    assert is_full(DecodeLoad(4, 100), 1, roomy)
    patient = LIMITS._replace(tbt_s=1e9)
    assert is_full(DecodeLoad(4, 250), 1, patient)
    assert not is_full(DecodeLoad(4, 100), 1, patient)


@given(st.integers(1, 120), st.integers(1, 250), st.integers(1, 9))
def test_the_largest_batch_has_room_for_its_last_and_for_no_more(tokens, vram_tokens, tbt_s):
    limits = LIMITS._replace(vram_tokens=vram_tokens, tbt_s=float(tbt_s))
    batch = largest_batch(tokens, limits)
    fits = [n * tokens <= vram_tokens and n + n * tokens / 100 <= tbt_s for n in range(1, 12)]
    assert batch == fits.index(False)


def test_share_of_limits_is_the_greater_share():
    assert share_of_limits(DecodeLoad(1, 200), LIMITS) == 200 / 250
    assert share_of_limits(DecodeLoad(4, 50), LIMITS) == 4.5 / 5
    assert share_of_limits(DecodeLoad(0, 0), LIMITS) == 0.0


def test_a_decode_counts_from_its_beginning_until_just_before_its_end():
    decodes = [(1.0, 10), (1.5, 200), (3.0, 3000)]
    assert predicted_load(decodes, at_s=0.5, decode_s=2.0) == DecodeLoad(0, 0)
    assert predicted_load(decodes, at_s=1.0, decode_s=2.0) == DecodeLoad(1, 10)
    assert predicted_load(decodes, at_s=2.0, decode_s=2.0) == DecodeLoad(2, 210)
    assert predicted_load(decodes, at_s=3.0, decode_s=2.0) == DecodeLoad(2, 3200)
    assert predicted_load(decodes, at_s=5.0, decode_s=2.0) == DecodeLoad(0, 0)


def test_the_load_of_a_pool_is_its_mean():
    assert mean_load([DecodeLoad(1, 10)]) == DecodeLoad(1, 10)
    assert mean_load([DecodeLoad(1, 10), DecodeLoad(2, 0), DecodeLoad(0, 2)]) == DecodeLoad(1.0, 4.0)
