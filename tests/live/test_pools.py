"""The live figures of the prefill pool, and of its network, against the experiments."""

import dataclasses
import json
import math
import random

import numpy as np
import pandas as pd
import pytest
from tests.live.small import alike

from mooncake_companion import reported, traces
from mooncake_companion.errors import InputError
from mooncake_companion.experiments import network_bandwidth, prefill_pipeline
from mooncake_companion.live import network_bandwidth as live_bandwidth
from mooncake_companion.live import prefill_pipeline as live_pipeline
from mooncake_companion.live.answers import answer, compute
from mooncake_companion.publish import live

PROMPTS = {"chunk_tokens": "3000", "short_tokens": "5000", "long_tokens": "40000", "node": "h800"}


def experiment(given, **more):
    defaults = dataclasses.asdict(prefill_pipeline.Params())
    return prefill_pipeline.Params(**{name: type(defaults[name])(x) for name, x in given.items()}, **more)


@pytest.mark.parametrize("nodes", [1, 2, 8])
def test_the_timeline_is_the_experiments(nodes):
    outcome, _ = compute("prefill-pipeline-stages", PROMPTS | {"pipeline_nodes": str(nodes)}, None)
    table = prefill_pipeline.stages(experiment(PROMPTS))
    alike(outcome.rows, table[(table["pipeline_nodes"] == nodes) & (table["chunk_tokens"] == 3000)])
    last_s = max(row["end_s"] for row in outcome.rows)
    assert outcome.fixed == {"stage_nodes": nodes, "stage_chunk": 3000, "stage_last_s": last_s}
    assert f"short prompt {last_s:.2f} s" in outcome.description


def test_the_speedup_is_the_experiments():
    given = {name: value for name, value in PROMPTS.items() if name != "short_tokens"}
    outcome, told = compute("prefill-pipeline-speedup", given, None)
    table = prefill_pipeline.alone(experiment(given, short_tokens=1024))
    alike(outcome.rows, table[table["chunk_tokens"] == 3000])
    assert outcome.fixed == {"speedup_chunk": 3000}
    assert "with chunk_tokens = 3000, long_tokens = 40000, node = h800" in told


def test_an_instance_has_as_many_nodes_as_one_likes():
    rows = {n: compute("prefill-pipeline-speedup", {"pipeline_nodes": n}, None)[0].rows for n in ("3", "64")}
    assert {row["pipeline_nodes"] for row in rows["3"]} == {1, 2, 3, 4}
    assert {row["pipeline_nodes"] for row in rows["64"]} == {1, 2, 4, 64}
    timeline, _ = compute("prefill-pipeline-stages", {"pipeline_nodes": "3"}, None)
    (alone,) = (row for row in rows["3"] if row["pipeline_nodes"] == 3 and row["input_tokens"] == 65536)
    ends_s = [row["end_s"] for row in timeline.rows if row["prompt"] == "long"]
    assert max(ends_s) == pytest.approx(alone["ttft_s"], rel=1e-9)


@pytest.mark.parametrize(
    "given",
    [
        {"drawn_requests": "150", "prefill_nodes": "6", "long_share": "0.3", "seed": "7"},
        {"drawn_requests": "100", "prefill_nodes": "4", "long_share": "0.99", "chunk_tokens": "20000"},
    ],
)
def test_the_pool_under_load_is_the_experiments(monkeypatch, given):
    outcome, told = compute("prefill-pipeline-load", given, None)
    params = experiment({name: value for name, value in given.items() if name != "drawn_requests"})
    settings = dataclasses.asdict(params) | {"drawn_requests": int(given["drawn_requests"])}
    drawn = live_pipeline.drawn_prompts(live_pipeline.LoadParams(**settings), random.Random(params.seed))
    tokens = np.array([each.input_tokens for each in drawn])
    assert (tokens == params.long_tokens).sum() == round(params.long_share * len(drawn))
    offsets = np.concatenate([[0], np.cumsum(-(-tokens // traces.BLOCK_TOKENS))])
    trace = traces.make_trace(
        name="drawn",
        origin="standin",
        source="drawn as in a page",
        arrival_s=np.array([each.arrival_s for each in drawn]),
        input_tokens=tokens,
        output_tokens=np.ones(len(drawn), np.int64),
        block_offsets=offsets,
        block_ids=np.arange(offsets[-1]),
    )
    monkeypatch.setattr(prefill_pipeline, "_mixed", lambda params: trace)
    table = prefill_pipeline.run(params)
    alike(outcome.rows, table[table["offered_load"].isin(live_pipeline.FEWER_LOADS)])
    assert len({row["mean_s"] for row in outcome.rows}) > len(outcome.rows) / 2
    assert f"on {len(drawn)} requests drawn here, with" in told


def test_prompts_are_drawn_anew_with_another_seed_at_a_rate_of_one_a_second():
    drawn = [
        live_pipeline.drawn_prompts(live_pipeline.LoadParams(drawn_requests=2000), random.Random(seed))
        for seed in (0, 0, 1)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn[0][-1].arrival_s == pytest.approx(2000, rel=0.1)
    assert not any(request.blocks for request in drawn[0])


@pytest.mark.parametrize(
    ("figure", "given", "told"),
    [
        ("stages", {"chunk_tokens": "100"}, "chunk_tokens: chunks of 100 tokens at 8 stages make 5,576 bars"),
        ("load", {"chunk_tokens": "9"}, "chunk_tokens: chunks of 9 tokens take 68,"),
        ("speedup", {"model": "deepseek-v3"}, "model: DeepSeek-V3 does not fit"),
        ("load", {"long_share": "1"}, "long_share: 1.0 is out of range"),
        ("stages", {"pipeline_nodes": "0"}, "pipeline_nodes: 0 is out of range"),
    ],
)
def test_pipelines_that_cannot_be_shown_are_refused_beside_the_field(figure, given, told):
    answered = json.loads(answer(f"prefill-pipeline-{figure}", json.dumps(given), "", lambda *_: None))
    assert f"parameter {told}" in answered["error"]
    assert answered["field"] == told.partition(":")[0]


@pytest.mark.parametrize("cached", ["3000000", "0"])
def test_the_network_is_the_experiments(busy_hour, monkeypatch, cached):
    trace = busy_hour.head(200)
    given = {"prefill_nodes": "4", "nodes": "7", "cache_tokens_per_node": cached, "slowest_gbit_per_s": "30"}
    outcome, told = compute("network-bandwidth", given, live.slice_of(trace))
    monkeypatch.setattr(traces, "load", lambda name: trace)
    rates = sorted({row["bandwidth_gbit_per_s"] for row in outcome.rows} - {math.nan})
    drawn = pd.DataFrame({"bandwidth_gbps": rates, "series": "avg_ttft", "seconds": 1.0, "inside_axes": 1})
    monkeypatch.setattr(network_bandwidth.reported, "figure", lambda name: drawn)
    params = network_bandwidth.Params(nodes=7, prefill_nodes=4, cache_tokens_per_node=int(cached))
    table = network_bandwidth.splits(params, [4])
    alike(outcome.rows, table[table["origin"] == "modelled"])
    transfers = [row["seconds"] for row in outcome.rows if row["series"] == "transfer_time_real"]
    assert all(seconds > 0 for seconds in transfers) if cached != "0" else all(map(math.isnan, transfers))
    tried = sorted({row["bandwidth_gbit_per_s"] for row in outcome.rows if row["series"] == "avg_ttft"})
    assert outcome.fixed == {"split": 4, "network_rates": tried}
    assert told.endswith("is left out.")


def test_the_networks_tried_are_those_between_the_ends():
    def tried(least, most):
        params = live_bandwidth.RangeParams(slowest_gbit_per_s=least, fastest_gbit_per_s=most)
        return params.bandwidths_gbit_per_s

    assert tried(24.0, 400.0) == [24, 40, 80, 160, 400]
    assert tried(5.0, 90.0) == [5, 10, 24, 40, 80, 90]
    assert tried(7.5, 7.5) == [7.5]
    drawn = set(reported.figure("fast25_fig13")["bandwidth_gbps"])
    assert drawn.issuperset(tried(min(drawn - {0}), 400.0))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"fastest_gbit_per_s": "10"}, "fastest_gbit_per_s: 10 is less than slowest_gbit_per_s (24)"),
        ({"prefill_nodes": "16"}, "prefill_nodes: 16 leaves no node of 16"),
        ({"slowest_gbit_per_s": "0"}, "slowest_gbit_per_s: 0.0 is out of range"),
    ],
)
def test_networks_without_sense_are_refused_beside_the_field(conversation, given, told):
    sliced = json.dumps(live.slice_of(conversation).to_json())
    answered = json.loads(answer("network-bandwidth", json.dumps(given), sliced, lambda *_: None))
    assert f"parameter {told}" in answered["error"]
    assert answered["field"] == told.partition(":")[0]


def test_a_model_that_does_not_fit_is_told_beside_the_field():
    with pytest.raises(InputError, match="parameter model: DeepSeek-V3 does not fit"):
        network_bandwidth.Params(model="deepseek-v3")
