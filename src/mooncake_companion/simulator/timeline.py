"""What every node did and when: the reference engines, watched while they replay a trace.

Nothing of what they do is changed; the watched replay and `simulate` give the same `Result`.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from mooncake_companion.errors import InputError
from mooncake_companion.simulator import coupled, reference
from mooncake_companion.simulator.clock import Order
from mooncake_companion.simulator.cluster import Cluster
from mooncake_companion.simulator.coupled import CoupledCluster
from mooncake_companion.simulator.reference import Request
from mooncake_companion.simulator.result import Result
from mooncake_companion.simulator.scheduler import Routing
from mooncake_companion.simulator.serving_path import _answers, _check_fit, _result, requests_of
from mooncake_companion.traces import Trace


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


class Timeline(NamedTuple):
    """A replay: what became of the requests, and all iterations by node and time."""

    result: Result
    iterations: list[Iteration]


def timeline(trace: Trace, cluster: Cluster | CoupledCluster) -> Timeline:
    """Replay a trace and note what every node does.

    Parameters
    ----------
    trace : Trace
    cluster : Cluster or CoupledCluster
        Two pools, or nodes that prefill and decode; its routing is not random.

    Raises
    ------
    InputError
        If prefill nodes form pipelines, which work on several prompts at once, if routing is random,
        or if a request is too long for a node's memory.
    """
    _check_fit(trace, cluster)
    if isinstance(cluster, CoupledCluster):
        requests = requests_of(trace)
        together = _WatchedCoupled(requests, cluster, trace.block_tokens)
        _replay(together, requests)
        result = _result(trace, together.records, {"decode_steps": sum(n.steps for n in together.nodes)})
        return Timeline(result, sorted(together.iterations))
    if cluster.pipeline_nodes > 1:
        raise InputError(
            f"Cluster.pipeline_nodes: a timeline is of single nodes, got {cluster.pipeline_nodes}"
        )
    if cluster.routing is Routing.RANDOM:
        raise InputError("Cluster.routing: a timeline draws nothing at random; choose another routing")
    requests = requests_of(trace, _answers(trace, cluster))
    path = _WatchedPools(requests, cluster, trace.block_tokens, [0.0] * len(requests), ())
    _replay(path, requests)
    return Timeline(_result(trace, path.records, path.counters()), sorted(path.prefills() + path.steps))


def _replay(path: "_WatchedPools | _WatchedCoupled", requests: Sequence[Request]) -> None:
    for index, request in enumerate(requests):
        path.clock.at(request.arrival_s, Order.ARRIVE, index, partial(path.arrive, index))
    path.clock.run()


class _WatchedPools(reference._ServingPath):
    """Two pools whose decode steps are noted; the prefills stand in the records."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.steps: list[Iteration] = []
        self._under_way: dict[int, tuple[float, tuple[int, ...], int]] = {}

    def prefills(self) -> list[Iteration]:
        """All prefills, from the records."""
        found = []
        for index, record in enumerate(self.records):
            if record.choice is not None and record.start_s == record.start_s:
                chunk = Chunk(index, record.choice.reused_tokens, self._requests[index].input_tokens)
                found.append(
                    Iteration(record.choice.node, record.start_s, record.first_token_s, (chunk,), (), 0)
                )
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

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.iterations: list[Iteration] = []
        self._started_s: dict[int, float] = {}

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
