"""FAST'25, section 4.2: many requests want the same prefix from the one node that holds it.

The paper says that hot blocks congest their holder and that fetched copies relieve it, and prints no
number of either (Figure 11 counts the copies), so there is nothing to set this against.
"""

import dataclasses
from functools import partial

import numpy as np
import pandas as pd

from mooncake_companion import traces
from mooncake_companion.costs import load_calibration
from mooncake_companion.hardware import load_node
from mooncake_companion.live.hot_holder import Params, hot_requests, under_way_rows
from mooncake_companion.live.network import GBIT_BYTES
from mooncake_companion.simulator import Result, simulate
from mooncake_companion.simulator.clock import Clock, Order
from mooncake_companion.simulator.transfer import Transfers, link_capacities

__all__ = ["BANDWIDTHS_GBIT_PER_S", "FORGOTTEN", "KEPT", "Params", "fetches", "run", "under_way"]

BANDWIDTHS_GBIT_PER_S = (100, 200, 400, 800)
KEPT, FORGOTTEN = "each node keeps its copy", "copies are not kept"
"""What becomes of a fetched prefix, in `fetches`."""

_LOADS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2)


def run(params: Params) -> pd.DataFrame:
    """Fetches of the hot prefix as Algorithm 1 starts them, by the network's bandwidth.

    Returns
    -------
    DataFrame
        A row for each bandwidth. Columns: ``bandwidth_gbit_per_s``, ``alone_s`` (one fetch on an idle
        network, what Conductor expects), ``fetches``, ``fetch_s`` (their mean, NaN without any),
        ``copies`` (nodes that end up with the prefix), ``ttft_mean_s``, ``ttft_p90_s``.
    """
    rows = []
    for bandwidth in BANDWIDTHS_GBIT_PER_S:
        result = _served(params, bandwidth)
        fetched_s = (result.fetched_s - result.arrival_s)[result.fetched_tokens > 0]
        asking = slice(1, None)  # the first request only leaves the prefix
        rows.append(
            {
                "bandwidth_gbit_per_s": bandwidth,
                "alone_s": params.alone_s(bandwidth),
                "fetches": len(fetched_s),
                "fetch_s": float(fetched_s.mean()) if len(fetched_s) else np.nan,
                "copies": len(np.unique(result.prefill_node)),
                "ttft_mean_s": float(result.ttft_s[asking].mean()),
                "ttft_p90_s": float(np.quantile(result.ttft_s[asking], 0.9)),
            }
        )
    return _with_parameters(pd.DataFrame(rows), params)


def under_way(params: Params) -> pd.DataFrame:
    """Bytes of the hot prefix that are on their way between prefill nodes, over time.

    Returns
    -------
    DataFrame
        ``bandwidth_gbit_per_s``, ``time_s`` since the first request that asks, ``under_way_bytes``,
        ``received_bytes`` up to then.
    """
    rows = []
    for bandwidth in BANDWIDTHS_GBIT_PER_S:
        result = _served(params, bandwidth)
        fetching = result.fetched_tokens > 0
        fetched = (result.arrival_s, result.fetched_s, result.fetched_tokens)
        moves = zip(*(column[fetching].tolist() for column in fetched), strict=True)
        rows += under_way_rows(params, bandwidth, list(moves), float(result.arrival_s[-1]))
    return _with_parameters(pd.DataFrame(rows), params)


def fetches(params: Params) -> pd.DataFrame:
    """How long requests wait for the hot prefix, by how often they come and by what becomes of copies.

    Returns
    -------
    DataFrame
        ``copies`` (`KEPT` or `FORGOTTEN`), ``offered_load`` (bytes asked for over what the holder can
        send), ``requests_per_s``, ``fetches``, ``wait_s`` (mean over all requests; nothing where the
        node has a copy), ``alone_s``.

    Notes
    -----
    The network alone: each request needs the prefix on one of the other nodes, in turn, and all fetch
    from the one holder, whose link they share max–min fair. A request whose node is already fetching
    waits for that fetch if copies are kept, else it starts its own.
    """
    bandwidth = load_node(params.node).nic_bytes_per_s / GBIT_BYTES
    alone_s = params.alone_s(bandwidth)
    gaps_s = np.random.default_rng(params.seed).exponential(1.0, params.requests)
    rows = []
    for copies in (FORGOTTEN, KEPT):
        for load in _LOADS:
            waits_s, count = _fetch_all(params, bandwidth, np.cumsum(gaps_s * alone_s / load), copies == KEPT)
            rows.append(
                {
                    "copies": copies,
                    "offered_load": load,
                    "requests_per_s": load / alone_s,
                    "fetches": count,
                    "wait_s": float(np.mean(waits_s)),
                    "alone_s": alone_s,
                }
            )
    return _with_parameters(pd.DataFrame(rows), params)


def _fetch_all(
    params: Params, bandwidth_gbit_per_s: float, arrival_s: np.ndarray, keep: bool
) -> tuple[list[float], int]:
    """Wait of each request in seconds, and how many transfers there were."""
    clock = Clock()
    network = load_calibration().network_utilisation * bandwidth_gbit_per_s * GBIT_BYTES
    host = load_node(params.node).host_to_device_bytes_per_s
    transfers = Transfers(clock, link_capacities([1] * params.prefill_nodes, network, host))
    there: set[int] = set()
    waiting: dict[int, list[float]] = {}
    waits_s: list[float] = []
    started = 0

    def ask(number: int) -> None:
        nonlocal started
        target = 1 + number % (params.prefill_nodes - 1)
        if target in there:
            waits_s.append(0.0)
        elif keep and target in waiting:
            waiting[target].append(clock.now_s)
        else:
            key = target if keep else params.prefill_nodes + number
            waiting[key] = [clock.now_s]
            started += 1
            transfers.send(number, 0, target, params.prefix_bytes, partial(arrive, key))

    def arrive(key: int) -> None:
        waits_s.extend(clock.now_s - asked_s for asked_s in waiting.pop(key))
        if keep:
            there.add(key)

    for number, time_s in enumerate(arrival_s.tolist()):
        clock.at(time_s, Order.ARRIVE, number, partial(ask, number))
    clock.run()
    return waits_s, started


def _served(params: Params, bandwidth_gbit_per_s: float) -> Result:
    return simulate(_hot(params), params.cluster(bandwidth_gbit_per_s))


def _hot(params: Params) -> traces.Trace:
    gaps_s = np.random.default_rng(params.seed).exponential(1 / params.requests_per_s, params.requests)
    return traces.Trace.from_requests(
        (request[:4] for request in hot_requests(params, gaps_s.tolist())),
        name="hot-prefix",
        origin="standin",
        source=f"generated: {params.requests} requests with one prefix of {params.prefix_tokens} tokens",
    )


def _with_parameters(table: pd.DataFrame, params: Params) -> pd.DataFrame:
    table.attrs["provenance"] = {
        "trace_source": _hot(params).source,
        "parameters": dataclasses.asdict(params),
    }
    return table
