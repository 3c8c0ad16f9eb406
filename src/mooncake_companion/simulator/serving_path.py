"""From a trace and a cluster to a `Result`: the one call that everything above uses."""

import numpy as np

from mooncake_companion.errors import InputError
from mooncake_companion.simulator.reference import Cluster, Request, Run, replay
from mooncake_companion.simulator.result import Result
from mooncake_companion.simulator.scheduler import Routing
from mooncake_companion.traces import Trace


def simulate(trace: Trace, cluster: Cluster, *, rng: np.random.Generator | None = None) -> Result:
    """Replay a trace through a cluster.

    Parameters
    ----------
    trace : Trace
    cluster : Cluster
    rng : numpy.random.Generator, optional
        Needed by random routing alone: one number a request is drawn beforehand.

    Raises
    ------
    InputError
        If random routing is asked for without a generator.
    """
    if cluster.routing is Routing.RANDOM and rng is None:
        raise InputError("random routing needs rng, a numpy.random.Generator")
    draws = np.zeros(len(trace)) if rng is None else rng.random(len(trace))
    requests = [
        Request(arrival_s, input_tokens, trace.blocks_of(index).tolist())
        for index, (arrival_s, input_tokens) in enumerate(
            zip(trace.arrival_s.tolist(), trace.input_tokens.tolist(), strict=True)
        )
    ]
    return _columns(trace, replay(requests, cluster, block_tokens=trace.block_tokens, draws=draws.tolist()))


def _columns(trace: Trace, run: Run) -> Result:
    choice = {
        name: np.array([getattr(served.choice, name) for served in run.served])
        for name in ("queue_s", "transfer_s", "prefill_s", "local_tokens", "fetched_tokens", "source_node")
    }
    return Result(
        arrival_s=trace.arrival_s,
        input_tokens=trace.input_tokens,
        ttft_s=np.array([served.end_s for served in run.served]) - trace.arrival_s,
        prefill_node=np.array([served.choice.node for served in run.served]),
        evictions=run.evictions,
        **choice,
    )
