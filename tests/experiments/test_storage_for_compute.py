"""FAST'25, section 2.2: the printed formulas and values."""

import dataclasses

import pytest

from mooncake_companion import reported
from mooncake_companion.costs import load_calibration, prefill_cost
from mooncake_companion.errors import InputError
from mooncake_companion.experiments import storage_for_compute
from mooncake_companion.experiments.storage_for_compute import Params
from mooncake_companion.hardware import load_node
from mooncake_companion.llm import load_model
from mooncake_companion.simulator import Cluster, simulate
from mooncake_companion.traces.trace import Trace

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


PLACES = (storage_for_compute.OTHER_NODE, storage_for_compute.OWN_SSD)


def on_the_grid(tokens, rate):
    table = storage_for_compute.actions(Params())
    row = table[(table["node"] == "a800") & (table["cached_tokens"] == tokens)]
    return row.iloc[[(row["bytes_per_s"] - rate).abs().argmin()]]


@pytest.mark.parametrize("uses", [2, 3])
@pytest.mark.parametrize("queue_tokens", [1, 16000])
@pytest.mark.parametrize("rate", [3e8, 1e11])
@pytest.mark.parametrize("tokens", [1024, 8192, 65536])
def test_the_map_is_what_the_simulator_does(tokens, rate, queue_tokens, uses):
    """Algorithm 1 with the prefix in another node's DRAM: same action, same time to first token."""
    row = on_the_grid(tokens, rate)
    node = dataclasses.replace(load_node("a800"), nic_bytes_per_s=float(row["bytes_per_s"].iloc[0]))
    cluster = Cluster(
        node=node,
        model=MODEL,
        calibration=load_calibration(),
        prefill_nodes=2,
        decode_nodes=1,
        replicate_after_uses=Params().replicate_after_uses,
    )
    blocks = tokens // 512
    prefix, asked = list(range(blocks)), tokens + Params().new_tokens
    # The first request leaves the prefix on node 0, others ask for it there; then one keeps node 0 busy.
    start_s = 1e4
    again = [(start_s + 100 * k, tokens, 1, prefix) for k in range(uses - 2)]
    busy = [(2e4, queue_tokens, 1, range(10_000, 10_000 + -(-queue_tokens // 512)))]
    last = [(2e4, asked, 1, [*prefix, *range(20_000, 20_000 + Params().new_tokens // 512)])]
    trace = Trace.from_requests([(0.0, tokens, 1, prefix), *again, *busy, *last])
    result = simulate(trace, cluster, engine="reference")
    assert set(result.prefill_node[:-1]) == {0}
    queue_s = result.first_token_s[-2] - 2e4
    (chosen,) = storage_for_compute.chosen_actions(
        row, Params(), rule=storage_for_compute.ALGORITHM_1, queue_s=queue_s, uses=uses
    ).to_dict("records")
    assert result.action[-1] == chosen["action"]
    assert result.ttft_s[-1] == pytest.approx(chosen["ttft_s"], rel=1e-6)


def test_without_a_queue_the_holder_does_the_work_and_with_an_endless_one_never():
    table = storage_for_compute.actions(Params())
    chosen = storage_for_compute.chosen_actions(table, Params(), queue_s=0.0)
    assert set(chosen["action"]) == {"hydrate"}
    chosen = storage_for_compute.chosen_actions(table, Params(), queue_s=1e9)
    assert set(chosen["action"]) == {"migrate", "recompute"}


@pytest.mark.parametrize("place", PLACES)
def test_more_bandwidth_never_takes_longer(place):
    table = storage_for_compute.actions(Params())
    table = table.join(storage_for_compute.chosen_actions(table, Params(), place=place, queue_s=1.0))
    for _, rows in table.groupby(["node", "cached_tokens"]):
        assert rows.sort_values("bytes_per_s")["ttft_s"].is_monotonic_decreasing


def test_fetching_pays_above_the_fitted_break_even_and_below_it_recomputing():
    """An endless queue at the holder: what is left is Equation 2 at the speed that GPUs and network reach."""
    table = storage_for_compute.actions(Params())
    chosen = storage_for_compute.chosen_actions(table, Params(), queue_s=1e9)["action"]
    model, calibration = MODEL, load_calibration()
    for name, rows in table.groupby("node"):
        cost = prefill_cost(load_node(name), model, calibration)
        saved_s = cost.token_s * rows["cached_tokens"] + cost.pair_s * rows["cached_tokens"] ** 2
        needed = rows["cached_tokens"] * model.kv_bytes_per_token / saved_s / calibration.network_utilisation
        clear = (rows["bytes_per_s"] / needed - 1).abs() > 0.05  # loads and stores hide behind computing
        pays = chosen.loc[rows.index] == "migrate"
        assert (pays == (rows["bytes_per_s"] > needed))[clear].all()


def test_cells_tile_the_map():
    table = storage_for_compute.actions(Params())
    for column in ("cached_tokens", "bytes_per_s"):
        cells = table[[f"{column}_low", column, f"{column}_high"]].drop_duplicates().sort_values(column)
        assert (cells[f"{column}_low"] < cells[column]).all()
        assert cells[f"{column}_high"].to_numpy()[:-1] == pytest.approx(cells[f"{column}_low"].to_numpy()[1:])


def test_algorithm_1_can_be_far_from_the_fastest_and_never_ahead_of_it():
    assert storage_for_compute.longest_forced(storage_for_compute.actions(Params()), Params()) > 2


def test_a_place_that_is_none_is_refused():
    with pytest.raises(InputError, match="no place 'Mars'"):
        storage_for_compute.chosen_actions(storage_for_compute.actions(Params()), Params(), place="Mars")
