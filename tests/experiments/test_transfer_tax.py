"""The transfer tax: parts add up, and its values are those of the latency breakdown."""

import pytest

from mooncake_companion.experiments import latency_breakdown, transfer_tax


@pytest.fixture(scope="module")
def table():
    return transfer_tax.run(transfer_tax.Params()).query("origin == 'modelled'")


def test_sending_and_loading_make_the_tax(table):
    move = table[table["quantity"] == transfer_tax.MOVE]
    assert (move["transfer_s"] + move["load_s"]).to_numpy() == pytest.approx(move["seconds"].to_numpy())


def test_at_the_papers_network_it_is_the_latency_breakdowns(table):
    at = table[(table["bandwidth_gbit_per_s"] == 800) & (table["input_tokens"] == 131_072)]
    seconds = at.set_index("quantity")["seconds"]
    parts = latency_breakdown.component_times(latency_breakdown.Params(), 131_072, 0)
    assert seconds[transfer_tax.PREFILL] == pytest.approx(parts["prefill"])
    assert seconds[transfer_tax.MOVE] == pytest.approx(parts["transfer"] + parts["load_cache"])


def test_the_tax_falls_with_bandwidth_and_its_share_with_length(table):
    move = table[table["quantity"] == transfer_tax.MOVE]
    grid = move.pivot(index="input_tokens", columns="bandwidth_gbit_per_s", values="seconds")
    assert (grid.diff(axis="columns").iloc[:, 1:] < 0).all(axis=None)
    share = move.pivot(index="input_tokens", columns="bandwidth_gbit_per_s", values="share")
    assert (share.loc[131_072] < share.loc[8192]).all()


def test_the_reported_bars_are_all_there():
    drawn = transfer_tax.run(transfer_tax.Params()).query("origin == 'reported'")
    assert sorted(drawn.loc[drawn["quantity"] == transfer_tax.MOVE, "input_tokens"]) == [
        1024 * length for length in (8, 16, 32, 64, 128)
    ]
