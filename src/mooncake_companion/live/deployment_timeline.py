"""FAST'25, sections 1, 2.1 and 3.1, on a slice of the trace: what the GPUs do in one pool and in two."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from typing import NamedTuple, TypeVar

from mooncake_companion.costs import decode_cost
from mooncake_companion.errors import InputError
from mooncake_companion.live import systems
from mooncake_companion.live.outcome import Outcome, Progress, Row
from mooncake_companion.live.slices import Slice
from mooncake_companion.parameters import check, parameter
from mooncake_companion.settings import cache_parameter, model_parameter, node_parameter
from mooncake_companion.simulator.cluster import Cluster
from mooncake_companion.simulator.coupled import CoupledCluster
from mooncake_companion.simulator.reference import Record, Request
from mooncake_companion.simulator.watched import Iteration, watch
from mooncake_companion.statistics import mean

MODES = {
    "Disaggregated": systems.MOONCAKE,
    "Coupled": "vLLM",
    "Coupled, chunked prefill": "vLLM Chunked Prefill",
    "Coupled, prefix caching": "vLLM Prefix Caching",
}
"""Ways to deploy, each with the system of `end_to_end` that runs so."""

PREFILL, DECODE, BESIDE = "prefill", "decode", "prefill beside decode"
"""What an iteration holds."""
STEADY, BEHIND, FIRST = "decode alone", "with a prefill in it", "first to second token"
"""What an interval between two tokens holds."""

FIRST_TOKEN, RHYTHM = "until decode begins", "each later token"
"""The rows of the latency budget."""
PARTS = {
    FIRST_TOKEN: (
        "queue",
        "prefix fetched",
        "own prefill",
        "others' work",
        "KV cache sent",
        "KV cache loaded",
        "wait for a step",
    ),
    RHYTHM: ("fixed cost", "weights read", "KV cache read", "host", "others' work"),
}
"""Where the time goes, in the order of each row."""

CLASSES = {
    "all": (0, 10**9),
    "up to 4k tokens": (0, 4096),
    "4k to 16k": (4097, 16_384),
    "above 16k": (16_385, 10**9),
}
"""Classes of requests by the length of their prompts: least and greatest, in tokens."""

TBT_LIMIT_S = 0.1
_REQUEST_SHOWN = 8
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """The setting: a part of the cluster, trace and systems of FAST'25, section 5.2.

    Stated there: the trace, the systems. Assumed: a quarter of the conversations on a quarter of the
    16 nodes, so that each node has its usual load and a reader can look at all of them; half of
    the nodes prefill, and everything else as `end_to_end` has it. What is shown is a few seconds in
    the middle of the replay.
    """

    trace: str = parameter("conversation", help="registered trace, or the path of a JSONL file")
    one_in: int = parameter(4, low=1, high=1000, help="of so many conversations is replayed")
    replayed_s: float = parameter(900.0, unit="s", low=1, high=1e6, help="of the trace that is replayed")
    window_start_s: float = parameter(300.0, unit="s", low=0, high=1e6, help="where the timeline begins")
    window_s: float = parameter(12.0, unit="s", low=0.1, high=120, help="that the timeline shows")
    nodes: int = parameter(4, unit="nodes", low=2, high=16, help="of every deployment")
    prefill_nodes: int = parameter(
        2, unit="nodes", low=1, high=15, help="of the disaggregated one that prefill; its others decode"
    )
    chunk_tokens: int = parameter(
        2048, unit="tokens", low=16, high=131_072, help="of an iteration with chunked prefill"
    )
    cache_tokens_per_node: int = cache_parameter()
    arrival_speedup: float = parameter(1.0, low=0.01, high=100, help="replay the trace so many times as fast")
    node: str = node_parameter()
    model: str = model_parameter()

    def __post_init__(self) -> None:
        check(self)
        self._systems()  # refuses a split that leaves no node to decode
        if self.window_start_s >= self.replayed_s:
            raise InputError(
                f"parameter window_start_s: the replay ends at {self.replayed_s} s, got {self.window_start_s}"
            )

    def _systems(self) -> systems.Params:
        names = ("trace", "nodes", "prefill_nodes", "chunk_tokens", "cache_tokens_per_node", "node", "model")
        return systems.Params(**{name: getattr(self, name) for name in names})

    def cluster(self, mode: str) -> Cluster | CoupledCluster:
        """One of the `MODES`."""
        return self._systems().cluster(MODES[mode])

    @property
    def window_end_s(self) -> float:
        """Where the timeline ends, in seconds from the trace's start."""
        return self.window_start_s + self.window_s

    def shows(self, start_s: float, end_s: float) -> bool:
        """Whether any of that time is in the window."""
        return end_s > self.window_start_s and start_s < self.window_end_s


class Served(NamedTuple):
    """What became of a request; fields are columns of `simulator.Result`."""

    arrival_s: float
    start_s: float
    first_token_s: float
    streamed_s: float
    loaded_s: float
    join_s: float
    finish_s: float
    prefill_s: float
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    fetched_tokens: int
    prefill_node: int
    decode_node: int


# --- in the page ----------------------------------------------------------------------------------


def timeline(params: Params, sliced: Slice, progress: Progress) -> Outcome:
    """What every node does in the window; columns as of `experiments.deployment_timeline.window`.

    Requests that come after the window are left out: nothing in it depends on them.
    """
    faster = sliced.head(len(sliced.requests), speedup=params.arrival_speedup)
    come = sum(request.arrival_s < params.window_end_s for request in faster.requests)
    rows: list[Row] = []
    for mode, cluster, served, iterations in _replays(params, faster.head(come), progress):
        rows += window_rows(params, mode, cluster, served, iterations)
    require_work(params, rows)
    intervals = [row for row in rows if row["kind"] == "interval"]
    return Outcome(
        rows=rows,
        description=_describe_window(intervals),
        fixed=scales(params, intervals),
        replayed=come,
    )


def budget(params: Params, sliced: Slice, progress: Progress) -> Outcome:
    """Where the time of a request goes; columns as of `experiments.deployment_timeline.budget`."""
    faster = sliced.head(len(sliced.requests), speedup=params.arrival_speedup)
    rows: list[Row] = []
    for mode, cluster, served, iterations in _replays(params, faster, progress):
        rows += budget_rows(mode, cluster, served, iterations, mean)
    return Outcome(rows=rows, description=_describe_budget(rows))


def _replays(
    params: Params, sliced: Slice, progress: Progress
) -> Iterator[tuple[str, Cluster | CoupledCluster, list[Served], Sequence[Iteration]]]:
    for done, mode in enumerate(MODES):
        progress(done, len(MODES))
        cluster = params.cluster(mode)
        records, iterations, _ = watch(sliced.requests, cluster, block_tokens=sliced.block_tokens)
        served = [_served(*each) for each in zip(sliced.requests, records, strict=True)]
        yield mode, cluster, served, iterations


def _served(request: Request, record: Record) -> Served:
    choice = record.choice
    assert choice is not None
    return Served(
        arrival_s=request.arrival_s,
        start_s=record.start_s,
        first_token_s=record.first_token_s,
        streamed_s=record.streamed_s,
        loaded_s=record.loaded_s,
        join_s=record.join_s,
        finish_s=record.finish_s,
        prefill_s=choice.prefill_s,
        input_tokens=request.input_tokens,
        output_tokens=request.output_tokens,
        cached_tokens=choice.reused_tokens,
        fetched_tokens=choice.fetched_tokens,
        prefill_node=choice.node,
        decode_node=record.decode_node,
    )


def _describe_window(intervals: Sequence[Row]) -> str:
    parts = []
    for mode in MODES:
        rows = [row for row in intervals if row["mode"] == mode and row["holds"] != FIRST]
        if rows:
            long = sum(row["steps"] for row in rows if row["seconds"] > TBT_LIMIT_S)
            parts.append(
                f"{mode}: longest interval {max(row['seconds'] for row in rows):.2f} s, {long} of "
                f"{sum(row['steps'] for row in rows)} above {1000 * TBT_LIMIT_S:.0f} ms"
            )
    return (
        "Timeline of what every node's GPUs do, prefill or decode, and below it the intervals between the "
        "tokens of the batches, for one deployment at a time, computed in this browser. "
        f"{'; '.join(parts)}."
    )


def _describe_budget(rows: Sequence[Row]) -> str:
    total_s = {(row["mode"], row["row"]): row["total_s"] for row in rows if row["prompts"] == "all"}
    told = "; ".join(
        f"{mode}: {total_s[mode, FIRST_TOKEN]:.2f} s, then {1000 * total_s[mode, RHYTHM]:.0f} ms a token"
        for mode in MODES
    )
    return (
        "Two rows of stacked bars, the mean time until a request's decode begins and the mean time of each "
        f"later token, by what takes it, for each deployment, computed in this browser. {told}."
    )


# --- the window -----------------------------------------------------------------------------------


def scales(params: Params, intervals: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Ends of the timeline's axes, by the parameters of its chart: seconds, and milliseconds a token."""
    seconds = [row["seconds"] for row in intervals] or [TBT_LIMIT_S]
    return {
        "shown_from_s": params.window_start_s,
        "shown_until_s": params.window_end_s,
        "least_ms": 1000 * min(seconds) / 1.3,
        "most_ms": 1000 * max(seconds) * 1.3,
    }


def require_work(params: Params, rows: Sequence[Row]) -> None:
    """Refuse a window in which no node works."""
    if not any(row["kind"] == "work" for row in rows):
        raise InputError(
            f"parameter window_start_s: no node works between {params.window_start_s} s and "
            f"{params.window_end_s} s; take an earlier or a longer window"
        )


def window_rows(
    params: Params,
    mode: str,
    cluster: Cluster | CoupledCluster,
    served: Sequence[Served],
    iterations: Sequence[Iteration],
) -> list[Row]:
    """What one of the `MODES` does in the window; columns as of `experiments.deployment_timeline.window`."""
    rows: list[Row] = []
    shown = [each for each in iterations if params.shows(each.start_s, each.end_s)]
    for number, of_node in groupby(shown, key=lambda each: each.node):
        title, steps = _title(cluster, number), list(of_node)
        rows += [{"node": title} | row for row in (*_work(served, steps), *_intervals(steps))]
    if isinstance(cluster, Cluster):
        rows += _first_intervals(params, cluster, served, iterations)
    return [_whole(params, mode, row) for row in rows]


def _whole(params: Params, mode: str, row: Row) -> Row:
    """All columns, with times cut to the window."""
    first_s, last_s = params.window_start_s, params.window_end_s
    return {
        "mode": mode,
        **{name: row[name] for name in ("node", "kind", "holds")},
        **{name: min(max(row[name], first_s), last_s) for name in ("start_s", "end_s")},
        "seconds": row["seconds"],
        **{name: row.get(name, 0) for name in ("steps", "sequences", "new_tokens", "cached_tokens")},
        "requests": row.get("requests", ""),
    }


def _title(cluster: Cluster | CoupledCluster, number: int) -> str:
    if isinstance(cluster, CoupledCluster):
        return f"Node {number + 1}"
    instances = cluster.prefill_instances
    return f"Prefill {number + 1}" if number < instances else f"Decode {number - instances + 1}"


def _work(served: Sequence[Served], iterations: Sequence[Iteration]) -> Iterable[Row]:
    """Rows of one node's work; steps of one batch that follow each other are one."""
    for steps in _runs(iterations, _continues):
        first, last = steps[0], steps[-1]
        prompts = [chunk.request for chunk in first.chunks]
        yield {
            "kind": "work",
            "holds": DECODE if not prompts else BESIDE if first.decoded else PREFILL,
            "start_s": first.start_s,
            "end_s": last.end_s,
            "seconds": (last.end_s - first.start_s) / len(steps),
            "steps": len(steps),
            "sequences": len(first.decoded),
            "new_tokens": sum(chunk.last - chunk.first for chunk in first.chunks),
            "cached_tokens": sum(served[request].cached_tokens for request in prompts),
            "requests": _named(prompts or first.decoded),
        }


def _continues(before: Iteration, after: Iteration) -> bool:
    alike = before.decoded == after.decoded and before.end_s == after.start_s
    return alike and not before.chunks and not after.chunks


class _Interval(NamedTuple):
    """Between two tokens of the sequences that a batch keeps."""

    start_s: float
    end_s: float
    sequences: int
    holds: str


def _intervals(iterations: Sequence[Iteration]) -> Iterable[Row]:
    """Rows of the intervals between the tokens of one node's batch, alike ones in a row as one."""
    found = []
    for before, step in pairwise(each for each in iterations if each.decoded):
        kept = len(set(before.decoded) & set(step.decoded))
        waited = bool(step.chunks) or before.end_s < step.start_s
        if kept:
            found.append(_Interval(before.end_s, step.end_s, kept, BEHIND if waited else STEADY))
    for alike in _runs(found, _alike):
        yield {
            "kind": "interval",
            "holds": alike[0].holds,
            "start_s": alike[0].start_s,
            "end_s": alike[-1].end_s,
            "seconds": (alike[-1].end_s - alike[0].start_s) / len(alike),
            "steps": len(alike),
            "sequences": alike[0].sequences,
        }


def _alike(before: _Interval, after: _Interval) -> bool:
    joined = before.end_s == after.start_s and before.sequences == after.sequences
    return joined and before.holds == after.holds == STEADY


def _runs(items: Iterable[T], continues: Callable[[T, T], bool]) -> list[list[T]]:
    """Neighbours that continue each other, together."""
    runs: list[list[T]] = []
    for item in items:
        if runs and continues(runs[-1][-1], item):
            runs[-1].append(item)
        else:
            runs.append([item])
    return runs


def _first_intervals(
    params: Params, cluster: Cluster, served: Sequence[Served], iterations: Sequence[Iteration]
) -> Iterable[Row]:
    """Rows of the first interval of every request that moves from one node to another."""
    second_s: dict[int, tuple[float, int]] = {}
    for each in iterations:
        for request in each.decoded:
            second_s.setdefault(request, (each.end_s, each.node))
    for request, (end_s, number) in second_s.items():
        start_s = served[request].first_token_s
        if params.shows(start_s, end_s):
            yield {
                "kind": "interval",
                "node": _title(cluster, number),
                "holds": FIRST,
                "start_s": start_s,
                "end_s": end_s,
                "seconds": end_s - start_s,
                "steps": 1,
                "sequences": 1,
                "requests": _named([request]),
            }


def _named(requests: Sequence[int]) -> str:
    names = [str(request) for request in requests[:_REQUEST_SHOWN]]
    return ", ".join(names) + (" …" if len(requests) > _REQUEST_SHOWN else "")


# --- the latency budget ---------------------------------------------------------------------------


def budget_rows(
    mode: str,
    cluster: Cluster | CoupledCluster,
    served: Sequence[Served],
    iterations: Sequence[Iteration],
    mean: Callable[[Sequence[float]], float],
) -> list[Row]:
    """Where the time goes with one of the `MODES`; columns as of `experiments.deployment_timeline.budget`.

    `mean` is of a part's seconds over the requests of a class; 0 where a class has none.
    """
    by_row = {
        FIRST_TOKEN: first_token_parts(served),
        RHYTHM: [
            tuple(part / max(each.output_tokens - 1, 1) for part in parts)
            for each, parts in zip(served, rhythm_parts(cluster, served, iterations), strict=True)
        ],
    }
    rows = []
    for prompts, (least, most) in CLASSES.items():
        chosen = [
            index
            for index, each in enumerate(served)
            if each.output_tokens > 1 and least <= each.input_tokens <= most
        ]
        for row, parts in by_row.items():
            columns = zip(*(parts[index] for index in chosen), strict=True)
            means_s = [mean(column) for column in columns] or [0.0] * len(PARTS[row])
            ends_s = list(accumulate(means_s))
            rows += [
                {
                    "mode": mode,
                    "prompts": prompts,
                    "row": row,
                    "part": part,
                    "seconds": mean_s,
                    "start_s": end_s - mean_s,
                    "end_s": end_s,
                    "total_s": ends_s[-1],
                    "requests": len(chosen),
                }
                for part, mean_s, end_s in zip(PARTS[row], means_s, ends_s, strict=True)
            ]
    return rows


def first_token_parts(served: Sequence[Served]) -> list[tuple[float, ...]]:
    """Seconds from arrival until each request is in a decode batch, by part."""
    rows: list[tuple[float, ...]] = []
    for each, free_s in zip(served, _free_s(served), strict=True):
        prefill_s = each.first_token_s - each.start_s
        fetch_s = each.start_s - free_s if each.fetched_tokens else 0.0
        own_s = min(each.prefill_s, prefill_s)
        streamed_s = _latest(each.streamed_s, each.first_token_s)
        loaded_s = streamed_s if math.isnan(each.loaded_s) else each.loaded_s
        rows.append(
            (
                each.start_s - each.arrival_s - fetch_s,
                fetch_s,
                own_s,
                prefill_s - own_s,
                streamed_s - each.first_token_s,
                loaded_s - streamed_s,
                each.join_s - loaded_s,
            )
        )
    return rows


def _latest(time_s: float, other_s: float) -> float:
    """The later of two times, of which the first may be missing."""
    return other_s if math.isnan(time_s) else max(time_s, other_s)


def _free_s(served: Sequence[Served]) -> list[float]:
    """When each request could have started if its prefix had been there: it had come, and its turn."""
    free_s = [each.arrival_s for each in served]
    turn_s: dict[int, float] = {}  # when each node is done with what it has started
    for index in sorted(range(len(served)), key=lambda index: served[index].start_s):
        each = served[index]
        free_s[index] = min(max(free_s[index], turn_s.get(each.prefill_node, -math.inf)), each.start_s)
        turn_s[each.prefill_node] = each.first_token_s
    return free_s


def rhythm_parts(
    cluster: Cluster | CoupledCluster, served: Sequence[Served], iterations: Sequence[Iteration]
) -> list[tuple[float, ...]]:
    """Seconds from joining a batch to the last token of each request, all tokens together, by part."""
    first = cluster.prefill_instances if isinstance(cluster, Cluster) else 0
    parts: list[tuple[float, ...]] = [(0.0,) * len(PARTS[RHYTHM])] * len(served)
    for number, of_node in groupby(iterations, key=lambda each: each.node):
        if number < first:
            continue
        steps = list(of_node)
        starts_s, ends_s = [each.start_s for each in steps], [each.end_s for each in steps]
        sums = [
            list(accumulate(part, initial=0.0)) for part in zip(*_step_parts(cluster, steps), strict=True)
        ]
        for index, each in enumerate(served):
            if each.decode_node + first == number and each.output_tokens > 1:
                joined, finished = bisect_left(starts_s, each.join_s), bisect_right(ends_s, each.finish_s)
                parts[index] = tuple(part[finished] - part[joined] for part in sums)
    return parts


def _step_parts(
    cluster: Cluster | CoupledCluster, steps: Sequence[Iteration]
) -> Iterator[tuple[float, float, float, float, float]]:
    """Seconds of each of a node's iterations, by part."""
    overlapping = not isinstance(cluster, CoupledCluster) or cluster.host_overlaps
    cost = decode_cost(cluster.node, cluster.model, cluster.calibration, overlapping=overlapping)
    for each in steps:
        sequences, seconds = len(each.decoded), each.end_s - each.start_s
        if not sequences:
            yield 0.0, 0.0, 0.0, 0.0, seconds
            continue
        weights_s = max(cost.weights_s, cost.arithmetic_s * sequences)
        cache_s = cost.context_token_s * each.context_tokens
        host_s = max(0.0, cost.overlapped_sequence_s * sequences - weights_s - cache_s)
        host_s += cost.serial_sequence_s * sequences
        step_s = cost.overhead_s + weights_s + cache_s + host_s
        yield cost.overhead_s, weights_s, cache_s, host_s, max(0.0, seconds - step_s)
