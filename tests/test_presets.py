"""Presets against arithmetic by hand, and what a user is told about a wrong file."""

import dataclasses
import os

import pytest

from mooncake_companion.costs import (
    break_even_bandwidth,
    decode_cost,
    load_calibration,
    prefill_cost,
    prefill_time,
)
from mooncake_companion.errors import InputError
from mooncake_companion.hardware import load_node, load_nodes
from mooncake_companion.llm import LINEAR_FLOPS_PER_PARAMETER, load_model, load_models
from mooncake_companion.presets import read
from mooncake_companion.simulator import Cluster, CoupledCluster

GIVEN = {  # vocabulary, width of keys or values, inner width, of released configurations
    "llama3-70b": (128_256, 1024, 28_672),
    "llama3.1-8b": (128_256, 1024, 14_336),
    "llama3.1-405b": (128_256, 1024, 53_248),
    "qwen2.5-72b": (152_064, 1024, 29_568),
    "mixtral-8x7b": (32_000, 1024, 14_336),
    "mixtral-8x22b": (32_000, 1024, 16_384),
}
MINE = """
[node]
title = "mine"
gpus = 4
peak_flops_per_s = 1e15
hbm_bytes_per_s = 3e12
hbm_bytes = 8e10
host_to_device_bytes_per_s = 2e11
nic_bytes_per_s = 5e10

[model]
preset = "llama3.1-8b"
layers = 64
"""


@pytest.fixture
def write(tmp_path):
    def written(text):
        path = tmp_path / "my-cluster.toml"
        path.write_text(text, "utf-8")
        return str(path)

    return written


@pytest.mark.parametrize("name", GIVEN)
def test_parameters_are_those_of_the_dimensions(name):
    model = load_model(name)
    vocabulary, kv_dim, inner = GIVEN[name]
    dim = model.model_dim
    experts, active = (8, 2) if name.startswith("mixtral") else (1, 1)
    attention = 2 * dim * dim + 2 * dim * kv_dim
    attention += dim + 2 * kv_dim if name.startswith("qwen") else 0  # biases
    router = dim * experts if experts > 1 else 0

    def weights(used):
        layer = attention + 3 * used * dim * inner + router + 2 * dim
        return 2 * vocabulary * dim + model.layers * layer + dim

    assert model.parameters == weights(experts)
    assert (model.active_parameters or model.parameters) == weights(active)
    assert model.kv_bytes_per_token == 2 * model.layers * kv_dim * 2


def test_deepseek_keeps_a_latent_of_576_elements():
    model = load_model("deepseek-v3")
    assert model.kv_bytes_per_token == 61 * (512 + 64) * 2 == 70_272
    assert model.parameters / 671e9 == pytest.approx(1, rel=1e-3)
    assert model.active_parameters / 37e9 == pytest.approx(1, rel=0.02)
    assert model.weights_bytes == model.parameters  # FP8
    # A pair costs a score of 192 elements and a weighted value of 128, in each head.
    assert model.attention_flops(1) == pytest.approx(61 * 2 * 128 * (192 + 128))
    assert model.kv_bytes_per_token < load_model("llama3-70b").kv_bytes_per_token / 4


def test_the_papers_model_counts_as_its_table_says():
    """What the ratio carries over is the paper's own count, so it must give it back."""
    model = load_model("llama3-70b")
    by_ratio = dataclasses.replace(model, linear_flops_coefficient=None)
    assert by_ratio.linear_flops(1000) == pytest.approx(model.linear_flops(1000))
    assert model.weights_bytes == 2 * model.parameters
    assert 1 < LINEAR_FLOPS_PER_PARAMETER < 2


def test_experts_cost_memory_but_no_arithmetic():
    calibration, node = load_calibration(), load_node("h100")
    dense = dataclasses.replace(load_model("mixtral-8x7b"), active_parameters=None)
    sparse = load_model("mixtral-8x7b")
    assert decode_cost(node, sparse, calibration).weights_s == decode_cost(node, dense, calibration).weights_s
    ratio = prefill_cost(node, sparse, calibration).token_s / prefill_cost(node, dense, calibration).token_s
    assert ratio == pytest.approx(12.88 / 46.70, rel=1e-3)


def test_a_faster_node_is_faster_in_what_it_is_faster_in():
    calibration, model = load_calibration(), load_model("llama3-70b")
    a800, h100, h200 = (load_node(name) for name in ("a800", "h100", "h200"))
    seconds = [prefill_time(node, model, 32_768, calibration=calibration) for node in (a800, h100, h200)]
    assert seconds[0] > seconds[1] == seconds[2]
    weights_s = [decode_cost(node, model, calibration).weights_s for node in (a800, h100, h200)]
    assert weights_s == sorted(weights_s, reverse=True)
    assert break_even_bandwidth(h100, model, 8192) / break_even_bandwidth(a800, model, 8192) == pytest.approx(
        989 / 312
    )


def test_every_preset_says_where_its_numbers_come_from():
    for preset in (*load_nodes().values(), *load_models().values()):
        assert len(preset.source) > 20
        assert "\n" not in preset.source


@pytest.mark.parametrize(
    ("node", "model", "fits"),
    [
        ("a800", "deepseek-v3", False),
        ("h200", "deepseek-v3", True),
        ("h100", "llama3.1-405b", False),
        ("b200", "llama3.1-405b", True),
    ],
)
def test_a_model_that_does_not_fit_is_refused_with_both_sizes(node, model, fits):
    makers = (
        lambda: Cluster.from_presets(node, model, prefill_nodes=1, decode_nodes=1),
        lambda: CoupledCluster.from_presets(node, model, nodes=1),
    )
    for make in makers:
        if fits:
            assert make().vram_tokens > 100_000
            continue
        with pytest.raises(InputError, match=r"does not fit on 8 × .* take \d+ GB, and 90% .* are 576 GB"):
            make()


def test_no_cache_on_ssds_of_which_nothing_is_known():
    with pytest.raises(InputError, match="ssd_read_bytes_per_s in the table"):
        Cluster.from_presets(
            "h100", "llama3-70b", prefill_nodes=1, decode_nodes=1, ssd_cache_tokens_per_node=512
        )


def test_a_file_of_ones_own(write):
    path = write(MINE)
    node, model = load_node(path), load_model(path)
    assert (node.title, node.gpus, node.hbm_bytes, node.ssd_read_bytes_per_s) == ("mine", 4, 80 * 10**9, None)
    assert type(node.hbm_bytes) is int
    assert model.kv_bytes_per_token == 2 * load_model("llama3.1-8b").kv_bytes_per_token
    assert model.title == "Llama-3.1-8B, changed"
    assert path in model.source
    assert load_node(write('[node]\npreset = "h100"')) == load_node("h100")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("gpus = 4", 'gpus = "four"', r"\[node\], field gpus: 'four' is not a whole number"),
        ("gpus = 4", "gpus = true", r"field gpus: True is not a whole number"),
        ("gpus = 4", "gpus = 4.5", r"field gpus: 4.5 is not a whole number"),
        ("gpus = 4", "gpus = -4", r"\[node\]: GpuNode.gpus must be positive and finite, got -4"),
        ("gpus = 4", "cards = 4", r"unknown field 'cards'; valid ones are title, gpus"),
        ("gpus = 4\n", "", r"field gpus is missing; it is a whole number"),
        ("nic_bytes_per_s = 5e10", "nic_bytes_per_s = inf", "nic_bytes_per_s must be positive and finite"),
        ("[node]", "[nodes]", r"'nodes' is none of the tables \[node\], \[model\], \[cluster\]"),
        ("[node]", "[cluster]", r"has no table \[node\]; it has \[cluster\], \[model\]"),
        ("gpus = 4", "gpus = ", r"is not TOML: .* line 4"),
        ('"mine"', "5", "field title: 5 is not a text in quotes"),
    ],
)
def test_a_wrong_file_is_named_with_table_field_and_value(write, old, new, message):
    path = write(MINE.replace(old, new, 1))
    with pytest.raises(InputError, match=message) as caught:
        load_node(path)
    assert str(caught.value).startswith(path)


def test_a_wrong_model_in_a_file(write):
    with pytest.raises(InputError, match="field preset: there is no 'llama9'; there are llama3-70b"):
        load_model(write('[model]\npreset = "llama9"'))
    text = '[model]\npreset = "deepseek-v3"\nquery_heads_per_kv_head = 8'
    with pytest.raises(InputError, match="give either query_heads_per_kv_head"):
        load_model(write(text))
    with pytest.raises(InputError, match=r"is more than all"):
        load_model(write('[model]\npreset = "mixtral-8x7b"\nactive_parameters = 1e12'))
    with pytest.raises(InputError, match=r"cannot read nowhere\.toml: No such file"):
        load_model("nowhere.toml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[node]\npreset = ["h100"]', r"field preset: there is no \['h100'\]"),
        (f"[node]\npreset = 'h100'\ngpus = 1{'0' * 400}", "field gpus: a number of 401 digits is too large"),
        (
            f"[node]\npreset = 'h100'\nnic_bytes_per_s = -1{'0' * 400}",
            "nic_bytes_per_s: a number of 401 digits",
        ),
        (f"[node]\ngpus = 1{'0' * 5000}", "is not TOML"),
        (f"[node]\ngpus = {'[' * 20_000}{']' * 20_000}", "nested too deeply"),
        (f"# {'x' * 1_000_000}", "too large for a preset"),
    ],
)
def test_nothing_in_a_file_ends_in_a_traceback(write, text, message):
    with pytest.raises(InputError, match=message):
        load_node(write(text))


def test_what_is_no_file_is_not_waited_for(tmp_path):
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path):
        with pytest.raises(InputError, match="is not a file"):
            read(path)


def test_no_more_query_heads_than_elements(write):
    with pytest.raises(
        InputError, match="query_heads_per_kv_head: 1000000 query heads are more than the 4096"
    ):
        load_model(write(MINE + "query_heads_per_kv_head = 1_000_000"))
