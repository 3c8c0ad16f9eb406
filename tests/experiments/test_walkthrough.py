"""The walkthrough: that its terms are Conductor's, that each scenario is what it says, and its rules."""

import dataclasses

import pytest

from mooncake_companion import traces
from mooncake_companion.errors import CompanionError, InputError
from mooncake_companion.experiments import prefill_scheduling, walkthrough
from mooncake_companion.experiments.walkthrough import ANY, FETCHED, NO_HEADROOM, OWN, TOO_SHORT, Params
from mooncake_companion.simulator import Admission, Outcome, simulate

PARAMS = Params(window_start_share=0.03, window_share=0.04)
"""Early in the trace: the same scenarios at a fraction of the time."""


@pytest.fixture(scope="module")
def table():
    return walkthrough.run(PARAMS)


@pytest.fixture(scope="module")
def prefill(table):
    return table[table["pool"] == "prefill"]


def test_every_term_of_every_candidate_is_there(table, prefill):
    assert list(table["scenario"].unique()) == [FETCHED, TOO_SHORT, NO_HEADROOM, OWN]
    assert (prefill.groupby("scenario")["node"].apply(list) == [list(range(8))] * 4).all()
    terms = ["queue_s", "transfer_s", "prefill_s", "ttft_s", "local_tokens", "fetched_tokens"]
    assert prefill[terms].notna().all(axis=None)
    summed = prefill["queue_s"] + prefill["transfer_s"] + prefill["prefill_s"]
    assert summed.to_numpy() == pytest.approx(prefill["ttft_s"].to_numpy())
    tokens = prefill["local_tokens"] + prefill["fetched_tokens"] + prefill["computed_tokens"]
    assert (tokens == prefill["input_tokens"]).all()


def test_one_candidate_of_each_pool_wins_by_its_rule(table):
    for (_, pool), rows in table.groupby(["scenario", "pool"]):
        assert rows["wins"].sum() == 1
        by = "ttft_s" if pool == "prefill" else "tokens"
        assert rows.loc[rows["wins"], by].item() == rows[by].min()


def test_the_winners_are_what_the_simulation_did(table):
    trace, cluster = traces.load("conversation"), PARAMS.cluster()
    chosen = walkthrough.winners(table)
    result = simulate(trace, cluster)
    for scenario in (FETCHED, OWN):
        request = chosen.loc[scenario, "request"]
        assert result.prefill_node[request] == chosen.loc[scenario, "prefill_node"]
        assert result.decode_node[request] == chosen.loc[scenario, "decode_node"]
        assert result.fetched_tokens[request] == chosen.loc[scenario, "fetched_tokens"]
        assert result.prefill_s[request] == pytest.approx(chosen.loc[scenario, "prefill_s"])


def test_the_fetched_prefix_comes_from_a_longer_queue(prefill):
    rows = prefill[prefill["scenario"] == FETCHED].set_index("node")
    winner = rows[rows["wins"]].iloc[0]
    assert winner["fetched_tokens"] > 0
    assert rows.loc[winner["source_node"], "queue_s"] > winner["queue_s"]
    assert winner["transfer_s"] > 0


def test_a_short_start_is_computed_by_all_who_hold_any(prefill):
    rows = prefill[prefill["scenario"] == TOO_SHORT]
    holders = rows[rows["local_tokens"] > 0]
    assert (holders["fetched_tokens"] == 0).all()
    least, longest = holders["local_tokens"].min(), holders["local_tokens"].max()
    assert longest <= PARAMS.kvcache_balancing_threshold * least
    was = prefill[prefill["scenario"] == FETCHED]
    assert rows["queue_s"].tolist() == was["queue_s"].tolist(), "nothing before it has changed"


def test_without_headroom_the_request_is_turned_away_as_the_engine_does(table):
    row = walkthrough.winners(table).loc[NO_HEADROOM]
    assert row["rejected"]
    assert row["pool_share"] > 1
    cluster = PARAMS.cluster(decode_nodes=int(row["decode_nodes"]), admission=Admission.EARLY)
    outcomes = simulate(traces.load("conversation"), cluster).outcome
    assert outcomes[row["request"]] == Outcome.REJECTED_AT_ARRIVAL
    others = walkthrough.winners(table).drop(NO_HEADROOM)
    assert not others["rejected"].any()
    assert (others["pool_share"] < 1).all()


def test_with_its_own_prefix_a_node_wins_in_spite_of_its_queue(prefill):
    rows = prefill[prefill["scenario"] == OWN]
    winner = rows[rows["wins"]].iloc[0]
    assert winner["local_tokens"] == rows["local_tokens"].max()
    assert winner["queue_s"] > rows["queue_s"].min()


def test_texts_have_every_term_even_of_a_missing_scenario(table):
    told = walkthrough.told(table[table["scenario"] == FETCHED])
    assert told["own"]["queue_s"] == "none"
    assert told["fetched"]["fetched_tokens"].replace(",", "").isdigit()
    assert {len(terms) for terms in told.values()} == {8}


def test_with_one_prefill_node_the_first_of_the_window_is_shown():
    lone = dataclasses.replace(PARAMS, prefill_nodes=1, nodes=2, window_start_share=0.0, window_share=0.001)
    table = walkthrough.run(lone)
    assert table["scenario"].unique().tolist() == [ANY]
    assert table["request"].unique().tolist() == [0]


def test_it_takes_over_another_experiments_cluster():
    theirs = prefill_scheduling.Params(prefill_nodes=6, nic_bytes_per_s=3e9)
    mine = walkthrough.on_cluster_of(theirs)
    assert (mine.prefill_nodes, mine.nic_bytes_per_s) == (6, 3e9)
    assert mine.window_share == Params().window_share


def test_a_cluster_without_decode_nodes_is_refused():
    with pytest.raises(InputError, match="leaves no node of 8 to decode"):
        Params(nodes=8, prefill_nodes=8)


def test_where_a_node_without_any_prefix_would_fetch_no_start_is_too_short():
    """Without system prompts some node holds nothing, and no threshold forbids it to fetch."""
    try:
        table = walkthrough.run(dataclasses.replace(PARAMS, trace="synthetic", window_start_share=0.15))
    except CompanionError as reason:
        pytest.skip(str(reason))
    assert TOO_SHORT not in set(table["scenario"])
    assert FETCHED in set(table["scenario"])
