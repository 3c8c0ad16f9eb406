"""The pools' load over time: counters that balance at every instant."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings

from mooncake_companion.costs import decode_step_time
from mooncake_companion.errors import InputError
from mooncake_companion.simulator import load_series, pool_series, reference, simulate, traffic_series
from mooncake_companion.simulator.clock import Order
from mooncake_companion.simulator.serving_path import requests_of
from mooncake_companion.traces import Trace
from tests.simulator.small import MODEL, cluster, coupled, coupled_settings, small_settings, small_traces


def assert_balanced(result):
    series = pool_series(result, interval_s=0.75)
    there = series[["waiting", "prefilling", "moving", "decoding", "finished", "rejected"]]
    assert (there >= 0).all(axis=None)
    assert (there.sum(axis="columns") == series["arrived"]).all()
    assert series["arrived"].iloc[-1] == len(result)
    assert series[["waiting", "prefilling", "moving", "decoding"]].iloc[-1].sum() == 0
    assert (series["context_tokens"] >= 0).all()


@given(small_traces(), small_settings)
@settings(max_examples=150)
def test_every_request_is_counted_once_at_every_time(trace, setting):
    result = simulate(trace, cluster(**setting), rng=np.random.default_rng(0))
    assert_balanced(result)
    series = pool_series(result, interval_s=0.75)
    assert series["prefilling"].max() <= setting["prefill_nodes"]


@given(small_traces(), coupled_settings)
@settings(max_examples=50)
def test_coupled_nodes_balance_too(trace, setting):
    assert_balanced(simulate(trace, coupled(**setting)))


def test_one_request_by_hand():
    result = simulate(Trace.from_requests([(1.0, 1000, 100, [0, 1])]), cluster())
    series = pool_series(result, interval_s=0.5).set_index("time_s")
    assert series.loc[0.5, "arrived"] == 0
    assert series.loc[1.5, ["arrived", "waiting", "prefilling"]].tolist() == [1, 0, 1]
    assert series.loc[3.0, ["prefilling", "decoding", "context_tokens"]].tolist() == [0, 1, 1000]
    assert series.iloc[-1]["finished"] == 1


@given(small_traces(), small_settings)
@settings(max_examples=100)
def test_loads_end_where_they_began(trace, setting):
    """Idle pools: nobody waits to prefill, and a decode step reads the weights alone."""
    nodes = cluster(**setting)
    result = simulate(trace, nodes, rng=np.random.default_rng(0))
    loads = load_series(result, nodes, interval_s=0.75)
    assert (loads[["prefill_load", "decode_load"]] >= 0).all(axis=None)
    idle = decode_step_time(nodes.node, nodes.model, 0, 0, calibration=nodes.calibration) / nodes.tbt_limit_s
    assert loads["decode_load"].min() >= idle - 1e-12
    busy = loads["prefill_load"] * nodes.prefill_instances * nodes.ttft_limit_s
    assert busy.max() <= np.nansum(result.first_token_s - result.arrival_s) + 1e-9


def test_loads_by_hand():
    """Two requests, one behind the other on the only prefill node; then both decode."""
    nodes = cluster(prefill_nodes=1, decode_nodes=1, ttft_limit_s=10.0, tbt_limit_s=0.5)
    requests = [(0.0, 1000, 400, [0, 1]), (0.0, 1000, 400, [2, 3]), (6.0, 10, 1, [4])]
    result = simulate(Trace.from_requests(requests), nodes)
    loads = load_series(result, nodes, interval_s=1.0).set_index("time_s")
    second_s = result.first_token_s[1]
    assert loads.loc[1.0, "prefill_load"] == pytest.approx((second_s - 1.0) / 10)
    assert loads.loc[5.0, "prefill_load"] == 0
    step_s = decode_step_time(nodes.node, nodes.model, 2, 2800, calibration=nodes.calibration)
    assert loads.loc[5.0, "decode_load"] == pytest.approx(step_s / 0.5)


def test_an_interval_must_be_positive():
    result = simulate(Trace.from_requests([(0.0, 10, 1, [0])]), cluster())
    with pytest.raises(InputError, match="interval_s"):
        pool_series(result, interval_s=0.0)
    with pytest.raises(InputError, match="interval_s"):
        load_series(result, cluster(), interval_s=-1.0)


KINDS = ("fetch", "stream", "load")


@given(small_traces(), small_settings)
@settings(max_examples=100)
def test_what_is_sent_and_not_received_is_under_way(trace, setting):
    """Against the flows that the reference engine has at each time, and its counters in the end."""
    nodes = cluster(**setting | {"return_answers": False})
    requests, under_way = requests_of(trace), []
    draws = np.random.default_rng(0).random(len(requests)).tolist()
    path = reference._ServingPath(requests, nodes, 512, draws, ())
    for index, request in enumerate(requests):
        path.clock.at(request.arrival_s, Order.ARRIVE, index, partial(path.arrive, index))
    times_s = np.arange(0.0, 12.0, 0.75)

    def look():
        by_kind = dict.fromkeys(KINDS, 0)
        for flow in path.transfers._flows:
            by_kind[KINDS[flow.number % reference._TRANSFERS]] += flow.size_bytes
        under_way.append(by_kind)

    for number, time_s in enumerate(times_s):
        path.clock.at(time_s, Order.PROBE, number, look)
    path.clock.run()
    result = simulate(trace, nodes, rng=np.random.default_rng(0))
    series = traffic_series(result, nodes, interval_s=0.75)
    for row, by_kind in zip(series.itertuples(), under_way, strict=False):
        for kind in KINDS:
            sent, received = getattr(row, f"{kind}_sent_bytes"), getattr(row, f"{kind}_received_bytes")
            assert sent - received == by_kind[kind]
    last = series.iloc[-1]
    for kind, counter in zip(KINDS, ("fetched", "streamed", "loaded"), strict=True):
        assert last[f"{kind}_received_bytes"] == last[f"{kind}_sent_bytes"]
        assert last[f"{kind}_sent_bytes"] == result.counters[f"{counter}_bytes"]
    assert last["dram_written_bytes"] + last["dram_read_bytes"] <= (
        MODEL.kv_bytes_per_token * result.input_tokens.sum()
    )
