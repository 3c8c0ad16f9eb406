"""The live figures of the scheduler and of what it moves, against the experiments."""

import json
import random

import numpy as np
import pytest
from tests.live.small import alike, head

from mooncake_companion import charts, traces
from mooncake_companion.experiments import (
    balancing_threshold,
    end_to_end,
    hot_holder,
    prefill_scheduling,
    prefill_scheduling_arxiv,
    returned_answers,
    served_in_time,
)
from mooncake_companion.experiments import request_rate as experiment
from mooncake_companion.live import request_rate
from mooncake_companion.live.answers import answer, compute
from mooncake_companion.live.hot_holder import HEAD_START_S, hot_requests
from mooncake_companion.publish import live
from mooncake_companion.simulator import traffic_series
from mooncake_companion.statistics import interpolate


@pytest.fixture
def replaying(monkeypatch):
    """Have the experiments replay the start of a trace, and give what the page has of it."""

    def replayed(trace):
        monkeypatch.setattr(traces, "load", lambda name: trace)
        return live.slice_of(trace)

    return replayed


def test_the_earlier_experiment_is_the_reports(replaying):
    given = {"nodes": "3", "prefill_nodes": "2", "arrival_speedup": "1.5", "cache_tokens_per_node": "200000"}
    outcome, told = compute("prefill-scheduling-ttft-arxiv", given, replaying(head("arxiv")))
    params = prefill_scheduling_arxiv.Params(
        nodes=3, prefill_nodes=2, arrival_speedup=1.5, cache_tokens_per_node=200_000, replicates=1
    )
    modelled = prefill_scheduling_arxiv.run(params).query("origin == 'modelled'")
    alike(outcome.rows, modelled[modelled["prefill_nodes"] == 2].dropna(axis="columns", how="all"))
    assert len({row["mean_s"] for row in outcome.rows}) > 1
    assert outcome.fixed == {"split_of_prefill_scheduling_ttft_arxiv": 2}
    assert "prefill_nodes = 2" in told


LOADED = {"nodes": "5", "prefill_nodes": "3", "arrival_speedup": "2", "kvcache_balancing_threshold": "7"}


def test_ttft_by_threshold_is_the_experiments(busy_hour, replaying):
    outcome, _ = compute("balancing-threshold-ttft", LOADED | {"requests": "300"}, replaying(busy_hour))
    replaying(busy_hour.head(300))
    params = prefill_scheduling.Params(nodes=5, prefill_nodes=3, arrival_speedup=2.0)
    swept = prefill_scheduling.threshold_sweep(params)["threshold"]  # in the book
    assert len(outcome.rows) == len(swept) + 1
    tried = tuple(sorted([*swept, 7.0]))
    alike(outcome.rows, prefill_scheduling.threshold_sweep(params, tried))
    assert len({row["mean_s"] for row in outcome.rows}) > 5
    assert f"; {outcome.rows[5]['mean_s']:.3f} s at 7." in outcome.description


def test_what_is_fetched_by_threshold_is_the_experiments(busy_hour, replaying, monkeypatch):
    given = LOADED | {"requests": "300", "nic_bytes_per_s": "7e9", "arrival_speedup": "1"}
    outcome, _ = compute("balancing-threshold-bytes", given, replaying(busy_hour))
    replaying(busy_hour.head(300))
    monkeypatch.setattr(balancing_threshold, "NETWORKS_BYTES_PER_S", (7e9,))
    tried = tuple(sorted([*balancing_threshold.THRESHOLDS, 7.0]))
    monkeypatch.setattr(balancing_threshold, "THRESHOLDS", tried)
    params = balancing_threshold.Params(nodes=5, prefill_nodes=3)
    alike(outcome.rows, balancing_threshold.run(params))
    assert len({row["fetched_bytes"] for row in outcome.rows}) > 3
    assert outcome.fixed == {"threshold_network": 7e9}


def test_the_network_is_the_nodes_own_unless_a_reader_gives_one(conversation, replaying):
    outcome, _ = compute("balancing-threshold-bytes", {}, replaying(conversation))
    assert outcome.fixed["threshold_network"] == max(balancing_threshold.NETWORKS_BYTES_PER_S)
    assert [row["threshold"] for row in outcome.rows] == list(balancing_threshold.THRESHOLDS)


def test_what_is_served_in_time_is_the_experiments(busy_hour, replaying, monkeypatch):
    given = {"nodes": "4", "prefill_nodes": "2", "arrival_speedup": "0.5", "chunk_tokens": "1000"}
    monkeypatch.setattr(served_in_time, "WORKLOADS", ("conversation",))
    outcome, _ = compute("served-in-time", given | {"requests": "200"}, replaying(busy_hour))
    replaying(busy_hour.head(200))
    params = end_to_end.Params(nodes=4, prefill_nodes=2, arrival_speedup=0.5, chunk_tokens=1000)
    alike(outcome.rows, served_in_time.run(params).query("origin == 'modelled'"))
    assert len({row["share"] for row in outcome.rows}) > 20
    at_100 = [f"{row['system']} {row['share']:.0%}" for row in outcome.rows if row["limit_ms"] == 100]
    assert ", ".join(at_100) in outcome.description


def test_a_line_is_read_off_as_numpy_does_beyond_its_ends_too():
    x, y = [0.5, 1.0, 4.0], [3.0, 1.0, 2.0]
    for at in (0.0, 0.5, 0.7, 1.0, 3.9, 4.0, 9.0):
        assert interpolate(at, x, y) == pytest.approx(np.interp(at, x, y))


def test_latency_by_request_rate_is_the_experiments(replaying, monkeypatch):
    given = {"lowest_rate_per_s": "0.5", "highest_rate_per_s": "4.5", "nodes": "8", "tbt_multiple": "1.5"}
    sliced = replaying(traces.load(request_rate.TRACE).head(80))
    outcome, told = compute("request-rate", given | {"cache_tokens_per_node": "100000"}, sliced)
    rates = tuple(0.5 + 4 * step / 5 for step in range(6))
    monkeypatch.setattr(experiment, "tested_rates", lambda dataset: rates)
    params = experiment.Params(nodes=8, tbt_multiple=1.5, cache_tokens_per_node=100_000)
    table = experiment.run(params)
    expected = table.query("origin == 'modelled'").assign(dataset=request_rate.TRACE)
    alike(outcome.rows, expected)
    assert len(outcome.rows) == 2 * 3 * 6
    highest = experiment.highest_rates(table)
    named = ", ".join(f"{system} {highest[system]['both']:g}" for system in experiment.SYSTEMS)
    assert f"modelled: {named}." in outcome.description
    assert len({limits["both"] for limits in highest.values()}) > 1
    assert "first 80 of 80 requests" in told


def test_the_rates_are_by_default_from_the_papers_lowest_to_its_highest():
    rates = request_rate.LiveParams().rates_per_s
    tested = experiment.tested_rates(request_rate.TRACE)
    assert (rates[0], rates[-1]) == pytest.approx((tested[0], tested[-1]))


@pytest.mark.parametrize(
    ("figure", "given", "field", "told"),
    [
        ("request-rate", {"nodes": "6"}, "nodes", "is not a multiple of 4"),
        ("request-rate", {"highest_rate_per_s": "0.05"}, "highest_rate_per_s", "is less than"),
        (
            "balancing-threshold-bytes",
            {"kvcache_balancing_threshold": "0"},
            "kvcache_balancing_threshold",
            "1 to",
        ),
        ("balancing-threshold-ttft", {"prefill_nodes": "16"}, "prefill_nodes", "leaves no node"),
        ("served-in-time", {"prefill_nodes": "16"}, "prefill_nodes", "leaves no node"),
    ],
)
def test_a_bad_value_is_told_with_its_field(conversation, figure, given, field, told):
    sliced = json.dumps(live.slice_of(conversation).to_json())
    answered = json.loads(answer(figure, json.dumps(given), sliced, lambda *_: None))
    assert answered["field"] == field
    assert told in answered["error"]


HOT = {"prefix_tokens": 9000, "requests": 60, "prefill_nodes": 3, "requests_per_s": 20.0, "seed": 3}


def test_what_is_under_way_is_the_experiments_on_the_same_arrivals(monkeypatch):
    given = {name: str(value) for name, value in HOT.items()} | {"bandwidth_gbit_per_s": "25.5"}
    outcome, told = compute("hot-holder-under-way", given, None)
    rng = random.Random(3)
    gaps_s = [rng.expovariate(20.0) for _ in range(60)]
    params = hot_holder.Params(**HOT)
    trace = traces.Trace.from_requests(request[:4] for request in hot_requests(params, gaps_s))
    monkeypatch.setattr(hot_holder, "_hot", lambda _params: trace)
    monkeypatch.setattr(hot_holder, "BANDWIDTHS_GBIT_PER_S", (25.5,))
    table = hot_holder.under_way(params)
    alike(outcome.rows, table)
    assert len({row["under_way_bytes"] for row in outcome.rows}) > 5
    assert outcome.fixed == {"hot_bandwidth": 25.5}
    assert "on 60 requests drawn here, " in told


def test_what_is_under_way_is_what_is_sent_less_what_is_received():
    params, (bandwidth, *_) = hot_holder.Params(**HOT), hot_holder.BANDWIDTHS_GBIT_PER_S
    table = hot_holder.under_way(params).query("bandwidth_gbit_per_s == @bandwidth")
    cluster, result = params.cluster(bandwidth), hot_holder._served(params, bandwidth)
    last_s = max(np.nanmax(result.fetched_s), result.arrival_s[-1])
    interval_s = (last_s - HEAD_START_S) / 160
    series = traffic_series(result, cluster, interval_s=interval_s)
    series = series[series["time_s"].between(HEAD_START_S - interval_s, last_s + interval_s)]
    under_way_bytes = series["fetch_sent_bytes"] - series["fetch_received_bytes"]
    assert table["under_way_bytes"].tolist() == under_way_bytes.tolist()
    assert table["received_bytes"].tolist() == series["fetch_received_bytes"].tolist()
    assert table["time_s"].tolist() == (series["time_s"] - HEAD_START_S).tolist()


def test_other_seeds_are_other_arrivals():
    told = {compute("hot-holder-under-way", {"seed": str(seed)}, None)[0].description for seed in range(3)}
    assert len(told) > 1


def test_gains_of_returned_answers_are_the_experiments(busy_hour, replaying, monkeypatch):
    given = {"nodes": "6", "prefill_nodes": "3", "cache_tokens_per_node": "1600000", "nic_bytes_per_s": "8e9"}
    given |= {"pairs": "2", "requests": "300"}
    sliced = replaying(busy_hour)
    outcome, _ = compute("returned-answers", given, sliced)
    replaying(busy_hour.head(300))
    monkeypatch.setattr(returned_answers, "CAPACITIES_TOKENS", (100_000, 400_000))
    monkeypatch.setattr(returned_answers, "BANDWIDTHS_GBIT_PER_S", (4, 16))
    params = returned_answers.Params(
        trace="conversation",
        nodes=6,
        prefill_nodes=3,
        cache_tokens_per_node=1_600_000,
        nic_bytes_per_s=8e9,
        replicates=2,
    )
    table = returned_answers.run(params)
    alike(outcome.rows, table.assign(workload="conversation", trace=sliced.name))
    assert len({row["mean"] for row in outcome.rows}) > 6
    assert any(row["low"] < row["high"] for row in outcome.rows)
    ticks = {"gain_sizes": [100_000, 400_000, 1_600_000], "gain_rates": [4, 16, 64]}
    assert outcome.fixed == ticks
    drawn = {each["name"]: each["value"] for each in charts.returned_answers.gains(table).to_dict()["params"]}
    assert drawn | ticks == drawn


def test_a_figure_that_returns_no_answers_knows_of_none(busy_hour, replaying):
    sliced = replaying(busy_hour)
    assert sum(map(len, sliced.answers)) > 0
    assert {request.answer for request in sliced.requests} == {()}
    assert len(sliced.head(50).answers) == 50
