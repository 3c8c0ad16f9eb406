"""Chunked pipeline parallelism: the stages of a prefill instance of several nodes.

FAST'25, section 3.3: the nodes of an instance each have a share of the layers, and a prompt goes
through them in chunks. Standard library only.
"""

from collections.abc import MutableSequence


def advance(
    ends_s: MutableSequence[float],
    begin_s: float,
    overhead_s: float,
    token_s: float,
    pair_s: float,
    hop_token_s: float,
    input_tokens: int,
    cached_tokens: int,
    chunk_tokens: int,
) -> None:
    """Send the chunks of a prefill through a pipeline.

    Parameters
    ----------
    ends_s : mutable sequence of float, shape (stages,)
        When each stage is done with all that it was given, in seconds; moved on by the call.
    begin_s : float
        When the first stage begins; it is free then.
    overhead_s, token_s, pair_s : float
        Of `costs.prefill_seconds`, for all layers; the overhead is the first stage's alone.
    hop_token_s : float
        Seconds in which the activations of one token reach the next stage.
    input_tokens, cached_tokens, chunk_tokens : int
        Prompt, reused prefix, and longest chunk.

    Notes
    -----
    A chunk begins at a stage when it has left the stage before, and the chunk before it has left
    this one. Written so that lists and compiled arrays go through the same arithmetic.
    """
    stages = len(ends_s)
    ends_s[0] = begin_s + overhead_s
    first = cached_tokens
    while first < input_tokens:
        last = min(first + chunk_tokens, input_tokens)
        chunk_s = (token_s * (last - first) + pair_s * (last**2 - first**2)) / stages
        hop_s = hop_token_s * (last - first)
        ends_s[0] += chunk_s
        for stage in range(1, stages):
            ends_s[stage] = max(ends_s[stage], ends_s[stage - 1] + hop_s) + chunk_s
        first = last
