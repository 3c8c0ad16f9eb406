"""The live figures of the scheduler and of what it moves, against the experiments."""

import pytest
from tests.live.small import alike, head

from mooncake_companion import traces
from mooncake_companion.experiments import prefill_scheduling_arxiv
from mooncake_companion.live.answers import compute
from mooncake_companion.publish import live


@pytest.fixture
def replaying(monkeypatch):
    """Have the experiments replay the start of a trace, and give what the page has of it."""

    def replayed(trace):
        monkeypatch.setattr(traces, "load", lambda name: trace)
        return live.slice_of(trace)

    return replayed


def test_the_earlier_experiment_is_the_reports(replaying):
    given = {"nodes": "3", "prefill_nodes": "2", "arrival_speedup": "1.5", "cache_tokens_per_node": "200000"}
    outcome, told = compute("prefill-scheduling-ttft-arxiv", given, replaying(head("arxiv")))
    params = prefill_scheduling_arxiv.Params(
        nodes=3, prefill_nodes=2, arrival_speedup=1.5, cache_tokens_per_node=200_000, replicates=1
    )
    modelled = prefill_scheduling_arxiv.run(params).query("origin == 'modelled'")
    alike(outcome.rows, modelled[modelled["prefill_nodes"] == 2].dropna(axis="columns", how="all"))
    assert len({row["mean_s"] for row in outcome.rows}) > 1
    assert outcome.fixed == {"split_of_prefill_scheduling_ttft_arxiv": 2}
    assert "prefill_nodes = 2" in told
