"""arXiv 2407.00079, Table 1, on a slice of the trace: eviction policies by the room that they have."""

import math
from dataclasses import dataclass

from mooncake_companion.errors import InputError
from mooncake_companion.live.outcome import Outcome, Progress, Row
from mooncake_companion.live.slices import Slice
from mooncake_companion.parameters import check, parameter
from mooncake_companion.simulator.eviction import POLICIES, replay

TABLE_1_POLICIES = {"lru": "LRUCache", "lfu": "LFUCache", "length-aware": "LengthAwareCache"}
"""Names in `eviction.POLICIES`, and the report's."""
TABLE_1_BLOCKS = (1_000, 10_000, 30_000, 50_000, 100_000, math.inf)

TITLES = {
    "lru": "LRU",
    "lfu": "LFU",
    "length-aware": "Length-aware",
    "length-aware-keeping-late": "Length-aware, keeping late blocks",
    "fifo": "FIFO",
    "sieve": "SIEVE",
    "s3-fifo": "S3-FIFO",
    "belady": "Belady's optimum",
}
"""Policies in words."""
NO_OTHER = "none"

_PER_DECADE = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """The experiments' setting; the defaults are the papers' where they state them.

    Stated in FAST'25, section 5.3.1: one cache, in the order of the requests. Assumed: LRU, which the
    report's Table 1 has as the best of its policies; and blocks of 16 tokens, which Figure 9 itself
    informed (its conversation curve; the synthetic one follows). Stated in the report's section 4.2:
    blocks of 512 tokens, one pool, the policies and capacities of Table 1.
    """

    trace: str = parameter("", help="replay this trace alone; empty: the paper's three, as far as there")
    block_tokens: int = parameter(
        16, unit="tokens", low=1, high=512, help="of the cache's blocks; divides the trace's"
    )
    table_trace: str = parameter("arxiv", help="trace of Table 1")

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyParams(Params):
    """What a reader looks at beside Table 1: a slice fills less room than its capacities."""

    other_policy: str = parameter(
        NO_OTHER,
        choices=(NO_OTHER, *(name for name in reversed(POLICIES) if name not in TABLE_1_POLICIES)),
        help="drawn beside those of Table 1",
    )
    least_capacity_blocks: int = parameter(
        100, unit="blocks", low=1, high=200_000, help="smallest cache; Table 1 begins with 1,000"
    )
    most_capacity_blocks: int = parameter(
        100_000, unit="blocks", low=1, high=200_000, help="largest cache but for the one with room for all"
    )

    def __post_init__(self) -> None:
        check(self)
        if self.most_capacity_blocks < self.least_capacity_blocks:
            raise InputError(
                f"parameter most_capacity_blocks: {self.most_capacity_blocks} is less than "
                f"least_capacity_blocks ({self.least_capacity_blocks})"
            )

    @property
    def policies(self) -> list[str]:
        """Those of Table 1, and the reader's."""
        other = () if self.other_policy == NO_OTHER else (self.other_policy,)
        return [*TABLE_1_POLICIES, *other]

    @property
    def capacities_blocks(self) -> list[float]:
        """From the smallest cache to the largest, each as many times the one before; then room for all."""
        least, most = self.least_capacity_blocks, self.most_capacity_blocks
        steps = math.ceil(_PER_DECADE * math.log10(most / least))
        between = [round(least * (most / least) ** (step / max(steps, 1))) for step in range(steps + 1)]
        return [*sorted(set(between)), math.inf]


def run(params: PolicyParams, sliced: Slice, progress: Progress) -> Outcome:
    """Hit ratio by policy and capacity; columns as of `experiments.cache_capacity.policies`."""
    blocks = [block for request in sliced.requests for block in request.blocks]
    depths = [depth for request in sliced.requests for depth in range(len(request.blocks))]
    distinct = len(set(blocks))
    rows: list[Row] = []
    for done, policy in enumerate(params.policies):
        progress(done, len(params.policies))
        hits = {distinct: len(blocks) - distinct}  # with room for all; so has a larger one
        for capacity in params.capacities_blocks:
            room = int(min(capacity, distinct))
            if room not in hits:
                hits[room] = replay(policy, blocks, room, depths)
            rows.append(policy_row("modelled", sliced.name, policy, capacity, hits[room] / len(blocks)))
    least = ", ".join(f"{row['title']} {row['hit_ratio']:.0%}" for row in _smallest(rows))
    return Outcome(
        rows=rows,
        description=(
            "Hit ratio of one cache by eviction policy and capacity in blocks, computed in this browser. "
            f"Modelled with {params.least_capacity_blocks:,} blocks: {least}; "
            f"with room for all {distinct:,}: {rows[-1]['hit_ratio']:.0%}."
        ),
    )


def policy_row(origin: str, trace: str, policy: str, capacity_blocks: float, hit_ratio: float) -> Row:
    """One row of the table of policies; an infinite capacity has room for all."""
    whole, thousands = f"{capacity_blocks:g}", f"{capacity_blocks / 1000:g}k"
    return {
        "origin": origin,
        "trace": trace,
        "policy": policy,
        "title": TITLES[policy],
        "capacity_blocks": capacity_blocks,
        "capacity": "all" if math.isinf(capacity_blocks) else thousands if capacity_blocks >= 1000 else whole,
        "hit_ratio": hit_ratio,
    }


def _smallest(rows: list[Row]) -> list[Row]:
    least = min(row["capacity_blocks"] for row in rows)
    return [row for row in rows if row["capacity_blocks"] == least]
