"""FAST'25, Figure 10, on a slice: what could make local caches hit rarely (Mooncake issue 452)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mooncake_companion.costs import load_calibration
from mooncake_companion.hardware import load_node
from mooncake_companion.live.finer_blocks import with_block_tokens
from mooncake_companion.live.outcome import Outcome, Progress, Row
from mooncake_companion.live.slices import Slice, hit_ratio, without_decode
from mooncake_companion.llm import load_model
from mooncake_companion.parameters import check, parameter
from mooncake_companion.settings import cache_parameter, model_parameter, node_parameter, threshold_parameter
from mooncake_companion.simulator.cluster import Cluster
from mooncake_companion.simulator.reference import replay
from mooncake_companion.simulator.scheduler import Routing
from mooncake_companion.statistics import mean

TRACE = "conversation"
"""What a page replays a slice of."""
CACHES = {"local": Routing.LOCAL_CACHE_AWARE, "global": Routing.GLOBAL_CACHE_AWARE}
"""The two designs: the same routing, without and with fetching from other nodes."""
AS_PRINTED = "Algorithm 1"
EXPLANATIONS: Mapping[str, Mapping[str, Any]] = {
    AS_PRINTED: {"shortlist_nodes": 0},
    "Room for all": {"shortlist_nodes": 0, "cache_tokens_per_node": 10**10},
    "Triple load": {"shortlist_nodes": 0, "arrival_speedup": 3.0},
    "Three queues": {"shortlist_nodes": 3},
    "Two queues": {"shortlist_nodes": 2},
    "One queue": {"shortlist_nodes": 1},
}
"""What is changed at a time, as fields of `cache_sharing.Params`; of the queues the shortest are weighed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """The node and the model; all else as `cache_sharing` has it from section 5.3.2.

    The shortlists were looked at with Figure 10's local bars in view; nothing here is a prediction of
    them. The global bars are.
    """

    node: str = node_parameter()
    model: str = model_parameter()

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageParams(Params):
    """The same, and what `cache_sharing` has it from there; an explanation changes some of it."""

    prefill_nodes: int = parameter(10, unit="nodes", low=1, high=64, help="nodes that prefill")
    cache_tokens_per_node: int = cache_parameter("DRAM for KV cache on each node")
    block_tokens: int = parameter(
        256, unit="tokens", low=64, high=512, help="of the cache's blocks; divides the trace's"
    )
    kvcache_balancing_threshold: float = threshold_parameter()
    other_shortlist_nodes: int = parameter(
        0, unit="nodes", low=0, high=64, help="so many queues in one more row, if none has them; 0: none"
    )

    @property
    def explanations(self) -> dict[str, Mapping[str, Any]]:
        """The experiment's, and the reader's."""
        weighed = self.other_shortlist_nodes
        title = "1 queue" if weighed == 1 else f"{weighed} queues"
        known = [changed["shortlist_nodes"] for changed in EXPLANATIONS.values()]
        other = {} if weighed in known else {title: {"shortlist_nodes": weighed}}
        return {**EXPLANATIONS, **other}


def run(params: PageParams, sliced: Slice, progress: Progress) -> Outcome:
    """Hit rates and prefill times under each explanation; columns as of `experiments.local_caches`."""
    fine = without_decode(with_block_tokens(sliced, params.block_tokens))
    runs = [
        (explanation, changed, cache)
        for explanation, changed in params.explanations.items()
        for cache in CACHES
    ]
    rows = []
    for done, (explanation, changed, cache) in enumerate(runs):
        progress(done, len(runs))
        settings = {"cache_tokens_per_node": params.cache_tokens_per_node, **changed}
        row: Row = {"origin": "modelled", "workload": TRACE, "explanation": explanation, "cache": cache}
        rows.append(row | _measured(params, fine, CACHES[cache], **settings))
    told = "; ".join(
        f"{local['explanation']} {local['hit_rate_pct']:.0f} and {shared['hit_rate_pct']:.0f} %"
        for local, shared in zip(rows[::2], rows[1::2], strict=True)
    )
    return Outcome(
        rows=rows,
        description=(
            "Hit rate with local caches and with a global one, one change at a time, computed in this "
            f"browser for the conversation trace alone; dashed: reported. Modelled: {told}."
        ),
    )


def _measured(
    params: PageParams,
    fine: Slice,
    routing: Routing,
    *,
    shortlist_nodes: int,
    cache_tokens_per_node: int,
    arrival_speedup: float = 1.0,
) -> Row:
    replayed = fine.head(len(fine.requests), speedup=arrival_speedup)
    cluster = Cluster(
        node=load_node(params.node),
        model=load_model(params.model),
        calibration=load_calibration(),
        prefill_nodes=params.prefill_nodes,
        decode_nodes=1,
        cache_tokens_per_node=cache_tokens_per_node,
        shared_recency=routing is Routing.GLOBAL_CACHE_AWARE,
        routing=routing,
        kvcache_balancing_threshold=params.kvcache_balancing_threshold,
        shortlist_nodes=shortlist_nodes,
    )
    records = replay(
        replayed.requests, cluster, block_tokens=replayed.block_tokens, draws=replayed.draws
    ).records
    prefills_s = [each.choice.prefill_s for each in records if each.choice is not None]
    return {"hit_rate_pct": 100 * hit_ratio(replayed, records), "prefill_gpu_time_s": mean(prefills_s)}
