"""The live figure of what a hit can be against the experiment, and finer blocks of a slice."""

import math

import pytest
from tests.live.small import close

from mooncake_companion import traces
from mooncake_companion.errors import InputError
from mooncake_companion.experiments import cache_capacity
from mooncake_companion.live.answers import compute
from mooncake_companion.live.finer_blocks import with_block_tokens
from mooncake_companion.publish import live
from mooncake_companion.simulator.serving_path import requests_of
from mooncake_companion.traces import finer_blocks


@pytest.mark.parametrize(("capacity", "share", "finer"), [(100, 0.4, 64), (2000, 0.0, 256), (1, 0.9, 128)])
def test_every_way_counts_as_in_the_experiment(busy_hour, monkeypatch, capacity, share, finer):
    given = {"capacity_blocks": str(capacity), "warmup_share": str(share), "finer_block_tokens": str(finer)}
    outcome, _ = compute("hit-rate-counts", given | {"requests": "400"}, live.slice_of(busy_hour))
    monkeypatch.setattr(cache_capacity, "TABLE_1_BLOCKS", (capacity, math.inf))
    lasts_s = busy_hour.arrival_s[-1] - busy_hour.arrival_s[0]
    table = cache_capacity.definitions(busy_hour, warmup_s=share * lasts_s, finer_tokens=(finer,))
    expected = {(row["definition"], row["capacity_blocks"]): row for row in table.to_dict("records")}
    assert len(outcome.rows) == len(expected) == 24
    labels = outcome.offered["counts_capacity"]
    for row in outcome.rows:
        same = expected[row["definition"], (capacity, math.inf)[labels.index(row["capacity"])]]
        close(row, {name: same[name] for name in ("definition", "hit_ratio", "points")})
    assert len({row["hit_ratio"] for row in outcome.rows}) > 5


@pytest.mark.parametrize("block_tokens", [16, 256, 512])
@pytest.mark.parametrize("workload", ["conversation", "synthetic"])
def test_a_slice_is_refined_as_a_trace_is(workload, block_tokens):
    trace = traces.load(workload).head(200)
    fine = with_block_tokens(live.slice_of(trace), block_tokens)
    expected = requests_of(finer_blocks.with_block_tokens(trace, block_tokens))
    pairs = {
        blocks
        for request, same in zip(fine.requests, expected, strict=True)
        for blocks in zip(request.blocks, same.blocks, strict=True)
    }
    assert len(pairs) == len({here for here, _ in pairs}) == len({there for _, there in pairs})


def test_blocks_that_do_not_divide_the_traces_are_refused_beside_their_field(busy_hour):
    with pytest.raises(InputError, match="parameter finer_block_tokens: 100 does not divide"):
        compute("hit-rate-counts", {"finer_block_tokens": "100"}, live.slice_of(busy_hour))
