"""Overload: which requests are turned away, and when. Standard library only.

A decode node is full for one more request if a step with it would exceed the TBT limit, or its tokens
the node's memory. Counted are the requests that have their first token and are not done (loading,
waiting or in the batch), each with its whole context, its answer included.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple


class Admission(StrEnum):
    """When a request may be rejected (arXiv 2407.00079, section 7)."""

    NONE = "none"
    """Never."""
    BASELINE = "baseline"
    """Before each stage: at arrival if the first token would be late; after its prefill if the decode
    node is full then, and the prefill was wasted."""
    EARLY = "early"
    """At arrival, if the first token would be late or the decode node is full *now*."""
    PREDICTIVE = "predictive"
    """At arrival, if the first token would be late or the decode node will be full *then*."""


class DecodeLoad(NamedTuple):
    """Sequences and tokens of a batch, present or predicted."""

    sequences: int
    tokens: int


class Limits(NamedTuple):
    """What a decode node must keep to.

    Parameters
    ----------
    step_s : callable
        Seconds of a step by sequences and tokens of the batch.
    tbt_s : float
        Longest step.
    vram_tokens : int
        Most tokens.
    """

    step_s: Callable[[int, int], float]
    tbt_s: float
    vram_tokens: int


def is_full(load: DecodeLoad, request_tokens: int, limits: Limits) -> bool:
    """Whether one more request, of `request_tokens` in all, is too much for a decode node."""
    sequences, tokens = load.sequences + 1, load.tokens + request_tokens
    return tokens > limits.vram_tokens or limits.step_s(sequences, tokens) > limits.tbt_s


def predicted_load(decodes: Sequence[tuple[float, int]], at_s: float, decode_s: float) -> DecodeLoad:
    """Load of a decode node at a later time, if every decode lasts equally long.

    Parameters
    ----------
    decodes : sequence of (float, int)
        For every request given to the node: when its decode began or is expected to, in seconds,
        and its tokens.
    at_s : float
        The time asked about.
    decode_s : float
        t_d, in seconds.

    Notes
    -----
    arXiv 2407.00079, section 7.4, the system-level prediction.
    """
    running = [tokens for start_s, tokens in decodes if start_s <= at_s < start_s + decode_s]
    return DecodeLoad(len(running), sum(running))
