"""A trace with finer blocks than it was released with.

The released traces have one hash for every 512 tokens; the papers' caches count in blocks of 16
(FAST'25, Figure 9) and of 256 tokens (section 5.1). A coarse trace says
which whole blocks prompts share, and nothing of how far they agree in the block where they part.
One rule fills this in: **prompts that part within a block agree up to where the shortest of them
ends.** It says what is plain in the two common cases:

- A conversation goes on: the last turn's prompt ends somewhere in the block, and the next one
  contains all of it.
- A system prompt ends within the block. Nobody's prompt is shorter than it: in the conversation
  trace all prompts have their first block in common and none is below 891 tokens.

Where none of the prompts ends in the block, they are taken to part at its start. So the rule gives
too little there (documents of which different questions are asked), and too much where an early,
short prompt happens to be like the others in its whole blocks only.
"""

from functools import lru_cache

import numpy as np

from mooncake_companion.errors import InputError
from mooncake_companion.traces.trace import Ints, Trace, first_uses


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
        The same requests; prompts share at least what they shared before. Its `sha256` is that of
        the trace it was made from. With the trace's own block size it is the trace itself.

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
    first = first_uses(trace)
    known, labels = np.unique(first, return_inverse=True)
    tokens = tokens_of_entries(trace)
    like, shared_tokens = _common_starts(trace, known, labels, tokens[known])
    position = np.arange(per_block)
    shared = position < (shared_tokens // block_tokens)[:, None]
    fine = np.where(shared, like[:, None], np.arange(len(known))[:, None]) * per_block + position
    counts = -(-tokens // block_tokens)
    return trace.derived(
        name=f"{trace.name}-blocks-{block_tokens}",
        source=f"{trace.source}, in blocks of {block_tokens} tokens",
        block_tokens=block_tokens,
        block_ids=_renumbered(fine[labels][position < counts[:, None]], len(known) * per_block),
        block_offsets=np.concatenate(([0], np.cumsum(-(-trace.input_tokens // block_tokens)))),
    )


def tokens_of_entries(trace: Trace) -> Ints:
    """Tokens of every entry of the trace's `block_ids`: a full block, or what the last one holds."""
    tokens = np.full(len(trace.block_ids), trace.block_tokens, dtype=np.int64)
    full_blocks = np.diff(trace.block_offsets) - 1
    tokens[trace.block_offsets[1:] - 1] = trace.input_tokens - full_blocks * trace.block_tokens
    return tokens


def _renumbered(ids: Ints, end: int) -> Ints:
    """The ids, all below `end`, numbered from 0 in their order without gaps."""
    used = np.zeros(end, dtype=np.int64)
    used[ids] = 1
    return np.asarray((np.cumsum(used) - 1)[ids])


def _common_starts(trace: Trace, known: Ints, labels: Ints, tokens: Ints) -> tuple[Ints, Ints]:
    """For every block, the first of those with the same block before them, and what all these share.

    Parameters
    ----------
    known : array of int64, shape (distinct blocks,)
        Where in `block_ids` each block is first used; blocks are numbered in this order.
    labels : array of int64, shape (blocks,)
        Number of the block at each entry of `block_ids`.
    tokens : array of int64, shape (distinct blocks,)

    Returns
    -------
    like, shared_tokens : array of int64, shape (distinct blocks,)
        Number of the first sibling; tokens of the shortest sibling if it is partial, else 0.
    """
    before = np.concatenate(([-1], labels[:-1]))
    before[trace.block_offsets[:-1]] = -1
    _, like, family = np.unique(before[known], return_index=True, return_inverse=True)
    shortest = np.full(len(like), trace.block_tokens)
    np.minimum.at(shortest, family, tokens)
    shortest[shortest == trace.block_tokens] = 0
    return like[family], shortest[family]
