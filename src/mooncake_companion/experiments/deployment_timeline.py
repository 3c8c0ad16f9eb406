"""FAST'25, sections 1, 2.1 and 3.1: what the GPUs do over time, in one pool and in two."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from mooncake_companion import traces
from mooncake_companion.costs import decode_cost
from mooncake_companion.errors import InputError
from mooncake_companion.experiments import end_to_end
from mooncake_companion.hardware import load_nodes
from mooncake_companion.llm import load_models
from mooncake_companion.parameters import check, parameter
from mooncake_companion.simulator import Cluster, CoupledCluster
from mooncake_companion.simulator.timeline import Iteration, Timeline, timeline

MODES = {
    "Disaggregated": end_to_end.MOONCAKE,
    "Coupled": "vLLM",
    "Coupled, chunked prefill": "vLLM Chunked Prefill",
    "Coupled, prefix caching": "vLLM Prefix Caching",
}
"""Ways to deploy, each with the system of `end_to_end` that runs so."""
DISAGGREGATED, COUPLED, *_ = MODES
NO_STORE, HOST_BESIDE = "Disaggregated, no store", "Coupled, host beside the GPUs"
"""The `controls`."""

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
T = TypeVar("T")
_REQUEST_SHOWN = 8


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
    cache_tokens_per_node: int = parameter(
        3_000_000, unit="tokens", low=0, high=10**10, help="DRAM for KV cache on each prefill node"
    )
    arrival_speedup: float = parameter(1.0, low=0.01, high=100, help="replay the trace so many times as fast")
    node: str = parameter("a800", choices=tuple(load_nodes()), help="what every node is")
    model: str = parameter("llama3-70b", choices=tuple(load_models()), help="what it serves")

    def __post_init__(self) -> None:
        check(self)
        self._systems()  # refuses a split that leaves no node to decode
        if self.window_start_s >= self.replayed_s:
            raise InputError(
                f"parameter window_start_s: the replay ends at {self.replayed_s} s, got {self.window_start_s}"
            )

    def _systems(self) -> end_to_end.Params:
        names = ("trace", "nodes", "prefill_nodes", "chunk_tokens", "cache_tokens_per_node", "node", "model")
        return end_to_end.Params(**{name: getattr(self, name) for name in names})

    def cluster(self, mode: str) -> Cluster | CoupledCluster:
        """One of the `MODES`."""
        return self._systems().cluster(MODES[mode])


def replayed(params: Params) -> traces.Trace:
    """The start of one in so many conversations of a trace, all of their turns.

    Requests belong to one conversation if their second block is the same: the first one is, in many
    of the released requests, a preamble common to all.

    Raises
    ------
    InputError
        If nothing is left.
    """
    trace = traces.load(params.trace)
    arrival_s = trace.arrival_s / params.arrival_speedup
    conversations: dict[int, int] = {}
    kept = []
    for index in np.flatnonzero(arrival_s < params.replayed_s).tolist():
        blocks = trace.blocks_of(index)
        conversation = int(blocks[1]) if len(blocks) > 1 else -1 - index
        if conversations.setdefault(conversation, len(conversations)) % params.one_in == 0:
            kept.append(index)
    if not kept:
        raise InputError(f"parameter replayed_s: {trace.name} has no request before {params.replayed_s} s")
    return traces.Trace.from_requests(
        [
            (
                float(arrival_s[index]),
                int(trace.input_tokens[index]),
                int(trace.output_tokens[index]),
                trace.blocks_of(index).tolist(),
            )
            for index in kept
        ],
        name=trace.name,
        origin=trace.origin,
        source=f"{len(kept):,} requests of: {trace.source}",
        block_tokens=trace.block_tokens,
    )


def replays(params: Params) -> dict[str, Timeline]:
    """The same requests served by each of the `MODES`."""
    trace = replayed(params)
    return {mode: timeline(trace, params.cluster(mode)) for mode in MODES}


def run(params: Params) -> pd.DataFrame:
    """What the GPUs do in the window, and how long tokens take; see `window`."""
    return window(params, replays(params))


def run_modes(params: Params) -> pd.DataFrame:
    """Each mode over the whole replay, for those who vary a parameter; see `summary`."""
    return summary(params, replays(params))


def summary(params: Params, found: Mapping[str, Timeline]) -> pd.DataFrame:
    """Each mode over the whole replay.

    Columns: ``mode``, ``ttft_mean_s``, ``tbt_mean_s``, ``tbt_within_share`` (of the requests, within
    0.1 s), ``behind_prefill_share`` (of the time between tokens), ``hit_ratio``.
    """
    rows = [_summary(mode, params.cluster(mode), watched) for mode, watched in found.items()]
    return _with_provenance(pd.DataFrame(rows), params)


def controls(params: Params) -> pd.DataFrame:
    """What is left of the difference between one pool and two when something else is made equal.

    Returns
    -------
    DataFrame
        Columns as of `summary`; ``mode`` is `NO_STORE`, two pools that reuse nothing, or
        `HOST_BESIDE`, one pool whose host works while the GPUs compute, as it does in two.
    """
    bare = dataclasses.replace(params, cache_tokens_per_node=0).cluster(DISAGGREGATED)
    coupled = params.cluster(COUPLED)
    assert isinstance(coupled, CoupledCluster)
    beside = dataclasses.replace(coupled, host_overlaps=True)
    trace = replayed(params)
    rows = [
        _summary(mode, cluster, timeline(trace, cluster))
        for mode, cluster in ((NO_STORE, bare), (HOST_BESIDE, beside))
    ]
    return _with_provenance(pd.DataFrame(rows), params)


def window(params: Params, found: Mapping[str, Timeline]) -> pd.DataFrame:
    """What every node does during the window, and the intervals between tokens.

    Returns
    -------
    DataFrame
        Columns: ``mode``; ``kind``, "work" or "interval"; ``node`` (a title); ``holds``, what an
        iteration or an interval has in it; ``start_s`` and ``end_s``, cut to the window; ``seconds``,
        of one iteration or interval, not cut; ``steps``, iterations or intervals alike in a row;
        ``sequences``, that get a token; ``new_tokens`` and ``cached_tokens``, of the prompts
        computed, and ``requests``, which those are, counted from 0 in what is replayed. Steps of one
        batch are one row, with their mean. Intervals are those of the sequences that were in the
        batch before; the first of a request that comes from another node has a row of its own.

    Raises
    ------
    InputError
        If no node works in the window.
    """
    rows: list[dict[str, Any]] = []
    for mode, watched in found.items():
        cluster = params.cluster(mode)
        shown = [each for each in watched.iterations if _overlaps(params, each.start_s, each.end_s)]
        for number, iterations in groupby(shown, key=lambda each: each.node):
            title, steps = _title(cluster, number), list(iterations)
            told = {"mode": mode, "node": title}
            rows += [told | row for row in (*_work(watched, steps), *_intervals(steps))]
        if isinstance(cluster, Cluster):
            rows += [{"mode": mode, **row} for row in _first_intervals(params, cluster, watched)]
    last_s = params.window_start_s + params.window_s
    if not any(row["kind"] == "work" for row in rows):
        raise InputError(
            f"parameter window_start_s: no node works between {params.window_start_s} s and {last_s} s; take "
            "an earlier or a longer window"
        )
    table = pd.DataFrame(rows)
    for column in ("start_s", "end_s"):
        table[column] = table[column].clip(params.window_start_s, last_s)
    for column in ("steps", "sequences", "new_tokens", "cached_tokens"):
        table[column] = table[column].fillna(0).astype(int)
    table["requests"] = table["requests"].fillna("")
    return _with_provenance(table, params)


def budget(params: Params, found: Mapping[str, Timeline]) -> pd.DataFrame:
    """Where the time of a request goes: until decode begins, and for each token after that.

    Returns
    -------
    DataFrame
        A row for each mode, class of requests (``prompts``), ``row`` (`FIRST_TOKEN`, `RHYTHM`) and
        ``part``. ``seconds``: mean over the class's requests, for `RHYTHM` of their means over tokens;
        ``start_s``, ``end_s``: where it stands in its row; ``total_s``: of the row; ``requests``.
        Requests whose answer is a single token are left out.
    """
    rows = []
    for mode, watched in found.items():
        result = watched.result
        decodes = result.output_tokens > 1
        steps = np.maximum(result.output_tokens - 1, 1)
        by_row = {
            FIRST_TOKEN: _first_token_parts(watched),
            RHYTHM: _rhythm_parts(params.cluster(mode), watched).div(steps, axis=0),
        }
        for prompts, (least, most) in CLASSES.items():
            chosen = decodes & (result.input_tokens >= least) & (result.input_tokens <= most)
            for row, parts in by_row.items():
                means_s = parts[chosen].mean() if chosen.any() else parts.iloc[:0].sum()
                ends_s = means_s.cumsum()
                rows += [
                    {
                        "mode": mode,
                        "prompts": prompts,
                        "row": row,
                        "part": part,
                        "seconds": float(means_s[part]),
                        "start_s": float(ends_s[part] - means_s[part]),
                        "end_s": float(ends_s[part]),
                        "total_s": float(means_s.sum()),
                        "requests": int(chosen.sum()),
                    }
                    for part in PARTS[row]
                ]
    return _with_provenance(pd.DataFrame(rows), params)


def _summary(mode: str, cluster: Cluster | CoupledCluster, watched: Timeline) -> dict[str, Any]:
    result, parts = watched.result, _rhythm_parts(cluster, watched)
    return {
        "mode": mode,
        "ttft_mean_s": float(result.ttft_s.mean()),
        "tbt_mean_s": float(np.nanmean(result.tbt_s)),
        "tbt_within_share": float(np.mean(~(result.tbt_s > TBT_LIMIT_S))),
        "behind_prefill_share": float(parts["others' work"].sum() / parts.to_numpy().sum()),
        "hit_ratio": result.hit_ratio,
    }


def _overlaps(params: Params, start_s: float, end_s: float) -> bool:
    return end_s > params.window_start_s and start_s < params.window_start_s + params.window_s


def _title(cluster: Cluster | CoupledCluster, number: int) -> str:
    if isinstance(cluster, CoupledCluster):
        return f"Node {number + 1}"
    instances = cluster.prefill_instances
    return f"Prefill {number + 1}" if number < instances else f"Decode {number - instances + 1}"


def _work(watched: Timeline, iterations: Sequence[Iteration]) -> Iterable[dict[str, Any]]:
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
            "cached_tokens": int(watched.result.cached_tokens[prompts].sum()),
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


def _intervals(iterations: Sequence[Iteration]) -> Iterable[dict[str, Any]]:
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


def _first_intervals(params: Params, cluster: Cluster, watched: Timeline) -> Iterable[dict[str, Any]]:
    """Rows of the first interval of every request that moves from one node to another."""
    result = watched.result
    second_s: dict[int, tuple[float, int]] = {}
    for each in watched.iterations:
        for request in each.decoded:
            second_s.setdefault(request, (each.end_s, each.node))
    for request, (end_s, number) in second_s.items():
        start_s = float(result.first_token_s[request])
        if _overlaps(params, start_s, end_s):
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


def _first_token_parts(watched: Timeline) -> pd.DataFrame:
    """Seconds from arrival until the request is in a decode batch, a row a request."""
    result = watched.result
    wait_s, prefill_s = result.start_s - result.arrival_s, result.first_token_s - result.start_s
    fetch_s = np.where(result.fetched_tokens > 0, result.start_s - _free_s(watched), 0.0)
    own_s = np.minimum(result.prefill_s, prefill_s)
    streamed_s = np.fmax(result.streamed_s, result.first_token_s)
    loaded_s = np.where(np.isnan(result.loaded_s), streamed_s, result.loaded_s)
    columns = (
        wait_s - fetch_s,
        fetch_s,
        own_s,
        prefill_s - own_s,
        streamed_s - result.first_token_s,
        loaded_s - streamed_s,
        result.join_s - loaded_s,
    )
    return pd.DataFrame(dict(zip(PARTS[FIRST_TOKEN], columns, strict=True)))


def _free_s(watched: Timeline) -> np.ndarray:
    """When each request could have started if its prefix had been there: it had come, and its turn."""
    result = watched.result
    free_s = result.arrival_s.copy()
    for node in np.unique(result.prefill_node):
        given = np.flatnonzero(result.prefill_node == node)
        order = given[np.argsort(result.start_s[given], kind="stable")]
        free_s[order[1:]] = np.maximum(free_s[order[1:]], result.first_token_s[order[:-1]])
    return np.minimum(free_s, result.start_s)


def _rhythm_parts(cluster: Cluster | CoupledCluster, watched: Timeline) -> pd.DataFrame:
    """Seconds from joining a batch to the last token, all tokens together, a row a request."""
    result = watched.result
    overlapping = not isinstance(cluster, CoupledCluster) or cluster.host_overlaps
    cost = decode_cost(cluster.node, cluster.model, cluster.calibration, overlapping=overlapping)
    first = cluster.prefill_instances if isinstance(cluster, Cluster) else 0
    parts = np.zeros((len(result), len(PARTS[RHYTHM])))
    for number, iterations in groupby(watched.iterations, key=lambda each: each.node):
        if number < first:
            continue
        steps = list(iterations)
        starts_s, ends_s, sequences, context_tokens = np.array(
            [(each.start_s, each.end_s, len(each.decoded), each.context_tokens) for each in steps]
        ).T
        weights_s = np.maximum(cost.weights_s, cost.arithmetic_s * sequences)
        cache_s = cost.context_token_s * context_tokens
        host_s = np.maximum(0.0, cost.overlapped_sequence_s * sequences - weights_s - cache_s)
        host_s = host_s + cost.serial_sequence_s * sequences
        step = np.array([np.full(len(steps), cost.overhead_s), weights_s, cache_s, host_s]) * (sequences > 0)
        others_s = np.maximum(0.0, ends_s - starts_s - step.sum(axis=0))
        sums = np.cumsum(np.column_stack([np.zeros(5), np.vstack([step, others_s])]), axis=1).T
        here = np.flatnonzero((result.decode_node + first == number) & (result.output_tokens > 1))
        joined = np.searchsorted(starts_s, result.join_s[here])
        finished = np.searchsorted(ends_s, result.finish_s[here], side="right")
        parts[here] = sums[finished] - sums[joined]
    return pd.DataFrame(parts, columns=list(PARTS[RHYTHM]))


def _with_provenance(table: pd.DataFrame, params: Params) -> pd.DataFrame:
    trace = replayed(params)
    table.attrs["provenance"] = {
        "trace": trace.name,
        "trace_sha256": trace.sha256,
        "trace_source": trace.source,
        "parameters": dataclasses.asdict(params),
    }
    return table
