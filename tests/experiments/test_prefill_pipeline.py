"""Chunked pipeline parallelism and layer-wise storing: what must hold whatever the numbers."""

import dataclasses

import numpy as np
import pytest

from mooncake_companion import reported
from mooncake_companion.experiments import layerwise, prefill_pipeline
from mooncake_companion.hardware import load_node

PARAMS = prefill_pipeline.Params(requests=300, short_tokens=3000, long_tokens=40_000)


@pytest.fixture(scope="module")
def stages():
    return prefill_pipeline.stages(PARAMS)


def test_a_stage_works_on_one_chunk_at_a_time_and_a_chunk_goes_from_stage_to_stage(stages):
    for _, rows in stages.groupby(["pipeline_nodes", "chunk_tokens", "stage"]):
        ordered = rows.sort_values("start_s")
        assert (ordered["start_s"].to_numpy()[1:] >= ordered["end_s"].to_numpy()[:-1] - 1e-9).all()
    for _, rows in stages.groupby(["pipeline_nodes", "chunk_tokens", "prompt", "first_token"]):
        ordered = rows.sort_values("stage")
        assert (ordered["start_s"].to_numpy()[1:] >= ordered["end_s"].to_numpy()[:-1] - 1e-9).all()


def test_chunks_make_up_the_prompt(stages):
    sizes = stages["last_token"] - stages["first_token"] + 1
    assert (sizes <= stages["chunk_tokens"]).all()
    whole = sizes.groupby([stages[c] for c in ("pipeline_nodes", "chunk_tokens", "stage", "prompt")]).sum()
    assert set(whole.xs("long", level="prompt")) == {40_000}
    assert set(whole.xs("short", level="prompt")) == {3000}


def test_the_timeline_ends_where_the_closed_form_does(stages):
    alone = prefill_pipeline.alone(PARAMS).set_index(["input_tokens", "pipeline_nodes", "chunk_tokens"])
    ends = stages[stages["prompt"] == "long"].groupby(["pipeline_nodes", "chunk_tokens"])["end_s"].max()
    for (width, chunk), end_s in ends.items():
        assert end_s == pytest.approx(alone.loc[(40_000, width, chunk), "ttft_s"], rel=1e-9)


def test_no_pipeline_is_faster_than_its_nodes_and_long_prompts_come_near():
    alone = prefill_pipeline.alone(PARAMS)
    assert (alone["efficiency"] <= 1 + 1e-12).all()
    assert (alone.query("pipeline_nodes == 1")["speedup"] == 1).all()
    fine = alone.query("chunk_tokens == 1024 and pipeline_nodes == 8").sort_values("input_tokens")
    assert fine["speedup"].is_monotonic_increasing
    assert fine["speedup"].iloc[-1] > 7


def test_one_request_under_next_to_no_load_takes_what_it_takes_alone():
    table = prefill_pipeline.run(dataclasses.replace(PARAMS, requests=100))
    alone = prefill_pipeline.alone(PARAMS).query("chunk_tokens == 1024")
    alone = alone.set_index(["input_tokens", "pipeline_nodes"])["ttft_s"]
    idle = table.query("fixed_cost == 'as fitted' and offered_load == 0.05")
    for row in idle.to_dict("records"):
        assert row["p50_s"] == pytest.approx(alone[row["input_tokens"], row["pipeline_nodes"]], rel=1e-6)


def test_the_trade_is_there_and_the_fixed_cost_makes_it_worse():
    mean_s = prefill_pipeline.run(PARAMS).set_index(
        ["fixed_cost", "prompts", "offered_load", "pipeline_nodes"]
    )["mean_s"]
    fitted, none = mean_s["as fitted"], mean_s["none"]
    assert fitted["long", 0.1, 8] < fitted["long", 0.1, 1] / 4, "long prompts gain"
    assert fitted["short", 0.6, 8] > fitted["short", 0.6, 1], "short ones wait behind them"
    lost, kept = (times["long", 0.9, 8] / times["long", 0.1, 8] for times in (fitted, none))
    assert lost > kept


def test_a_width_that_does_not_divide_the_pool_is_left_out():
    assert prefill_pipeline.Params(prefill_nodes=6).widths == (1, 2)
    assert prefill_pipeline.Params(prefill_nodes=1).widths == (1,)


def test_the_same_seed_gives_the_same_table():
    one, same = (prefill_pipeline.run(PARAMS) for _ in range(2))
    assert one.equals(same)
    other = prefill_pipeline.run(dataclasses.replace(PARAMS, seed=1))
    assert not one["mean_s"].equals(other["mean_s"])


def test_on_a_trace_overlap_never_makes_the_mean_longer():
    table = prefill_pipeline.on_trace(dataclasses.replace(PARAMS, trace="conversation-standin"))
    mean_s = table.pivot(index="pipeline_nodes", columns="layerwise", values="mean_s")
    assert (mean_s[True] < mean_s[False]).all()
    assert table.attrs["provenance"]["trace"] == "conversation-standin"


def test_a_constant_common_to_both_ways_would_outrun_the_link():
    rates = layerwise.implied_rates(layerwise.Params())
    drawn = reported.figure("arxiv_fig07").query("method == 'serialized'")
    kv_bytes = drawn["sequence_length_tokens"].to_numpy() * 327_680.0
    assert rates["bytes_per_s"].to_numpy() == pytest.approx(kv_bytes / drawn["extra_latency_s"].to_numpy())
    link = load_node("a800").host_to_device_bytes_per_s
    assert rates["bytes_per_s"].max() < link
    assert rates["bytes_per_s_without"].max() > link
    assert np.isclose(rates["layerwise_s"].min(), 0.1)
