"""The blocks in the tiers of every node, looked at from time to time (FAST'25, section 3.2).

No figure of the papers shows this: it is what the model keeps while it replays a trace. The tiers are
small, so that every block can be drawn; the rules are those of the whole cluster.
"""

import dataclasses
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mooncake_companion import traces
from mooncake_companion.costs import load_calibration
from mooncake_companion.experiments.paper_traces import provenance, without_decode
from mooncake_companion.hardware import load_node, load_nodes
from mooncake_companion.llm import load_model, load_models
from mooncake_companion.parameters import check, parameter
from mooncake_companion.simulator import Cluster
from mooncake_companion.simulator.cache_tiers import CachePool, Tier
from mooncake_companion.simulator.reference import replay
from mooncake_companion.simulator.serving_path import requests_of
from mooncake_companion.traces import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """What is replayed, and when it is looked at.

    All of it is assumed: the papers give no such view. Four nodes and 0.4 of the trace's speed keep
    the pool about as busy as 8 of 16 nodes are at its own. The tiers hold so little that they fill within
    minutes. Tool and agent requests have the widest range of heat.
    """

    trace: str = parameter("toolagent", help="registered trace, or the path of a JSONL file")
    requests: int = parameter(500, unit="requests", low=1, high=10**5, help="of its start")
    arrival_speedup: float = parameter(0.4, low=0.01, high=100, help="replay it so many times as fast")
    prefill_nodes: int = parameter(4, unit="nodes", low=1, high=16, help="nodes that prefill")
    vram_blocks: int = parameter(48, unit="blocks", low=0, high=1000, help="of a node's GPU memory")
    dram_blocks: int = parameter(144, unit="blocks", low=0, high=1000, help="of its DRAM")
    ssd_blocks: int = parameter(192, unit="blocks", low=0, high=1000, help="of its SSD")
    snapshots: int = parameter(10, low=1, high=100, help="evenly spaced, the last at the last arrival")
    kvcache_balancing_threshold: float = parameter(
        2.0, low=1, high=1e6, help="of Algorithm 1: fetch when the best prefix exceeds the own by this factor"
    )
    node: str = parameter("a800", choices=tuple(load_nodes()), help="what every node is")
    model: str = parameter("llama3-70b", choices=tuple(load_models()), help="what it serves")

    def __post_init__(self) -> None:
        check(self)

    def cluster(self, block_tokens: int) -> Cluster:
        """The prefill pool; the decode node has nothing to do."""
        return Cluster(
            node=load_node(self.node),
            model=load_model(self.model),
            calibration=load_calibration(),
            prefill_nodes=self.prefill_nodes,
            decode_nodes=1,
            vram_cache_tokens_per_node=self.vram_blocks * block_tokens,
            cache_tokens_per_node=self.dram_blocks * block_tokens,
            ssd_cache_tokens_per_node=self.ssd_blocks * block_tokens,
            kvcache_balancing_threshold=self.kvcache_balancing_threshold,
        )


def run(params: Params) -> pd.DataFrame:
    """Every block that a node holds, at every snapshot.

    Returns
    -------
    DataFrame
        ``time_s``; ``node`` and ``tier`` ("VRAM", "DRAM", "SSD"); ``slot``, a place that a block
        keeps as long as it stays in the tier; ``block``, its number in order of first use;
        ``position``, blocks before it in its prefix; ``uses``, requests that have asked for it so
        far, wherever they ran; ``age_s`` since its last use on this node; ``holders``, the nodes that
        hold it, as text; ``copies``, how many these are.
    """
    trace = _replayed(params)
    requests = requests_of(trace)
    times_s = np.linspace(0, trace.arrival_s[-1], params.snapshots + 1)[1:].tolist()
    asked: Counter[int] = Counter()
    slots = _Slots()
    rows: list[dict[str, object]] = []
    seen = 0

    def probe(now_s: float, caches: CachePool) -> None:
        nonlocal seen
        while seen < len(requests) and requests[seen].arrival_s <= now_s:
            asked.update(requests[seen].blocks)
            seen += 1
        for node, cache in enumerate(caches.caches):
            held = {tier: [block for block in cache if cache.tier(block) == tier] for tier in Tier}
            for tier, blocks in held.items():
                for block, slot in slots.place(node, tier, blocks).items():
                    use, holders = cache.last_use(block), _nodes(caches.holders(block))
                    rows.append(
                        {
                            "time_s": round(now_s),
                            "node": node,
                            "tier": tier.name,
                            "slot": slot,
                            "block": block,
                            "position": use.depth,
                            "uses": asked[block],
                            "age_s": round(now_s - use.now_s, 1),
                            "holders": ", ".join(map(str, holders)),
                            "copies": len(holders),
                        }
                    )

    replay(
        requests,
        params.cluster(trace.block_tokens),
        block_tokens=trace.block_tokens,
        draws=[0.0] * len(trace),
        probe_s=times_s,
        probe=probe,
    )
    table = pd.DataFrame(rows)
    table.attrs["provenance"] = provenance(params, {params.trace: trace})
    return table


def tiers(table: pd.DataFrame) -> pd.DataFrame:
    """What each tier holds at the last snapshot, all nodes together.

    Returns
    -------
    DataFrame
        Indexed by ``tier``: ``blocks``, ``used_once_share``, ``median_age_s``, ``copied_share`` (of
        the blocks, those that another node holds, too).
    """
    last = table[table["time_s"] == table["time_s"].max()]
    return last.groupby("tier").agg(
        blocks=("block", "size"),
        used_once_share=("uses", lambda uses: float((uses == 1).mean())),
        median_age_s=("age_s", "median"),
        copied_share=("copies", lambda copies: float((copies > 1).mean())),
    )


class _Slots:
    """Gives blocks places in their tier, which they keep as long as they are there."""

    def __init__(self) -> None:
        self._taken: dict[tuple[int, Tier], dict[int, int]] = {}

    def place(self, node: int, tier: Tier, blocks: list[int]) -> dict[int, int]:
        """Places of the blocks that a tier holds now; newcomers get the lowest free ones."""
        before = self._taken.get((node, tier), {})
        stay = {block: before[block] for block in blocks if block in before}
        free = iter(sorted(set(range(len(blocks) + len(before))) - set(stay.values())))
        placed = {block: stay[block] if block in stay else next(free) for block in blocks}
        self._taken[node, tier] = placed
        return placed


def _nodes(holders: int) -> list[int]:
    return [node for node in range(holders.bit_length()) if holders >> node & 1]


def _replayed(params: Params) -> Trace:
    """The trace's start with answers of one token and its blocks numbered in order of first use."""
    head = without_decode(traces.load(params.trace).head(params.requests))
    _, first, inverse = np.unique(head.block_ids, return_index=True, return_inverse=True)
    numbers = np.argsort(np.argsort(first))
    return dataclasses.replace(
        head, arrival_s=head.arrival_s / params.arrival_speedup, block_ids=numbers[inverse]
    )
