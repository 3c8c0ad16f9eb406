"""Parameters that most experiments have in common, so that they are declared alike everywhere."""

from typing import Any

from mooncake_companion.hardware import load_nodes
from mooncake_companion.llm import load_models
from mooncake_companion.parameters import parameter


def node_parameter(about: str = "what every node is") -> Any:
    """A preset of hardware; the papers' nodes have eight A800."""
    return parameter("a800", choices=tuple(load_nodes()), help=about)


def model_parameter(about: str = "what it serves") -> Any:
    """A preset of a model; the papers replayed a dummy model of LLaMA3-70B's shape."""
    return parameter("llama3-70b", choices=tuple(load_models()), help=about)


def cache_parameter(about: str = "DRAM for KV cache on each prefill node") -> Any:
    """Room for KV cache, in tokens; FAST'25, section 5.3, has three million a node."""
    return parameter(3_000_000, unit="tokens", low=0, high=10**10, help=about)


def threshold_parameter(
    about: str = "of Algorithm 1: fetch when the best prefix exceeds the own by this factor",
) -> Any:
    """``kvcache_balancing_threshold`` of Algorithm 1; neither paper states its value."""
    return parameter(2.0, low=1, high=1e6, help=about)


def network_parameter(about: str = "line rate of a node's network; 0: that of `node`") -> Any:
    """A node's network in one direction, in bytes/s."""
    return parameter(0.0, unit="bytes/s", low=0, high=1e13, help=about)
