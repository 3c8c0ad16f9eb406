"""FAST'25, Figure 11, on a slice of the trace: how many nodes come to hold a hot block."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from mooncake_companion.costs import load_calibration
from mooncake_companion.errors import InputError
from mooncake_companion.hardware import load_node
from mooncake_companion.live.outcome import Outcome, Progress, Row
from mooncake_companion.live.slices import Slice, without_decode
from mooncake_companion.llm import load_model
from mooncake_companion.parameters import check, parameter
from mooncake_companion.settings import cache_parameter, model_parameter, node_parameter, threshold_parameter
from mooncake_companion.simulator.cache_tiers import CachePool
from mooncake_companion.simulator.cluster import Cluster
from mooncake_companion.simulator.reference import replay
from mooncake_companion.statistics import mean, quantile

TRACE = "conversation"
"""What a page replays a slice of."""
RANKS = (10, 100, 1_000, 10_000)
"""Places among the blocks by how often they are asked for, as the figure has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """The experiment's setting; the defaults are the paper's where it states them.

    Stated in section 5.3.3: the ranks, the sampling interval, and that blocks are replicated by
    being fetched, not beforehand. The traces' own speed follows from the figure's time axes. Assumed:
    8 prefill nodes, as in `prefill_scheduling`; caches and routing of `cache_sharing`. Informed by this
    figure, so that its claims are no predictions (`INFORMED`): that a use of a block anywhere keeps
    all its replicas, which is how the released store leases objects; and that the keys are the
    trace's own hashes of 512 tokens, not the store's of 256. The decode pool is left out: every
    answer has one token.
    """

    trace: str = parameter("", help="replay this trace alone; empty: the paper's three, as far as there")
    prefill_nodes: int = parameter(8, unit="nodes", low=1, high=64, help="nodes that prefill")
    cache_tokens_per_node: int = cache_parameter("DRAM for KV cache on each node")
    block_tokens: int = parameter(
        512, unit="tokens", low=16, high=512, help="of the cache's blocks; divides the trace's"
    )
    shared_recency: bool = parameter(True, help="whether a use of a block anywhere keeps all its replicas")
    shortlist_nodes: int = parameter(
        2, unit="nodes", low=0, high=64, help="shortest queues that Conductor weighs; 0: all nodes"
    )
    kvcache_balancing_threshold: float = threshold_parameter()
    sample_s: float = parameter(30.0, unit="s", low=1, high=600, help="between two counts")
    node: str = node_parameter()
    model: str = model_parameter()

    def __post_init__(self) -> None:
        check(self)

    def cluster(self) -> Cluster:
        """The prefill pool; the decode node has nothing to do."""
        return Cluster(
            node=load_node(self.node),
            model=load_model(self.model),
            calibration=load_calibration(),
            prefill_nodes=self.prefill_nodes,
            decode_nodes=1,
            cache_tokens_per_node=self.cache_tokens_per_node,
            shared_recency=self.shared_recency,
            kvcache_balancing_threshold=self.kvcache_balancing_threshold,
            shortlist_nodes=self.shortlist_nodes,
        )

    def times_s(self, last_arrival_s: float) -> list[float]:
        """When replicas are counted, from the trace's start to its last arrival."""
        return [self.sample_s * number for number in range(int(last_arrival_s // self.sample_s) + 1)]


def keys_by_rank(blocks: Iterable[int]) -> dict[int, list[int]]:
    """All blocks that are asked for as often as the one of each rank; none for ranks beyond the last.

    >>> keys_by_rank([7, 8] * 3 + [1, 2, 3, 4, 5, 6, 9, 9, 0, 10])
    {10: [0, 1, 2, 3, 4, 5, 6, 10]}
    """
    uses = Counter(blocks)
    descending = sorted(uses.values(), reverse=True)
    return {
        rank: sorted(block for block, count in uses.items() if count == descending[rank - 1])
        for rank in RANKS
        if rank <= len(descending)
    }


def run(params: Params, sliced: Slice, progress: Progress) -> Outcome:
    """Replicas over time of the blocks of each rank; columns as of `experiments.hot_blocks`."""
    replayed = without_decode(sliced)
    keys = keys_by_rank(block for request in replayed.requests for block in request.blocks)
    last_s = replayed.requests[-1].arrival_s
    times_s = params.times_s(last_s)
    if len(times_s) < 2:
        raise InputError(
            f"parameter sample_s: {params.sample_s:g} s are longer than the {last_s:.0f} s in which the "
            "requests arrive; count more often"
        )
    rows: list[Row] = []

    def probe(now_s: float, caches: CachePool) -> None:
        progress(round(now_s / params.sample_s), len(times_s))
        for rank, blocks in keys.items():
            counts = sorted(caches.holders(block).bit_count() for block in blocks)
            rows.append(
                {
                    "origin": "modelled",
                    "workload": TRACE,
                    "trace": sliced.name,
                    "key_rank": rank,
                    "time_s": now_s,
                    "replica_count": mean(counts),
                    "low": quantile(counts, 0.1),
                    "high": quantile(counts, 0.9),
                }
            )

    replay(
        replayed.requests,
        params.cluster(),
        block_tokens=replayed.block_tokens,
        draws=replayed.draws,
        probe_s=times_s,
        probe=probe,
    )
    rows.sort(key=lambda row: row["key_rank"])
    most = ", ".join(
        f"{max(row['replica_count'] for row in rows if row['key_rank'] == rank):.1f} of rank {rank:,}"
        for rank in keys
    )
    return Outcome(
        rows=rows,
        description=(
            "Number of nodes that hold blocks of each rank over time, computed in this browser for "
            f"{params.prefill_nodes} prefill nodes; line: mean over the blocks of a rank, with its 10 to "
            f"90 % band. Largest mean: {most}."
        ),
        fixed={"workload": TRACE},
        without_reported=(
            "What is reported is of an hour, in which other blocks have these ranks; it is not shown."
        ),
    )
