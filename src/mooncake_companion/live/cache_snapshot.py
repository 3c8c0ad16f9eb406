"""The blocks in the tiers of every node, looked at from time to time (FAST'25, section 3.2)."""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mooncake_companion.costs import load_calibration
from mooncake_companion.errors import InputError
from mooncake_companion.hardware import load_node
from mooncake_companion.live.outcome import Outcome, Progress, Row
from mooncake_companion.live.slices import MOST_REQUESTS, Slice
from mooncake_companion.llm import load_model
from mooncake_companion.parameters import check, parameter
from mooncake_companion.settings import model_parameter, node_parameter, threshold_parameter
from mooncake_companion.simulator.cache_tiers import CachePool, Tier
from mooncake_companion.simulator.cluster import Cluster
from mooncake_companion.simulator.eviction import POLICIES
from mooncake_companion.simulator.reference import Request, replay


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
    eviction: str = parameter("lru", choices=tuple(POLICIES), help="what goes when a tier is full")
    snapshots: int = parameter(10, low=1, high=100, help="evenly spaced, the last at the last arrival")
    kvcache_balancing_threshold: float = threshold_parameter()
    node: str = node_parameter()
    model: str = model_parameter()

    def __post_init__(self) -> None:
        check(self)
        if not self.vram_blocks + self.dram_blocks + self.ssd_blocks:
            raise InputError("parameter dram_blocks: 0, as in VRAM and on SSD; expected room in some tier")

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
            eviction=self.eviction,
            kvcache_balancing_threshold=self.kvcache_balancing_threshold,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PageParams(Params):
    """The same, with no more requests than a page brings along."""

    requests: int = parameter(500, unit="requests", low=1, high=MOST_REQUESTS, help="of the trace's start")


def run(params: PageParams, sliced: Slice, progress: Progress) -> Outcome:
    """Every block that a node holds, at every snapshot; columns as of `experiments.cache_snapshot`."""
    head = sliced.head(params.requests)
    progress(0, params.snapshots)
    rows = snapshots(params, head.requests, head.block_tokens, lambda done: progress(done, params.snapshots))
    last = [row for row in rows if row["time_s"] == rows[-1]["time_s"]]
    held = ", ".join(f"{sum(row['tier'] == tier.name for row in last)} in {tier.name}" for tier in Tier)
    once = sum(row["uses"] == 1 for row in last) / len(last)
    return Outcome(
        rows=rows,
        description=(
            f"Heat map of the blocks in the tiers of {params.prefill_nodes} nodes, computed in this browser. "
            f"After {rows[-1]['time_s']} s all nodes together hold {held}; {once:.0%} of these were asked "
            f"for once, the hottest by {max(row['uses'] for row in last)} requests."
        ),
        offered={"node": list(range(params.prefill_nodes))},
        replayed=len(head.requests),
    )


def snapshots(
    params: Params,
    requests: Sequence[Request],
    block_tokens: int,
    seen: Callable[[int], object] = lambda _done: None,
) -> list[Row]:
    """Every block that a node holds, at every snapshot.

    Parameters
    ----------
    params : Params
    requests : sequence of Request
        Of the trace's start, as it was; they arrive at another speed, and their answers are left out.
    block_tokens : int
    seen : callable
        Told how many snapshots are taken.

    Returns
    -------
    list of dict
        Columns as of `experiments.cache_snapshot.run`, but for ``copies``. Times are in whole seconds,
        unless snapshots are closer than that.

    Raises
    ------
    InputError
        If so few requests are replayed that nothing is ever held.
    """
    replayed = _replayed(requests, params.arrival_speedup)
    end_s, count = replayed[-1].arrival_s, params.snapshots
    step_s = end_s / count
    times_s = [step_s * number for number in range(1, count)] + [end_s]
    digits = None if step_s >= 1 else 3
    asked: Counter[int] = Counter()
    arrived, taken = iter(replayed), itertools.count(1)
    slots = _Slots()
    rows: list[Row] = []
    coming = next(arrived, None)

    def probe(now_s: float, caches: CachePool) -> None:
        nonlocal coming
        while coming is not None and coming.arrival_s <= now_s:
            asked.update(coming.blocks)
            coming = next(arrived, None)
        for node, cache in enumerate(caches.caches):
            held = {tier: [block for block in cache if cache.tier(block) == tier] for tier in Tier}
            for tier, blocks in held.items():
                for block, slot in slots.place(node, tier, blocks).items():
                    use = cache.last_use(block)
                    rows.append(
                        {
                            "time_s": round(now_s, digits),
                            "node": node,
                            "tier": tier.name,
                            "slot": slot,
                            "block": block,
                            "position": use.depth,
                            "uses": asked[block],
                            "age_s": round(now_s - use.now_s, 1),
                            "holders": ", ".join(map(str, _nodes(caches.holders(block)))),
                        }
                    )
        seen(next(taken))

    replay(
        replayed,
        params.cluster(block_tokens),
        block_tokens=block_tokens,
        draws=[0.0] * len(replayed),
        probe_s=times_s,
        probe=probe,
    )
    if not rows:
        raise InputError(
            f"parameter requests: {len(requests)} are too few; nothing is held before the last comes"
        )
    return rows


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


def _replayed(requests: Sequence[Request], speedup: float) -> list[Request]:
    """Answers of one token, which the prefill makes, and blocks numbered in order of first use."""
    numbers: dict[int, int] = {}
    return [
        each._replace(
            arrival_s=each.arrival_s / speedup,
            output_tokens=1,
            blocks=[numbers.setdefault(block, len(numbers)) for block in each.blocks],
        )
        for each in requests
    ]
