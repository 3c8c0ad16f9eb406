"""The live figure of local and global caches against the experiment."""

import dataclasses

import pandas as pd
import pytest
from tests.live.small import alike

from mooncake_companion import traces
from mooncake_companion.errors import InputError
from mooncake_companion.experiments import cache_sharing, local_caches
from mooncake_companion.live.answers import compute
from mooncake_companion.live.local_caches import EXPLANATIONS, PageParams
from mooncake_companion.publish import live


@pytest.fixture(scope="module")
def early():
    return traces.load("conversation").head(150)


@pytest.fixture
def replayed(early, monkeypatch):
    monkeypatch.setattr(local_caches, "available", lambda names: {"conversation": early})
    monkeypatch.setattr(cache_sharing, "chosen", lambda trace: {"conversation": early})


@pytest.mark.usefixtures("replayed")
def test_explanations_are_those_of_the_experiment(early):
    outcome, _ = compute("local-cache-explanations", {"requests": "150"}, live.slice_of(early))
    table = local_caches.run(local_caches.Params()).query("origin == 'modelled'")
    alike(outcome.rows, table)
    assert len({row["hit_rate_pct"] for row in outcome.rows}) > 3


def test_a_use_anywhere_keeps_copies_in_the_global_cache_alone(busy_hour, monkeypatch):
    monkeypatch.setattr(cache_sharing, "chosen", lambda trace: {"conversation": busy_hour})
    given = {"prefill_nodes": "4", "cache_tokens_per_node": "600000", "block_tokens": "512"}
    given |= {"kvcache_balancing_threshold": "1", "requests": "400"}
    outcome, _ = compute("local-cache-explanations", given, live.slice_of(busy_hour))
    params = cache_sharing.Params(
        prefill_nodes=4,
        cache_tokens_per_node=600_000,
        block_tokens=512,
        kvcache_balancing_threshold=1.0,
        shortlist_nodes=2,
    )
    table = cache_sharing.run(params).query("origin == 'modelled'").drop(columns="trace")
    queues = [row for row in outcome.rows if row["explanation"] == "Two queues"]
    alike(queues, table.assign(explanation="Two queues"))


@pytest.mark.usefixtures("replayed")
def test_a_readers_setting_and_row_are_as_in_the_experiment(early):
    given = {"prefill_nodes": "6", "cache_tokens_per_node": "50000", "block_tokens": "128"}
    given |= {"kvcache_balancing_threshold": "4", "other_shortlist_nodes": "5"}
    outcome, _ = compute("local-cache-explanations", given | {"requests": "150"}, live.slice_of(early))
    base = cache_sharing.Params(
        prefill_nodes=6, cache_tokens_per_node=50_000, block_tokens=128, kvcache_balancing_threshold=4.0
    )
    explanations = {**local_caches.EXPLANATIONS, "5 queues": {"shortlist_nodes": 5}}
    tables = [
        cache_sharing.run(dataclasses.replace(base, **changed))
        .query("origin == 'modelled'")
        .assign(explanation=explanation)
        for explanation, changed in explanations.items()
    ]
    alike(outcome.rows, pd.concat(tables).drop(columns="trace"))


def test_blocks_that_do_not_divide_the_traces_are_refused(early):
    with pytest.raises(InputError, match="parameter block_tokens: 100 does not divide"):
        compute("local-cache-explanations", {"block_tokens": "100"}, live.slice_of(early))


@pytest.mark.parametrize("queues", [0, 1, 3])
def test_no_explanation_is_given_twice(queues):
    assert PageParams(other_shortlist_nodes=queues).explanations == EXPLANATIONS
