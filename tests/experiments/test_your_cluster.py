"""Another cluster: what is refused, what is counted, and what a user's file says."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooncake_companion.errors import InputError
from mooncake_companion.experiments import end_to_end, your_cluster
from mooncake_companion.experiments.your_cluster import Params, settings, summary
from mooncake_companion.simulator import simulate
from mooncake_companion.traces import Trace, write_jsonl

MINE = """
[node]
preset = "h100"
nic_bytes_per_s = 50e9

[model]
preset = "qwen2.5-72b"

[cluster]
prefill_nodes = 1
decode_nodes = 1
tbt_limit_s = 0.05
cache_bytes_per_node = 1e11
"""
CROWDED = Params(prefill_nodes=1, decode_nodes=1)
SERVED = simulate(
    Trace.from_requests([(0.1 * i, 4000, 5 + i, range(8 * i, 8 * i + 8)) for i in range(40)]),
    CROWDED.cluster("Mooncake"),
)


@pytest.fixture
def mine(tmp_path):
    def written(text=MINE):
        path = tmp_path / "mine.toml"
        path.write_text(text, "utf-8")
        return path

    return written


@pytest.fixture
def trace_path(tmp_path):
    requests = [(0.5 * i, 600 + 10 * i, 20 + i, [0, 1 + i]) for i in range(30)]
    path = tmp_path / "mine.jsonl"
    write_jsonl(Trace.from_requests(requests), path)
    return str(path)


@pytest.fixture
def small(trace_path):
    return Params(trace=trace_path, prefill_nodes=1, decode_nodes=1)


def test_the_paper_s_cluster_is_the_one_of_the_results():
    """Only the cache differs, by what 1 TB is more than three million tokens."""
    ours, theirs = Params().cluster("Mooncake"), end_to_end.Params().cluster("Mooncake")
    assert dataclasses.replace(ours, cache_tokens_per_node=3_000_000) == theirs
    assert ours.cache_tokens_per_node == 3_051_757
    assert Params().cluster("vLLM") == end_to_end.Params().cluster("vLLM")


def test_a_summary_balances(small):
    table = your_cluster.run(small)
    assert list(table["system"]) == list(end_to_end.SYSTEMS)
    fates = table[["finished", "rejected_at_arrival", "rejected_after_prefill"]].sum(axis="columns")
    assert (fates == table["requests"]).all()
    good = table["finished"] - table["late"]
    assert np.allclose(good / table["requests"], table["effective_capacity"])
    assert np.allclose(table["gpu_s_per_good_request"] * good, table["gpu_s"])
    assert np.allclose(table["goodput_requests_per_s"] * your_cluster.replayed(small).duration_s, good)
    assert (table["gpu_s"] > 2 * 8 * your_cluster.replayed(small).duration_s).all()
    assert (table["prefill_gpu_s"] < table["gpu_s"]).all()
    mooncake = table.set_index("system").loc["Mooncake"]
    assert mooncake["streamed_bytes"] == sum(600 + 10 * i for i in range(30)) * 327_680
    assert mooncake["hit_ratio"] > 0


@given(limits=st.tuples(st.floats(0.05, 10), st.floats(0.01, 1)), more=st.floats(1, 10))
def test_wider_limits_never_make_fewer_requests_good(limits, more):
    strict, loose = (
        summary(
            dataclasses.replace(CROWDED, ttft_limit_s=k * limits[0], tbt_limit_s=k * limits[1]), "", SERVED
        )
        for k in (1, more)
    )
    assert strict["effective_capacity"] <= loose["effective_capacity"]
    assert strict["late"] + round(strict["effective_capacity"] * 40) == strict["finished"] == 40
    assert strict["ttft_p50_s"] <= strict["ttft_p90_s"] <= strict["ttft_p99_s"]


def test_a_summary_of_requests_that_were_all_turned_away(small):
    params = dataclasses.replace(small, admission="baseline", ttft_limit_s=0.01)
    [(system, result)] = your_cluster.results(params)
    told = summary(params, system, result)
    assert told["rejected_at_arrival"] == told["requests"] == 30
    assert told["effective_capacity"] == told["hit_ratio"] == 0
    assert np.isnan(told["ttft_mean_s"])
    assert len(your_cluster.distributions(system, result)) == 0


def test_every_node_is_there_and_one_s_own(small, mine):
    small = dataclasses.replace(small, node=str(mine()))
    table = your_cluster.by_node(small)
    assert list(table["node"].unique()) == ["a800", "h800", "h100", "h200", "b200", "mi300x", "mine"]
    assert table.groupby("node")["chosen"].all().loc["mine"]
    assert table["chosen"].sum() == 2 * len(your_cluster.SPEEDUPS)
    means = table[table["speedup"] == 1].groupby("node")["ttft_mean_s"].first()
    assert means["b200"] < means["mi300x"] < means["h100"] < means["a800"]


def test_what_does_not_fit_is_shown_and_not_left_out(small):
    small = dataclasses.replace(small, node="h200", model="deepseek-v3")
    table = your_cluster.by_node(small)
    fits = table.groupby("node")["fits"].first()
    assert fits.to_dict() == {
        **dict.fromkeys(("a800", "h800", "h100"), False),
        **dict.fromkeys(("h200", "b200", "mi300x"), True),
    }
    assert table.loc[~table["fits"], "ttft_mean_s"].isna().all()


def test_the_fitted_break_even_is_the_slower_one():
    """GPUs reach less than their peak, so that a slower network pays."""
    table = your_cluster.break_even(Params(network_gbit_per_s=100))
    assert (table["fitted_break_even_bytes_per_s"] < table["break_even_bytes_per_s"]).all()
    assert set(table["network_bytes_per_s"]) == {12.5e9}
    assert np.allclose(table["network_share"], table["break_even_bytes_per_s"] / 12.5e9)


def test_a_file_gives_node_model_and_cluster(mine):
    found = settings(mine())
    params = Params(**found)
    cluster = params.cluster("Mooncake")
    assert cluster.node.nic_bytes_per_s == 50e9
    assert cluster.model.title == "Qwen2.5-72B"
    assert (cluster.prefill_nodes, cluster.tbt_limit_s) == (1, 0.05)
    assert cluster.cache_tokens_per_node == 10**11 // 327_680
    assert settings(mine("[cluster]\ndecode_nodes = 3")) == {"decode_nodes": 3}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "prefill_nodes = 1",
            "prefill_nodes = 0",
            r"\[cluster\]: parameter prefill_nodes: 0 is out of range; .*1 to 256 nodes",
        ),
        ("prefill_nodes = 1", "prefil_nodes = 1", r"\[cluster\]: unknown field 'prefil_nodes'; valid ones"),
        ("prefill_nodes = 1", 'prefill_nodes = "1"', "'1' is not a whole number"),
        ("nic_bytes_per_s", "nic", r"\[node\]: unknown field 'nic'"),
        ('"qwen2.5-72b"', '"qwen"', r"\[model\], field preset: there is no 'qwen'"),
        ("[cluster]", "[clusters]", "'clusters' is none of the tables"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(mine, old, new, message):
    path = mine(MINE.replace(old, new))
    with pytest.raises(InputError, match=message) as caught:
        settings(path)
    assert str(caught.value).startswith(str(path))


def test_what_does_not_go_together_is_refused_before_anything_runs(tmp_path):
    with pytest.raises(InputError, match="DeepSeek-V3 does not fit on 8 × NVIDIA A800"):
        Params(model="deepseek-v3")
    with pytest.raises(InputError, match=r"3e\+12 is more than the 2e\+12 bytes of DRAM of 8 × NVIDIA H100"):
        Params(node="h100", cache_bytes_per_node=3e12)
    with pytest.raises(InputError, match="no node preset 'h99'; there are a800"):
        Params(node="h99")
    with pytest.raises(InputError, match="is for a file of one's own"):
        your_cluster.run(Params(block_tokens=16))
    with pytest.raises(InputError, match=r"must end in \.toml"):
        settings(tmp_path / "mine.json")


def test_the_chapter_s_words_come_from_its_tables(small):
    tables = (
        your_cluster.run(small),
        your_cluster.by_node(small),
        your_cluster.by_model(small),
        your_cluster.break_even(small),
    )
    told = your_cluster.told(small, *tables)
    assert (told["most model"], told["most node"]) == ("Llama-3.1-8B", "b200")
    assert told["kv ratio"] == pytest.approx(516_096 / 70_272)
    assert told["tbt first without"] <= told["tbt first"]
    assert told["ttft fastest"] < told["ttft first"]
