"""What every node does and when: the reference engines, watched. Standard library only.

Nothing of what they do is changed.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from mooncake_companion.errors import InputError
from mooncake_companion.simulator import coupled, reference
from mooncake_companion.simulator.clock import Order
from mooncake_companion.simulator.cluster import Cluster
from mooncake_companion.simulator.coupled import Batching, CoupledCluster
from mooncake_companion.simulator.reference import Record, Request
from mooncake_companion.simulator.scheduler import Routing


class Chunk(NamedTuple):
    """Prompt tokens `first` to `last` of a request, computed in one iteration."""

    request: int
    first: int
    last: int


class Iteration(NamedTuple):
    """What a node's GPUs did from one instant to another, without a break.

    Parameters
    ----------
    node : int
        Of a pair of pools, the prefill nodes come first.
    start_s, end_s : float
        Seconds from the trace's start.
    chunks : tuple of Chunk
        Prompts that were computed, or parts of them.
    decoded : tuple of int
        Requests that were given a token at the end.
    context_tokens : int
        Tokens in the KV cache of those together, at the start.
    """

    node: int
    start_s: float
    end_s: float
    chunks: tuple[Chunk, ...]
    decoded: tuple[int, ...]
    context_tokens: int


class Watched(NamedTuple):
    """A replay: what was noted of the requests, all iterations by node and time, and counters."""

    records: list[Record]
    iterations: list[Iteration]
    counters: dict[str, int]


def watch(requests: Sequence[Request], cluster: Cluster | CoupledCluster, *, block_tokens: int) -> Watched:
    """Replay requests and note what every node does.

    Parameters
    ----------
    requests : sequence of Request
        In order of arrival.
    cluster : Cluster or CoupledCluster
        Two pools of single nodes, or nodes that prefill and decode; nothing is drawn at random.
    block_tokens : int
        Tokens in a full block.

    Raises
    ------
    InputError
        If prefill nodes form pipelines, which work on several prompts at once, if routing is random,
        or if a request is too long for a node's memory.
    """
    require_room(requests, cluster, block_tokens)
    if isinstance(cluster, Cluster) and cluster.pipeline_nodes > 1:
        raise InputError(
            f"Cluster.pipeline_nodes: a timeline is of single nodes, got {cluster.pipeline_nodes}"
        )
    if isinstance(cluster, Cluster) and cluster.routing is Routing.RANDOM:
        raise InputError("Cluster.routing: a timeline draws nothing at random; choose another routing")
    path: _WatchedPools | _WatchedCoupled
    if isinstance(cluster, CoupledCluster):
        path = _WatchedCoupled(requests, cluster, block_tokens)
    else:
        path = _WatchedPools(requests, cluster, block_tokens, [0.0] * len(requests), ())
    for index, request in enumerate(requests):
        path.clock.at(request.arrival_s, Order.ARRIVE, index, partial(path.arrive, index))
    path.clock.run()
    return Watched(path.records, sorted(path.iterations), path.counters())


def require_room(requests: Sequence[Request], cluster: Cluster | CoupledCluster, block_tokens: int) -> None:
    """Refuse a request that is too long for a node's memory, as `simulator.simulate` does."""
    room = cluster.vram_tokens
    if isinstance(cluster, CoupledCluster) and cluster.batching is Batching.PREFIX_CACHING:
        room -= room % block_tokens  # only whole blocks are used
    for index, request in enumerate(requests):
        tokens = request.input_tokens + request.output_tokens
        if tokens > room:
            raise InputError(
                f"request {index} has {tokens} tokens, but a node's memory ({cluster.node.title}, "
                f"{cluster.model.title}) holds {room}"
            )


class _WatchedPools(reference._ServingPath):
    """Two pools whose prefills and decode steps are noted as they end."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.steps: list[Iteration] = []
        self._under_way: dict[int, tuple[float, tuple[int, ...], int]] = {}

    @property
    def iterations(self) -> list[Iteration]:
        """Prefills, which stand in the records, and decode steps."""
        found = list(self.steps)
        for index, record in enumerate(self.records):
            if record.choice is None or math.isnan(record.start_s):
                continue
            chunk = Chunk(index, record.choice.reused_tokens, self._requests[index].input_tokens)
            found.append(Iteration(record.choice.node, record.start_s, record.first_token_s, (chunk,), (), 0))
        return found

    def _boundary(self, node: int) -> None:
        super()._boundary(node)
        decoder = self.decoders[node]
        self._under_way[node] = self.clock.now_s, tuple(decoder.tokens_left), decoder.context_tokens

    def _end_step(self, node: int) -> None:
        start_s, decoded, context_tokens = self._under_way[node]
        number = len(self.prefillers) + node
        self.steps.append(Iteration(number, start_s, self.clock.now_s, (), decoded, context_tokens))
        super()._end_step(node)


class _WatchedCoupled(coupled._CoupledPath):
    """Coupled nodes whose iterations are noted as they end."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.iterations: list[Iteration] = []
        self._started_s: dict[int, float] = {}

    def counters(self) -> dict[str, int]:
        """Of all nodes together."""
        return {"decode_steps": sum(node.steps for node in self.nodes)}

    def _iterate(self, number: int) -> None:
        self._started_s[number] = self.clock.now_s
        super()._iterate(number)

    def _end(self, number: int, chunks: Sequence[coupled._Chunk], decodes: bool) -> None:
        node = self.nodes[number]
        self.iterations.append(
            Iteration(
                number,
                self._started_s[number],
                self.clock.now_s,
                tuple(Chunk(*chunk) for chunk in chunks),
                tuple(node.tokens_left) if decodes else (),
                node.context_tokens if decodes else 0,
            )
        )
        super()._end(number, chunks, decodes)
