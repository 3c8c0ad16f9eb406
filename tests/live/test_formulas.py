"""The live figures of single actions, which follow from formulas, against the experiments."""

import pytest
from tests.live.small import alike

from mooncake_companion import reported
from mooncake_companion.errors import InputError
from mooncake_companion.experiments import latency_breakdown, remote_kv, transfer_latency, two_phases
from mooncake_companion.live import latency_breakdown as live_breakdown
from mooncake_companion.live.answers import compute
from mooncake_companion.live.two_phases import BATCHES, LENGTHS


def modelled(table):
    return table[table["origin"] == "modelled"]


def test_both_phases_are_the_experiments():
    given = {
        "node": "h800",
        "model": "qwen2.5-72b",
        "decode_context_tokens": "5000",
        "waits_for_host": "true",
    }
    outcome, told = compute("two-phases", given, None)
    params = two_phases.Params(
        node="h800", model="qwen2.5-72b", decode_context_tokens=5000, waits_for_host=True
    )
    alike(outcome.rows, modelled(two_phases.run(params)))
    assert "waits_for_host = True" in told
    assert f"in {outcome.rows[len(LENGTHS)]['normalized_latency']:.0%} of the time" in outcome.description


def test_both_phases_have_the_points_of_the_figure():
    drawn = reported.figure("arxiv_fig02").groupby("stage")
    assert [1024 * k for k in drawn.get_group("prefill")["sequence_length_k"]] == list(LENGTHS)
    assert drawn.get_group("decoding")["batch_size"].tolist() == list(BATCHES)


@pytest.mark.parametrize(("network", "gbit"), [("4x200Gbps", "800"), ("8x400Gbps", "3200")])
def test_a_transfer_takes_as_long_as_in_the_experiment(network, gbit):
    outcome, _ = compute("transfer-latency", {"bandwidth_gbit_per_s": gbit, "startup_s": "0.2"}, None)
    assert outcome.fixed == {"latency_network": network}
    assert not outcome.without_reported
    params = transfer_latency.Params(startup_s=0.2)
    claimed = transfer_latency.claims(params)
    seconds = {round(row["transferred_bytes"] / 1e9): row["transfer_s"] for row in outcome.rows}
    for gb in (1, 10, 40, 100):
        claim = f"fast25.fig12.latency.{network.lower()}.transfer_engine.{gb}gb"
        assert seconds[gb] == pytest.approx(claimed[claim], rel=1e-9)
    table = transfer_latency.run(params).query("origin == 'modelled' and network == @network")
    for row, same in zip(outcome.rows, table.to_dict("records"), strict=True):
        assert row.keys() == same.keys()
        assert row["transferred_bytes"] == pytest.approx(same["transferred_bytes"], rel=2e-5)  # as read
        assert (row["origin"], row["method"]) == (same["origin"], same["method"])


def test_another_network_has_a_line_of_its_own_and_nothing_reported():
    given = {"bandwidth_gbit_per_s": "80", "network_utilisation": "0.5"}
    outcome, told = compute("transfer-latency", given, None)
    assert [row["bytes_per_s"] for row in outcome.rows] == pytest.approx([5e9] * len(outcome.rows))
    assert {row["network"] for row in outcome.rows} == {"80 Gbit/s"}
    assert outcome.fixed == {"latency_network": "80 Gbit/s"}
    assert told.endswith("Nothing is reported of this network.")
    assert "100 GB take 20.00 s, 5.00 GB/s." in outcome.description


@pytest.mark.parametrize("pct", latency_breakdown.CACHED_PCT)
def test_the_breakdown_is_the_experiments(pct):
    given = {"node": "h200", "model": "mixtral-8x7b", "decoded_tokens": "33", "cached_pct": str(pct)}
    outcome, _ = compute("latency-breakdown", given, None)
    table = latency_breakdown.run(
        latency_breakdown.Params(node="h200", model="mixtral-8x7b", decoded_tokens=33)
    )
    alike(outcome.rows, modelled(table).query("cached_pct == @pct"))
    assert outcome.fixed == {"breakdown_cached": pct}


def test_another_share_and_network_move_what_they_should():
    def seconds(**given):
        outcome, told = compute("latency-breakdown", {"decoded_tokens": "5"} | given, None)
        assert ("Nothing is reported" in told) == ("cached_pct" in given)
        return {(row["input_tokens"], row["component"]): row["seconds"] for row in outcome.rows}

    published, cached, slow = seconds(), seconds(cached_pct="50"), seconds(network_gbit_per_s="8")
    assert len(published) == len(live_breakdown.LENGTHS) * len(live_breakdown.COMPONENTS)
    for place, before_s in published.items():
        _, component = place
        assert (cached[place] < before_s) == (component == "prefill")
        assert (slow[place] > before_s) == (component == "transfer")
        assert slow[place] == pytest.approx(before_s * (100 if component == "transfer" else 1))


def test_reading_from_afar_takes_as_long_as_in_the_experiment():
    given = {"input_tokens": "3000", "node": "h200", "model": "deepseek-v3"}
    outcome, _ = compute("remote-kv-reads", given, None)
    params = remote_kv.Params(input_tokens=3000, node="h200", model="deepseek-v3")
    alike(outcome.rows, remote_kv.run(params))


def test_a_network_that_is_twice_as_fast_halves_what_passes_it():
    def steps_s(gbit):
        outcome, _ = compute("remote-kv-reads", {"network_gbit_per_s": gbit}, None)
        return {
            way: [row["step_s"] for row in outcome.rows if row["way"] == way]
            for way in (remote_kv.MOVED, remote_kv.HOST, remote_kv.REMOTE)
        }

    slow, fast = steps_s("5"), steps_s("10")
    assert [2 * seconds for seconds in fast[remote_kv.REMOTE]] == pytest.approx(slow[remote_kv.REMOTE])
    assert all(fast[way] == slow[way] for way in (remote_kv.MOVED, remote_kv.HOST))
    own, same = steps_s("0"), steps_s("800")
    assert own == same


@pytest.mark.parametrize("figure", ["two-phases", "latency-breakdown", "remote-kv-reads"])
def test_a_model_that_does_not_fit_is_refused_beside_its_field(figure):
    with pytest.raises(InputError, match=r"parameter model: .*does not fit"):
        compute(figure, {"model": "llama3.1-405b"}, None)


@pytest.mark.parametrize("figure", ["latency-breakdown", "remote-kv-reads"])
def test_a_network_on_which_nothing_arrives_is_refused(figure):
    with pytest.raises(InputError, match="parameter network_gbit_per_s: 1e-300 is too slow"):
        compute(figure, {"network_gbit_per_s": "1e-300"}, None)
