"""Serving nodes: what one machine can compute, hold and move. Standard library only."""

from dataclasses import dataclass

from mooncake_companion.parameters import require_positive
from mooncake_companion.presets import find, shipped


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
    ssd_read_bytes_per_s : float or None
        What the node's SSDs read together, in bytes/s; None if it is not known, and then no cache can
        be kept on SSD.
    dram_bytes : int or None
        Memory of the host, in bytes; None if it is not known.
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
    ssd_read_bytes_per_s: float | None = None
    dram_bytes: int | None = None
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
        )
        optional = ("ssd_read_bytes_per_s", "dram_bytes")
        require_positive(self, *(name for name in optional if getattr(self, name) is not None))

    @property
    def flops_per_s(self) -> float:
        """Peak of the whole node, in FLOP/s: G of FAST'25, Table 1."""
        return self.gpus * self.peak_flops_per_s


def load_nodes() -> dict[str, GpuNode]:
    """All node presets of ``data/presets/nodes.toml``, by name."""
    return shipped(GpuNode, "nodes.toml")


def load_node(name: str) -> GpuNode:
    """The node preset called `name`, or what the table ``[node]`` of a TOML file says.

    Parameters
    ----------
    name : str
        Such as "a800", or the path of a file that ends in ``.toml``; see `presets.find`.

    Raises
    ------
    InputError
        If there is no preset of that name; the known ones are listed. If the file cannot be read, or
        something in it is wrong.
    """
    return find(GpuNode, name, "node", load_nodes())
