"""A trace with finer blocks than it was released with.

The released traces have one hash for every 512 tokens; the papers' caches count in blocks of 16
(FAST'25, Figure 9, as `cache_capacity` finds) and of 256 tokens (section 5.1). A coarse trace says
which whole blocks two prompts share, and nothing of how far they agree in the block where they
part. Two things can still be told from it:

- *All prompts begin alike.* If every request has the same first blocks, there is a system prompt.
  Nobody's prompt is shorter than it, so it ends at most one token before the shortest prompt does.
  It is taken to end there: the conversation trace has one block in common and no prompt below 891
  tokens, hence a system prompt of 890.
- *A prompt goes on.* A request that has all whole blocks of an earlier one, and more tokens behind
  them, is taken to continue it, and to share the tokens of its last, partial block as well.

Everywhere else prompts are taken to part where the coarse blocks do. So the second point may share
too much (an edited last turn), the last too little (a first turn shorter than a block).
"""

from functools import lru_cache

import numpy as np

from mooncake_companion.errors import InputError
from mooncake_companion.traces import Trace, make_trace
from mooncake_companion.traces.trace import Ints, first_uses, request_of_block


@lru_cache(maxsize=4)
def with_block_tokens(trace: Trace, block_tokens: int) -> Trace:
    """Split every block of a trace into blocks of `block_tokens`.

    Parameters
    ----------
    trace : Trace
    block_tokens : int
        Tokens of a new block; divides those of the trace's blocks.

    Returns
    -------
    Trace
        The same requests; prompts share at least what they shared before. With the trace's own
        block size it is the trace itself.

    Raises
    ------
    InputError
        If `block_tokens` does not divide the trace's.

    Examples
    --------
    >>> turns = [(0.0, 800, 1, [7, 8]), (9.0, 1100, 1, [7, 9, 10])]
    >>> other = (9.0, 900, 1, [11, 12])
    >>> fine = with_block_tokens(Trace.from_requests([*turns, other]), 256)
    >>> [fine.blocks_of(request).tolist() for request in range(3)]
    [[0, 1, 2, 3], [0, 1, 2, 4, 5], [6, 7, 8, 9]]
    """
    if block_tokens == trace.block_tokens:
        return trace
    if block_tokens < 1 or trace.block_tokens % block_tokens:
        raise InputError(f"block_tokens must divide the trace's {trace.block_tokens}, got {block_tokens}")
    per_block = trace.block_tokens // block_tokens
    known, labels = np.unique(first_uses(trace), return_inverse=True)  # in the order of first use
    fine = np.arange(len(known) * per_block, dtype=np.int64).reshape(len(known), per_block)
    tokens = _tokens_of_blocks(trace)
    for block, (source, shared_tokens) in _shared(trace, known, labels, tokens).items():
        shared = shared_tokens // block_tokens
        fine[block, :shared] = fine[source, :shared]
    counts = -(-tokens // block_tokens)
    ids = fine[labels][np.arange(per_block) < counts[:, None]]
    return make_trace(
        name=f"{trace.name}-blocks-{block_tokens}",
        origin=trace.origin,
        source=f"{trace.source}, in blocks of {block_tokens} tokens",
        block_tokens=block_tokens,
        arrival_s=trace.arrival_s,
        input_tokens=trace.input_tokens,
        output_tokens=trace.output_tokens,
        block_ids=np.unique(ids, return_inverse=True)[1],
        block_offsets=np.concatenate(([0], np.cumsum(-(-trace.input_tokens // block_tokens)))),
    )


def system_prompt_tokens(trace: Trace) -> int:
    """Greatest length of a start that all prompts can have in common; 0 if their first blocks differ.

    >>> system_prompt_tokens(Trace.from_requests([(0.0, 891, 1, [0, 1]), (0.0, 2000, 1, [0, 2, 3, 4])]))
    890
    """
    common = _common_blocks(trace)
    return min(int(trace.input_tokens.min()), (common + 1) * trace.block_tokens) - 1 if common else 0


def _common_blocks(trace: Trace) -> int:
    """Leading blocks that all requests have in common."""
    shortest = int(np.diff(trace.block_offsets).min())
    for depth in range(shortest):
        at_depth = trace.block_ids[trace.block_offsets[:-1] + depth]
        if (at_depth != at_depth[0]).any():
            return depth
    return shortest


def _tokens_of_blocks(trace: Trace) -> Ints:
    """Tokens of every entry of the trace's `block_ids`: a full block, or what the last one holds."""
    request = request_of_block(trace)
    depth = np.arange(len(trace.block_ids)) - trace.block_offsets[request]
    left = trace.input_tokens[request] - depth * trace.block_tokens
    return np.asarray(np.minimum(left, trace.block_tokens), dtype=np.int64)


def _shared(trace: Trace, known: Ints, labels: Ints, tokens: Ints) -> dict[int, tuple[int, int]]:
    """For blocks that begin like an earlier one: which, and for how many tokens.

    Blocks are numbered in the order of their first use, at entry ``known[block]`` of the trace.
    """
    common = _common_blocks(trace)
    prompt_tokens = system_prompt_tokens(trace) - common * trace.block_tokens if common else 0
    starts = set(trace.block_offsets[:-1].tolist())
    first_after_prompt = -1
    partial: dict[int, list[int]] = {}  # block -> partial blocks right behind it, in order of use
    shared: dict[int, tuple[int, int]] = {}
    lengths, depths = tokens[known], known - trace.block_offsets[request_of_block(trace)[known]]
    for block, (entry, length, depth) in enumerate(
        zip(known.tolist(), lengths.tolist(), depths.tolist(), strict=True)
    ):
        if common and depth == common:
            if first_after_prompt < 0:
                first_after_prompt = block
            else:
                shared[block] = (first_after_prompt, min(prompt_tokens, length))
        elif entry not in starts:
            siblings = partial.setdefault(int(labels[entry - 1]), [])
            earlier = next((other for other in reversed(siblings) if lengths[other] <= length), None)
            if earlier is not None:
                shared[block] = (earlier, int(lengths[earlier]))
            if length < trace.block_tokens:
                siblings.append(block)
    return shared
