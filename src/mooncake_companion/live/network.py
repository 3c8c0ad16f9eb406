"""Line rates as one speaks of them, and a node on another network than its own."""

from dataclasses import replace
from typing import Any

from mooncake_companion.errors import InputError
from mooncake_companion.hardware import GpuNode
from mooncake_companion.parameters import parameter

GBIT_BYTES = 1e9 / 8
_SLOWEST_GBIT_PER_S = 0.001


def own_or_other_network() -> Any:
    """Declare ``network_gbit_per_s``, which `on_network` takes."""
    return parameter(0.0, unit="Gbit/s", low=0, high=1e5, help="of a node, in one direction; 0 takes its own")


def on_network(node: GpuNode, gbit_per_s: float) -> GpuNode:
    """The node with a network of that line rate in one direction; with its own for 0.

    Raises
    ------
    InputError
        For a network on which nothing would ever arrive.
    """
    if not gbit_per_s:
        return node
    if gbit_per_s < _SLOWEST_GBIT_PER_S:
        raise InputError(
            f"parameter network_gbit_per_s: {gbit_per_s:g} is too slow; expected at least "
            f"{_SLOWEST_GBIT_PER_S:g} Gbit/s, or 0 for the node's own network"
        )
    return replace(node, nic_bytes_per_s=gbit_per_s * GBIT_BYTES)
