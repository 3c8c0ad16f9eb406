"""Speed of the event model: against the reference engine, by number of requests, by number of nodes."""

import numpy as np

from mooncake_companion import traces
from mooncake_companion.simulator import Batching, Cluster, CoupledCluster, simulate
from mooncake_companion.traces import Trace

from .records import Measured, Record, measured, record
from .tiling import conversation_like, period_s, tiled

REFERENCE_REQUESTS = 1_500
COUPLED = {
    Batching.PLAIN: "conversation-coupled",
    Batching.PREFIX_CACHING: "conversation-coupled-prefix",
    Batching.CHUNKED_PREFILL: "conversation-coupled-chunked",
}
NODES_OF_ONE_RATE = 16
"""Nodes that the conversation trace's own rate is taken to load: 8 prefill, 8 decode."""


def cluster_of(nodes: int) -> Cluster:
    """So many nodes, half of them for prefill, under Algorithm 1."""
    half = nodes // 2
    return Cluster.from_presets("a800", "llama3-70b", prefill_nodes=half, decode_nodes=nodes - half)


def conversation_mooncake(
    *, repeats: int = 7, trace: Trace | None = None, reference_requests: int = REFERENCE_REQUESTS
) -> list[Record]:
    """Replay the conversation trace, TBT of every request included.

    Returns
    -------
    list of dict
        One record; ``ratio`` is how many times as fast it is as the reference engine, both on the
        same first ``ratio_requests`` requests.
    """
    trace = trace or traces.load("conversation")
    cluster = cluster_of(NODES_OF_ONE_RATE)
    return _beside_reference("conversation-mooncake", trace, cluster, repeats, reference_requests)


def conversation_coupled(
    batching: Batching,
    *,
    repeats: int = 7,
    trace: Trace | None = None,
    reference_requests: int = REFERENCE_REQUESTS,
) -> list[Record]:
    """Replay the conversation trace on as many coupled nodes; the record is as for the two pools."""
    trace = trace or traces.load("conversation")
    cluster = CoupledCluster.from_presets("a800", "llama3-70b", nodes=NODES_OF_ONE_RATE, batching=batching)
    return _beside_reference(COUPLED[batching], trace, cluster, repeats, reference_requests)


def _beside_reference(
    name: str, trace: Trace, cluster: Cluster | CoupledCluster, repeats: int, reference_requests: int
) -> list[Record]:
    best = measured(lambda: simulate(trace, cluster), repeats=repeats)
    part = trace.head(reference_requests)
    fast, reference = (_timed_engine(part, cluster, engine, repeats) for engine in ("fast", "reference"))
    return [
        record(
            name,
            len(trace),
            best,
            ratio=reference.seconds / fast.seconds,
            ratio_to="the reference engine",
            ratio_requests=len(part),
            trace=trace.source,
        )
    ]


def _timed_engine(trace: Trace, cluster: Cluster | CoupledCluster, engine: str, repeats: int) -> Measured:
    return measured(lambda: simulate(trace, cluster, engine=engine), repeats=min(repeats, 3))  # type: ignore[arg-type]


def scaling_requests(
    *, repeats: int = 3, most_requests: int = 1_000_000, base_requests: int = 10_000
) -> list[Record]:
    """Replay more and more requests on the same nodes at the same rate.

    Parameters
    ----------
    repeats : int
    most_requests : int
        10 million take about 10 GB.
    base_requests : int
        The smallest size; the next ones are ten times, a hundred times as large, and so on.

    Returns
    -------
    list of dict
        A record a size. All have the same ``time_exponent``: the slope of the logarithm of the
        processor's seconds over that of the requests.
    """
    base = conversation_like(base_requests)
    cluster = cluster_of(NODES_OF_ONE_RATE)
    records = []
    tiles = 1
    while not records or tiles * base_requests <= most_requests:
        trace = tiled(base, tiles=tiles, duration_s=tiles * period_s(base))
        best = measured(lambda trace=trace: simulate(trace, cluster), repeats=repeats, warm_up=tiles == 1)
        records.append(record("scaling-requests", len(trace), best, nodes=NODES_OF_ONE_RATE))
        tiles *= 10
    return _with_exponent(records, "requests")


def scaling_nodes(
    *, repeats: int = 3, nodes: tuple[int, ...] = (16, 64, 256, 1000), base_requests: int = 3_000
) -> list[Record]:
    """Replay as many requests a node, at the same rate a node, on more and more nodes.

    Returns
    -------
    list of dict
        A record for each number of nodes, with ``request_s``, the processor's seconds for a request.
    """
    base = conversation_like(base_requests)
    records = []
    for number, count in enumerate(nodes):
        trace = tiled(base, tiles=max(count // NODES_OF_ONE_RATE, 1), duration_s=period_s(base))
        cluster = cluster_of(count)
        best = measured(
            lambda trace=trace, cluster=cluster: simulate(trace, cluster),
            repeats=repeats,
            warm_up=number == 0,
        )
        request_s = best.cpu_s / len(trace)
        records.append(record("scaling-nodes", len(trace), best, nodes=count, request_s=request_s))
    return records


def _with_exponent(records: list[Record], size: str) -> list[Record]:
    if len(records) < 2:
        return records
    sizes, seconds = ([entry[key] for entry in records] for key in (size, "cpu_s"))
    exponent = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
    return [entry | {"time_exponent": exponent} for entry in records]
