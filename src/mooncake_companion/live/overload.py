"""arXiv 2407.00079, section 7: ways to turn requests away under overload, and what they are tried on.

`live.rejection` computes its figures in a page, `experiments.overload` all of them on whole traces.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from mooncake_companion.costs import decode_cost, decode_seconds, load_calibration
from mooncake_companion.errors import InputError
from mooncake_companion.hardware import load_node
from mooncake_companion.llm import load_model
from mooncake_companion.parameters import check, parameter
from mooncake_companion.settings import cache_parameter, model_parameter, node_parameter, threshold_parameter
from mooncake_companion.simulator.cluster import Cluster
from mooncake_companion.simulator.overload import Admission, Limits, largest_batch
from mooncake_companion.simulator.reference import Request, replay

TRACE = "conversation"
"""What stands for the report's own trace: that of the same service some months later."""
TITLES = {
    Admission.NONE: "No rejection",
    Admission.BASELINE: "Baseline",
    Admission.EARLY: "Early rejection",
    Admission.PREDICTIVE: "Early rejection based on prediction",
}
"""The policies by the names of Table 3, which has not the first."""
REJECTING = (Admission.BASELINE, Admission.EARLY, Admission.PREDICTIVE)
DECODE_TIMES = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Values of t_d that are tried, in mean decode times."""
WINDOW_S = 1200.0
"""Length of Figure 9."""
MACHINES = 20
"""Of the cluster that Figure 9 shows."""

ALIKE_S = 600.0
"""How long identical requests keep coming."""
SETTLED_S = 300.0
"""From when on their loads are shown."""
ALIKE_INTERVAL_S = 2.5
"""Between two of them."""
BLOCK_TOKENS = 512
"""Of the identical requests."""
_LEAST_ANSWER_TOKENS = 200
_MOST_DECODE_NODES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """The experiment's setting; the defaults are the paper's where it states them.

    Stated (section 8.2): 8 prefill and 8 decode nodes, a real trace at twice its speed, the three
    policies; elsewhere in the report: the limits of 30 s and 0.1 s (section 8.1.3, for another
    experiment), that load is predicted TTFT and TBT over them (7.1), that the pools' load decides
    (7.2), the prediction (7.4), and that a decode node checks again after the prefill (3).

    Assumed: the cache and the threshold, as in `prefill_scheduling`. The trace: the report's own
    where it can be had. Two things follow rules that look at no reported value. *Decode nodes*: the
    stated 8, or as many fewer as it takes for decode to be offered more than it can do; section 8.2
    is about overload, and without it all policies are alike. *t_d*, which the report leaves open: of
    `DECODE_TIMES` the one with which the fewest are rejected, as an operator would set it. That rule was
    settled with the order of Table 3 in view, though not its numbers: its rows test how many are
    rejected, not in which order.
    """

    trace: str = parameter(TRACE, help="registered trace, or the path of a JSONL file")
    arrival_speedup: float = parameter(2.0, low=0.01, high=100, help="replay the trace so many times as fast")
    prefill_nodes: int = parameter(8, unit="nodes", low=1, high=64, help="nodes that prefill")
    decode_nodes: int = parameter(
        8, unit="nodes", low=1, high=64, help="nodes that decode; fewer where so many are not overloaded"
    )
    ttft_limit_s: float = parameter(
        30.0, unit="s", low=0.1, high=1e4, help="limit of the time to first token"
    )
    tbt_limit_s: float = parameter(
        0.1, unit="s", low=0.001, high=100, help="limit of the time between tokens"
    )
    predicted_decode_s: float = parameter(
        0.0, unit="s", low=0, high=1e4, help="decode time t_d of the prediction; 0: that which rejects fewest"
    )
    cache_tokens_per_node: int = cache_parameter()
    kvcache_balancing_threshold: float = threshold_parameter()
    node: str = node_parameter()
    model: str = model_parameter()
    identical_input_tokens: int = parameter(
        65_536, unit="tokens", low=512, high=131_072, help="prompt of the identical requests of `mechanism`"
    )
    identical_offered_load: float = parameter(
        2.0, low=0.1, high=10, help="what they ask of decode, over what it can do"
    )
    identical_prefill_excess: float = parameter(
        1.5, low=0.1, high=10, help="what prefill can do of them, over what decode can"
    )

    seed: int = parameter(0, low=0, high=2**32 - 1, help="of the arrivals that `spread` draws")
    replicates: int = parameter(5, unit="runs", low=1, high=100, help="runs of `spread`")

    def __post_init__(self) -> None:
        check(self)

    def cluster(self, admission: Admission, decode_nodes: int, predicted_decode_s: float = 1.0) -> Cluster:
        """The two pools of one run."""
        return Cluster(
            node=load_node(self.node),
            model=load_model(self.model),
            calibration=load_calibration(host=False),
            prefill_nodes=self.prefill_nodes,
            decode_nodes=decode_nodes,
            cache_tokens_per_node=self.cache_tokens_per_node,
            kvcache_balancing_threshold=self.kvcache_balancing_threshold,
            admission=admission,
            ttft_limit_s=self.ttft_limit_s,
            tbt_limit_s=self.tbt_limit_s,
            predicted_decode_s=predicted_decode_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What requests ask of decode nodes.

    Parameters
    ----------
    nodes : float
        Decode nodes that could just do it; more than there are is overload.
    sequences : int
        Mean requests that fill a node.
    mean_decode_s : float
        Time in which a full node makes a mean answer, in seconds.
    """

    nodes: float
    sequences: int
    mean_decode_s: float


def demand(
    input_tokens: Sequence[int], output_tokens: Sequence[int], last_arrival_s: float, params: Params
) -> Demand:
    """What requests ask of decode nodes that are kept at their limits.

    A request counts as long as it decodes: contexts are weighted with the answers' tokens.

    Parameters
    ----------
    input_tokens, output_tokens : sequence of int, shape (requests,)
    last_arrival_s : float
        Seconds from the first arrival.
    params : Params
    """
    limits = limits_of(params.cluster(Admission.NONE, 1))
    steps = [tokens - 1 for tokens in output_tokens]
    contexts = zip(input_tokens, output_tokens, steps, strict=True)
    context_tokens = sum((prompt + answer) * weight for prompt, answer, weight in contexts) / sum(steps)
    sequences = max(1, largest_batch(int(context_tokens), limits))
    full_step_s = limits.step_s(sequences, int(sequences * context_tokens))
    duration_s = max(last_arrival_s, full_step_s)
    return Demand(
        nodes=sum(steps) / duration_s * full_step_s / sequences,
        sequences=sequences,
        mean_decode_s=sum(steps) / len(steps) * full_step_s,
    )


def overloaded_decode_nodes(asked: Demand, params: Params) -> int:
    """The decode nodes of `params`, or as many fewer as it takes for them to be overloaded."""
    return max(1, min(params.decode_nodes, int(asked.nodes)))


def decode_times_s(params: Params, admission: Admission, asked: Demand) -> list[float]:
    """Values of t_d to try under a policy, in seconds; one that does not look at it needs but one."""
    tried = [params.predicted_decode_s or multiple * asked.mean_decode_s for multiple in DECODE_TIMES]
    return tried if admission is Admission.PREDICTIVE and not params.predicted_decode_s else tried[:1]


def limits_of(cluster: Cluster) -> Limits:
    """What a decode node must keep to."""
    step_s = partial(decode_seconds, *decode_cost(cluster.node, cluster.model, cluster.calibration))
    return Limits(step_s, cluster.tbt_limit_s, cluster.vram_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identical:
    """Requests that are all alike and come evenly.

    Parameters
    ----------
    input_tokens, output_tokens : int
        Of each.
    requests_per_s : float
    decode_nodes : int
        For them.
    decode_s : float
        What one of them takes to decode on a full node, in seconds.
    """

    input_tokens: int
    output_tokens: int
    requests_per_s: float
    decode_nodes: int
    decode_s: float

    @property
    def count(self) -> int:
        """How many come in `ALIKE_S`, at least one."""
        return max(1, int(ALIKE_S * self.requests_per_s))

    def requests(self) -> list[Request]:
        """All of them; none shares a block with another."""
        blocks = -(-self.input_tokens // BLOCK_TOKENS)
        return [
            Request(
                index / self.requests_per_s,
                self.input_tokens,
                self.output_tokens,
                range(blocks * index, blocks * (index + 1)),
            )
            for index in range(self.count)
        ]


def identical(params: Params) -> Identical:
    """Requests as the parameters ``identical_…`` say.

    Answers are as long as gives `params.identical_prefill_excess`, on as few decode nodes as make them
    at least 200 tokens long.

    Raises
    ------
    InputError
        If no number of decode nodes does.
    """
    limits = limits_of(params.cluster(Admission.NONE, 1))
    prefill_s = _prefill_alone_s(params)
    nodes, output_tokens = 0, 0
    while output_tokens < _LEAST_ANSWER_TOKENS:
        nodes += 1
        if nodes > _MOST_DECODE_NODES:
            raise _no_answer(params, limits)
        output_tokens = _LEAST_ANSWER_TOKENS
        for _ in range(20):  # the answer is part of what fills a node: a fixed point
            context_tokens = params.identical_input_tokens + output_tokens
            sequences = largest_batch(context_tokens, limits)
            full_step_s = limits.step_s(sequences, sequences * context_tokens)
            answers_per_s = params.prefill_nodes / prefill_s / params.identical_prefill_excess
            output_tokens = 1 + int(nodes * sequences / full_step_s / answers_per_s)
    decode_s = (output_tokens - 1) * full_step_s
    return Identical(
        input_tokens=params.identical_input_tokens,
        output_tokens=output_tokens,
        requests_per_s=params.identical_offered_load * nodes * sequences / decode_s,
        decode_nodes=nodes,
        decode_s=decode_s,
    )


def _no_answer(params: Params, limits: Limits) -> InputError:
    tokens = params.identical_input_tokens
    if not largest_batch(tokens + _LEAST_ANSWER_TOKENS, limits):
        return InputError(
            f"parameter tbt_limit_s: within {params.tbt_limit_s:g} s a decode node has no room for one "
            f"request of {tokens:,} tokens; raise it, or take a smaller identical_input_tokens"
        )
    return InputError(
        f"parameter identical_prefill_excess: with {params.identical_prefill_excess:g} no answer of at least "
        f"{_LEAST_ANSWER_TOKENS} tokens keeps up to {_MOST_DECODE_NODES:,} decode nodes busy with prompts of "
        f"{tokens:,} tokens; take one nearer to 1, or other prefill_nodes"
    )


def _prefill_alone_s(params: Params) -> float:
    """Seconds that one of the identical requests takes to prefill on an idle node."""
    tokens = params.identical_input_tokens
    alone = Request(0.0, tokens, 1, range(-(-tokens // BLOCK_TOKENS)))
    run = replay([alone], params.cluster(Admission.NONE, 1), block_tokens=BLOCK_TOKENS, draws=[0.0])
    return run.records[0].first_token_s
