"""The live figure of hot blocks' replicas against the experiment."""

import pytest
from tests.live.small import alike

from mooncake_companion.errors import InputError
from mooncake_companion.experiments import hot_blocks
from mooncake_companion.live.answers import compute
from mooncake_companion.parameters import parse
from mooncake_companion.publish import live


@pytest.mark.parametrize(
    "given",
    [
        {"prefill_nodes": "3", "sample_s": "7.5", "shortlist_nodes": "0"},
        {"cache_tokens_per_node": "300000", "shared_recency": "false", "kvcache_balancing_threshold": "5"},
        {"cache_tokens_per_node": "300000", "sample_s": "10"},
    ],
)
def test_replicas_spread_as_in_the_experiment(busy_hour, monkeypatch, given):
    outcome, told = compute("hot-block-replicas", given | {"requests": "400"}, live.slice_of(busy_hour))
    monkeypatch.setattr(hot_blocks, "chosen", lambda trace: {"conversation": busy_hour})
    table = hot_blocks.run(hot_blocks.Params(**parse(hot_blocks.Params, given)))
    alike(outcome.rows, table[table["origin"] == "modelled"])
    assert {row["key_rank"] for row in outcome.rows} == {10, 100, 1000}
    assert max(row["replica_count"] for row in outcome.rows) > 0.5
    assert "not shown" in told
    assert outcome.fixed == {"workload": "conversation"}


def test_counting_less_often_than_the_slice_lasts_is_refused(busy_hour):
    with pytest.raises(InputError, match="parameter sample_s: 600 s are longer than"):
        compute("hot-block-replicas", {"sample_s": "600"}, live.slice_of(busy_hour))


def test_with_little_room_copies_go_unless_a_use_anywhere_keeps_them(busy_hour):
    given, sliced = {"requests": "400", "cache_tokens_per_node": "300000"}, live.slice_of(busy_hour)
    shared, own = (
        compute("hot-block-replicas", given | {"shared_recency": kept}, sliced)[0].rows
        for kept in ("true", "false")
    )
    assert shared != own
