"""Make a trace from a workload's statistics."""

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from mooncake_companion.traces.trace import BLOCK_TOKENS, Floats, Ints, Trace, make_trace
from mooncake_companion.traces.workload import (
    TURN_CLASSES,
    Kind,
    Row,
    Workload,
    at_levels,
    by_class,
    turn_class,
)

T = TypeVar("T")

_NOBODY = -1


def generate(
    workload: Workload,
    rng: np.random.Generator,
    *,
    requests: int | None = None,
    name: str | None = None,
    source: str | None = None,
) -> Trace:
    """Make a trace with the statistics of a workload.

    Each request begins a session or continues one (see `Kind`); a continuation is as long as what
    it shares and what it adds. Where the workload gives the lengths of all prompts, the request of
    each rank then gets the length of that rank, so that the quantiles hardly vary from seed to
    seed; who shares what with whom stays.

    Parameters
    ----------
    workload : Workload
    rng : numpy.random.Generator
    requests : int, optional
        The workload's number, if not given; the duration changes in proportion.
    name, source : str, optional
        See `Trace`.

    Returns
    -------
    Trace
        With origin ``"standin"``; blocks of system prompts have the lowest ids, the others are
        numbered in the order of their first use.
    """
    count = workload.requests if requests is None else requests
    arrival_s = _arrivals(workload, count, rng)
    input_tokens = np.empty(count, dtype=np.int64)
    output_tokens = np.empty(count, dtype=np.int64)
    blocks: list[list[int]] = [[] for _ in range(count)]
    kind_of = _kinds(workload, count, rng)
    prompt_ids = 0
    for k, kind in enumerate(workload.kinds):
        mine = np.flatnonzero(kind_of == k)
        sessions = _Sessions(kind, arrival_s[mine], rng)
        input_tokens[mine] = sessions.tokens
        output_tokens[mine] = _outputs(kind, sessions.tokens, rng)
        prompt_ids = sessions.share(blocks, mine, prompt_ids)
    _number(blocks, prompt_ids)
    name = name or f"{workload.name}-standin"
    return make_trace(
        name=name,
        origin="standin",
        source=source or f"{name}: a generated stand-in for the {workload.name} trace",
        arrival_s=arrival_s,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        block_ids=[i for ids in blocks for i in ids],
        block_offsets=np.cumsum([0, *map(len, blocks)]),
    )


def _arrivals(workload: Workload, count: int, rng: np.random.Generator) -> Floats:
    """Arrival times in s, shape (count,): gamma gaps, as many in each part as the load says."""
    duration_s = workload.duration_s * count / workload.requests
    load = np.cumsum(workload.load_by_time)
    ends = np.rint(load / load[-1] * count).astype(np.int64)
    variation = workload.arrival_cv**2
    gaps = rng.gamma(1 / variation, variation, count + len(ends)) if variation else np.ones(count + len(ends))
    arrival = np.empty(count)
    for part, (first, last) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        passed = np.cumsum(gaps[first + part : last + part + 1])  # one more: up to the part's end
        arrival[first:last] = (part + passed[:-1] / passed[-1]) / len(ends)
    arrival_s = (arrival - arrival[0]) / max(arrival[-1] - arrival[0], 1e-300) * duration_s
    if workload.tick_s:
        arrival_s = np.floor(arrival_s / workload.tick_s) * workload.tick_s
    return np.asarray(np.round(arrival_s, 3))


def _kinds(workload: Workload, count: int, rng: np.random.Generator) -> Ints:
    """Which kind each request is of, in the given shares to rounding."""
    ends = np.rint(np.cumsum([kind.share for kind in workload.kinds]) * count).astype(np.int64)
    return np.searchsorted(ends, rng.permutation(count), side="right")


def _strata(count: int, rng: np.random.Generator) -> Floats:
    """Numbers in [0, 1), one from each of `count` equal parts, in random order."""
    return np.asarray((rng.permutation(count) + rng.random(count)) / max(count, 1))


def _lengths(row: Row, u: Floats) -> Ints:
    return np.maximum(np.rint(at_levels(row, u)).astype(np.int64), 1)


def _outputs(kind: Kind, tokens: Ints, rng: np.random.Generator) -> Ints:
    """Answer lengths: strata of the row of each class, a class being a part of the ranks."""
    classes = len(kind.output_tokens)
    rank = np.empty(len(tokens), dtype=np.int64)
    rank[np.argsort(tokens, kind="stable")] = np.arange(len(tokens))
    of_class = rank * classes // max(len(tokens), 1)
    u = np.empty(len(tokens))
    for k in range(classes):
        u[of_class == k] = _strata(int((of_class == k).sum()), rng)
    return np.maximum(np.rint(by_class(kind.output_tokens, of_class, u)).astype(np.int64), 1)


def _number(blocks: list[list[int]], prompt_ids: int) -> None:
    """Number the ids from `prompt_ids` on by their first use; at first they are negative."""
    names: dict[int, int] = {}
    for ids in blocks:
        ids[:] = [i if i >= 0 else names.setdefault(i, prompt_ids + len(names)) for i in ids]


class _Sessions:
    """The requests of one kind: who continues whom, and how long each prompt is."""

    def __init__(self, kind: Kind, arrival_s: Floats, rng: np.random.Generator) -> None:
        count = len(arrival_s)
        self._kind = kind
        self._arrival_s = arrival_s
        self._continues = self._who_continues(rng)
        self._prompt = _prompts(kind, count, rng)
        self._left = np.zeros(count, dtype=np.int64)
        self._parent = np.full(count, _NOBODY)
        self._repeats = np.zeros(count, dtype=bool)
        self.tokens = self._first_tokens(rng)
        self._continue(self._strata_of_continuations(6, rng))
        if kind.input_tokens:
            self._fit_lengths(rng)
        self._reused = self._depths(rng)

    def _who_continues(self, rng: np.random.Generator) -> np.ndarray:
        """As many of each part as the kind says, to rounding."""
        shares = np.asarray(self._kind.continuation_by_part)
        count = len(self._arrival_s)
        share = shares[np.arange(count) * len(shares) // max(count, 1)]
        return np.diff(np.floor(np.cumsum(share) + rng.random()), prepend=0.0) > 0

    def _first_tokens(self, rng: np.random.Generator) -> Ints:
        """A stratum for each request that begins a session, long ones when the kind has them."""
        rows = self._kind.first_class_by_part
        count = len(self._arrival_s)
        latent = rng.random(count)
        for k, shares in enumerate(rows):
            reached = np.concatenate(([0.0], np.cumsum(shares)))
            here = slice(-(-k * count // len(rows)), -(-(k + 1) * count // len(rows)))
            latent[here] = np.interp(latent[here] * reached[-1], reached, np.arange(len(reached)))
        firsts = np.flatnonzero(~self._continues)
        rank = np.empty(len(firsts))
        rank[np.argsort(latent[firsts], kind="stable")] = np.arange(len(firsts))
        u = latent / len(rows[0])
        u[firsts] = (rank + rng.random(len(firsts))) / max(len(firsts), 1)
        return _lengths(self._kind.first_tokens or self._kind.input_tokens, u)

    def _strata_of_continuations(self, rows: int, rng: np.random.Generator) -> Floats:
        """Numbers in [0, 1), shape (rows, requests); in each row, strata of those that continue."""
        u = np.zeros((rows, len(self._arrival_s)))
        for row in u:
            row[self._continues] = _strata(int(self._continues.sum()), rng)
        return u

    def _continue(self, u: Floats) -> None:
        """Let each continuation, in order of arrival, pick its session and take its length from it."""
        kind, tokens = self._kind, self.tokens
        open_ends = _OpenEnds(kind, self._arrival_s)
        turn = np.zeros(len(tokens), dtype=np.int64)
        most = kind.input_tokens[-1] if kind.input_tokens else np.inf
        for request in range(len(tokens)):
            parent = _NOBODY
            if self._continues[request]:
                parent = open_ends.take(request, u[:3, request])
            if parent != _NOBODY:
                self._parent[request] = parent
                self._prompt[request] = self._prompt[parent]
                turn[request] = turn[parent] + 1
                left, new = (
                    at_levels(self._row_of(parent, rows), u[at : at + 1, request])[0]
                    for at, rows in ((4, kind.left_blocks), (5, kind.new_tokens))
                )
                self._left[request] = max(round(left) - 1, 0)  # of the full ones; the last is mostly partial
                shared = self._shared(request, tokens[parent])
                self._repeats[request] = not shared or u[3, request] < self._row_of(parent, kind.repeat_share)
                longer = min(shared * BLOCK_TOKENS + max(round(new), 1), most)
                tokens[request] = tokens[parent] if self._repeats[request] else longer
            of_length = kind.length_class(int(tokens[request]), len(kind.return_by_length[0]))
            weight = self._weight(request, int(turn[request]))
            open_ends.add(request, turn_class(int(turn[request])), of_length, weight)

    def _row_of(self, request: int, rows: tuple[T, ...]) -> T:
        """The entry for a request's class of length."""
        return rows[self._kind.length_class(int(self.tokens[request]), len(rows))]

    def _weight(self, request: int, turn: int) -> float:
        """How readily a request is continued for its length; by a repetition alone, if it is too short."""
        factors = self._kind.return_by_length
        weight = self._row_of(request, factors[min(turn, len(factors) - 1)])
        if self._shared(request, self.tokens[request]):
            return weight
        return weight * self._row_of(request, self._kind.repeat_share)

    def _shared(self, request: int, parent_tokens: int) -> int:
        """Blocks that a continuation shares with its parent; 0 if it can't share any beyond the prompt."""
        full = int(parent_tokens) // BLOCK_TOKENS
        prompt = int(self._prompt[request, 1])
        return max(full - int(self._left[request]), prompt + 1) if full > prompt else 0

    def _fit_lengths(self, rng: np.random.Generator) -> None:
        """Give the request of each rank the length of that rank."""
        count = len(self.tokens)
        u = (np.arange(count) + rng.random(count)) / max(count, 1)
        fitted = _lengths(self._kind.input_tokens, u)
        self.tokens[np.argsort(self.tokens, kind="stable")] = fitted
        for request in np.flatnonzero(self._repeats).tolist():
            self.tokens[request] = self.tokens[self._parent[request]]

    def _depths(self, rng: np.random.Generator) -> Ints:
        """Leading blocks that each request takes over from the one that it continues, or 0.

        Where the kind says how deep reuse is, the request of each rank gets the depth of that
        rank, as far as the two prompts are that long.
        """
        full = self.tokens // BLOCK_TOKENS
        prompt = self._prompt[:, 1]
        takes = np.flatnonzero((self._parent != _NOBODY) & ~self._repeats)
        parent_full = full[self._parent[takes]]
        depth = parent_full - self._left[takes]
        if self._kind.reused_blocks and len(takes):
            order = np.argsort(depth + rng.random(len(takes)))
            levels = (np.arange(len(takes)) + 0.5) / len(takes)
            depth[order] = np.rint(at_levels(self._kind.reused_blocks, levels)).astype(np.int64)
        most = np.minimum(parent_full, (self.tokens[takes] - 1) // BLOCK_TOKENS)
        depths = np.zeros(len(full), dtype=np.int64)
        depths[takes] = np.minimum(np.maximum(depth, prompt[takes] + 1), most)
        return depths

    def share(self, blocks: list[list[int]], mine: Ints, prompt_ids: int) -> int:
        """Fill in the block ids: those of system prompts from `prompt_ids` on, others negative.

        Returns the id after the last of a system prompt.
        """
        starts = (prompt_ids + np.cumsum([0, *_prompt_lengths(self._kind)])).tolist()
        for request, (at, tokens) in enumerate(zip(mine.tolist(), self.tokens.tolist(), strict=True)):
            size, parent = -(-tokens // BLOCK_TOKENS), int(self._parent[request])
            prompt, prompt_blocks = self._prompt[request].tolist()
            head = list(range(starts[prompt], starts[prompt] + prompt_blocks))[: tokens // BLOCK_TOKENS]
            if self._repeats[request]:
                head = blocks[int(mine[parent])]
            elif self._reused[request] > len(head):
                head = blocks[int(mine[parent])][: self._reused[request]]
            fresh = -1 - (at << 32)  # no other request has ids near it
            blocks[at] = [*head, *range(fresh, fresh - size + len(head), -1)]
        return int(starts[-1])


def _prompt_lengths(kind: Kind) -> list[int]:
    """Blocks of each system prompt, from the most used to the least; one without any, if there are none."""
    ranks = (np.arange(kind.prompts) + 0.5) / max(kind.prompts, 1)
    return np.rint(at_levels(kind.prompt_blocks, ranks)).astype(int).tolist() or [0]


def _prompts(kind: Kind, count: int, rng: np.random.Generator) -> Ints:
    """Rank and blocks of the system prompt of each request that begins a session, shape (count, 2)."""
    lengths = np.asarray(_prompt_lengths(kind))
    weights = np.cumsum(np.arange(1, len(lengths) + 1) ** -kind.prompt_skew)
    rank = np.searchsorted(weights, rng.random(count) * weights[-1], side="right")
    return np.stack([rank, lengths[rank]], axis=1)


class _OpenEnds:
    """The latest requests of all sessions; each can be taken once, by a weighted draw."""

    def __init__(self, kind: Kind, arrival_s: Floats) -> None:
        self._arrival_s = arrival_s
        self._edges_s = np.asarray(kind.return_age_s)
        by_turn, by_age = np.asarray(kind.return_rate), np.asarray(kind.return_by_age)
        classes = len(kind.return_by_length[0])
        turn_row = np.minimum(np.arange(TURN_CLASSES), len(by_turn) - 1)
        age_row = np.arange(classes) * len(by_age) // classes
        self._rates = by_turn[turn_row, None] * by_age[None, age_row]
        self._turn_class = np.zeros(len(arrival_s), dtype=np.int64)
        self._length_class = np.zeros(len(arrival_s), dtype=np.int64)
        self._weight = np.zeros(len(arrival_s))

    def add(self, request: int, of_turn_class: int, of_length_class: int, weight: float) -> None:
        self._turn_class[request] = of_turn_class
        self._length_class[request] = of_length_class
        self._weight[request] = weight

    def take(self, request: int, u: Floats) -> int:
        """Take an end: its age by the first of three numbers in [0, 1), then its length, then which.

        Returns nobody if none can be continued.
        """
        before_s = self._arrival_s[request] - self._edges_s
        ends = np.minimum(np.searchsorted(self._arrival_s, before_s, side="right"), request)[::-1]
        oldest, youngest = int(ends[0]), int(ends[-1])
        age_class = np.repeat(np.arange(len(ends) - 2, -1, -1), np.diff(ends))
        here = slice(oldest, youngest)
        of_class = self._length_class[here]
        weights = self._rates[self._turn_class[here], of_class, age_class] * self._weight[here]
        drawn = _draw(np.bincount(age_class, weights), u[0])
        if drawn == _NOBODY:
            return _NOBODY
        first, last = ends[len(ends) - 2 - drawn : len(ends) - drawn] - oldest
        weights, of_class = weights[first:last], of_class[first:last]
        drawn = _draw(np.bincount(of_class, weights), u[1])
        taken = oldest + int(first) + _draw(weights * (of_class == drawn), u[2])
        self._weight[taken] = 0.0
        return taken


def _draw(weights: npt.NDArray[np.number], u: float) -> int:
    """Draw an index with these weights by a number in [0, 1); nobody if all are 0."""
    reached = np.cumsum(weights)
    if not len(reached) or reached[-1] <= 0:
        return _NOBODY
    return int(np.searchsorted(reached, min(u * reached[-1], np.nextafter(reached[-1], 0)), side="right"))
