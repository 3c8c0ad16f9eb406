"""FAST'25, section 4.2: many requests want the same prefix from the one node that holds it.

The paper says that hot blocks congest their holder and that fetched copies relieve it, and prints no
number of either (Figure 11 counts the copies), so there is nothing to set this against.
"""

import dataclasses
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from mooncake_companion import traces
from mooncake_companion.costs import load_calibration, transfer_time
from mooncake_companion.hardware import GpuNode, load_node, load_nodes
from mooncake_companion.llm import load_model, load_models
from mooncake_companion.parameters import check, parameter
from mooncake_companion.simulator import Cluster, Result, simulate, traffic_series
from mooncake_companion.simulator.clock import Clock, Order
from mooncake_companion.simulator.transfer import Transfers, link_capacities

BANDWIDTHS_GBIT_PER_S = (100, 200, 400, 800)
KEPT, FORGOTTEN = "each node keeps its copy", "copies are not kept"
"""What becomes of a fetched prefix, in `fetches`."""

_LOADS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2)
_HEAD_START_S = 1000.0
_GBIT_BYTES = 1e9 / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """One hot prefix, and the nodes that want it; and what else the chapter on transfers lets change.

    Nothing is stated but Algorithm 1. Assumed: Poisson arrivals, and a long document as prefix. The
    network's startup belongs to `transfer_latency`, the decoded tokens to `latency_breakdown`.
    """

    prefix_tokens: int = parameter(65536, unit="tokens", low=512, high=10**6, help="the hot prefix")
    new_tokens: int = parameter(
        1024, unit="tokens", low=1, high=10**6, help="of each request behind the hot prefix"
    )
    requests: int = parameter(400, unit="requests", low=10, high=5000, help="that ask for the hot prefix")
    requests_per_s: float = parameter(
        10.0, unit="requests/s", low=0.01, high=1000, help="that ask for the hot prefix"
    )
    prefill_nodes: int = parameter(8, unit="nodes", low=2, high=64, help="nodes that prefill")
    startup_s: float = parameter(
        0.0, unit="s", low=0, high=10, help="before a transfer's first byte moves, in Figure 12"
    )
    decoded_tokens: int = parameter(
        128, unit="tokens", low=1, high=10**5, help="answer of each request in Figure 14"
    )
    node: str = parameter("a800", choices=tuple(load_nodes()), help="what every node is")
    model: str = parameter("llama3-70b", choices=tuple(load_models()), help="what it serves")
    seed: int = parameter(0, low=0, high=2**32 - 1, help="of the arrivals")

    def __post_init__(self) -> None:
        check(self)

    @property
    def prefix_bytes(self) -> int:
        """KV cache of the hot prefix."""
        return self.prefix_tokens * load_model(self.model).kv_bytes_per_token

    def node_on(self, bandwidth_gbit_per_s: float) -> GpuNode:
        """The node on a network of that line rate, in Gbit/s."""
        return dataclasses.replace(load_node(self.node), nic_bytes_per_s=bandwidth_gbit_per_s * _GBIT_BYTES)

    def alone_s(self, bandwidth_gbit_per_s: float) -> float:
        """Seconds that one fetch of the prefix takes on an idle network."""
        nic_bytes_per_s = bandwidth_gbit_per_s * _GBIT_BYTES
        return float(transfer_time(nic_bytes_per_s, self.prefix_bytes, calibration=load_calibration()))


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


def under_way(params: Params, *, rows: int = 160) -> pd.DataFrame:
    """Bytes of the hot prefix that are on their way between prefill nodes, over time.

    Parameters
    ----------
    params : Params
    rows : int
        Points in time for each bandwidth.

    Returns
    -------
    DataFrame
        ``bandwidth_gbit_per_s``, ``time_s`` since the first request that asks, ``under_way_bytes``,
        ``received_bytes`` up to then.
    """
    tables = []
    for bandwidth in BANDWIDTHS_GBIT_PER_S:
        result = _served(params, bandwidth)
        last_s = float(np.nanmax(np.concatenate([result.fetched_s, result.arrival_s])))
        interval_s = (last_s - _HEAD_START_S) / rows
        series = traffic_series(result, _cluster(params, bandwidth), interval_s=interval_s)
        series = series[series["time_s"].between(_HEAD_START_S - interval_s, last_s + interval_s)]
        tables.append(
            pd.DataFrame(
                {
                    "bandwidth_gbit_per_s": bandwidth,
                    "time_s": series["time_s"] - _HEAD_START_S,
                    "under_way_bytes": series["fetch_sent_bytes"] - series["fetch_received_bytes"],
                    "received_bytes": series["fetch_received_bytes"],
                }
            )
        )
    return _with_parameters(pd.concat(tables, ignore_index=True), params)


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
    bandwidth = load_node(params.node).nic_bytes_per_s / _GBIT_BYTES
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
    network = load_calibration().network_utilisation * bandwidth_gbit_per_s * _GBIT_BYTES
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


def _cluster(params: Params, bandwidth_gbit_per_s: float) -> Cluster:
    return Cluster(
        node=params.node_on(bandwidth_gbit_per_s),
        model=load_model(params.model),
        calibration=load_calibration(),
        prefill_nodes=params.prefill_nodes,
        decode_nodes=params.prefill_nodes,
    )


def _served(params: Params, bandwidth_gbit_per_s: float) -> Result:
    return simulate(_hot(params), _cluster(params, bandwidth_gbit_per_s))


def _hot(params: Params) -> traces.Trace:
    """A request that leaves the prefix on a node, and much later all that ask for it; one token each."""
    size = traces.BLOCK_TOKENS
    prefix_blocks = params.prefix_tokens // size
    own_blocks = -(-(params.prefix_tokens + params.new_tokens) // size) - prefix_blocks
    gaps_s = np.random.default_rng(params.seed).exponential(1 / params.requests_per_s, params.requests)
    own = prefix_blocks + np.arange(params.requests * own_blocks).reshape(params.requests, own_blocks)
    prefix = np.tile(np.arange(prefix_blocks), (params.requests, 1))
    tokens = params.prefix_tokens + params.new_tokens
    return traces.make_trace(
        name="hot-prefix",
        origin="standin",
        source=f"generated: {params.requests} requests with one prefix of {params.prefix_tokens} tokens",
        arrival_s=np.concatenate([[0.0], _HEAD_START_S + np.cumsum(gaps_s) - gaps_s[0]]),
        input_tokens=np.array([prefix_blocks * size, *[tokens] * params.requests]),
        output_tokens=np.ones(1 + params.requests, np.int64),
        block_ids=np.concatenate([np.arange(prefix_blocks), np.hstack([prefix, own]).ravel()]),
        block_offsets=np.concatenate(
            [[0], prefix_blocks + (prefix_blocks + own_blocks) * np.arange(params.requests + 1)]
        ),
    )


def _with_parameters(table: pd.DataFrame, params: Params) -> pd.DataFrame:
    table.attrs["provenance"] = {
        "trace_source": _hot(params).source,
        "parameters": dataclasses.asdict(params),
    }
    return table
