"""The live figures that follow from formulas, and those of any cluster, against the experiments."""

import dataclasses
import math

import pytest
from tests.live.small import REQUESTS, alike, close

from mooncake_companion import traces
from mooncake_companion.errors import InputError
from mooncake_companion.experiments import (
    storage_for_compute,
    transfer_tax,
    your_cluster,
)
from mooncake_companion.hardware import load_node
from mooncake_companion.live import your_cluster as live_cluster
from mooncake_companion.live.answers import compute
from mooncake_companion.publish import live
from mooncake_companion.simulator import simulate


def test_the_map_of_actions_is_the_experiments():
    outcome, told = compute("prefix-actions", {"model": "llama3-70b", "new_tokens": "3000"}, None)
    expected = storage_for_compute.actions(storage_for_compute.Params(new_tokens=3000)).to_dict("records")
    for row, same in zip(outcome.rows, expected, strict=True):
        close(row, same)
    assert (
        told
        == "Modelled here, in your browser, with new_tokens = 3000, all else as the form has it at first."
    )


@pytest.mark.parametrize("node", storage_for_compute.NODES)
def test_the_break_even_bandwidths_are_the_experiments(node):
    given = {"node": node, "model": "llama3-70b", "cached_tokens": "5000"}
    outcome, told = compute("prefix-break-even", given, None)
    table = storage_for_compute.run(storage_for_compute.Params(cached_tokens=5000))
    alike(outcome.rows, table[(table["origin"] == "modelled") & (table["node"] == node)])
    assert outcome.fixed == {"line_node": node}
    (at,) = (row for row in outcome.rows if row["cached_tokens"] == 5000)
    assert f"At 5,000 tokens: {at['break_even_bytes_per_s'] / 1e9:.1f} GB/s" in outcome.description
    assert told.endswith("What is reported is as in the paper, for its own setting.")


def test_half_the_gpus_ask_for_half_the_bandwidth():
    whole, half = (compute("prefix-break-even", {"gpus": gpus}, None)[0].rows for gpus in ("8", "4"))
    for one, other in zip(whole, half, strict=True):
        assert other["break_even_bytes_per_s"] == pytest.approx(one["break_even_bytes_per_s"] / 2)
        assert other["link_bytes_per_s"] == one["link_bytes_per_s"]


def test_the_transfer_tax_is_the_experiments():
    given = {"node": "h800", "model": "llama3-70b", "bandwidth_gbit_per_s": "200"}
    outcome, _ = compute("transfer-tax", given, None)
    table = transfer_tax.run(transfer_tax.Params(node="h800"))
    table = table[(table["origin"] == "modelled") & (table["bandwidth_gbit_per_s"] == 200)]
    order = {(row["quantity"], row["input_tokens"]): row for row in outcome.rows}
    alike([order[each] for each in zip(table["quantity"], table["input_tokens"], strict=True)], table)
    assert outcome.fixed["tax_bandwidth"] == 200
    drawn = transfer_tax.run(transfer_tax.Params()).query("origin == 'reported'")["seconds"]
    seconds = [row["seconds"] for row in outcome.rows] + drawn.tolist()
    assert outcome.fixed["tax_least_s"] < min(seconds) < max(seconds) < outcome.fixed["tax_most_s"]


def test_the_break_even_of_every_model_and_node_is_the_experiments():
    given = {"cached_tokens": "20000", "network_gbit_per_s": "100"}
    outcome, _ = compute("cluster-break-even", given, None)
    table = your_cluster.break_even(your_cluster.Params(cached_tokens=20_000, network_gbit_per_s=100.0))
    alike(outcome.rows, table[table["cached_tokens"] == 20_000])
    assert outcome.fixed == {"prefix": 20_000}
    pairs = [compute("cluster-break-even", {"gpus": gpus}, None)[0].rows for gpus in ("8", "1")]
    fitting = [sum(row["fits"] for row in rows) for rows in pairs]
    assert fitting[0] > fitting[1] > 0


def test_a_cluster_is_the_experiments_on_every_node():
    trace = traces.load("synthetic").head(2 * REQUESTS)
    limits = {"ttft_limit_s": "8", "tbt_limit_s": "0.08"}
    given = {"prefill_nodes": "3", "decode_nodes": "2", "arrival_speedup": "8", "network_gbit_per_s": "50"}
    outcome, _ = compute("cluster-nodes", given | limits, live.slice_of(trace))
    told = {name: float(value) for name, value in limits.items()}
    params = your_cluster.Params(prefill_nodes=3, decode_nodes=2, network_gbit_per_s=50.0, **told)
    faster = dataclasses.replace(trace, arrival_s=trace.arrival_s / 8)
    for row in outcome.rows:
        cluster = params.cluster("Mooncake", node=load_node(row["node"]), host_time=row["host_time"])
        expected = your_cluster.summary(params, "Mooncake", simulate(faster, cluster))
        close(row, expected)
        assert row["fits"]
        assert row.keys() == expected.keys() | {"node", "title", "chosen", "host_time", "speedup", "fits"}
    assert any(row["fetched_bytes"] for row in outcome.rows)
    assert len({row["node"] for row in outcome.rows}) * 2 == len(outcome.rows)
    assert len({row["effective_capacity"] for row in outcome.rows}) > 3
    assert outcome.fixed == {"speed": 1} | told


def test_a_node_without_room_has_no_numbers_in_a_cluster(conversation):
    params = live_cluster.Params(model="deepseek-v3", node="h200")
    outcome = live_cluster.by_node(params, live.slice_of(conversation), lambda *_: None)
    fits = {row["node"]: row["fits"] for row in outcome.rows}
    assert fits["h200"]
    assert not fits["a800"]
    without = [row for row in outcome.rows if not row["fits"]]
    assert all(row.keys() == outcome.rows[-1].keys() for row in without)
    assert all(math.isnan(row["ttft_p50_s"]) for row in without)
    assert "a800: the model does not fit" in outcome.description


def test_a_model_of_ones_own_keeps_what_its_file_says(tmp_path):
    """DeepSeek-V3's latent attention with half of its layers, and numbers of four bytes."""
    shape = {"layers": 30, "kv_elements_per_layer": 576, "element_bytes": 4, "weight_element_bytes": 1}
    counts = {"parameters": 330_000_000_000, "active_parameters": 20_000_000_000}
    file = tmp_path / "yours.toml"
    told = "".join(f"{name} = {value}\n" for name, value in (shape | counts).items())
    told += 'title = "Your model"\nsource = "me"\nmodel_dim = 7168\nattention_flops_coefficient = 4.0\n'
    file.write_text(f"[model]\n{told}")
    given = {name: str(value) for name, value in (shape | counts).items()}
    outcome, _ = compute("cluster-models", given | {"cache_bytes_per_node": "3e11"}, None)
    params = your_cluster.Params(model=str(file), cache_bytes_per_node=3e11)
    alike(outcome.rows, your_cluster.by_model(params))
    assert outcome.rows[-1]["kv_bytes_per_token"] == 30 * 576 * 4
    assert "holds 4,340,277 tokens of yours" in outcome.description


def test_a_model_as_published_is_llama3_70b():
    *presets, own = compute("cluster-models", {}, None)[0].rows
    (llama,) = (row for row in presets if row["model"] == "llama3-70b")
    assert own == llama | {"model": "yours", "title": "Your model", "chosen": True}
    alike(presets, your_cluster.by_model(your_cluster.Params()).assign(chosen=False))


def test_no_more_parameters_are_used_than_there_are():
    with pytest.raises(InputError, match=r"^parameter active_parameters: 3,000 is more than all 2,000"):
        compute("cluster-models", {"parameters": "2000", "active_parameters": "3e3"}, None)


def test_blocks_are_as_long_as_those_of_the_released_traces():
    assert your_cluster.Params().block_tokens == traces.BLOCK_TOKENS
