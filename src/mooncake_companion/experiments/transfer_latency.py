"""FAST'25, Figure 12: how long it takes to move KV cache between two nodes, by its size."""

import dataclasses
from dataclasses import dataclass

import pandas as pd

from mooncake_companion import reported
from mooncake_companion.costs import load_calibration, transfer_time
from mooncake_companion.llm import Number
from mooncake_companion.parameters import check, parameter

NETWORKS = {"4x200Gbps": 4 * 200e9 / 8, "8x400Gbps": 8 * 400e9 / 8}
"""Line rate of a node in the two parts of the figure, in bytes/s."""

ENGINE = "transfer engine"


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


def run(params: Params) -> pd.DataFrame:
    """Seconds by size, modelled for the transfer engine and reported for all three methods.

    Returns
    -------
    DataFrame
        Columns: ``origin``, ``network``, ``method``, ``transferred_bytes``, ``transfer_s``,
        ``bytes_per_s``; sizes are those of the reported readings. What leaves the figure is left out.
    """
    drawn = reported.figure("fast25_fig12").query("clipped == 0")
    table = pd.DataFrame(
        {
            "origin": "reported",
            "network": drawn["nics"],
            "method": drawn["method"],
            "transferred_bytes": 1e9 * drawn["size_gb"],
            "transfer_s": drawn["latency_s"],
        }
    )
    modelled = table[table["method"] == ENGINE].assign(origin="modelled")
    rates = modelled["network"].map(NETWORKS)
    modelled["transfer_s"] = _seconds(params, rates, modelled["transferred_bytes"])
    table = pd.concat([modelled, table], ignore_index=True)
    table["bytes_per_s"] = table["transferred_bytes"] / table["transfer_s"]
    table.attrs["provenance"] = {"parameters": dataclasses.asdict(params)}
    return table


def claims(params: Params = Params()) -> dict[str, float]:
    """Modelled values of the figure's claims about the transfer engine, in their rows' units."""
    values = {}
    for network, rate in NETWORKS.items():
        for size_gb in (1, 10, 40, 100):
            seconds = _seconds(params, rate, size_gb * 1e9)
            values[f"fast25.fig12.latency.{network.lower()}.transfer_engine.{size_gb}gb"] = seconds
        short = network.removesuffix("Gbps")
        values[f"fast25.fig12.bw_{short}"] = 40 / _seconds(params, rate, 40e9)
    return values


def _seconds(params: Params, nic_bytes_per_s: Number, transferred_bytes: Number) -> Number:
    calibration = load_calibration()
    return transfer_time(
        nic_bytes_per_s, transferred_bytes, calibration=calibration, startup_s=params.startup_s
    )
