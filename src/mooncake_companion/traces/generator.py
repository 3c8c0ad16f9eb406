"""Make a trace from a workload's statistics."""

import math
from bisect import bisect_left

import numpy as np
import numpy.typing as npt

from mooncake_companion.traces.trace import BLOCK_TOKENS, Floats, Ints, Trace, make_trace
from mooncake_companion.traces.workload import (
    CLASS_LEVELS,
    LEVELS,
    TURN_CLASSES,
    Workload,
    at_levels,
    length_class,
    turn_class,
)

_BLOCKS_PER_E_FOLD = 8.0
"""When a parent is chosen: a miss in length by so many blocks weighs as one in age by a factor e."""

_E_FOLDS_PER_TURN_CLASS = 0.3
"""And a miss by one turn class weighs as one in age by so many factors of e."""

_MOST_CHANGE = 0.1
"""Share of its length by which a request may change to fit the one that it continues."""


def generate(
    workload: Workload,
    rng: np.random.Generator,
    *,
    requests: int | None = None,
    name: str | None = None,
    source: str | None = None,
) -> Trace:
    """Make a trace with the statistics of a workload.

    Lengths are drawn by strata (one draw from each of as many equal parts of the distribution as
    there are requests), so that the length quantiles hardly vary from seed to seed; what is
    reused, from whom and when varies freely. Each continuation shares its leading blocks with
    one earlier request, which it then succeeds: what comes later continues the continuation.

    Parameters
    ----------
    workload : Workload
    rng : numpy.random.Generator
    requests : int, optional
        As many as the workload was fitted on, if not given; the duration changes in proportion.
    name, source : str, optional
        See `Trace`.

    Returns
    -------
    Trace
        With origin ``"standin"`` and ids numbered in the order of their first use.
    """
    count = workload.requests if requests is None else requests
    arrival_s = _arrivals(workload, count, rng)
    u = _lengths(workload, arrival_s, rng)
    classes = length_class(u)
    input_tokens = np.maximum(np.rint(at_levels(LEVELS, workload.input_tokens, u)).astype(np.int64), 1)
    output_tokens = _by_class(workload.output_tokens, classes, _strata(count, rng))
    plan = _Plan(workload, arrival_s, input_tokens, classes, rng)
    blocks = _share(workload, arrival_s, input_tokens, plan)
    name = name or f"{workload.name}-standin"
    return make_trace(
        name=name,
        origin="standin",
        source=source or f"{name}: a generated stand-in for the {workload.name} trace",
        arrival_s=arrival_s,
        input_tokens=input_tokens,
        output_tokens=np.maximum(np.rint(output_tokens).astype(np.int64), 1),
        block_ids=[i for ids in blocks for i in ids],
        block_offsets=np.cumsum([0, *map(len, blocks)]),
    )


def _strata(count: int, rng: np.random.Generator) -> Floats:
    """Numbers in [0, 1), one from each of `count` equal parts, in random order."""
    return np.asarray((rng.permutation(count) + rng.random(count)) / count)


def _lengths(workload: Workload, arrival_s: Floats, rng: np.random.Generator) -> Floats:
    """Quantile of each request's length: one from each stratum, long ones where the fit has them."""
    part = _time_part(arrival_s, len(workload.class_by_time))
    latent = rng.random(len(arrival_s))
    for k, shares in enumerate(workload.class_by_time):
        reached = np.concatenate(([0.0], np.cumsum(shares)))
        here = part == k
        latent[here] = np.interp(latent[here] * reached[-1], reached, np.arange(len(reached)))
    rank = np.empty(len(latent), dtype=np.int64)
    rank[np.argsort(latent, kind="stable")] = np.arange(len(latent))
    return np.asarray((rank + rng.random(len(latent))) / len(latent))


def _time_part(arrival_s: Floats, parts: int) -> Ints:
    """In which of so many equal parts of the duration each request arrives."""
    return np.minimum((arrival_s / max(arrival_s[-1], 1e-9) * parts).astype(np.int64), parts - 1)


def _by_class(rows: tuple[tuple[float, ...], ...], classes: Ints, u: Floats) -> Floats:
    drawn = np.empty(len(u))
    for k, row in enumerate(rows):
        drawn[classes == k] = at_levels(CLASS_LEVELS, row, u[classes == k])
    return drawn


def _arrivals(workload: Workload, count: int, rng: np.random.Generator) -> Floats:
    """Arrival times in s, shape (count,): Poisson under the load profile, gathered into ticks."""
    duration_s = workload.duration_s * count / workload.requests
    load = np.concatenate(([0.0], np.cumsum(workload.load_by_time)))
    part = np.linspace(0.0, 1.0, len(load))
    arrival_s = np.interp(np.sort(rng.random(count)), load / load[-1], part) * duration_s
    if workload.tick_s:
        arrival_s = np.floor(arrival_s / workload.tick_s) * workload.tick_s
    arrival_s = np.round(arrival_s, 3)
    return np.asarray(arrival_s - arrival_s[0])


class _Plan:
    """Random choices, drawn beforehand; columns of shape (requests,)."""

    def __init__(
        self,
        workload: Workload,
        arrival_s: Floats,
        input_tokens: Ints,
        classes: Ints,
        rng: np.random.Generator,
    ) -> None:
        count = len(arrival_s)
        self.continues = rng.random(count) < _continuation_share(workload, arrival_s, classes)
        self.repeats = rng.random(count) < np.asarray(workload.repeat_share)[classes]
        blocks = -(-input_tokens // BLOCK_TOKENS)
        share = _by_class(workload.reused_share, classes, rng.random(count))
        self.reused_blocks = np.minimum(np.rint(share * blocks).astype(np.int64), blocks - 1)
        left = np.rint(at_levels(LEVELS, workload.left_blocks, rng.random(count)))
        self.left_blocks = np.maximum(left - 1, 0)  # of the full ones; the last is mostly partial
        self.parent_turn = np.searchsorted(np.cumsum(workload.parent_turns)[:-1], rng.random(count))
        self.age_s = _ages(workload, arrival_s, rng.random(count))


def _continuation_share(workload: Workload, arrival_s: Floats, classes: Ints) -> Floats:
    by_time = np.asarray(workload.continuation_by_time)
    part = _time_part(arrival_s, len(by_time))
    return np.asarray(1 / (1 + np.exp(-np.asarray(workload.continuation_by_class)[classes] - by_time[part])))


def _ages(workload: Workload, arrival_s: Floats, u: Floats) -> Floats:
    """Ages in s, none above the time since the trace began."""
    reachable = np.interp(arrival_s, workload.age_s, LEVELS)
    return at_levels(LEVELS, workload.age_s, u * reachable)


def _share(
    workload: Workload, arrival_s: Floats, input_tokens: npt.NDArray[np.int64], plan: _Plan
) -> list[list[int]]:
    """Block ids of each request; `input_tokens` is changed where a request takes after its parent."""
    shared = list(range(workload.shared_blocks))
    fresh = len(shared)
    ends = _OpenEnds(arrival_s.tolist())
    made: list[list[int]] = []
    for request, tokens in enumerate(input_tokens.tolist()):
        parent = _parent(ends, plan, request, tokens, len(shared)) if plan.continues[request] else -1
        head = shared[: tokens // BLOCK_TOKENS]
        if parent >= 0 and plan.repeats[request]:
            tokens, head = int(input_tokens[parent]), made[parent]
        elif parent >= 0:
            tokens, reused = _fitted(ends.full_blocks[parent], plan, request, tokens, len(shared))
            head = made[parent][:reused]
        input_tokens[request] = tokens
        new = -(-tokens // BLOCK_TOKENS) - len(head)
        made.append([*head, *range(fresh, fresh + new)])
        fresh += new
        ends.add(request, tokens // BLOCK_TOKENS, parent)
    return made


def _parent(ends: "_OpenEnds", plan: _Plan, request: int, tokens: int, shared: int) -> int:
    """Choose whom a request continues; -1 if there is nobody, or nothing beyond the shared blocks."""
    age_s, turn = float(plan.age_s[request]), int(plan.parent_turn[request])
    if plan.repeats[request]:
        return ends.take(request, age_s, turn, least=0, full=tokens // BLOCK_TOKENS)
    reused = int(plan.reused_blocks[request])
    if reused <= shared:
        return -1
    return ends.take(request, age_s, turn, least=shared + 1, full=reused + int(plan.left_blocks[request]))


def _fitted(full: int, plan: _Plan, request: int, tokens: int, shared: int) -> tuple[int, int]:
    """Length and reused blocks of a request that continues one of `full` blocks.

    If the two nearly fit, the request becomes as much longer or shorter as its parent is; else
    it keeps its length and reuses what it can.
    """
    reused = max(full - int(plan.left_blocks[request]), shared + 1)
    change = reused - int(plan.reused_blocks[request])
    if abs(change) <= max(1, _MOST_CHANGE * tokens // BLOCK_TOKENS):
        return tokens + change * BLOCK_TOKENS, reused
    return tokens, min(reused, -(-tokens // BLOCK_TOKENS) - 1)


class _OpenEnds:
    """Requests that nobody has continued yet, by turn class and full blocks, in order of arrival."""

    def __init__(self, arrival_s: list[float]) -> None:
        self._arrival_s = arrival_s
        self._alike: dict[tuple[int, int], list[int]] = {}
        self._most = 0
        self._turns: list[int] = []
        self.full_blocks: list[int] = []

    def add(self, request: int, full: int, parent: int) -> None:
        self._turns.append(0 if parent < 0 else self._turns[parent] + 1)
        self.full_blocks.append(full)
        self._alike.setdefault((turn_class(self._turns[request]), full), []).append(request)
        self._most = max(self._most, full)

    def take(self, request: int, age_s: float, turn: int, *, least: int, full: int) -> int:
        """Take the request nearest to an age, a turn class and a number of full blocks, at least `least`.

        Returns -1 if there is none.
        """
        best, best_cost = None, math.inf
        now_s = self._arrival_s[request]
        for distance in range(self._most + full + 1):
            if distance / _BLOCKS_PER_E_FOLD >= best_cost:
                break
            for kind in _kinds(turn, {full - distance, full + distance}):
                if kind[1] >= least and kind in self._alike:
                    at, misfit = self._nearest(self._alike[kind], now_s, age_s)
                    cost = (
                        misfit + distance / _BLOCKS_PER_E_FOLD + abs(kind[0] - turn) * _E_FOLDS_PER_TURN_CLASS
                    )
                    if cost < best_cost:
                        best_cost, best = cost, (kind, at)
        return -1 if best is None else self._pop(*best)

    def _pop(self, kind: tuple[int, int], at: int) -> int:
        taken = self._alike[kind].pop(at)
        if not self._alike[kind]:
            del self._alike[kind]
        return taken

    def _nearest(self, alike: list[int], now_s: float, age_s: float) -> tuple[int, float]:
        """Place of the request nearest in age, and by how many factors of e it is off."""
        after = bisect_left(alike, now_s - age_s, key=self._arrival_s.__getitem__)
        places = range(max(after - 1, 0), min(after + 1, len(alike)))
        misfits = [abs(math.log((now_s - self._arrival_s[alike[at]] + 1.0) / (age_s + 1.0))) for at in places]
        return places[misfits.index(min(misfits))], min(misfits)


def _kinds(turn: int, fulls: set[int]) -> list[tuple[int, int]]:
    """All turn classes for these lengths, the wanted one first."""
    turns = sorted(range(TURN_CLASSES), key=lambda t: abs(t - turn))
    return [(t, full) for full in sorted(fulls) for t in turns]
