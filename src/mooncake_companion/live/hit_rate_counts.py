"""What a hit ratio can mean, on a slice of the trace; arXiv 2407.00079, Table 1 (Mooncake issue 4020)."""

import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mooncake_companion.live.finer_blocks import with_block_tokens
from mooncake_companion.live.outcome import Outcome, Progress, Row
from mooncake_companion.live.slices import Slice
from mooncake_companion.parameters import check, parameter
from mooncake_companion.statistics import mean

PLAIN = "blocks"
"""How the reader counted, and what the shifts are measured from."""
TRACE = "arxiv"
"""What a page replays a slice of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """The setting; one LRU cache at Table 1's capacities, in the order of the requests.

    Assumed: that a way to count moves the hit ratio alike on the report's trace and, where that cannot
    be had, on its stand-in and on the conversation trace of the same service.
    """

    warmup_s: float = parameter(600.0, unit="s", low=0, high=3600, help="that one way of counting leaves out")

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageParams:
    """What a reader counts with: a slice fills less room than Table 1's caches have, and lasts minutes."""

    capacity_blocks: int = parameter(
        1_000, unit="blocks", low=1, high=200_000, help="of one cache; the other has room for all"
    )
    warmup_share: float = parameter(
        0.2, low=0, high=0.9, help="part of the slice's time that one way of counting leaves out"
    )
    finer_block_tokens: int = parameter(
        256, unit="tokens", low=16, high=256, help="of the last way's blocks; divides the trace's 512"
    )

    def __post_init__(self) -> None:
        check(self)


def run(params: PageParams, sliced: Slice, progress: Progress) -> Outcome:
    """How far each way of counting moves the hit ratio; columns as of the figure's table."""
    first_s, last_s = sliced.requests[0].arrival_s, sliced.requests[-1].arrival_s
    warm_s = first_s + params.warmup_share * (last_s - first_s)
    fine = with_block_tokens(sliced, params.finer_block_tokens, parameter="finer_block_tokens")
    capacities = [float(params.capacity_blocks), math.inf]
    rows: list[Row] = []
    for done, capacity in enumerate(capacities):
        progress(done, len(capacities))
        ratios = hit_ratios(sliced, fine, capacity, warm_s)
        rows += [
            {
                "origin": "modelled",
                "workload": TRACE,
                "trace": sliced.name,
                "definition": definition,
                "hit_ratio": ratio,
                "points": 100 * (ratio - ratios[PLAIN]),
                "capacity": _capacity(capacity),
            }
            for definition, ratio in ratios.items()
        ]
    told = ", ".join(f"{row['definition']} {row['points']:+.1f}" for row in rows[len(rows) // 2 :])
    return Outcome(
        rows=rows,
        description=(
            "Percentage points by which each way to count moves the hit ratio, computed in this browser. "
            f"Modelled with room for all: {told}."
        ),
        offered={"counts_capacity": [_capacity(each) for each in capacities]},
    )


def hit_ratios(sliced: Slice, fine: Slice, capacity_blocks: float, warm_s: float) -> dict[str, float]:
    """Hit ratio of one LRU cache by what it means; ways as of `experiments.cache_capacity.definitions`.

    Parameters
    ----------
    sliced, fine : Slice
        The same requests, in the trace's blocks and in finer ones.
    capacity_blocks : float
        Of the trace's; infinite for room for all.
    warm_s : float
        When a warm-up ends; not after the last arrival.
    """
    requests, full = sliced.requests, sliced.block_tokens
    hits = _lru_hits((each.blocks for each in requests), capacity_blocks)
    tokens = _tokens(sliced)
    answers = [-(-(each.input_tokens + each.output_tokens) // full) - len(each.blocks) for each in requests]
    found = [sum(each) for each in hits]
    asked = [len(each) for each in hits]
    fine_hits = _lru_hits(
        (each.blocks for each in fine.requests), capacity_blocks * full // fine.block_tokens
    )
    return {
        PLAIN: sum(found) / sum(asked),
        "tokens": _share_of_tokens(hits, tokens),
        "mean over requests": mean([here / of for here, of in zip(found, asked, strict=True)]),
        "requests with any hit": mean([here > 0 for here in found]),
        "full blocks alone": mean(
            [
                hit
                for here, sizes in zip(hits, tokens, strict=True)
                for hit, size in zip(here, sizes, strict=True)
                if size == full
            ]
        ),
        "without the first block": mean([hit for here in hits for hit in here[1:]]),
        "first block never a hit": sum(sum(here[1:]) for here in hits) / sum(asked),
        "after a warm-up": mean(
            [
                hit
                for here, each in zip(hits, requests, strict=True)
                if each.arrival_s >= warm_s
                for hit in here
            ]
        ),
        "with the answers' blocks": sum(found) / (sum(asked) + sum(answers)),
        "first half of the requests": _ratio(hits[: max(1, len(hits) // 2)]),
        "every other request": _ratio(_lru_hits((each.blocks for each in requests[::2]), capacity_blocks)),
        f"tokens, blocks of {fine.block_tokens}": _share_of_tokens(fine_hits, _tokens(fine)),
    }


def _lru_hits(prompts: Iterable[Sequence[int]], capacity_blocks: float) -> list[list[bool]]:
    """Whether one LRU cache has each block of each prompt, asked for in order."""
    kept: OrderedDict[int, None] = OrderedDict()
    hits = []
    for blocks in prompts:
        here = []
        for block in blocks:
            here.append(block in kept)
            kept[block] = None
            kept.move_to_end(block)
            if len(kept) > capacity_blocks:
                kept.popitem(last=False)
        hits.append(here)
    return hits


def _tokens(sliced: Slice) -> list[list[int]]:
    """Tokens of each block of each prompt: a full block, or what the last one holds."""
    return [
        [
            min(sliced.block_tokens, each.input_tokens - depth * sliced.block_tokens)
            for depth in range(len(each.blocks))
        ]
        for each in sliced.requests
    ]


def _ratio(hits: Sequence[Sequence[bool]]) -> float:
    return mean([hit for here in hits for hit in here])


def _share_of_tokens(hits: Sequence[Sequence[bool]], tokens: Sequence[Sequence[int]]) -> float:
    found = sum(
        size
        for here, sizes in zip(hits, tokens, strict=True)
        for hit, size in zip(here, sizes, strict=True)
        if hit
    )
    return found / sum(map(sum, tokens))


def _capacity(blocks: float) -> str:
    """A capacity as the figure's control has it."""
    return "room for all" if math.isinf(blocks) else f"{blocks / 1000:g}k"
