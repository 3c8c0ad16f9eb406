"""From a trace and a cluster to a `Result`: the one call that everything above uses."""

from collections.abc import Collection, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from mooncake_companion.errors import InputError
from mooncake_companion.simulator.cluster import Cluster, Deployment
from mooncake_companion.simulator.coupled import Batching, CoupledCluster, replay_coupled
from mooncake_companion.simulator.reference import Outcome, Record, Request, replay
from mooncake_companion.simulator.result import Result
from mooncake_companion.simulator.scheduler import NO_NODE, Routing
from mooncake_companion.traces import Trace
from mooncake_companion.traces.answers import Answers, answer_blocks

_NOTED = (
    "fetched_s",
    "start_s",
    "first_token_s",
    "streamed_s",
    "loaded_s",
    "join_s",
    "finish_s",
    "tbt_s",
    "prefill_s",
    "local_tokens",
    "vram_tokens",
    "ssd_tokens",
    "fetched_tokens",
    "migrated_blocks",
    "prefill_node",
    "source_node",
    "decode_node",
    "outcome",
)
Engine = Literal["fast", "reference"]


def simulate(
    trace: Trace,
    cluster: Cluster | CoupledCluster,
    *,
    rng: np.random.Generator | None = None,
    engine: Engine = "fast",
) -> Result:
    """Replay a trace through a cluster.

    Parameters
    ----------
    trace : Trace
    cluster : Cluster or CoupledCluster
        Two pools, or nodes that prefill and decode.
    rng : numpy.random.Generator, optional
        Needed by random routing alone: one number a request is drawn beforehand.
    engine : {"fast", "reference"}
        Compiled, or the plain specification; both give the same result.

    Raises
    ------
    InputError
        If random routing is asked for without a generator, or a request is too long for the
        memory of a decode node.
    """
    if engine not in ("fast", "reference"):
        raise InputError(f"engine must be 'fast' or 'reference', got {engine!r}")
    _check_fit(trace, cluster)
    if isinstance(cluster, CoupledCluster):
        return _coupled_by_fast(trace, cluster) if engine == "fast" else _coupled_by_reference(trace, cluster)
    draws = _draws(trace, cluster, rng)
    return _by_fast(trace, cluster, draws) if engine == "fast" else _by_reference(trace, cluster, draws)


class Decisions(NamedTuple):
    """What Conductor weighed: tables with a row for each request and candidate.

    Parameters
    ----------
    prefill : DataFrame
        ``request``, ``chosen``, and the fields of `scheduler.Candidate` with their sum ``ttft_s``.
    decode : DataFrame
        ``request``, ``chosen``, and the fields of `scheduler.DecodeCandidate`.
    """

    prefill: pd.DataFrame
    decode: pd.DataFrame


def decisions(
    trace: Trace,
    cluster: Cluster,
    requests: Collection[int],
    *,
    rng: np.random.Generator | None = None,
) -> Decisions:
    """Every candidate, with every term, of some requests' decisions, after all that came before them.

    Parameters
    ----------
    trace : Trace
    cluster : Cluster
    requests : collection of int
        Which requests, counted from 0 in the order of the trace.
    rng : numpy.random.Generator, optional
        As for `simulate`.

    Raises
    ------
    InputError
        As `simulate`; or if the trace has no such request.
    """
    for request in requests:
        if not 0 <= request < len(trace):
            raise InputError(f"{trace.name} has no request {request}; expected 0 to {len(trace) - 1}")
    head = trace.head(max(requests, default=0) + 1)
    _check_fit(head, cluster)
    draws = _draws(head, cluster, rng).tolist()
    lines = requests_of(head, _answers(head, cluster))
    run = replay(lines, cluster, block_tokens=trace.block_tokens, draws=draws, recorded=set(requests))
    prefill, decode = [], []
    for request in sorted(set(requests)):
        record = run.records[request]
        for choice in record.choices:
            row = {"request": request, "chosen": choice == record.choice, **choice._asdict()}
            prefill.append(row | {"ttft_s": choice.ttft_s})
        for other in record.decode_choices:
            chosen = other.node == record.decode_node
            decode.append({"request": request, "chosen": chosen, **other._asdict()})
    return Decisions(pd.DataFrame(prefill), pd.DataFrame(decode))


def replica_counts(
    trace: Trace,
    cluster: Cluster,
    block_ids: np.ndarray,
    times_s: np.ndarray,
    *,
    rng: np.random.Generator | None = None,
) -> np.ndarray:
    """How many nodes hold each of some blocks, at some times.

    Parameters
    ----------
    trace : Trace
    cluster : Cluster
    block_ids : array of int64, shape (blocks,)
        Among those of the trace.
    times_s : array of float64, shape (times,)
        In ascending order; what happens at an instant is done when it is looked at.
    rng : numpy.random.Generator, optional
        As for `simulate`.

    Returns
    -------
    array of int64, shape (times, blocks)

    Raises
    ------
    InputError
        As `simulate`.
    """
    from mooncake_companion.simulator.fast import caches

    _check_fit(trace, cluster)
    known, places = np.unique(trace.block_ids, return_index=True)
    asked_at = places[np.searchsorted(known, block_ids)]
    counts = np.zeros((len(times_s), len(block_ids)), np.int64)
    rows = iter(counts)

    def probe(kept: caches.Caches, ids: np.ndarray) -> None:
        caches.count_holders(kept, ids[asked_at], next(rows))

    _fast(trace, cluster, _draws(trace, cluster, rng), probe_s=times_s.tolist(), probe=probe)
    return counts


def _draws(trace: Trace, cluster: Cluster, rng: np.random.Generator | None) -> np.ndarray:
    if cluster.routing is Routing.RANDOM and rng is None:
        raise InputError("random routing needs rng, a numpy.random.Generator")
    return np.zeros(len(trace)) if rng is None else rng.random(len(trace))


def _check_fit(trace: Trace, cluster: Deployment) -> None:
    tokens, room = trace.input_tokens + trace.output_tokens, cluster.vram_tokens
    if isinstance(cluster, CoupledCluster) and cluster.batching is Batching.PREFIX_CACHING:
        room -= room % trace.block_tokens  # only whole blocks are used
    longest = int(tokens.argmax())
    if tokens[longest] > room:
        raise InputError(
            f"request {longest} of {trace.name} has {tokens[longest]} tokens, but a node's memory "
            f"({cluster.node.title}, {cluster.model.title}) holds {room}"
        )


def _answers(trace: Trace, cluster: Cluster) -> Answers | None:
    return answer_blocks(trace) if cluster.return_answers else None


def requests_of(trace: Trace, answers: Answers | None = None) -> list[Request]:
    """The lines of a trace as the reference engine takes them, with the blocks of answers that return."""
    columns = (trace.arrival_s.tolist(), trace.input_tokens.tolist(), trace.output_tokens.tolist())
    return [
        Request(
            arrival_s,
            input_tokens,
            output_tokens,
            trace.blocks_of(index).tolist(),
            () if answers is None else answers.of(index).tolist(),
        )
        for index, (arrival_s, input_tokens, output_tokens) in enumerate(zip(*columns, strict=True))
    ]


def _by_reference(trace: Trace, cluster: Cluster, draws: np.ndarray) -> Result:
    requests = requests_of(trace, _answers(trace, cluster))
    run = replay(requests, cluster, block_tokens=trace.block_tokens, draws=draws.tolist())
    return _result(trace, run.records, run.counters | _bytes_by_link(run.sent_bytes, cluster))


def _coupled_by_reference(trace: Trace, cluster: CoupledCluster) -> Result:
    run = replay_coupled(requests_of(trace), cluster, block_tokens=trace.block_tokens)
    return _result(trace, run.records, run.counters)


def _result(trace: Trace, records: Sequence[Record], counters: dict[str, int]) -> Result:
    rows = [_row(record) for record in records]
    return Result(
        arrival_s=trace.arrival_s,
        input_tokens=trace.input_tokens,
        output_tokens=trace.output_tokens,
        counters=counters,
        **{name: np.array([row[name] for row in rows]) for name in rows[0]},
    )


def _row(record: Record) -> dict[str, float | int]:
    choice = record.choice
    assert choice is not None
    prefilled = not np.isnan(record.start_s)
    return {
        "fetched_s": record.fetched_s,
        "start_s": record.start_s,
        "first_token_s": record.first_token_s,
        "streamed_s": record.streamed_s,
        "loaded_s": record.loaded_s,
        "join_s": record.join_s,
        "finish_s": record.finish_s,
        "tbt_s": record.tbt_s,
        "prefill_s": choice.prefill_s if prefilled else np.nan,
        "local_tokens": choice.local_tokens if prefilled else 0,
        "vram_tokens": choice.vram_tokens if prefilled else 0,
        "ssd_tokens": choice.ssd_tokens if prefilled else 0,
        "migrated_blocks": record.migrated_blocks,
        "fetched_tokens": choice.fetched_tokens if prefilled else 0,
        "prefill_node": choice.node if prefilled else NO_NODE,
        "source_node": choice.source_node if prefilled else NO_NODE,
        "decode_node": record.decode_node if prefilled else NO_NODE,
        "outcome": int(record.outcome),
    }


def _bytes_by_link(sent_bytes: Sequence[int] | np.ndarray, cluster: Cluster) -> dict[str, int]:
    instances = cluster.prefill_instances
    nodes = instances + cluster.decode_nodes
    ingress, loads = sent_bytes[nodes : 2 * nodes], sent_bytes[2 * nodes : 3 * nodes]
    returned = int(sum(sent_bytes[instances:nodes]))  # all that leaves decode nodes
    return {
        "fetched_bytes": int(sum(ingress[:instances])) - returned,
        "streamed_bytes": int(sum(ingress[instances:])),
        "loaded_bytes": int(sum(loads)),
        "returned_bytes": returned,
    }


def _by_fast(trace: Trace, cluster: Cluster, draws: np.ndarray) -> Result:
    return _result_of(trace, *_fast(trace, cluster, draws))


def _fast(
    trace: Trace, cluster: Cluster, draws: np.ndarray, **probing: Any
) -> tuple[np.ndarray, dict[str, int]]:
    """The engine's records and counters; it may be probed on the way."""
    from mooncake_companion.simulator.fast import engine  # Numba takes a while to import

    columns, ids = _columns(trace) | {"draw": draws}, trace.block_ids
    answers = _answers(trace, cluster)
    if answers is not None:  # behind all prompts
        first = len(ids) + answers.block_offsets[:-1]
        columns["first_answer"] = np.where(np.diff(answers.block_offsets) > 0, first, -1)
        ids = np.concatenate((ids, answers.block_ids))
    requests = engine.new_requests(columns)
    counters, sent_bytes = engine.replay(cluster, trace.block_tokens, requests, _dense(ids), **probing)
    return requests, counters | _bytes_by_link(sent_bytes, cluster)


def _coupled_by_fast(trace: Trace, cluster: CoupledCluster) -> Result:
    from mooncake_companion.simulator.fast import coupled, engine

    requests = engine.new_requests(_columns(trace))
    counters = coupled.replay(cluster, trace.block_tokens, requests, _dense(trace.block_ids))
    return _result_of(trace, requests, counters)


def _columns(trace: Trace) -> dict[str, np.ndarray]:
    return {
        "arrival_s": trace.arrival_s,
        "input_tokens": trace.input_tokens,
        "output_tokens": trace.output_tokens,
        "first_block": trace.block_offsets[:-1],
        "last_block": trace.block_offsets[1:],
    }


def _dense(ids: np.ndarray) -> np.ndarray:
    """Block ids counted through, where they are sparse: the engine keeps arrays over all ids."""
    if len(ids) and ids.max() >= 2 * len(ids):
        return np.unique(ids, return_inverse=True)[1]
    return ids


def _result_of(trace: Trace, requests: np.ndarray, counters: dict[str, int]) -> Result:
    return Result(
        arrival_s=trace.arrival_s,
        input_tokens=trace.input_tokens,
        output_tokens=trace.output_tokens,
        counters=counters,
        **_noted(requests),
    )


def _noted(requests: np.ndarray) -> dict[str, np.ndarray]:
    """Columns of a `Result` out of the engine's records; the choice of a rejected request is not kept.

    The engine counts tokens in 32 bits; times the bytes of a token they would overflow.
    """
    noted = {
        name: requests[name].astype(np.int64 if requests[name].dtype.kind == "i" else float)
        for name in _NOTED
    }
    turned_away = requests["outcome"] == Outcome.REJECTED_AT_ARRIVAL
    for name in ("prefill_node", "source_node", "decode_node"):
        noted[name][turned_away] = NO_NODE
    for name in ("local_tokens", "vram_tokens", "ssd_tokens", "fetched_tokens"):
        noted[name][turned_away] = 0
    noted["prefill_s"][turned_away] = np.nan
    return noted
