"""A node on another network than its own."""

from dataclasses import replace

from mooncake_companion.hardware import GpuNode

_GBIT_BYTES = 1e9 / 8


def on_network(node: GpuNode, gbit_per_s: float) -> GpuNode:
    """The node with a network of that line rate in one direction; with its own for 0."""
    return replace(node, nic_bytes_per_s=gbit_per_s * _GBIT_BYTES) if gbit_per_s else node
