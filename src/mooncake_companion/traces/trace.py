"""A request trace as columns: who came when, how long, and with which prefix blocks."""

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from mooncake_companion.errors import InputError

BLOCK_TOKENS = 512
"""Tokens per hashed block in the released traces (FAST'25, A.2)."""

Origin = Literal["released", "standin", "file"]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_LEAST_TICKS = 3
_TICK_JITTER = 0.01
_STEADY_SHARE = 0.95

_COLUMNS: dict[str, type] = {
    "arrival_s": np.float64,
    "input_tokens": np.int64,
    "output_tokens": np.int64,
    "block_ids": np.int64,
    "block_offsets": np.int64,
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """Requests in the order of their arrival, as read-only columns.

    A block id stands for the whole prefix that ends with its block, so two requests that share an
    id share everything before it, and cache hits are always a leading run. Two traces are equal
    if their `sha256` and `block_tokens` are.

    Parameters
    ----------
    name : str
        Such as ``"conversation"``; a generated one ends in ``-standin``.
    origin : {"released", "standin", "file"}
        A released trace with its published checksum, a generated one, or any other file.
    source : str
        One phrase that says which trace this is, fit for a figure's caption.
    sha256 : str
        Of the file's bytes; for a trace that is in no file, of its canonical JSONL bytes.
    block_tokens : int
        Tokens per block; the last block of a request may be partial.
    arrival_s : array of float64, shape (requests,)
        Seconds from the trace's start, not decreasing.
    input_tokens, output_tokens : array of int64, shape (requests,)
        Prompt and answer lengths, in tokens, at least 1.
    block_ids : array of int64, shape (blocks,)
        The ids of all requests, one after the other.
    block_offsets : array of int64, shape (requests + 1,)
        Request i has the ids ``block_ids[block_offsets[i]:block_offsets[i + 1]]``.

    Raises
    ------
    InputError
        If the columns do not fit together; names the column and the request.
    """

    name: str
    origin: Origin
    source: str
    sha256: str
    block_tokens: int = BLOCK_TOKENS
    arrival_s: Floats
    input_tokens: Ints
    output_tokens: Ints
    block_ids: Ints
    block_offsets: Ints

    def __post_init__(self) -> None:
        for column, dtype in _COLUMNS.items():
            _set(self, column, np.array(getattr(self, column), dtype=dtype))
        _check(self)

    def __len__(self) -> int:
        return len(self.arrival_s)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Trace):
            return NotImplemented
        return (self.sha256, self.block_tokens) == (other.sha256, other.block_tokens)

    def __hash__(self) -> int:
        return hash((self.sha256, self.block_tokens))

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return _rebuild, (fields,)  # an unpickled array could be written

    def __repr__(self) -> str:
        return f"<Trace {self.name}: {len(self)} requests, sha256 {self.sha256[:12]}…>"

    @property
    def duration_s(self) -> float:
        """Seconds from the first arrival to the last; 0 for a single request."""
        return float(self.arrival_s[-1] - self.arrival_s[0])

    def blocks_of(self, request: int) -> Ints:
        """Block ids of one request, from the prompt's start; shape (blocks of the request,)."""
        return self.block_ids[self.block_offsets[request] : self.block_offsets[request + 1]]

    def head(self, requests: int) -> "Trace":
        """Give the first `requests` requests as a trace of their own; all of it if it has no more.

        Raises
        ------
        InputError
            If `requests` is below 1.
        """
        if requests < 1:
            raise InputError(f"head: requests must be at least 1, got {requests}")
        if requests >= len(self):
            return self
        last = int(self.block_offsets[requests])
        return make_trace(
            name=f"{self.name}-head-{requests}",
            origin=self.origin,
            source=f"first {requests:,} requests of: {self.source}",
            block_tokens=self.block_tokens,
            arrival_s=self.arrival_s[:requests],
            input_tokens=self.input_tokens[:requests],
            output_tokens=self.output_tokens[:requests],
            block_ids=self.block_ids[:last],
            block_offsets=self.block_offsets[: requests + 1],
        )

    def derived(self, **fields: Any) -> "Trace":
        """`dataclasses.replace` for columns that fit together by how they were made of checked ones.

        They are neither copied nor looked at, which takes longer than to split millions of blocks.
        """
        made = object.__new__(Trace)
        for field in dataclasses.fields(Trace):
            value = fields.get(field.name, getattr(self, field.name))
            dtype = _COLUMNS.get(field.name)
            _set(made, field.name, np.asarray(value, dtype) if dtype else value)
        return made

    @staticmethod
    def from_requests(
        requests: Iterable[tuple[float, int, int, Sequence[int]]],
        *,
        name: str = "handmade",
        origin: Origin = "file",
        source: str = "",
        block_tokens: int = BLOCK_TOKENS,
    ) -> "Trace":
        """Build a trace from tuples of arrival (s), input tokens, output tokens and block ids.

        >>> trace = Trace.from_requests([(0.0, 600, 10, [0, 1]), (1.5, 700, 20, [0, 2])])
        >>> len(trace), trace.duration_s, trace.blocks_of(1).tolist()
        (2, 1.5, [0, 2])
        """
        rows = list(requests)
        ids = [row[3] for row in rows]
        return make_trace(
            name=name,
            origin=origin,
            source=source or f"{name}: {len(rows):,} requests",
            block_tokens=block_tokens,
            arrival_s=[row[0] for row in rows],
            input_tokens=[row[1] for row in rows],
            output_tokens=[row[2] for row in rows],
            block_ids=[i for blocks in ids for i in blocks],
            block_offsets=np.cumsum([0, *map(len, ids)]),
        )


def _set(trace: Trace, field: str, value: Any) -> None:
    if field in _COLUMNS:
        value.flags.writeable = False
    object.__setattr__(trace, field, value)


def _rebuild(fields: dict[str, Any]) -> Trace:
    return Trace(**fields)


def make_trace(
    *, name: str, origin: Origin, source: str, block_tokens: int = BLOCK_TOKENS, **columns: Any
) -> Trace:
    """Build a trace that is in no file: its `sha256` is that of its canonical JSONL bytes.

    Parameters
    ----------
    name, origin, source, block_tokens
        As in `Trace`.
    **columns : array
        The five columns of `Trace`.
    """
    unhashed = Trace(name=name, origin=origin, source=source, sha256="", block_tokens=block_tokens, **columns)
    digest = hashlib.sha256()
    for line in jsonl_lines(unhashed):
        digest.update(line)
    object.__setattr__(unhashed, "sha256", digest.hexdigest())
    return unhashed


def jsonl_lines(trace: Trace) -> Iterator[bytes]:
    """Write each request as a line of the released format; the timestamp is in milliseconds."""
    ids = trace.block_ids.tolist()
    offsets = trace.block_offsets.tolist()
    lengths = zip(
        trace.arrival_s.tolist(), trace.input_tokens.tolist(), trace.output_tokens.tolist(), strict=True
    )
    for request, (arrival_s, input_tokens, output_tokens) in enumerate(lengths):
        blocks = ids[offsets[request] : offsets[request + 1]]
        yield (
            f'{{"timestamp": {_milliseconds(arrival_s)}, "input_length": {input_tokens}, '
            f'"output_length": {output_tokens}, "hash_ids": {blocks}}}\n'
        ).encode()


def _milliseconds(seconds: float) -> str:
    """Decimal text that reads back, divided by 1000, as exactly `seconds`."""
    scaled = Decimal(repr(seconds)).scaleb(3)
    return str(int(scaled)) if scaled == scaled.to_integral_value() else str(scaled)


_DENSE = 4
"""Ids below so many times their number are looked up in a table rather than sorted."""


def request_of_block(trace: Trace) -> Ints:
    """Which request each entry of `block_ids` belongs to; shape (blocks,)."""
    return np.repeat(np.arange(len(trace), dtype=np.int64), np.diff(trace.block_offsets))


def first_uses(trace: Trace) -> Ints:
    """Where in `block_ids` the id of each entry stands for the first time; shape (blocks,)."""
    ids = trace.block_ids
    if len(ids) and ids.min() >= 0 and ids.max() < _DENSE * len(ids):
        first = np.empty(ids.max() + 1, dtype=np.int64)
        first[ids[::-1]] = np.arange(len(ids) - 1, -1, -1)  # of equal ids the first is written last
        return first[ids]
    _, found, inverse = np.unique(ids, return_index=True, return_inverse=True)
    return np.asarray(found[inverse], dtype=np.int64)


def infinite_cache_leading_hits(trace: Trace) -> Ints:
    """Blocks each request finds in one infinite cache that holds all earlier requests.

    Returns
    -------
    array of int64, shape (requests,)
        Leading blocks that an earlier request, in file order, has brought.
    """
    starts, ends = trace.block_offsets[:-1], trace.block_offsets[1:]
    missed = np.flatnonzero(first_uses(trace) >= np.repeat(starts, ends - starts))
    next_missed = np.append(missed, len(trace.block_ids))[np.searchsorted(missed, starts)]
    return np.asarray(np.minimum(next_missed, ends) - starts, dtype=np.int64)


def infinite_cache_hit_ratio(trace: Trace) -> float:
    """Share of input tokens that one infinite cache saves from being computed.

    A request's cached tokens are min(leading hits × block, n − 1): its last token is always
    computed. What is yet to be computed counts as cached for the next request, so this bounds
    every cache of whole blocks.

    >>> trace = Trace.from_requests([(0.0, 1024, 1, [0, 1]), (0.0, 1024, 1, [0, 2])])
    >>> infinite_cache_hit_ratio(trace)
    0.25
    """
    held = infinite_cache_leading_hits(trace) * trace.block_tokens
    return float(np.minimum(held, trace.input_tokens - 1).sum() / trace.input_tokens.sum())


def tick_s(trace: Trace) -> float | None:
    """Seconds between the instants at which requests arrive in groups; None if they do not.

    The conversation trace has such ticks, every 3 s to within a few milliseconds.

    >>> arrivals_s = (0.0, 0.0, 3.0, 3.0, 5.999, 9.0)
    >>> tick_s(Trace.from_requests([(t, 100, 1, [i]) for i, t in enumerate(arrivals_s)]))
    3.0
    """
    gaps_s = np.diff(np.unique(trace.arrival_s))
    if len(gaps_s) < _LEAST_TICKS or 2 * len(gaps_s) > len(trace) + _LEAST_TICKS:
        return None
    usual_s = float(np.median(gaps_s))
    steady = np.abs(gaps_s - usual_s) <= _TICK_JITTER * usual_s
    return round(usual_s, 3) if steady.mean() >= _STEADY_SHARE else None


def describe(trace: Trace) -> dict[str, str | int | float | None]:
    """Measure a trace: sizes, lengths, arrivals and what could be reused of it.

    Returns
    -------
    dict
        Keys end in their unit; ``tick_s`` is None if requests do not arrive in ticks, and
        ``requests_per_s`` if all arrive at once.
    """
    duration_s = trace.duration_s
    table: dict[str, str | int | float | None] = {
        "name": trace.name,
        "origin": trace.origin,
        "source": trace.source,
        "sha256": trace.sha256,
        "requests": len(trace),
        "duration_s": duration_s,
        "requests_per_s": len(trace) / duration_s if duration_s else None,
        "instants": len(np.unique(trace.arrival_s)),
        "tick_s": tick_s(trace),
        "block_tokens": trace.block_tokens,
        "blocks": len(trace.block_ids),
        "distinct_blocks": len(np.unique(trace.block_ids)),
        "infinite_cache_hit_ratio": infinite_cache_hit_ratio(trace),
    }
    for column in ("input_tokens", "output_tokens"):
        lengths = getattr(trace, column)
        table[f"{column}_mean"] = float(lengths.mean())
        for percent in (0, 10, 50, 90, 99, 100):
            table[f"{column}_p{percent}"] = float(np.percentile(lengths, percent))
    return table


def _check(trace: Trace) -> None:
    """Refuse columns that do not fit together."""
    requests = len(trace.arrival_s)
    _require(requests > 0, "arrival_s", "is empty; a trace has at least one request")
    _require(trace.block_tokens > 0, "block_tokens", f"must be at least 1, got {trace.block_tokens}")
    for column in ("input_tokens", "output_tokens"):
        _require(len(getattr(trace, column)) == requests, column, f"must have {requests} entries")
        _require_all(getattr(trace, column) >= 1, column, "must be at least 1")
    _require_all(
        np.isfinite(trace.arrival_s) & (trace.arrival_s >= 0), "arrival_s", "must be finite and at least 0"
    )
    _require_all(
        np.diff(trace.arrival_s, prepend=0.0) >= 0, "arrival_s", "must not be below the request's before"
    )
    _check_blocks(trace, requests)


def _check_blocks(trace: Trace, requests: int) -> None:
    offsets = trace.block_offsets
    _require(len(offsets) == requests + 1, "block_offsets", f"must have {requests + 1} entries")
    _require(offsets[0] == 0 and offsets[-1] == len(trace.block_ids), "block_offsets", "must span block_ids")
    expected = -(-trace.input_tokens // trace.block_tokens)
    _require_all(
        np.diff(offsets) == expected, "block_offsets", "must give ceil(input_tokens / block_tokens) blocks"
    )
    _require_all(trace.block_ids >= 0, "block_ids", "must be at least 0", trace)
    before = np.concatenate(([-1], trace.block_ids[:-1]))
    before[offsets[:-1]] = -1
    same = before == before[first_uses(trace)]
    _require_all(
        same,
        "block_ids",
        "has an id with two different predecessors, though an id stands for its prefix",
        trace,
    )


def _require(holds: bool | np.bool, column: str, otherwise: str) -> None:
    if not holds:
        raise InputError(f"trace column {column}: {otherwise}")


def _require_all(
    holds: npt.NDArray[np.bool], column: str, otherwise: str, blocks_of: Trace | None = None
) -> None:
    """Name the first request for which it does not hold; with `blocks_of`, there is an entry a block."""
    if not holds.all():
        bad = int(np.argmin(holds))
        request = request_of_block(blocks_of)[bad] if blocks_of else bad
        raise InputError(f"trace column {column}: request {request} {otherwise}")
