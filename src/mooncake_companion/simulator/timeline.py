"""What every node did and when, with a `Result`: the reference engines, watched while they replay a trace.

Nothing of what they do is changed; the watched replay and `simulate` give the same `Result`.
"""

from typing import NamedTuple

from mooncake_companion.simulator.cluster import Cluster
from mooncake_companion.simulator.coupled import CoupledCluster
from mooncake_companion.simulator.result import Result
from mooncake_companion.simulator.serving_path import _answers, _check_fit, _result, requests_of
from mooncake_companion.simulator.watched import Iteration, watch
from mooncake_companion.traces import Trace


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
    answers = _answers(trace, cluster) if isinstance(cluster, Cluster) else None
    watched = watch(requests_of(trace, answers), cluster, block_tokens=trace.block_tokens)
    return Timeline(_result(trace, watched.records, watched.counters), watched.iterations)
