"""Overload: which requests are turned away, and when. Standard library only.

A decode node is full for one more request if a step with it would exceed the TBT limit, or its tokens
the node's memory. Counted are the requests that have their first token and are not done (loading,
waiting or in the batch), each with its whole context, its answer included.

What Conductor looks at on arrival is the decode *pool*: the mean over its nodes (arXiv 2407.00079,
sections 7.2 and 7.4). Whatever it decided, the decode node looks again at itself when the prefill is
done, for much may have changed in the meantime (section 3, step 4); who is turned away then has
wasted a prefill.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple


class Admission(StrEnum):
    """When a request may be rejected (arXiv 2407.00079, section 7).

    With all but `NONE`: at arrival if its first token would be late, and after its prefill if its
    decode node is full then.
    """

    NONE = "none"
    """Never."""
    BASELINE = "baseline"
    """For nothing else."""
    EARLY = "early"
    """Also at arrival, if the decode pool is full *now*."""
    PREDICTIVE = "predictive"
    """Also at arrival, if the decode pool will be full *then*: when the prefill ends."""


class DecodeLoad(NamedTuple):
    """Sequences and tokens of a batch, present or predicted; whole numbers, or a mean of them."""

    sequences: float
    tokens: float


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

    step_s: Callable[[float, float], float]
    tbt_s: float
    vram_tokens: int


def is_full(load: DecodeLoad, request_tokens: int, limits: Limits) -> bool:
    """Whether one more request, of `request_tokens` in all, is too much for a decode node."""
    sequences, tokens = load.sequences + 1, load.tokens + request_tokens
    return tokens > limits.vram_tokens or limits.step_s(sequences, tokens) > limits.tbt_s


def share_of_limits(load: DecodeLoad, limits: Limits) -> float:
    """The greater of a decode node's step over the TBT limit and its tokens over its memory."""
    step_s = limits.step_s(load.sequences, load.tokens)
    return max(step_s / limits.tbt_s, load.tokens / limits.vram_tokens)


def largest_batch(request_tokens: int, limits: Limits) -> int:
    """How many requests of so many tokens each fill a decode node."""
    sequences = 0
    while not is_full(DecodeLoad(sequences, sequences * request_tokens), request_tokens, limits):
        sequences += 1
    return sequences


def mean_load(loads: Sequence[DecodeLoad]) -> DecodeLoad:
    """Load of a pool: the mean over its nodes."""
    sequences, tokens = sum(load.sequences for load in loads), sum(load.tokens for load in loads)
    return DecodeLoad(sequences / len(loads), tokens / len(loads))


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
