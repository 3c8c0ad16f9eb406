"""The live figures under load, of Mooncake and of the baselines, against the experiments."""

import dataclasses
import json

import pytest
from tests.live.small import close

from mooncake_companion import traces
from mooncake_companion.experiments import (
    end_to_end,
    goodput,
    overload,
)
from mooncake_companion.live import overload as live_overload
from mooncake_companion.live.answers import answer, compute
from mooncake_companion.live.goodput import FATES as goodput_fates
from mooncake_companion.publish import live


@pytest.mark.parametrize("admission", ["early", "predictive"])
def test_goodput_is_the_experiments(busy_hour, admission):
    given = {"nodes": "4", "prefill_nodes": "2", "ttft_limit_s": "20", "tbt_limit_s": "0.2"}
    given |= {"highest_speedup": "2", "admission": admission, "requests": "300"}
    outcome, _ = compute("goodput", given, live.slice_of(busy_hour))
    params = goodput.Params(nodes=4, prefill_nodes=2, ttft_limit_s=20.0, admission=admission)
    trace = busy_hour.head(300)
    rows = {(row["system"], row["arrival_speedup"]): row for row in outcome.rows}
    assert len(rows) == len(outcome.rows) == 5 * len(goodput.SYSTEMS)
    for speedup in (0.4, 2.0):
        faster = dataclasses.replace(trace, arrival_s=trace.arrival_s / speedup)
        for system, limit_s, result in goodput._replays(params, faster):
            if limit_s == 0.2:
                shares = goodput._shares(result, 20.0, limit_s)
                offered = {"offered_requests_per_s": 300 / faster.arrival_s[-1], "tbt_limit_s": limit_s}
                close(rows.pop((system, speedup)), shares | offered)
    assert all(sum(row[fate] for fate in goodput_fates) == pytest.approx(1) for row in outcome.rows)
    assert {fate for fate in goodput_fates if any(row[fate] for row in outcome.rows)} == set(goodput_fates)
    assert outcome.fixed == {"goodput_workload": "conversation", "goodput_limit": 0.2}


def test_the_systems_rhythms_are_the_experiments(busy_hour, monkeypatch):
    given = {"nodes": "4", "prefill_nodes": "2", "arrival_speedup": "0.5", "chunk_tokens": "1000"}
    monkeypatch.setattr(traces, "load", lambda name: busy_hour.head(200))
    params = end_to_end.Params(nodes=4, prefill_nodes=2, arrival_speedup=0.5, chunk_tokens=1000)
    sliced = live.slice_of(busy_hour.head(200))
    for figure, measure in (("effective-capacity", end_to_end.run), ("tbt-distribution", end_to_end.curves)):
        outcome, _ = compute(figure, given, sliced)
        expected = measure(params).query("origin == 'modelled'").to_dict("records")
        for row, same in zip(outcome.rows, expected, strict=True):
            close(row, same)
            assert row.keys() == same.keys() | {"workload"}
    assert len({row["share"] for row in outcome.rows}) > 50


def overloaded(trace, *, speedup, **settings):
    faster = dataclasses.replace(trace, arrival_s=trace.arrival_s / speedup)
    params = overload.Params(arrival_speedup=speedup, **settings)
    return faster, params, overload.demand(faster, params)


BUSY = {"prefill_nodes": "8", "arrival_speedup": "2", "tbt_limit_s": "0.06", "ttft_limit_s": "28"}


"""With so much, and one decode node, each policy turns others away."""


@pytest.fixture(scope="module")
def busy(busy_hour):
    return overloaded(busy_hour, speedup=2.0, prefill_nodes=8, tbt_limit_s=0.06, ttft_limit_s=28.0)


@pytest.mark.parametrize("decode_nodes", [0, 1])
def test_what_is_rejected_is_what_the_experiment_rejects(busy_hour, busy, decode_nodes):
    trace, params, asked = busy
    given = BUSY | {"decode_pool_nodes": str(decode_nodes), "requests": "400"}
    outcome, _ = compute("overload-rejected", given, live.slice_of(busy_hour))
    nodes = decode_nodes or overload.overloaded_decode_nodes(asked, params)
    expected = overload._rows(trace, params, nodes, overload.REJECTING)
    for row, same in zip(outcome.rows, expected, strict=True):
        close(row, same)
        assert row.keys() == same.keys() | {"rejected_share"}
        assert row["rejected_at_arrival"] + row["rejected_after_prefill"] == row["rejected"] > 0
    if decode_nodes:
        assert len({row["rejected"] for row in outcome.rows}) == 3
    assert outcome.rows[0]["decode_nodes"] == nodes


def test_the_decode_node_rule_takes_fewer_where_the_slice_overloads_no_more(busy_hour):
    given = {"arrival_speedup": "1", "requests": "400"}
    outcome, _ = compute("overload-rejected", given, live.slice_of(busy_hour))
    assert {row["decode_nodes"] for row in outcome.rows} == {1}


def test_pool_loads_are_the_experiments(busy_hour, busy):
    trace, params, asked = busy
    given = {name: BUSY[name] for name in ("tbt_limit_s", "ttft_limit_s")} | {
        "prefill_pool_nodes": "8",
        "decode_pool_nodes": "1",
        "replay_speedup": "2",
        "requests": "400",
    }
    outcome, told = compute("overload-pool-loads", given, live.slice_of(busy_hour))
    interval_s = trace.arrival_s[-1] / 60
    expected = [
        row
        for cluster, result in overload._each(trace, params, 1, asked, overload.REJECTING)
        for row in overload._load_table(cluster, result, 0.0, 1200.0, interval_s).to_dict("records")
    ]
    for row, same in zip(outcome.rows, expected, strict=True):
        close(row, same)
        assert row.keys() == same.keys()
    assert max(row["load"] for row in outcome.rows) > 0.9
    assert told.endswith("is left out.")


def test_long_replays_show_the_last_twenty_minutes_as_the_book_does(conversation):
    speedup = float(conversation.arrival_s[-1]) / 1500
    given = {"replay_speedup": repr(speedup), "prefill_pool_nodes": "2", "decode_pool_nodes": "1"}
    outcome, _ = compute("overload-pool-loads", given, live.slice_of(conversation))
    trace, params, asked = overloaded(conversation, speedup=speedup, prefill_nodes=2)
    runs = overload._each(trace, params, 1, asked, overload.REJECTING)
    expected = [
        row
        for cluster, result in runs
        for row in overload._load_table(cluster, result, 300.0, 1200.0).to_dict("records")
    ]
    for row, same in zip(outcome.rows, expected, strict=True):
        close(row, same)


def test_decode_times_are_tried_as_in_the_experiment(busy_hour, monkeypatch):
    monkeypatch.setattr(traces, "load", lambda name: busy_hour)
    params = overload.Params(arrival_speedup=2.0, prefill_nodes=8, tbt_limit_s=0.06, ttft_limit_s=28.0)
    expected = overload.decode_time_sweep(params).to_dict("records")
    outcome, _ = compute("overload-decode-time", BUSY | {"requests": "400"}, live.slice_of(busy_hour))
    for row, same in zip(outcome.rows, expected, strict=True):
        close(row, same)
        assert row.keys() == same.keys()
    assert len({row["rejected"] for row in outcome.rows[-7:]}) == 3


@pytest.mark.parametrize("given", [{}, {"identical_input_tokens": "30000", "prefill_nodes": "2"}])
def test_identical_requests_load_the_pools_as_in_the_experiment(given):
    outcome, _ = compute("overload-mechanism", given, None)
    params = overload.Params(**{name: int(value) for name, value in given.items()})
    expected = overload.mechanism_by_length(params, input_tokens=()).to_dict("records")
    for row, same in zip(outcome.rows, expected, strict=True):
        close(row, same)
        assert row.keys() == same.keys()
    assert outcome.fixed == {"length": params.identical_input_tokens}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"tbt_limit_s": "0.01"}, "tbt_limit_s: within 0.01 s a decode node has no room for one request"),
        ({"identical_input_tokens": "1024"}, "identical_input_tokens: 30,783 prompts of 1,024 tokens"),
        (
            {"prefill_nodes": "64", "identical_input_tokens": "8192", "identical_prefill_excess": "0.1"},
            "identical_prefill_excess: with 0.1 no answer of at least 200 tokens",
        ),
    ],
)
def test_identical_requests_that_cannot_be_had_are_refused(given, told, monkeypatch):
    monkeypatch.setattr(live_overload, "_MOST_DECODE_NODES", 20)
    answered = json.loads(answer("overload-mechanism", json.dumps(given), "", lambda *_: None))
    assert told in answered["error"]
    assert answered["field"] == told.partition(":")[0]
