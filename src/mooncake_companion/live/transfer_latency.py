"""FAST'25, Figure 12: how long KV cache takes from node to node; closed form, so exact in a page."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from mooncake_companion.costs import Calibration, load_calibration, transfer_time
from mooncake_companion.live.network import GBIT_BYTES
from mooncake_companion.live.outcome import Outcome, Progress, Row
from mooncake_companion.parameters import check, parameter

NETWORKS = {"4x200Gbps": 4 * 200e9 / 8, "8x400Gbps": 8 * 400e9 / 8}
"""Line rate of a node in the two parts of the figure, in bytes/s."""

ENGINE = "transfer engine"

SIZES_BYTES = tuple(1e9 * gb for gb in (1, 5, *range(10, 101, 10)))
"""Sizes of the figure, to which its readings come near."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """The figure's setting; sizes and networks are stated.

    The network's one constant is the paper's own for the transfer engine over 4 × 200 Gbit/s (section
    5.4.1); that the same share of the line rate is reached over 8 × 400 Gbit/s is the model's
    prediction. TCP and Gloo are not modelled: neither paper says what their time goes into.
    """

    startup_s: float = parameter(0.0, unit="s", low=0, high=10, help="before the first byte moves")

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkParams(Params):
    """The same, and one network of a reader's choice in place of the paper's two."""

    bandwidth_gbit_per_s: float = parameter(
        800.0, unit="Gbit/s", low=0.1, high=1e5, help="line rate of a node's network"
    )
    network_utilisation: float = parameter(
        load_calibration().network_utilisation,
        low=0.01,
        high=1,
        help="u: share of the line rate that a transfer reaches",
    )


def engine_rows(
    params: Params, calibration: Calibration, network: str, nic_bytes_per_s: float, sizes: Iterable[float]
) -> list[Row]:
    """Modelled rows of one network, sizes in bytes; columns as of `experiments.transfer_latency`."""
    seconds = {
        size: transfer_time(nic_bytes_per_s, size, calibration=calibration, startup_s=params.startup_s)
        for size in sizes
    }
    return [
        {
            "origin": "modelled",
            "network": network,
            "method": ENGINE,
            "transferred_bytes": size,
            "transfer_s": transfer_s,
            "bytes_per_s": size / transfer_s,
        }
        for size, transfer_s in seconds.items()
    ]


def run(params: NetworkParams, _sliced: None, progress: Progress) -> Outcome:
    """Seconds by size over one network; columns as of `experiments.transfer_latency`."""
    progress(0, 1)
    rate = params.bandwidth_gbit_per_s * GBIT_BYTES
    paper = [name for name, nic_bytes_per_s in NETWORKS.items() if nic_bytes_per_s == rate]
    network = paper[0] if paper else f"{params.bandwidth_gbit_per_s:g} Gbit/s"
    calibration = replace(load_calibration(), network_utilisation=params.network_utilisation)
    rows = engine_rows(params, calibration, network, rate, SIZES_BYTES)
    longest = rows[-1]
    return Outcome(
        rows=rows,
        description=(
            "Line: time of a transfer between two nodes by its size, computed in this browser for "
            f"{params.bandwidth_gbit_per_s:g} Gbit/s, of which {params.network_utilisation:.0%} are reached. "
            f"{longest['transferred_bytes'] / 1e9:.0f} GB take {longest['transfer_s']:,.2f} s, "
            f"{longest['bytes_per_s'] / 1e9:,.2f} GB/s. {'Grey marks: reported.' if paper else ''}"
        ).rstrip(),
        fixed={"latency_network": network},
        without_reported="" if paper else "Nothing is reported of this network.",
    )
