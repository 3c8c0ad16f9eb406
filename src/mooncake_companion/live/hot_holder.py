"""FAST'25, section 4.2, in a page: many requests want the same prefix from the one node that holds it."""

import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from mooncake_companion.costs import load_calibration, transfer_time
from mooncake_companion.hardware import GpuNode, load_node
from mooncake_companion.live.network import GBIT_BYTES, on_network
from mooncake_companion.live.outcome import Outcome, Progress, Row
from mooncake_companion.llm import load_model
from mooncake_companion.parameters import check, parameter
from mooncake_companion.settings import model_parameter, node_parameter
from mooncake_companion.simulator.cluster import Cluster
from mooncake_companion.simulator.reference import Request, replay

BLOCK_TOKENS = 512
HEAD_START_S = 1000.0
"""How long before all others the request comes that leaves the prefix on a node."""

_POINTS = 160
"""In time, of what is under way."""


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
    node: str = node_parameter()
    model: str = model_parameter()
    seed: int = parameter(0, low=0, high=2**32 - 1, help="of the arrivals")

    def __post_init__(self) -> None:
        check(self)

    @property
    def prefix_bytes(self) -> int:
        """KV cache of the hot prefix."""
        return self.prefix_tokens * load_model(self.model).kv_bytes_per_token

    def node_on(self, bandwidth_gbit_per_s: float) -> GpuNode:
        """The node on a network of that line rate, in Gbit/s."""
        return on_network(load_node(self.node), bandwidth_gbit_per_s)

    def alone_s(self, bandwidth_gbit_per_s: float) -> float:
        """Seconds that one fetch of the prefix takes on an idle network."""
        nic_bytes_per_s = bandwidth_gbit_per_s * GBIT_BYTES
        return float(transfer_time(nic_bytes_per_s, self.prefix_bytes, calibration=load_calibration()))

    def cluster(self, bandwidth_gbit_per_s: float) -> Cluster:
        """The nodes on a network of that line rate, in Gbit/s."""
        return Cluster(
            node=self.node_on(bandwidth_gbit_per_s),
            model=load_model(self.model),
            calibration=load_calibration(),
            prefill_nodes=self.prefill_nodes,
            decode_nodes=self.prefill_nodes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveParams(Params):
    """Those of the experiment, as much as a page can hold, and one network in place of several."""

    prefix_tokens: int = parameter(65536, unit="tokens", low=512, high=131_072, help="the hot prefix")
    new_tokens: int = parameter(
        1024, unit="tokens", low=1, high=131_072, help="of each request behind the hot prefix"
    )
    requests: int = parameter(400, unit="requests", low=10, high=1000, help="that ask for the hot prefix")
    bandwidth_gbit_per_s: float = parameter(
        400.0, unit="Gbit/s", low=0.1, high=1e5, help="line rate of a node's network"
    )
    seed: int = parameter(
        0, low=0, high=2**32 - 1, help="of the arrivals, drawn here and so not those of the book"
    )


def hot_requests(params: Params, gaps_s: Sequence[float]) -> list[Request]:
    """A request that leaves the prefix on a node, and much later all that ask for it; one token each.

    Parameters
    ----------
    params : Params
    gaps_s : sequence of float
        Seconds before each request that asks; those before the first are left out.
    """
    prefix = list(range(params.prefix_tokens // BLOCK_TOKENS))
    tokens = params.prefix_tokens + params.new_tokens
    own = -(-tokens // BLOCK_TOKENS) - len(prefix)
    return [
        Request(0.0, len(prefix) * BLOCK_TOKENS, 1, prefix),
        *(
            Request(
                HEAD_START_S + after_s - gaps_s[0],
                tokens,
                1,
                [*prefix, *range(first := len(prefix) + number * own, first + own)],
            )
            for number, after_s in enumerate(accumulate(gaps_s))
        ),
    ]


def under_way_rows(
    params: Params,
    bandwidth_gbit_per_s: float,
    fetches: Sequence[tuple[float, float, int]],
    last_arrival_s: float,
) -> list[Row]:
    """Bytes of the hot prefix under way and received; columns as of `experiments.hot_holder.under_way`.

    Parameters
    ----------
    params : Params
    bandwidth_gbit_per_s : float
    fetches : sequence of tuple
        Begin and end in seconds, and tokens, of each fetch.
    last_arrival_s : float
        Of a request, in seconds.
    """
    token_bytes = load_model(params.model).kv_bytes_per_token
    last_s = max([last_arrival_s, *(end_s for _, end_s, _ in fetches)])
    interval_s = (last_s - HEAD_START_S) / _POINTS
    near = round(HEAD_START_S / interval_s)
    steps = range(near - 2, near + _POINTS + 3)
    begin_s, end_s = HEAD_START_S - interval_s, last_s + interval_s
    times_s = [step * interval_s for step in steps if begin_s <= step * interval_s <= end_s]
    sent = _until([(begun_s, tokens) for begun_s, _, tokens in fetches], times_s)
    received = _until([(ended_s, tokens) for _, ended_s, tokens in fetches], times_s)
    return [
        {
            "bandwidth_gbit_per_s": bandwidth_gbit_per_s,
            "time_s": time_s - HEAD_START_S,
            "under_way_bytes": token_bytes * (sent_tokens - received_tokens),
            "received_bytes": token_bytes * received_tokens,
        }
        for time_s, sent_tokens, received_tokens in zip(times_s, sent, received, strict=True)
    ]


def _until(moves: Sequence[tuple[float, int]], times_s: Sequence[float]) -> list[int]:
    """Tokens of the moves up to and at each time."""
    ordered = sorted(moves)
    moved_s = [time_s for time_s, _ in ordered]
    totals = [0, *accumulate(tokens for _, tokens in ordered)]
    return [totals[bisect_right(moved_s, time_s)] for time_s in times_s]


def run(params: LiveParams, _sliced: None, progress: Progress) -> Outcome:
    """Bytes under way on one network, as Algorithm 1 starts the fetches; arrivals as Python draws them."""
    progress(0, 1)
    rng = random.Random(params.seed)
    gaps_s = [rng.expovariate(params.requests_per_s) for _ in range(params.requests)]
    requests = hot_requests(params, gaps_s)
    cluster = params.cluster(params.bandwidth_gbit_per_s)
    records = replay(requests, cluster, block_tokens=BLOCK_TOKENS, draws=[0.0] * len(requests)).records
    fetches = [
        (request.arrival_s, record.fetched_s, record.choice.fetched_tokens)
        for request, record in zip(requests, records, strict=True)
        if record.choice is not None and record.choice.fetched_tokens
    ]
    rows = under_way_rows(params, params.bandwidth_gbit_per_s, fetches, requests[-1].arrival_s)
    most = max(row["under_way_bytes"] for row in rows) / 1e9
    return Outcome(
        rows=rows,
        description=(
            "Area: bytes of a hot prefix on their way between nodes over time, computed in this browser. "
            f"With {params.bandwidth_gbit_per_s:g} Gbit/s at most {most:,.1f} GB, in {len(fetches):,} "
            f"fetches for {params.requests:,} requests."
        ),
        fixed={"hot_bandwidth": params.bandwidth_gbit_per_s},
        replayed=params.requests,
    )
