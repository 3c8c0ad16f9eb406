"""A hot prefix: conservation, limits that can be computed by hand, and the tipping over."""

import dataclasses

import numpy as np
import pytest

from mooncake_companion.costs import load_calibration
from mooncake_companion.experiments import hot_holder

PARAMS = hot_holder.Params(requests=150)


def test_one_fetch_alone_takes_its_bytes_over_what_the_network_carries():
    network = load_calibration().network_utilisation * 400e9 / 8
    assert PARAMS.alone_s(400) == pytest.approx(65_536 * 327_680 / network)


@pytest.mark.parametrize("keep", [True, False])
def test_fetches_at_once_share_the_holders_link(keep):
    """Seven at once are all there after seven times one alone; twice as many join, or take twice as long."""
    for count, copies in ((7, 7), (14, 7 if keep else 14)):
        waits_s, started = hot_holder._fetch_all(PARAMS, 400, np.zeros(count), keep)
        assert started == copies
        assert waits_s == pytest.approx([copies * PARAMS.alone_s(400)] * count)


def test_fetches_far_apart_do_not_meet():
    waits_s, started = hot_holder._fetch_all(PARAMS, 400, 100.0 * np.arange(20), False)
    assert waits_s == pytest.approx([PARAMS.alone_s(400)] * 20)
    assert started == 20


def test_kept_copies_end_the_fetches_and_forgotten_ones_pile_up():
    table = hot_holder.fetches(PARAMS).set_index(["copies", "offered_load"])
    assert set(table.loc[hot_holder.KEPT, "fetches"]) == {7}
    assert set(table.loc[hot_holder.FORGOTTEN, "fetches"]) == {150}
    for copies in (hot_holder.KEPT, hot_holder.FORGOTTEN):
        assert table.loc[copies, "wait_s"].is_monotonic_increasing
    assert table.loc[(hot_holder.FORGOTTEN, 1.2), "wait_s"] > 5 * table["alone_s"].iloc[0]
    assert (table.loc[hot_holder.FORGOTTEN, "wait_s"] >= table["alone_s"].iloc[0]).all()


def test_bytes_under_way_are_those_of_whole_prefixes_and_all_arrive():
    table = hot_holder.under_way(PARAMS)
    served = hot_holder.run(PARAMS).set_index("bandwidth_gbit_per_s")["fetches"]
    for bandwidth, rows in table.groupby("bandwidth_gbit_per_s"):
        whole = rows["under_way_bytes"] / PARAMS.prefix_bytes
        assert (whole == whole.round()).all()
        assert (whole >= 0).all()
        assert rows["under_way_bytes"].iloc[-1] == 0
        assert rows["received_bytes"].iloc[-1] == served[bandwidth] * PARAMS.prefix_bytes


def test_a_slower_network_tips_over():
    """Half the bandwidth makes fetches far more than twice as long: they are started over and over."""
    table = hot_holder.run(dataclasses.replace(PARAMS, requests=400)).set_index("bandwidth_gbit_per_s")
    assert table["fetches"].is_monotonic_decreasing
    assert table.loc[200, "fetches"] > 5 * table.loc[400, "fetches"]
    assert table.loc[200, "fetch_s"] > 10 * table.loc[400, "fetch_s"]
    assert table.loc[800, "fetches"] <= PARAMS.prefill_nodes


def test_a_prefix_that_ends_within_a_block_is_cut_to_whole_ones():
    odd = dataclasses.replace(PARAMS, prefix_tokens=1000, new_tokens=100, requests=10)
    trace = hot_holder._hot(odd)
    assert trace.input_tokens.tolist() == [512, *[1100] * 10]
    assert [len(trace.blocks_of(k)) for k in (0, 1, 10)] == [1, 3, 3]
    assert all(trace.blocks_of(k)[0] == 0 for k in range(11))
