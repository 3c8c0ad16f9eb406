"""From a trace and a cluster to a `Result`: the one call that everything above uses."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from mooncake_companion.errors import InputError
from mooncake_companion.simulator.cluster import Cluster
from mooncake_companion.simulator.reference import Outcome, Record, Request, replay
from mooncake_companion.simulator.result import Result
from mooncake_companion.simulator.scheduler import NO_NODE, Routing
from mooncake_companion.traces import Trace

_NOTED = (
    "fetched_s",
    "start_s",
    "first_token_s",
    "join_s",
    "finish_s",
    "tbt_s",
    "prefill_s",
    "local_tokens",
    "fetched_tokens",
    "prefill_node",
    "source_node",
    "decode_node",
    "outcome",
)
Engine = Literal["fast", "reference"]


def simulate(
    trace: Trace,
    cluster: Cluster,
    *,
    rng: np.random.Generator | None = None,
    engine: Engine = "fast",
) -> Result:
    """Replay a trace through a cluster.

    Parameters
    ----------
    trace : Trace
    cluster : Cluster
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
    _check_fit(trace, cluster)
    if cluster.routing is Routing.RANDOM and rng is None:
        raise InputError("random routing needs rng, a numpy.random.Generator")
    draws = np.zeros(len(trace)) if rng is None else rng.random(len(trace))
    return _by_fast(trace, cluster, draws) if engine == "fast" else _by_reference(trace, cluster, draws)


def _check_fit(trace: Trace, cluster: Cluster) -> None:
    tokens = trace.input_tokens + trace.output_tokens
    longest = int(tokens.argmax())
    if tokens[longest] > cluster.vram_tokens:
        raise InputError(
            f"request {longest} of {trace.name} has {tokens[longest]} tokens, but a decode node "
            f"({cluster.node.title}, {cluster.model.title}) holds {cluster.vram_tokens}"
        )


def requests_of(trace: Trace) -> list[Request]:
    """The lines of a trace as the reference engine takes them."""
    columns = (trace.arrival_s.tolist(), trace.input_tokens.tolist(), trace.output_tokens.tolist())
    return [
        Request(arrival_s, input_tokens, output_tokens, trace.blocks_of(index).tolist())
        for index, (arrival_s, input_tokens, output_tokens) in enumerate(zip(*columns, strict=True))
    ]


def _by_reference(trace: Trace, cluster: Cluster, draws: np.ndarray) -> Result:
    run = replay(requests_of(trace), cluster, block_tokens=trace.block_tokens, draws=draws.tolist())
    rows = [_row(record) for record in run.records]
    return Result(
        arrival_s=trace.arrival_s,
        input_tokens=trace.input_tokens,
        output_tokens=trace.output_tokens,
        counters={"evictions": run.evictions, "decode_steps": run.decode_steps}
        | _bytes_by_link(run.sent_bytes, cluster),
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
        "join_s": record.join_s,
        "finish_s": record.finish_s,
        "tbt_s": record.tbt_s,
        "prefill_s": choice.prefill_s if prefilled else np.nan,
        "local_tokens": choice.local_tokens if prefilled else 0,
        "fetched_tokens": choice.fetched_tokens if prefilled else 0,
        "prefill_node": choice.node if prefilled else NO_NODE,
        "source_node": choice.source_node if prefilled else NO_NODE,
        "decode_node": record.decode_node if prefilled else NO_NODE,
        "outcome": int(record.outcome),
    }


def _bytes_by_link(sent_bytes: Sequence[int] | np.ndarray, cluster: Cluster) -> dict[str, int]:
    nodes = cluster.prefill_nodes + cluster.decode_nodes
    ingress, loads = sent_bytes[nodes : 2 * nodes], sent_bytes[2 * nodes : 3 * nodes]
    return {
        "fetched_bytes": int(sum(ingress[: cluster.prefill_nodes])),
        "streamed_bytes": int(sum(ingress[cluster.prefill_nodes :])),
        "loaded_bytes": int(sum(loads)),
    }


def _by_fast(trace: Trace, cluster: Cluster, draws: np.ndarray) -> Result:
    from mooncake_companion.simulator.fast import engine  # Numba takes a while to import

    block_ids = trace.block_ids
    if len(block_ids) and block_ids.max() >= 2 * len(block_ids):  # sparse ids: count them through
        block_ids = np.unique(block_ids, return_inverse=True)[1]
    columns = {
        "arrival_s": trace.arrival_s,
        "input_tokens": trace.input_tokens,
        "output_tokens": trace.output_tokens,
        "first_block": trace.block_offsets[:-1],
        "last_block": trace.block_offsets[1:],
        "draw": draws,
    }
    requests = engine.new_requests(columns)
    counters, sent_bytes = engine.replay(cluster, trace.block_tokens, requests, block_ids)
    return Result(
        arrival_s=trace.arrival_s,
        input_tokens=trace.input_tokens,
        output_tokens=trace.output_tokens,
        counters=counters | _bytes_by_link(sent_bytes, cluster),
        **_noted(requests),
    )


def _noted(requests: np.ndarray) -> dict[str, np.ndarray]:
    """Columns of a `Result` out of the engine's records; the choice of a rejected request is not kept."""
    noted = {name: requests[name].copy() for name in _NOTED}
    turned_away = requests["outcome"] == Outcome.REJECTED_AT_ARRIVAL
    for name in ("prefill_node", "source_node", "decode_node"):
        noted[name][turned_away] = NO_NODE
    for name in ("local_tokens", "fetched_tokens"):
        noted[name][turned_away] = 0
    noted["prefill_s"][turned_away] = np.nan
    return noted
