"""What a trace knows of its answers: the blocks that they complete, as later prompts name them.

A trace has ids for prompts alone. The next turn of a conversation shows what its last turn's answer
became: its prompt begins with the last prompt and the answer. So the two are looked for in the trace,
by one rule. **A prompt goes on with a request that came before it if it begins with all full blocks of
that request's prompt, has room for its answer, and no prompt had the block behind these before.** A
prompt goes on with one request at most, the latest of those that fit, and a request is gone on with
once: whoever repeats a turn finds the blocks that the first one brought.

What is found is an upper bound. The next prompt need not hold the answer as it was decoded: chat
templates change it, reasoning tokens are left out, users edit; and a prompt may only look like a next
turn where few whole blocks are there to tell.
"""

from typing import NamedTuple

import numpy as np

from mooncake_companion.traces.trace import Ints, Trace, infinite_cache_leading_hits

UNCONTINUED = -1
"""In place of the next turn of a request that has none."""


class Answers(NamedTuple):
    """Ids of the blocks that each request's answer completes, one request after the other.

    Parameters
    ----------
    block_ids : array of int64, shape (blocks,)
    block_offsets : array of int64, shape (requests + 1,)
        As of `Trace`; the first block of a request may begin with the end of its prompt.
    """

    block_ids: Ints
    block_offsets: Ints

    def of(self, request: int) -> Ints:
        """Those of one request, from the front."""
        return self.block_ids[self.block_offsets[request] : self.block_offsets[request + 1]]


def next_turns(trace: Trace) -> Ints:
    """Find the request that goes on with each request, by the rule above.

    Requests whose prompt has no full block are not looked for: nothing tells who goes on with them.

    Returns
    -------
    array of int64, shape (requests,)
        Indices into the trace, or `UNCONTINUED`.

    >>> turns = [(0.0, 1000, 100, [7, 8]), (9.0, 1200, 5, [7, 9, 10]), (9.0, 1200, 5, [7, 11, 12])]
    >>> next_turns(Trace.from_requests(turns)).tolist()
    [1, -1, -1]
    """
    starts, counts = trace.block_offsets[:-1], np.diff(trace.block_offsets)
    hits, full = infinite_cache_leading_hits(trace), trace.input_tokens // trace.block_tokens
    looking = (hits > 0) & (hits < counts)
    found_behind = np.where(looking, trace.block_ids[starts + np.maximum(hits, 1) - 1], -1).tolist()
    ends_with = np.where(full > 0, trace.block_ids[starts + np.maximum(full, 1) - 1], -1).tolist()
    arrival_s, input_tokens = trace.arrival_s.tolist(), trace.input_tokens.tolist()
    answered_tokens = (trace.input_tokens + trace.output_tokens).tolist()
    turns, open_turns = np.full(len(trace), UNCONTINUED, np.int64), dict[int, list[int]]()
    for request in range(len(trace)):
        candidates = open_turns.get(found_behind[request], [])
        for place in range(len(candidates) - 1, -1, -1):
            before = candidates[place]
            if arrival_s[before] < arrival_s[request] and answered_tokens[before] <= input_tokens[request]:
                turns[before] = request
                del candidates[place]
                break
        if ends_with[request] >= 0:
            open_turns.setdefault(ends_with[request], []).append(request)
    return turns


def answer_blocks(trace: Trace) -> Answers:
    """Name the blocks that answers complete: as the next turn does, or by ids that no prompt has.

    The KV cache of an answer's last token is never computed, so a block is complete if it ends at or
    below input + output − 1 tokens.

    >>> turns = [(0.0, 1000, 600, [7, 8]), (9.0, 1700, 400, [7, 9, 10, 11])]
    >>> answers = answer_blocks(Trace.from_requests(turns))
    >>> answers.of(0).tolist(), answers.of(1).tolist()
    ([9, 10], [12])
    """
    full = trace.input_tokens // trace.block_tokens
    counts = (trace.input_tokens + trace.output_tokens - 1) // trace.block_tokens - full
    offsets = np.concatenate(([0], np.cumsum(counts)))
    depths = np.repeat(full, counts) + np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
    turns = np.repeat(next_turns(trace), counts)
    named = turns != UNCONTINUED
    ids = trace.block_ids.max() + np.cumsum(~named)
    ids[named] = trace.block_ids[trace.block_offsets[turns[named]] + depths[named]]
    return Answers(ids, offsets)


def infinite_cache_hit_ratio_with_answers(trace: Trace) -> float:
    """Share of input tokens that one infinite cache saves if it also holds all earlier answers.

    As `traces.infinite_cache_hit_ratio` otherwise; the answer of a request is held from its arrival on.

    >>> turns = [(0.0, 1000, 600, [7, 8]), (9.0, 2000, 400, [7, 9, 10, 11])]
    >>> infinite_cache_hit_ratio_with_answers(Trace.from_requests(turns))
    0.512
    """
    answers, held, cached = answer_blocks(trace), set[int](), 0
    for request, input_tokens in enumerate(trace.input_tokens.tolist()):
        blocks = trace.blocks_of(request).tolist()
        hits = next((depth for depth, block in enumerate(blocks) if block not in held), len(blocks))
        cached += min(hits * trace.block_tokens, input_tokens - 1)
        held.update(blocks, answers.of(request).tolist())
    return cached / int(trace.input_tokens.sum())
