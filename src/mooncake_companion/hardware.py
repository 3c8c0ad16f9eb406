"""Serving nodes: what one machine can compute, hold and move. Standard library only."""

import tomllib
from dataclasses import dataclass

from mooncake_companion.datafiles import data_path
from mooncake_companion.errors import InputError
from mooncake_companion.parameters import require_positive


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuNode:
    """One serving node: GPUs that work on the same batch.

    Parameters
    ----------
    title : str
        The name that people use.
    gpus : int
        GPUs in the node.
    peak_flops_per_s, hbm_bytes_per_s : float
        Dense BF16 peak, in FLOP/s, and memory bandwidth, in bytes/s, of one GPU.
    hbm_bytes : int
        Memory of one GPU, in bytes.
    host_to_device_bytes_per_s, nic_bytes_per_s : float
        Links of the whole node in one direction, in bytes/s: DRAM to GPU memory, and network.
    ssd_read_bytes_per_s : float
        What the node's SSDs read together, in bytes/s.
    source : str
        Where the numbers come from.
    """

    title: str
    gpus: int
    peak_flops_per_s: float
    hbm_bytes_per_s: float
    hbm_bytes: int
    host_to_device_bytes_per_s: float
    nic_bytes_per_s: float
    ssd_read_bytes_per_s: float
    source: str

    def __post_init__(self) -> None:
        require_positive(
            self,
            "gpus",
            "peak_flops_per_s",
            "hbm_bytes_per_s",
            "hbm_bytes",
            "host_to_device_bytes_per_s",
            "nic_bytes_per_s",
            "ssd_read_bytes_per_s",
        )

    @property
    def flops_per_s(self) -> float:
        """Peak of the whole node, in FLOP/s: G of FAST'25, Table 1."""
        return self.gpus * self.peak_flops_per_s


def load_nodes() -> dict[str, GpuNode]:
    """All node presets of ``data/presets/nodes.toml``, by name."""
    presets = tomllib.loads(data_path("presets", "nodes.toml").read_text("utf-8"))
    return {name: GpuNode(**fields) for name, fields in presets.items()}


def load_node(name: str) -> GpuNode:
    """The node preset called `name`.

    Raises
    ------
    InputError
        If there is none of that name; the known ones are listed.
    """
    nodes = load_nodes()
    if name not in nodes:
        raise InputError(f"no node preset {name!r}; there are {', '.join(nodes)}")
    return nodes[name]
