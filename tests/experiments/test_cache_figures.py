"""FAST'25, Figures 9 to 11, and arXiv Table 1 on the released traces, and the experiments' own rules."""

import dataclasses

import numpy as np
import pytest

from mooncake_companion import reported, traces
from mooncake_companion.errors import CompanionError, InputError
from mooncake_companion.experiments import cache_capacity, cache_sharing, hot_blocks, paper_traces
from mooncake_companion.simulator.eviction import replay
from mooncake_companion.traces import Trace
from mooncake_companion.traces.finer_blocks import with_block_tokens

TURNS = [
    (0.0, 1024, 1, [1, 2]),
    (3.0, 1000, 1, [1, 3]),
    (6.0, 1600, 1, [1, 2, 4, 5]),
    (9.0, 600, 1, [6, 7]),
]


def small(requests=TURNS):
    return Trace.from_requests(requests, name="small")


def load_released(name):
    """A released trace by name; skips where it is not on this machine."""
    try:
        trace = traces.load(name, download=False)
    except CompanionError as reason:
        pytest.skip(str(reason))
    if trace.origin != "released":
        pytest.skip(f"the released {name} trace is not on this machine; set MOONCAKE_TRACES")
    return trace


@pytest.fixture(params=["conversation", "synthetic"])
def released(request):
    return load_released(request.param)


# Finer blocks


@pytest.mark.parametrize("block_tokens", [16, 256])
def test_finer_blocks_keep_prompts_and_share_no_less(released, block_tokens):
    trace = released.head(200)
    fine = with_block_tokens(trace, block_tokens)
    assert dataclasses.replace(fine) == fine, "its columns fit together"
    np.testing.assert_array_equal(fine.input_tokens, trace.input_tokens)
    coarse_tokens = traces.infinite_cache_leading_hits(trace) * trace.block_tokens
    fine_tokens = traces.infinite_cache_leading_hits(fine) * block_tokens
    whole = coarse_tokens <= trace.input_tokens  # where only whole blocks are shared
    assert (fine_tokens >= coarse_tokens)[whole].all()
    assert (fine_tokens - coarse_tokens)[whole].max() < trace.block_tokens


def test_prompts_that_part_within_a_block_agree_up_to_the_end_of_the_shortest():
    """Blocks 2 and 3 follow block 1; the shorter of them has 488 tokens, 30 whole blocks of 16."""
    fine = with_block_tokens(small([(0.0, 1000, 1, [1, 2]), (3.0, 1600, 1, [1, 3, 4, 5])]), 16)
    assert traces.infinite_cache_leading_hits(fine).tolist() == [0, 32 + 30]
    apart = with_block_tokens(small([(0.0, 1024, 1, [1, 2]), (3.0, 1024, 1, [1, 3])]), 16)
    assert traces.infinite_cache_leading_hits(apart).tolist() == [0, 32], "nobody ends in the block"


def test_blocks_that_do_not_divide_are_refused():
    with pytest.raises(InputError, match="divide the trace's 512, got 100"):
        with_block_tokens(small(), 100)
    assert with_block_tokens(small(), 512) == small()


# Figure 9 and Table 1


@pytest.mark.parametrize("name", [pytest.param("conversation", marks=pytest.mark.slow), "synthetic"])
def test_figure_9_is_an_lru_cache_with_blocks_of_16_tokens(name):
    released = load_released(name)
    drawn = reported.figure("fast25_fig09").query("workload == @released.name")
    fine = with_block_tokens(released, 16)
    modelled = cache_capacity.lru_hit_ratios(fine, drawn["capacity_tokens"].to_numpy())
    np.testing.assert_allclose(modelled, drawn["hit_rate"], atol=0.004)
    coarse = cache_capacity.lru_hit_ratios(released, drawn["capacity_tokens"].to_numpy())
    assert np.abs(coarse - drawn["hit_rate"]).max() > 2 * np.abs(modelled - drawn["hit_rate"]).max()


def test_hit_ratios_are_those_of_a_replayed_cache():
    trace = small()
    blocks = np.arange(9)
    ratios = cache_capacity.lru_hit_ratios(trace, 512 * blocks + 5)
    hits = [replay("lru", trace.block_ids.tolist(), count) for count in blocks.tolist()]
    assert ratios.tolist() == [512 * count / 4224 for count in hits], "all that are used again are full"
    assert hits[-1] == 3


def test_definitions_agree_where_they_must(released):
    table = cache_capacity.definitions(released.head(300), warmup_s=10.0).set_index(
        ["definition", "capacity_blocks"]
    )
    ratio = table["hit_ratio"].sort_index()
    everything = ratio[:, np.inf]
    assert (ratio.between(0, 1)).all()
    assert table["points"].sort_index()["blocks"].abs().max() == 0
    assert everything["tokens, blocks of 16"] >= everything["tokens, blocks of 64"]
    assert everything["tokens, blocks of 64"] >= everything["tokens, blocks of 256"] >= everything["tokens"]
    assert everything["with the answers' blocks"] < everything["blocks"] < everything["full blocks alone"]


def test_table_1_orders_the_policies_as_the_report_does(released):
    params = cache_capacity.Params(table_trace=released.name)
    table = cache_capacity.policies(params, names=("lru", "lfu", "length-aware", "belady"))
    modelled = table.query("origin == 'modelled'")
    ratio = modelled.pivot(index="capacity_blocks", columns="policy", values="hit_ratio")
    assert (ratio[["lru", "lfu", "length-aware"]].le(ratio["belady"], axis=0)).all(axis=None)
    assert ratio["lru"][10_000] > ratio["lfu"][10_000] > ratio["length-aware"][10_000]
    assert ratio.loc[np.inf].nunique() == 1, "without evictions the policy plays no role"


def test_figure_6_of_the_report_contradicts_its_table_1():
    assert cache_capacity.hit_ratio_of_block_uses() > reported.claim("arxiv.table1.lrucache.inf") + 0.03


def test_all_workloads_together_share_nothing_between_them():
    one = small()
    both = cache_capacity.together([one, dataclasses.replace(one, arrival_s=one.arrival_s + 1)])
    assert dataclasses.replace(both) == both, "its columns fit together"
    assert (np.diff(both.arrival_s) >= 0).all()
    ratio = traces.infinite_cache_hit_ratio
    assert ratio(both) == pytest.approx(ratio(one))
    assert traces.describe(both)["distinct_blocks"] == 2 * traces.describe(one)["distinct_blocks"]


# Figures 10 and 11


def test_local_caches_of_the_paper_are_those_of_a_scheduler_that_looks_at_queues_first(released):
    params = cache_sharing.Params(trace=released.name)
    table = cache_sharing.routings(params, shortlists=(1, 2, 10))
    modelled = table.query("origin == 'modelled'").set_index("shortlist_nodes")

    def hits(cache, rule):
        return modelled.query("cache == @cache and rule == @rule")["hit_rate_pct"]

    local = hits("local", "shortlist")
    expected = reported.claim(f"fast25.fig10.hit_rate.{released.name}.local")
    assert local[1] < 0.8 * expected < expected < local[10] / 1.9, "neither load balancing nor Algorithm 1"
    assert local[2] == pytest.approx(expected, rel=0.06)
    unbounded = hits("local", "shortlist, unbounded caches")
    assert unbounded[10] < local[10] * 1.05, "capacity does not explain it"
    shared = hits("global", "shortlist")
    expected = reported.claim(f"fast25.fig10.hit_rate.{released.name}.global")
    for weighed in (1, 2, 10):
        assert shared[weighed] == pytest.approx(expected, rel=0.03), "the global cache does not need it"


def test_sharing_claims_follow_from_the_table(released):
    params = cache_sharing.Params(trace=released.name)
    values = cache_sharing.claims(params)
    table = cache_sharing.run(params).query("origin == 'modelled'").set_index("cache")
    ratio = table["hit_rate_pct"]["global"] / table["hit_rate_pct"]["local"]
    assert values[f"fast25.fig10.hit_ratio.{released.name}"] == pytest.approx(ratio)
    assert ("fast25.headline.hit_rate_ratio" in values) == (released.name == "synthetic")


@pytest.mark.slow
def test_hot_keys_spread_only_if_their_holder_is_not_always_preferred():
    """What Figure 10 informed holds in Figure 11 too; synthetic, the key ranked 10th."""
    trace = paper_traces.without_decode(load_released("synthetic"))
    most = {}
    for weighed in (0, 2):
        params = hot_blocks.Params(shortlist_nodes=weighed)
        most[weighed] = hot_blocks.replicas(params, trace)[1][10].max(axis=0).mean()
    expected = reported.claim("fast25.fig11.max.synthetic.10")
    assert most[2] == pytest.approx(expected, abs=0.5)
    assert most[0] < expected / 2


def test_replicas_are_counted_of_all_blocks_with_as_many_uses():
    params = hot_blocks.Params(prefill_nodes=2, sample_s=2.0)
    trace = small([(2.0 * k, 512 * 12, 1, list(range(12))) for k in range(8)])
    times_s, counts = hot_blocks.replicas(params, trace)
    assert times_s.tolist() == [2.0 * k for k in range(8)]
    assert list(counts) == [10], "there is no hundredth block"
    assert counts[10].shape == (8, 12), "all twelve are used eight times"
    assert counts[10][0].max() == 0
    assert counts[10][-1].min() >= 1


def test_every_claim_is_a_reported_row(released):
    known = set(reported.claims()["id"])
    sharing = cache_sharing.claims(cache_sharing.Params(trace=released.name))
    assert set(sharing) <= known
    assert set(cache_sharing.INFORMED) <= known
    assert set(hot_blocks.INFORMED) <= known
    tight = cache_capacity.Params(trace=released.name, block_tokens=512, table_trace=released.name)
    assert set(cache_capacity.claims(tight)) <= known


def test_a_workload_that_cannot_be_had_is_left_out(monkeypatch):
    def load(name):
        if name == "toolagent":
            raise CompanionError("not on this machine")
        return small()

    monkeypatch.setattr(traces, "load", load)
    assert list(paper_traces.available()) == ["conversation", "synthetic"]
    values = cache_capacity.claims(cache_capacity.Params(table_trace="toolagent"))
    assert not any("toolagent" in claim or claim.startswith("arxiv") for claim in values)
    assert "fast25.fig09.hit_rate.conversation.1e6" in values
    assert not any(".all." in claim for claim in values)
