"""Conductor: which node prefills a request, and how much of the cached prefix it reuses.

What is done with a prompt's start has four names (`Action`). Policies are pure: they see a
snapshot (`PrefillView`) and return a `Candidate`. Only the engine changes the world.
"""

import math
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

NO_NODE = -1


class Routing(StrEnum):
    """How a prefill node is chosen: the four policies of FAST'25, Figure 5."""

    GLOBAL_CACHE_AWARE = "global_cache_aware"
    LOCAL_CACHE_AWARE = "local_cache_aware"
    LOAD_BALANCING = "load_balancing"
    RANDOM = "random"


class Action(StrEnum):
    """What a prefill does for the start of its prompt."""

    RECOMPUTE = "recompute"
    """Nothing is reused."""
    HYDRATE = "hydrate"
    """It is lifted from the node's own slower memory."""
    MIGRATE = "migrate"
    """It comes from another node, which lets go of it."""
    REPLICATE = "replicate"
    """It comes from another node; from then on both have it."""


class Prefix(NamedTuple):
    """Leading tokens of a prompt that can be reused on a node, by where they lie.

    Parameters
    ----------
    tokens : int
        All of them.
    vram_tokens, ssd_tokens : int
        Those of them in GPU memory, and on SSD; the rest is in DRAM.
    """

    tokens: int
    vram_tokens: int = 0
    ssd_tokens: int = 0


class PrefillView(NamedTuple):
    """What Conductor sees when a request arrives.

    Parameters
    ----------
    input_tokens : int
        Prompt length.
    prefixes : sequence of Prefix, one a node
        What the node holds, in whatever tier.
    memory_prefixes : sequence of Prefix, one a node
        The same up to the first block on SSD.
    queue_s : sequence of float, one a node
        Seconds until the node has done what it was given.
    """

    input_tokens: int
    prefixes: Sequence[Prefix]
    memory_prefixes: Sequence[Prefix]
    queue_s: Sequence[float]


class Candidate(NamedTuple):
    """One prefill node as a choice, with every term of its estimated TTFT.

    ``vram_tokens`` and ``ssd_tokens`` are parts of ``local_tokens``; ``busy_s`` is how long the node
    can begin nothing else, in a pipeline less than ``prefill_s``.
    """

    node: int
    local_tokens: int
    vram_tokens: int
    ssd_tokens: int
    fetched_tokens: int
    source_node: int
    transfer_s: float
    queue_s: float
    prefill_s: float
    busy_s: float

    @property
    def reused_tokens(self) -> int:
        """Prefix that will not be computed again."""
        return self.local_tokens + self.fetched_tokens

    @property
    def ttft_s(self) -> float:
        """Estimated time to first token: the sum that Algorithm 1 compares."""
        return self.transfer_s + self.queue_s + self.prefill_s


class DecodeCandidate(NamedTuple):
    """One decode node as a choice: its batch with the request in it.

    ``sequences`` and ``tokens`` count all that the node was given and has not done, and the request
    with its prompt; ``step_s`` is the step that they would take together.
    """

    node: int
    sequences: int
    tokens: int
    step_s: float


class Estimates(NamedTuple):
    """The two predictors that Algorithm 1 calls, in seconds."""

    prefill_s: Callable[[int, Prefix], tuple[float, float]]  # whole, and taking up the node
    transfer_s: Callable[[int], float]  # tokens


def candidates(view: PrefillView, estimates: Estimates, *, balancing_threshold: float) -> list[Candidate]:
    """Every node as a choice, in the order of their numbers.

    Parameters
    ----------
    view : PrefillView
    estimates : Estimates
    balancing_threshold : float
        ``kvcache_balancing_threshold``, at least 1: a node whose own prefix times this falls
        short of the best prefix in the pool fetches the difference. Infinite: nobody fetches.

    Notes
    -----
    FAST'25, Algorithm 1, the loop over prefill instances. Its test, best / own < threshold, is
    written as a product, so that a node that holds nothing needs no division. At equality the
    node computes, as the text of section 4 has it; the pseudocode's strict sign would fetch.
    Of nodes with equally long prefixes the lowest is the source. Only memory is read from afar.

    The paper does not say when a prefix on SSD is worth reading; here it is if the prefill then ends
    no later than without it.
    """
    best_tokens = max(prefix.tokens for prefix in view.memory_prefixes)
    best_node = [prefix.tokens for prefix in view.memory_prefixes].index(best_tokens)
    choices = []
    for node in range(len(view.prefixes)):
        prefix, prefill_s, busy_s = _local(view, node, estimates)
        fetches = math.isfinite(balancing_threshold) and best_tokens > prefix.tokens * balancing_threshold
        fetched_tokens = best_tokens - prefix.tokens if fetches else 0
        if fetches:
            prefill_s, busy_s = estimates.prefill_s(view.input_tokens, prefix._replace(tokens=best_tokens))
        choices.append(
            Candidate(
                node=node,
                local_tokens=prefix.tokens,
                vram_tokens=prefix.vram_tokens,
                ssd_tokens=prefix.ssd_tokens,
                fetched_tokens=fetched_tokens,
                source_node=best_node if fetches else NO_NODE,
                transfer_s=estimates.transfer_s(fetched_tokens) if fetches else 0.0,
                queue_s=view.queue_s[node],
                prefill_s=prefill_s,
                busy_s=busy_s,
            )
        )
    return choices


def _local(view: PrefillView, node: int, estimates: Estimates) -> tuple[Prefix, float, float]:
    """What a node reuses of its own, and the prefill with it: with what is on SSD, or up to there."""
    memory = view.memory_prefixes[node]
    memory_s, memory_busy_s = estimates.prefill_s(view.input_tokens, memory)
    if view.prefixes[node].ssd_tokens:
        whole_s, whole_busy_s = estimates.prefill_s(view.input_tokens, view.prefixes[node])
        if whole_s <= memory_s:
            return view.prefixes[node], whole_s, whole_busy_s
    return memory, memory_s, memory_busy_s


def choose_decode(choices: Sequence[DecodeCandidate]) -> DecodeCandidate:
    """The node whose KV cache would be smallest; of equal ones the lowest.

    The paper says only that Conductor looks at the predicted TBT (FAST'25, section 4.1). Its
    Figure 15 agrees with a prediction that grows with the KV cache alone, and not with the shortest
    `step_s`, which knows of the host's work.
    """
    return min(choices, key=lambda c: c.tokens)


def choose(
    routing: Routing, choices: Sequence[Candidate], draw: float, shortlist_nodes: int = 0
) -> Candidate:
    """Pick one; of equal ones the lowest node number.

    Parameters
    ----------
    routing : Routing
    choices : sequence of Candidate
    draw : float
        A uniform number in [0, 1), drawn beforehand; only random routing looks at it.
    shortlist_nodes : int
        Cache-aware routing weighs so many nodes, those with the shortest queues; 0: all of them.

    Notes
    -----
    FAST'25, section 4.2: random; least loaded by queue time; the two cache-aware ones by
    estimated TTFT (Algorithm 1).
    """
    if routing is Routing.RANDOM:
        return choices[int(draw * len(choices))]
    if routing is Routing.LOAD_BALANCING:
        return min(choices, key=lambda c: c.queue_s)
    if shortlist_nodes:
        shortest = sorted(choices, key=lambda c: c.queue_s)[:shortlist_nodes]
        choices = sorted(shortest, key=lambda c: c.node)
    return min(choices, key=lambda c: c.ttft_s)
