"""The reference engine: the prefill pool as a discrete-event model in plain Python.

It is the specification. It favours being read over being fast and imports only the standard
library, so that it also runs in a browser.

What happens to a request: it arrives; Conductor sees every prefill node's queue and cached
prefix and picks one (`scheduler`); a missing part of the prefix is fetched from the node that
holds most of it, while the request waits its turn; the node computes the rest, first come,
first served; then all its blocks are kept in the node's DRAM, and the others can find them.
What Conductor decided is what is done: a request does not profit from blocks that appear
between its decision and its start (FAST'25, section 3.2: a prefill node is told which blocks to
reuse).

Stated simplifications: a transfer has the line to itself; loading from DRAM and storing to it
hide behind computation; decode nodes are not modelled, so nothing here waits for them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from mooncake_companion.costs import Calibration, prefill_time, transfer_time
from mooncake_companion.hardware import GpuNode
from mooncake_companion.llm import TransformerModel
from mooncake_companion.parameters import require_positive
from mooncake_companion.simulator.cache_tiers import CachePool
from mooncake_companion.simulator.clock import Clock, Order
from mooncake_companion.simulator.scheduler import (
    Candidate,
    Estimates,
    PrefillView,
    Routing,
    candidates,
    choose,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A prefill pool and how Conductor routes to it.

    Parameters
    ----------
    node, model : GpuNode, TransformerModel
        What every node is, and what it serves.
    calibration : Calibration
    prefill_nodes : int
        Nodes that prefill; each works on one request at a time.
    cache_tokens_per_node : int
        DRAM kept for KV cache on each node, in tokens; whole blocks are used.
    routing : Routing
    kvcache_balancing_threshold : float
        Of Algorithm 1, at least 1; only global cache-aware routing looks at it.
    transfer_startup_s : float
        Seconds before the first byte of a transfer moves.
    """

    node: GpuNode
    model: TransformerModel
    calibration: Calibration
    prefill_nodes: int
    cache_tokens_per_node: int
    routing: Routing
    kvcache_balancing_threshold: float
    transfer_startup_s: float = 0.0

    def __post_init__(self) -> None:
        require_positive(self, "prefill_nodes", "kvcache_balancing_threshold")


class Request(NamedTuple):
    """One line of a trace.

    Parameters
    ----------
    arrival_s : float
        Seconds from the trace's start; requests come in order of arrival.
    input_tokens : int
    blocks : sequence of int
        Ids of the prompt's blocks; each stands for its whole prefix.
    """

    arrival_s: float
    input_tokens: int
    blocks: Sequence[int]


class Served(NamedTuple):
    """What became of one request: Conductor's choice and when the prefill ran."""

    choice: Candidate
    start_s: float
    end_s: float


class Run(NamedTuple):
    """The outcome of a replay: one `Served` a request, in the trace's order, and counters."""

    served: list[Served]
    evictions: int


def replay(
    requests: Sequence[Request], cluster: Cluster, *, block_tokens: int, draws: Sequence[float]
) -> Run:
    """Send a trace through the prefill pool.

    Parameters
    ----------
    requests : sequence of Request
        In order of arrival; those of one instant are decided in this order.
    cluster : Cluster
    block_tokens : int
        Tokens in a full block.
    draws : sequence of float
        One uniform number in [0, 1) a request, for random routing.
    """
    pool = _PrefillPool(cluster, block_tokens, len(requests))
    for index, (request, draw) in enumerate(zip(requests, draws, strict=True)):
        pool.clock.at(request.arrival_s, Order.ARRIVE, partial(pool.arrive, index, request, draw))
    pool.clock.run()
    return Run([served for served in pool.served if served is not None], pool.caches.evictions)


class _PrefillPool:
    """All state of one replay; two can live side by side."""

    def __init__(self, cluster: Cluster, block_tokens: int, requests: int) -> None:
        self.clock = Clock()
        self.caches = CachePool(cluster.prefill_nodes, cluster.cache_tokens_per_node // block_tokens)
        self.served: list[Served | None] = [None] * requests
        self._free_s = [0.0] * cluster.prefill_nodes
        self._cluster = cluster
        self._block_tokens = block_tokens
        self._threshold = (
            cluster.kvcache_balancing_threshold if cluster.routing is Routing.GLOBAL_CACHE_AWARE else None
        )
        self._estimates = Estimates(prefill_s=self._prefill_s, transfer_s=self._transfer_s)

    def arrive(self, index: int, request: Request, draw: float) -> None:
        """Let Conductor decide, then carry it out."""
        now_s = self.clock.now_s
        hits = self.caches.leading_hits(request.blocks)
        view = PrefillView(
            input_tokens=request.input_tokens,
            prefix_tokens=[min(run * self._block_tokens, request.input_tokens - 1) for run in hits],
            queue_s=[max(0.0, free_s - now_s) for free_s in self._free_s],
        )
        choices = candidates(view, self._estimates, balancing_threshold=self._threshold)
        choice = choose(self._cluster.routing, choices, draw)
        start_s = max(self._free_s[choice.node], now_s + choice.transfer_s)
        end_s = start_s + choice.prefill_s
        self._free_s[choice.node] = end_s
        self.served[index] = Served(choice, start_s, end_s)
        self._fetch(choice, request.blocks, hits)
        self._prefill(choice, request.blocks, hits[choice.node], end_s)

    def _fetch(self, choice: Candidate, blocks: Sequence[int], hits: Sequence[int]) -> None:
        if not choice.fetched_tokens:
            return
        reused = blocks[: hits[choice.source_node]]
        missing = reused[hits[choice.node] :]
        self.caches.pin(choice.source_node, missing)

        def arrived() -> None:
            self.caches.unpin(choice.source_node, missing)
            self.caches.store(choice.node, reused)

        self.clock.at(self.clock.now_s + choice.transfer_s, Order.FREE, arrived)

    def _prefill(self, choice: Candidate, blocks: Sequence[int], held: int, end_s: float) -> None:
        self.caches.pin(choice.node, blocks[:held])

        def done() -> None:
            self.caches.unpin(choice.node, blocks[:held])
            self.caches.store(choice.node, blocks)

        self.clock.at(end_s, Order.FREE, done)

    def _prefill_s(self, input_tokens: int, reused_tokens: int) -> float:
        seconds: float = prefill_time(
            self._cluster.node,
            self._cluster.model,
            input_tokens,
            reused_tokens,
            calibration=self._cluster.calibration,
        )
        return seconds

    def _transfer_s(self, tokens: int) -> float:
        seconds: float = transfer_time(
            self._cluster.node.nic_bytes_per_s,
            tokens * self._cluster.model.kv_bytes_per_token,
            calibration=self._cluster.calibration,
            startup_s=self._cluster.transfer_startup_s,
        )
        return seconds
