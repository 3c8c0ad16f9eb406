"""The pools' load over time: counters that balance at every instant."""

import numpy as np
import pytest
from hypothesis import given, settings

from mooncake_companion.errors import InputError
from mooncake_companion.simulator import pool_series, simulate
from mooncake_companion.traces import Trace
from tests.simulator.small import cluster, coupled, coupled_settings, small_settings, small_traces


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


def test_an_interval_must_be_positive():
    result = simulate(Trace.from_requests([(0.0, 10, 1, [0])]), cluster())
    with pytest.raises(InputError, match="interval_s"):
        pool_series(result, interval_s=0.0)
