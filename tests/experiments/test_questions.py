"""Readers' questions: that each answer follows from the model, and from what was asked."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from mooncake_companion import traces
from mooncake_companion.costs import decode_step_time, load_calibration, transfer_time
from mooncake_companion.errors import CompanionError
from mooncake_companion.experiments import (
    balancing_threshold,
    cache_capacity,
    cache_sharing,
    hit_rate_counts,
    local_caches,
    questions,
    remote_kv,
)
from mooncake_companion.hardware import load_node
from mooncake_companion.llm import load_model
from mooncake_companion.simulator import Routing
from mooncake_companion.simulator.scheduler import PrefillView, Prefix, candidates, choose


@pytest.fixture(scope="module")
def released():
    try:
        trace = traces.load("conversation", download=False)
    except CompanionError as reason:
        pytest.skip(str(reason))
    if trace.origin != "released":
        pytest.skip("the released conversation trace is not on this machine; set MOONCAKE_TRACES")
    return trace


# Issue 4020


def test_the_question_is_four_to_six_points_at_every_capacity():
    asked = hit_rate_counts.asked()
    assert list(asked["capacity_blocks"]) == list(cache_capacity.TABLE_1_BLOCKS)
    assert (-asked["needed_points"]).between(4, 6.05).all()
    assert asked["table_ratio"].iloc[-1] == 0.51


def test_the_table_contradicts_the_reports_own_figure_6_and_the_reader_does_not():
    unbounded = hit_rate_counts.asked().iloc[-1]
    least = cache_capacity.hit_ratio_of_block_uses()
    half_a_digit = 0.005
    assert least > unbounded["table_ratio"] + half_a_digit
    assert unbounded["found_ratio"] >= least - half_a_digit


@pytest.fixture(scope="module")
def counted():
    return hit_rate_counts.run(hit_rate_counts.Params())


def test_shifts_are_from_the_readers_own_count(counted):
    modelled = counted[counted["origin"] == "modelled"]
    plain = modelled[modelled["definition"] == hit_rate_counts.PLAIN]
    assert plain["points"].abs().max() == 0
    assert set(counted["origin"]) == {"modelled", "reported"}
    keys = ["workload", "capacity_blocks"]
    shift = 100 * (modelled.set_index(keys)["hit_ratio"] - plain.set_index(keys)["hit_ratio"])
    assert sorted(shift) == pytest.approx(sorted(modelled["points"]), abs=1e-9)


def test_no_way_to_count_brings_all_capacities_within_the_printed_digits(counted):
    misfits = hit_rate_counts.misfits(counted)
    assert misfits["misfit_points"].is_monotonic_increasing
    assert misfits["worst_points"].min() > 1, "two digits are printed: half a point would be a match"
    plain = misfits[misfits["definition"] == hit_rate_counts.PLAIN]
    assert plain["worst_points"].to_numpy() == pytest.approx(6.0)
    assert misfits.iloc[0]["definition"] == "first block never a hit", "what the chapter says of it"


# Issue 452


def test_explanations_are_the_experiment_of_figure_10_with_one_change(released):
    assert released
    table = local_caches.run(local_caches.Params(), workloads=("conversation",))
    plain = cache_sharing.run(cache_sharing.Params(trace="conversation")).query("origin == 'modelled'")
    two = table[table["explanation"] == "Two queues"].set_index("cache")["hit_rate_pct"]
    assert two.to_dict() == plain.set_index("cache")["hit_rate_pct"].to_dict()
    local = table[table["cache"] == "local"].set_index("explanation")["hit_rate_pct"]
    modelled = table[table["cache"] == "global"].set_index("explanation")["hit_rate_pct"]
    assert local["One queue"] < local["Two queues"] < local["Three queues"] < local["Algorithm 1"]
    assert local["Room for all"] >= local["Algorithm 1"]
    assert modelled["Triple load"] < 0.7 * modelled["Algorithm 1"], "load takes from the global cache as well"
    apart = local_caches.distances(table)
    assert apart.idxmin() == "Two queues"


# Issues 381, 510, 977


@pytest.mark.parametrize(("threshold", "fetched"), [(2.0, 11776), (30.0, 0)])
def test_the_worked_example_of_the_chapter(threshold, fetched):
    params = balancing_threshold.Params(kvcache_balancing_threshold=threshold)
    estimates = balancing_threshold.estimates(params)
    held = [Prefix(12288), Prefix(8192), Prefix(512)]
    view = PrefillView(input_tokens=16384, prefixes=held, memory_prefixes=held, queue_s=[2.5, 1.5, 0.2])
    choices = candidates(view, estimates, balancing_threshold=threshold)
    winner = choose(Routing.GLOBAL_CACHE_AWARE, choices, draw=0.0)
    table = balancing_threshold.weighed(choices, winner).set_index("node")
    assert table["fetched_tokens"].tolist() == [0, 0, fetched]
    assert table["winner"].tolist() == ["", "", "★"], "it still wins, as the chapter lets one find"
    assert table["ttft_s"].idxmin() == 2
    model, node = load_model(params.model), load_node(params.node)
    size_bytes = fetched * model.kv_bytes_per_token
    moved_s = transfer_time(node.nic_bytes_per_s, size_bytes, calibration=load_calibration())
    assert table.loc[2, "transfer_s"] == pytest.approx(moved_s)


def test_a_threshold_matters_by_the_network(released):
    assert released
    table = balancing_threshold.run(balancing_threshold.Params())
    assert len(table) == len(balancing_threshold.THRESHOLDS) * len(balancing_threshold.NETWORKS_BYTES_PER_S)
    at_ends = table.pivot(index="nic_bytes_per_s", columns="threshold", values="fetched_bytes")
    assert (at_ends[1000.0] < 0.01 * at_ends[1.0]).all(), "a great threshold forbids fetching"
    gain = balancing_threshold.gain_of_fetching(table)
    assert gain.is_monotonic_increasing, "a faster network makes fetching worth more"
    assert gain.iloc[0] < 0 < gain.iloc[-1]


# Issue 17


def test_a_step_in_vram_is_a_step_of_the_model_and_a_read_from_afar_the_bytes_over_the_link():
    params = remote_kv.Params(input_tokens=8192)
    table = remote_kv.run(params).set_index(["way", "batch", "output_tokens"])
    model = load_model("llama3-70b")
    moved, remote = (table.loc[(way, 4, 1)] for way in (remote_kv.MOVED, remote_kv.REMOTE))
    step_s = decode_step_time(load_node("a800"), model, 4, 4 * 8192, calibration=load_calibration())
    assert moved["step_s"] == pytest.approx(step_s)
    link_s = 4 * 8192 * model.kv_bytes_per_token / remote_kv.bandwidths(params)[remote_kv.REMOTE]
    assert remote["step_s"] == pytest.approx(max(step_s, link_s))
    assert remote["read_bytes"] == 4 * 8192 * model.kv_bytes_per_token
    assert table.loc[(remote_kv.REMOTE, 4, 500), "read_bytes"] == 500 * remote["read_bytes"]
    assert table.loc[(remote_kv.MOVED, 4, 500), "read_bytes"] == moved["read_bytes"]


def test_the_link_is_shared_by_all_who_decode_and_the_first_token_never_pays():
    table = remote_kv.run(remote_kv.Params())
    even = remote_kv.break_even_tokens(table)
    assert (even > 1).all(), "of one token, reading once is all there is"
    assert even.is_monotonic_decreasing
    long = table[table["output_tokens"] == 2000].pivot(index="batch", columns="way", values="mean_token_s")
    assert (long[remote_kv.MOVED] < long[remote_kv.HOST]).all()
    assert (long[remote_kv.HOST] < long[remote_kv.REMOTE]).all()
    ratio = long[remote_kv.REMOTE] / long[remote_kv.MOVED]
    assert ratio.is_monotonic_increasing


def test_an_answer_that_never_pays_has_no_break_even():
    table = pd.DataFrame(
        {
            "batch": 1,
            "output_tokens": 1,
            "way": [remote_kv.MOVED, remote_kv.REMOTE],
            "mean_token_s": [2.0, 1.0],
        }
    )
    assert np.isnan(remote_kv.break_even_tokens(table).loc[1])


def test_the_chapters_parameters_reach_every_experiment():
    params = questions.Params(prefill_nodes=6, input_tokens=2048, node="h800", warmup_s=60.0)
    assert params.threshold.prefill_nodes == 6
    assert params.remote.input_tokens == 2048
    assert params.counts.warmup_s == 60.0
    assert {params.threshold.node, params.remote.node, params.local_caches.node} == {"h800"}
    assert dataclasses.asdict(questions.Params().remote) == dataclasses.asdict(remote_kv.Params())
