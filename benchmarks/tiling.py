"""Traces too large for the generator: copies of one trace, side by side and one after the other."""

import numpy as np

from mooncake_companion.traces import Trace, generate, load_workload

_TICK_S = 3.0  # of the conversation trace: copies must not tick in step
_GOLDEN = 0.618033988749895
_AT_ONCE = 1 << 18


def conversation_like(requests: int, *, seed: int = 0) -> Trace:
    """A generated trace with the statistics of the conversation trace, rate included."""
    return generate(load_workload("conversation"), np.random.default_rng(seed), requests=requests)


def period_s(trace: Trace) -> float:
    """Seconds after which a copy of a trace may follow at the same rate."""
    return trace.duration_s * len(trace) / max(len(trace) - 1, 1) + _TICK_S


def tiled(base: Trace, *, tiles: int, duration_s: float, swing: float = 0.0) -> Trace:
    """Spread copies of a trace evenly over a time.

    The blocks of each copy are its own, but for those with which every prompt begins (the system
    prompt), which all copies share.

    Parameters
    ----------
    base : Trace
        Its ids count up from 0, as the generator's do.
    tiles : int
        Copies; copy k starts at k / tiles of the duration. What reaches beyond the end goes to the
        beginning, so that the load is the same all along.
    duration_s : float
        Of the whole, in seconds.
    swing : float
        How much the load rises above its mean at midday and falls below it at midnight, as a share
        of the mean; in [0, 1).

    Returns
    -------
    Trace
        Not checked again, as copies of a checked trace fit together, and without `sha256`.
    """
    requests = tiles * len(base)
    arrival_s = (base.arrival_s[None, :] + _starts_s(tiles, duration_s)[:, None]).ravel() % duration_s
    arrival_s = _by_daytime(arrival_s / duration_s, swing) * duration_s
    order = np.argsort(arrival_s, kind="stable")
    tile, request = np.divmod(order, len(base))
    sizes = np.diff(base.block_offsets)
    block_offsets = np.zeros(requests + 1, np.int64)
    np.cumsum(sizes[request], out=block_offsets[1:])
    return _unchecked(
        name=f"{base.name}-x{tiles}",
        source=f"{tiles:,} copies of: {base.source}",
        block_tokens=base.block_tokens,
        arrival_s=arrival_s[order],
        input_tokens=base.input_tokens[request],
        output_tokens=base.output_tokens[request],
        block_ids=_block_ids(base, tile, request, block_offsets),
        block_offsets=block_offsets,
    )


def _starts_s(tiles: int, duration_s: float) -> np.ndarray:
    number = np.arange(tiles)
    return number * (duration_s / tiles) + number * _GOLDEN % 1.0 * _TICK_S


def _by_daytime(part: np.ndarray, swing: float) -> np.ndarray:
    """Move times, as parts of a day, so that an even load becomes 1 - swing · cos(2π part) of its mean."""
    clock = np.linspace(0.0, 1.0, 1 + 24 * 60)
    passed = clock - swing * np.sin(2 * np.pi * clock) / (2 * np.pi)
    return np.interp(part, passed, clock)


def _block_ids(base: Trace, tile: np.ndarray, request: np.ndarray, block_offsets: np.ndarray) -> np.ndarray:
    """Ids of all requests, those of each copy above those of the one before; in pieces, to save memory."""
    shared = _shared_blocks(base)
    own = int(base.block_ids.max()) + 1 - shared
    sizes = np.diff(base.block_offsets)
    ids = np.empty(block_offsets[-1], np.int64)
    for first in range(0, len(request), _AT_ONCE):
        last = min(first + _AT_ONCE, len(request))
        here, size = request[first:last], sizes[request[first:last]]
        start = block_offsets[first]
        shift = base.block_offsets[here] - (block_offsets[first:last] - start)
        copied = base.block_ids[np.repeat(shift, size) + np.arange(size.sum())]
        copied += np.repeat(tile[first:last] * own, size) * (copied >= shared)
        ids[start : block_offsets[last]] = copied
    return ids


def _shared_blocks(base: Trace) -> int:
    """How many leading ids all prompts have in common; they are the lowest."""
    leading = base.block_ids[base.block_offsets[:-1]]
    return int((leading == 0).all())


def _unchecked(**columns: object) -> Trace:
    trace = object.__new__(Trace)
    for name, value in columns.items():
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
        object.__setattr__(trace, name, value)
    for name in ("origin", "sha256"):
        object.__setattr__(trace, name, "standin" if name == "origin" else "")
    return trace
