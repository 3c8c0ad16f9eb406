"""The deployment switch: what is drawn is what was replayed, and its times add up."""

import dataclasses

import numpy as np
import pytest

from mooncake_companion import traces
from mooncake_companion.errors import InputError
from mooncake_companion.experiments import deployment_timeline as experiment

PARAMS = experiment.Params(replayed_s=200, window_start_s=60, window_s=20)
COUPLED_MODES = [mode for mode in experiment.MODES if mode != experiment.DISAGGREGATED]


@pytest.fixture(scope="module")
def found():
    return experiment.replays(PARAMS)


@pytest.fixture(scope="module")
def window(found):
    return experiment.window(PARAMS, found)


@pytest.fixture(scope="module")
def budget(found):
    return experiment.budget(PARAMS, found)


def test_what_one_node_does_never_overlaps(window):
    for _, rows in window[window["kind"] == "work"].groupby(["mode", "node"]):
        rows = rows.sort_values("start_s")
        assert (rows["end_s"].to_numpy()[:-1] <= rows["start_s"].to_numpy()[1:]).all()
    assert window["start_s"].min() == 60
    assert window["end_s"].max() == 80


def test_the_rows_of_the_window_hold_all_work_of_the_replay(window, found):
    for mode, watched in found.items():
        rows = window[(window["mode"] == mode) & (window["kind"] == "work")]
        inside = [each for each in watched.iterations if each.end_s > 60 and each.start_s < 80]
        assert rows["steps"].sum() == len(inside)
        busy_s = sum(min(each.end_s, 80) - max(each.start_s, 60) for each in inside)
        assert (rows["end_s"] - rows["start_s"]).sum() == pytest.approx(busy_s)
        computed = sum(chunk.last - chunk.first for each in inside for chunk in each.chunks)
        assert rows["new_tokens"].sum() == computed


def test_one_pool_stalls_its_tokens_and_two_pools_do_not(window):
    intervals = window[window["kind"] == "interval"]
    behind = intervals[intervals["holds"] == experiment.BEHIND]
    assert set(behind["mode"]) == set(COUPLED_MODES)
    for mode in COUPLED_MODES:
        steady = intervals[(intervals["mode"] == mode) & (intervals["holds"] == experiment.STEADY)]
        longest_s = behind.loc[behind["mode"] == mode, "seconds"].max()
        assert longest_s > 2 * steady["seconds"].max()
    assert set(intervals.loc[intervals["holds"] == experiment.FIRST, "mode"]) == {experiment.DISAGGREGATED}


def test_without_chunks_no_iteration_does_both(window):
    both = window[window["holds"] == experiment.BESIDE]
    assert set(both["mode"]) == {"Coupled, chunked prefill"}
    assert (both["new_tokens"] + both["sequences"] <= PARAMS.chunk_tokens).all()


def test_the_budget_of_every_class_adds_up_to_the_replays_times(found, budget):
    for (mode, prompts), rows in budget.groupby(["mode", "prompts"]):
        result = found[mode].result
        least, most = experiment.CLASSES[prompts]
        chosen = (result.output_tokens > 1) & (result.input_tokens >= least) & (result.input_tokens <= most)
        assert set(rows["requests"]) == {chosen.sum()}
        sums_s = rows.groupby("row")["seconds"].sum()
        until_s = (result.join_s - result.arrival_s)[chosen].mean()
        later_s = ((result.finish_s - result.join_s)[chosen] / (result.output_tokens - 1)[chosen]).mean()
        assert sums_s[experiment.FIRST_TOKEN] == pytest.approx(until_s)
        assert sums_s[experiment.RHYTHM] == pytest.approx(later_s)
        assert (rows["seconds"] >= -1e-12).all()
        assert (rows["end_s"] - rows["start_s"]).to_numpy() == pytest.approx(rows["seconds"].to_numpy())


def test_only_in_one_pool_do_tokens_wait_for_others_prefills(budget):
    later = budget[(budget["row"] == experiment.RHYTHM) & (budget["prompts"] == "all")]
    behind_s = later[later["part"] == "others' work"].set_index("mode")["seconds"]
    assert behind_s[experiment.DISAGGREGATED] < 1e-12
    assert (behind_s[COUPLED_MODES] > 0.005).all()


def test_the_summary_says_what_the_results_do(found):
    table = experiment.summary(PARAMS, found).set_index("mode")
    for mode, watched in found.items():
        assert table.loc[mode, "ttft_mean_s"] == watched.result.ttft_s.mean()
        within = np.nan_to_num(watched.result.tbt_s) <= experiment.TBT_LIMIT_S
        assert table.loc[mode, "tbt_within_share"] == within.mean()
    assert table.loc["Coupled", "behind_prefill_share"] > 0.1


def test_the_controls_change_one_thing_each(found):
    table = experiment.controls(PARAMS).set_index("mode")
    plain = experiment.summary(PARAMS, found).set_index("mode")
    assert table.loc[experiment.NO_STORE, "hit_ratio"] == 0 < plain.loc[experiment.DISAGGREGATED, "hit_ratio"]
    assert table.loc[experiment.NO_STORE, "behind_prefill_share"] < 1e-9
    beside = table.loc[experiment.HOST_BESIDE]
    assert beside["tbt_mean_s"] < plain.loc["Coupled", "tbt_mean_s"]
    assert beside["behind_prefill_share"] > 0.1


def test_conversations_are_kept_or_left_out_whole():
    trace, whole = experiment.replayed(PARAMS), traces.load("conversation")
    seconds = [
        {
            int(each.blocks_of(index)[1])
            for index in np.flatnonzero(each.arrival_s < PARAMS.replayed_s)
            if len(each.blocks_of(index)) > 1
        }
        for each in (trace, whole)
    ]
    kept = sum(
        int(blocks[1]) in seconds[0]
        for index in np.flatnonzero(whole.arrival_s < PARAMS.replayed_s)
        if len(blocks := whole.blocks_of(index)) > 1
    )
    assert kept == sum(len(trace.blocks_of(index)) > 1 for index in range(len(trace)))
    assert len(seconds[0]) == pytest.approx(len(seconds[1]) / PARAMS.one_in, rel=0.2)
    every = experiment.replayed(dataclasses.replace(PARAMS, one_in=1))
    assert len(every) == (whole.arrival_s < PARAMS.replayed_s).sum()


def test_provenance_names_trace_and_parameters(window):
    provenance = window.attrs["provenance"]
    assert provenance["parameters"] == dataclasses.asdict(PARAMS)
    assert provenance["trace_sha256"] == experiment.replayed(PARAMS).sha256


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"prefill_nodes": 4}, "prefill_nodes"), ({"window_start_s": 900.0}, "window_start_s")],
)
def test_a_setting_without_sense_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        experiment.Params(**changes)


def test_a_window_in_which_nothing_happens_is_named():
    idle = experiment.Params(arrival_speedup=0.01, window_start_s=899, window_s=0.1)
    with pytest.raises(InputError, match=r"window_start_s: no node works between 899\.0 s and 899\.1 s"):
        experiment.run(idle)
