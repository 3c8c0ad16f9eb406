"""What moves: flows that share links, and chunks that go through the stages of a pipeline, by hand."""

import math
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooncake_companion.simulator.clock import Clock, Order
from mooncake_companion.simulator.pipeline import advance
from mooncake_companion.simulator.transfer import Transfers, fair_rates, link_capacities

# Links

NODES = 3
NETWORK, HOST = 100.0, 400.0


def ends_of(flows, widths=(1, 1, 1)):
    """When flows end, and bytes by link; of each flow: its begin, kind, source, target and size."""
    clock, ends_s = Clock(), {}
    transfers = Transfers(clock, link_capacities(widths, NETWORK, HOST))

    def end(number):
        assert number not in ends_s, "ends once"
        ends_s[number] = clock.now_s

    for number, (begin_s, kind, *where, size_bytes) in enumerate(flows):
        start = partial(getattr(transfers, kind), number, *where, size_bytes, partial(end, number))
        clock.at(begin_s, Order.TRANSFER, number, start)
    clock.run()
    return [ends_s[number] for number in range(len(flows))], transfers.sent_bytes


def test_every_instance_has_three_links_as_wide_as_it_is():
    capacities = link_capacities([1, 2], 100.0, 400.0)
    assert capacities == [100.0, 200.0, 100.0, 200.0, 400.0, 800.0, math.inf]


def test_a_flow_takes_one_link_at_either_end_and_a_load_one_in_all():
    ends_s, sent = ends_of([(0.0, "send", 0, 2, 300), (0.0, "load", 1, 800)])
    assert ends_s == [300 / NETWORK, 800 / HOST]
    egress, ingress, host, rest = sent[:3], sent[3:6], sent[6:9], sent[9]
    assert (egress, ingress, host, rest) == ([300, 0, 0], [0, 0, 300], [0, 800, 0], 800)


@pytest.mark.parametrize("bytes_per_s", [0.25, 1.0, 2.0, 2.0**40])
def test_a_flow_alone_takes_its_bytes_over_the_rate_whatever_that_is(bytes_per_s):
    clock, ends_s = Clock(), []
    transfers = Transfers(clock, link_capacities([1, 1], bytes_per_s, bytes_per_s))
    clock.at(3.0, Order.ARRIVE, 0, lambda: transfers.send(0, 0, 1, 64, lambda: ends_s.append(clock.now_s)))
    clock.run()
    assert ends_s == [3.0 + 64 / bytes_per_s]


def test_flows_of_other_links_do_not_share():
    flows = [(0.0, "send", 0, 1, 300), (0.0, "send", 1, 0, 300), (0.0, "load", 0, 400), (0.0, "load", 1, 400)]
    assert ends_of(flows)[0] == [3.0, 3.0, 1.0, 1.0]


@pytest.mark.parametrize(("first", "second"), [((0, 1), (0, 2)), ((0, 2), (1, 2))])
def test_two_flows_share_a_link_until_one_has_ended(first, second):
    """Of egress or of ingress: 100 bytes each by 2 s, then the longer one goes on alone."""
    ends_s, sent = ends_of([(0.0, "send", *first, 100), (0.0, "send", *second, 300)])
    assert ends_s == [2.0, 4.0]
    assert sum(sent) == 2 * 400


def test_who_comes_later_takes_its_share_from_then_on():
    """100 bytes alone by 1 s; 100 more by 3 s, of each; the other's last 50 alone."""
    ends_s, _ = ends_of([(0.0, "send", 0, 1, 200), (1.0, "send", 0, 2, 150)])
    assert ends_s == [3.0, 3.5]


def test_a_flow_whose_rate_stays_goes_on_as_it_was():
    """The second pair shares another link: nothing of the first one's is worked out anew."""
    ends_s, _ = ends_of([(0.0, "send", 0, 1, 200), (1.0, "send", 2, 0, 50), (1.0, "send", 2, 0, 50)])
    assert ends_s == [2.0, 2.0, 2.0]


def test_of_flows_that_end_together_the_lower_number_is_told_first():
    """Whatever kind they are, and in whatever order they began: the number decides."""
    clock, told = Clock(), []
    transfers = Transfers(clock, link_capacities((1, 1, 1), NETWORK, HOST))
    transfers.load(7, 0, 400, partial(told.append, 7))
    transfers.send(3, 0, 1, 100, partial(told.append, 3))
    transfers.load(5, 1, 400, partial(told.append, 5))
    clock.run()
    assert (told, clock.now_s) == ([3, 5, 7], 1.0)


def test_a_wide_instance_has_the_links_of_all_its_nodes():
    """100 from two sources each, of which the target takes both at full rate."""
    assert ends_of([(0.0, "send", 0, 1, 100), (0.0, "send", 2, 1, 100)], widths=(1, 2, 1))[0] == [1.0, 1.0]


def test_what_no_flow_needs_is_left_to_the_others():
    """Three flows into node 2, one of which shares its egress with three others: 25 for it, 37.5 for two."""
    links = [(0, 5), (1, 5), (1, 4), (1, 4), (1, 3), (2, 5)]
    capacities = link_capacities([1, 1, 1], 100.0, 400.0)
    users = [sum(link in pair for pair in links) for link in range(len(capacities))]
    rates, spare = [-1.0] * len(links), list(capacities)
    fair_rates([a for a, _ in links], [b for _, b in links], spare, users, rates)
    assert rates == [37.5, 25.0, 25.0, 25.0, 25.0, 37.5]
    assert users == [0] * len(capacities)
    assert spare[:6] == [62.5, 0.0, 62.5, 75.0, 50.0, 0.0], "what is used up is gone"


sizes = st.integers(1, 50)
begins = st.sampled_from([0.0, 0.5, 1.0, 3.0])
ends = st.permutations(range(NODES)).map(lambda order: order[:2])


@given(st.lists(st.tuples(begins, ends, sizes), min_size=1, max_size=8))
def test_no_link_carries_more_than_it_can(flows):
    """No flow ends sooner than alone, and a link's last one not before all its bytes could have passed."""
    spread = [(begin_s, "send", *pair, size) for begin_s, pair, size in flows]
    ends_s, sent = ends_of(spread)
    for (begin_s, _, size), end_s in zip(flows, ends_s, strict=True):
        assert end_s >= begin_s + size / NETWORK - 1e-9
    for side, first_link in enumerate((0, NODES)):
        for node in range(NODES):
            mine = [(f, end_s) for f, end_s in zip(flows, ends_s, strict=True) if f[1][side] == node]
            passed = sum(size for (_, _, size), _ in mine)
            assert sent[first_link + node] == passed
            if mine:
                first_s, last_s = min(f[0] for f, _ in mine), max(end_s for _, end_s in mine)
                assert last_s >= first_s + passed / NETWORK - 1e-9


# Stages


def test_chunks_through_two_stages_by_hand():
    """A second a token, shared by two stages; chunks of 4, 4 and 2, which take 0.25 s a token to hand on."""
    ends_s = [3.0, 5.0]
    advance(ends_s, 4.0, 0.5, 1.0, 0.0, 0.25, 10, 0, 4)
    assert ends_s[0] == 4.0 + 0.5 + 10 / 2
    assert ends_s[1] == (4.5 + 2 + 1) + 2 + 2 + 1, "each chunk is there when the one before it is done"


def test_attention_makes_later_chunks_longer():
    """A second a pair: 16, 48 and 36 over one stage, after a prefix of none; 48 and 36 after one of 4."""
    ends_s = [0.0]
    advance(ends_s, 0.0, 0.0, 0.0, 1.0, 9.0, 10, 0, 4)
    assert ends_s == [100.0]
    advance(ends_s, 200.0, 0.0, 0.0, 1.0, 9.0, 10, 4, 4)
    assert ends_s == [284.0]


def test_a_stage_that_is_still_busy_is_waited_for():
    """Whoever is before it holds the second stage until 50 s, and the first one no longer."""
    ends_s = [0.0, 50.0, 0.0]
    advance(ends_s, 10.0, 0.0, 3.0, 0.0, 0.0, 4, 0, 4)
    assert ends_s == [14.0, 54.0, 58.0]


def test_a_hop_takes_as_long_as_its_chunk_is():
    """2 s a token: 8 s for a chunk of 4, and 2 s for one of 1."""
    ends_s = [0.0, 0.0]
    advance(ends_s, 0.0, 0.0, 2.0, 0.0, 2.0, 5, 0, 4)
    assert ends_s == [5.0, 17.0], "the second chunk waits until the first has left the stage"
    ends_s = [0.0, 0.0]
    advance(ends_s, 0.0, 0.0, 2.0, 0.0, 2.0, 4, 3, 4)
    assert ends_s == [1.0, 4.0]


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 4), st.sampled_from([0.0, 0.5]))
def test_a_stage_computes_its_share_and_the_last_one_all_the_rest(tokens, chunk_tokens, stages, hop_token_s):
    """In an empty pipeline with equal chunks: the flow shop's makespan."""
    whole = tokens * chunk_tokens
    ends_s = [0.0] * stages
    advance(ends_s, 0.0, 0.5, float(stages), 0.0, hop_token_s, whole, 0, chunk_tokens)
    handover_s = chunk_tokens * (1 + hop_token_s)
    assert ends_s == pytest.approx([0.5 + whole + stage * handover_s for stage in range(stages)])
