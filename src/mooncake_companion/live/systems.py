"""FAST'25, section 5: Mooncake and three ways to run vLLM, side by side on as many nodes."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from mooncake_companion.costs import load_calibration
from mooncake_companion.errors import InputError
from mooncake_companion.hardware import load_node
from mooncake_companion.live.slices import Slice
from mooncake_companion.llm import load_model
from mooncake_companion.parameters import check, parameter
from mooncake_companion.settings import cache_parameter, model_parameter, node_parameter, threshold_parameter
from mooncake_companion.simulator import reference
from mooncake_companion.simulator.cluster import Cluster
from mooncake_companion.simulator.coupled import Batching, CoupledCluster, replay_coupled
from mooncake_companion.simulator.reference import Record

TRACE = "conversation"
"""What a page replays a slice of."""
MOONCAKE = "Mooncake"
SYSTEMS = {
    MOONCAKE: "mooncake",
    "vLLM": "vllm",
    "vLLM Prefix Caching": "vllm_prefix",
    "vLLM Chunked Prefill": "vllm_chunked",
}
"""The systems by title, each with its name in the ids of claims."""

BATCHINGS = {
    "vLLM": Batching.PLAIN,
    "vLLM Prefix Caching": Batching.PREFIX_CACHING,
    "vLLM Chunked Prefill": Batching.CHUNKED_PREFILL,
}

TBT_LIMITS_S = (0.1, 0.2, 0.3)
"""Thresholds I, II and III."""
AXIS_END_S = 1.0
"""Where Figures 1, 6 and 7 end."""
QUANTILES = (0.1, 0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Systems:
    """The four systems side by side; the defaults are the paper's where it states them.

    Stated in section 5.1: 16 nodes, the limits, vLLM 0.5.1 with one instance a node. Assumed: 8
    nodes for prefill and 8 for decode, as section 5.5 recommends about equal numbers; a cache of 3
    million tokens a node (section 5.3); requests spread over vLLM's instances by the number that
    each has.

    Two things are not independent of what is modelled here. That vLLM 0.5.1 does a step's host work
    after the GPUs' follows from its history (they overlap since release 0.6.0), but was settled with
    Figures 1 and 7 in view; no constant was. Chunks of 2,048 tokens are the power of two nearest to
    the chunked bars of Figure 8. Figure 6 informed neither.
    """

    nodes: int = parameter(16, unit="nodes", low=2, high=64, help="nodes of every system")
    prefill_nodes: int = parameter(
        8, unit="nodes", low=1, high=63, help="Mooncake's nodes that prefill; its others decode"
    )
    chunk_tokens: int = parameter(
        2048, unit="tokens", low=16, high=131_072, help="tokens of an iteration with chunked prefill"
    )
    cache_tokens_per_node: int = cache_parameter("DRAM for KV cache on each of Mooncake's nodes")
    kvcache_balancing_threshold: float = threshold_parameter()
    node: str = node_parameter()
    model: str = model_parameter()

    def __post_init__(self) -> None:
        check(self)
        if self.prefill_nodes >= self.nodes:
            raise InputError(
                f"parameter prefill_nodes: {self.prefill_nodes} leaves no node of {self.nodes} to decode; "
                f"expected 1 to {self.nodes - 1}"
            )

    def cluster(self, system: str) -> Cluster | CoupledCluster:
        """One of the `SYSTEMS`, by its title."""
        if system == MOONCAKE:
            return self.mooncake()
        return CoupledCluster(
            **self._served(), nodes=self.nodes, batching=BATCHINGS[system], chunk_tokens=self.chunk_tokens
        )

    def mooncake(self, **settings: Any) -> Cluster:
        """Mooncake, with other settings of a `Cluster` than those here, such as its admission."""
        return Cluster(
            **self._served(),
            prefill_nodes=self.prefill_nodes,
            decode_nodes=self.nodes - self.prefill_nodes,
            cache_tokens_per_node=self.cache_tokens_per_node,
            kvcache_balancing_threshold=self.kvcache_balancing_threshold,
            **settings,
        )

    def replaying(self, trace: str) -> "Params":
        """These systems and a trace."""
        settings = {field.name: getattr(self, field.name) for field in dataclasses.fields(Systems)}
        return Params(**settings, trace=trace)

    def _served(self) -> dict[str, Any]:
        return {
            "node": load_node(self.node),
            "model": load_model(self.model),
            "calibration": load_calibration(),
            "first_interval_counts": False,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Params(Systems):
    """The `Systems`, and what they serve: a workload of the paper at its own speed (assumed)."""

    trace: str = parameter("conversation", help="registered trace, or the path of a JSONL file")
    arrival_speedup: float = parameter(
        1.0, low=0.01, high=100, help="replay the trace this many times as fast"
    )


def capacity_column(limit_s: float) -> str:
    """Column of the share of the requests with a TBT up to a limit."""
    return f"capacity_{round(1e3 * limit_s)}ms"


def quantile_column(level: float) -> str:
    """Column of a quantile of TBT."""
    return f"tbt_p{round(100 * level)}_s"


def replay(sliced: Slice, cluster: Cluster | CoupledCluster) -> list[Record]:
    """What the reference engine notes of every request of a slice."""
    if isinstance(cluster, CoupledCluster):
        return replay_coupled(sliced.requests, cluster, block_tokens=sliced.block_tokens).records
    return reference.replay(
        sliced.requests, cluster, block_tokens=sliced.block_tokens, draws=sliced.draws
    ).records
