"""Conductor: which node prefills a request, and how much of the cached prefix it reuses.

Policies are pure: they see a snapshot (`PrefillView`) and return a `Candidate`. Only the engine
changes the world.
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


class PrefillView(NamedTuple):
    """What Conductor sees when a request arrives.

    Parameters
    ----------
    input_tokens : int
        Prompt length.
    prefix_tokens : sequence of int, one a node
        Leading tokens of the prompt that the node holds.
    queue_s : sequence of float, one a node
        Seconds until the node has done what it was given.
    """

    input_tokens: int
    prefix_tokens: Sequence[int]
    queue_s: Sequence[float]


class Candidate(NamedTuple):
    """One prefill node as a choice, with every term of its estimated TTFT."""

    node: int
    local_tokens: int
    fetched_tokens: int
    source_node: int
    transfer_s: float
    queue_s: float
    prefill_s: float

    @property
    def reused_tokens(self) -> int:
        """Prefix that will not be computed again."""
        return self.local_tokens + self.fetched_tokens

    @property
    def ttft_s(self) -> float:
        """Estimated time to first token: the sum that Algorithm 1 compares."""
        return self.transfer_s + self.queue_s + self.prefill_s


class Estimates(NamedTuple):
    """The two predictors that Algorithm 1 calls, in seconds."""

    prefill_s: Callable[[int, int], float]  # input tokens, reused tokens
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
    Of nodes with equally long prefixes the lowest is the source.
    """
    best_tokens = max(view.prefix_tokens)
    best_node = view.prefix_tokens.index(best_tokens)
    choices = []
    for node, local_tokens in enumerate(view.prefix_tokens):
        fetches = math.isfinite(balancing_threshold) and best_tokens > local_tokens * balancing_threshold
        fetched_tokens = best_tokens - local_tokens if fetches else 0
        choices.append(
            Candidate(
                node=node,
                local_tokens=local_tokens,
                fetched_tokens=fetched_tokens,
                source_node=best_node if fetches else NO_NODE,
                transfer_s=estimates.transfer_s(fetched_tokens) if fetches else 0.0,
                queue_s=view.queue_s[node],
                prefill_s=estimates.prefill_s(view.input_tokens, local_tokens + fetched_tokens),
            )
        )
    return choices


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
