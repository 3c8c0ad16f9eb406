"""FAST'25, section 2.2: the printed formulas and values."""

import pytest

from mooncake_companion import reported
from mooncake_companion.experiments import storage_for_compute
from mooncake_companion.experiments.storage_for_compute import Params
from mooncake_companion.hardware import load_node
from mooncake_companion.llm import load_model

MODEL = load_model("llama3-70b")
SYMBOLS = {
    "l": MODEL.layers,
    "d": MODEL.model_dim,
    "a": MODEL.attention_flops_coefficient,
    "b": MODEL.linear_flops_coefficient,
    "gqa": MODEL.query_heads_per_kv_head,
    "s": MODEL.element_bytes,
}


def printed(claim_id, **values):
    """Value of a printed formula."""
    formula = reported.claims().set_index("id").loc[claim_id, "value"].rpartition(">")[2]
    return eval(formula.replace("^", "**"), {}, SYMBOLS | values)


@pytest.mark.parametrize("tokens", [1, 8192, 131072])
def test_the_code_is_the_printed_formulas(tokens):
    assert MODEL.prefill_flops(tokens) == printed("fast25.eq1", n=tokens)
    assert tokens * MODEL.kv_bytes_per_token == printed("fast25.kv_size", p=tokens)
    (row,) = storage_for_compute.run(Params()).query(
        f"node == 'a800' and cached_tokens == {tokens} and origin == 'modelled'"
    ).to_dict("records") or [None]
    if tokens >= 1024:
        flops_per_s = load_node("a800").flops_per_s
        assert row["break_even_bytes_per_s"] / flops_per_s == pytest.approx(printed("fast25.eq2", p=tokens))


def test_table_1_is_the_presets():
    node = load_node("a800")
    stated = {
        name: reported.claim(f"fast25.table1.{name}") for name in ("gpu_flops", "h2d", "nic", "layers", "d")
    }
    assert node.flops_per_s == stated["gpu_flops"] * 1e12
    assert node.host_to_device_bytes_per_s == stated["h2d"] * 1e9
    assert node.nic_bytes_per_s == stated["nic"] * 1e9 / 8
    assert (MODEL.layers, MODEL.model_dim) == (stated["layers"], stated["d"])
    for name in ("a", "b", "gqa", "s"):
        assert SYMBOLS[name] == reported.claim(f"fast25.table1.{name}")


def test_claims_by_hand():
    values = storage_for_compute.claims()
    assert values["fast25.store.kv_per_token"] == 320
    assert values["fast25.fig12.kv_128k"] == 40
    assert values["fast25.store.local_tokens"] == pytest.approx(1e12 / 327_680)
    assert values["fast25.store.sat_nodes"] == 17
    assert values["fast25.eq2.b_min_a800"] == pytest.approx(6, abs=0.5)
    assert values["fast25.eq2.b_min_h800"] == pytest.approx(19, abs=0.5)


def test_the_longer_the_prefix_the_less_bandwidth_it_takes_and_both_nodes_have_it():
    table = storage_for_compute.run(Params()).query("origin == 'modelled'")
    for _, rows in table.groupby("node"):
        assert rows.sort_values("cached_tokens")["break_even_bytes_per_s"].is_monotonic_decreasing
        assert (rows["break_even_bytes_per_s"] < rows["link_bytes_per_s"]).all()
