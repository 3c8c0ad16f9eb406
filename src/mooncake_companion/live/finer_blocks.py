"""A slice with finer blocks than its trace has, by the rule of `traces.finer_blocks`."""

import dataclasses

from mooncake_companion.errors import InputError
from mooncake_companion.live.slices import Slice


def with_block_tokens(sliced: Slice, block_tokens: int, *, parameter: str = "block_tokens") -> Slice:
    """Split every block of a slice into blocks of `block_tokens`.

    What prompts share in the block where they part is told from those of the slice alone.

    Parameters
    ----------
    sliced : Slice
    block_tokens : int
        Tokens of a new block; divides those of the slice's blocks.
    parameter : str
        What a reader calls it.

    Raises
    ------
    InputError
        If `block_tokens` does not divide the slice's.
    """
    coarse = sliced.block_tokens
    if block_tokens == coarse:
        return sliced
    if coarse % block_tokens:
        raise InputError(f"parameter {parameter}: {block_tokens} does not divide the trace's {coarse} tokens")
    per_block = coarse // block_tokens
    number: dict[int, int] = {}
    family: dict[int, int] = {}  # block -> the one before it, which siblings have in common
    eldest: dict[int, int] = {}  # of each family
    shortest_tokens: dict[int, int] = {}
    for request in sliced.requests:
        before = -1
        for depth, block in enumerate(request.blocks):
            if block not in number:
                number[block] = len(number)
                family[block] = before
                eldest.setdefault(before, block)
                tokens = min(coarse, request.input_tokens - depth * coarse)
                shortest_tokens[before] = min(tokens, shortest_tokens.get(before, coarse))
            before = block
    split: dict[int, list[int]] = {}
    for block, parent in family.items():
        shared = shortest_tokens[parent] % coarse // block_tokens  # none where no prompt ends
        split[block] = [
            number[eldest[parent] if place < shared else block] * per_block + place
            for place in range(per_block)
        ]
    requests = [
        each._replace(
            blocks=[fine for block in each.blocks for fine in split[block]][
                : -(-each.input_tokens // block_tokens)
            ]
        )
        for each in sliced.requests
    ]
    return dataclasses.replace(sliced, block_tokens=block_tokens, requests=requests)
