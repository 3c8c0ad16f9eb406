"""FAST'25, Figure 12: how long it takes to move KV cache between two nodes, by its size."""

import dataclasses

import pandas as pd

from mooncake_companion import reported
from mooncake_companion.costs import load_calibration
from mooncake_companion.live.transfer_latency import ENGINE, NETWORKS, Params, engine_rows

__all__ = ["ENGINE", "NETWORKS", "Params", "claims", "run"]


def run(params: Params) -> pd.DataFrame:
    """Seconds by size, modelled for the transfer engine and reported for all three methods.

    Returns
    -------
    DataFrame
        Columns: ``origin``, ``network``, ``method``, ``transferred_bytes``, ``transfer_s``,
        ``bytes_per_s``; sizes are those of the reported readings. What leaves the figure is left out.
    """
    drawn = reported.figure("fast25_fig12").query("clipped == 0")
    read = pd.DataFrame(
        {
            "origin": "reported",
            "network": drawn["nics"],
            "method": drawn["method"],
            "transferred_bytes": 1e9 * drawn["size_gb"],
            "transfer_s": drawn["latency_s"],
        }
    )
    read["bytes_per_s"] = read["transferred_bytes"] / read["transfer_s"]
    sizes = read[read["method"] == ENGINE].groupby("network")["transferred_bytes"].agg(list)
    calibration = load_calibration()
    rows = [
        row
        for network, rate in NETWORKS.items()
        for row in engine_rows(params, calibration, network, rate, sizes[network])
    ]
    table = pd.concat([pd.DataFrame(rows), read], ignore_index=True)
    table.attrs["provenance"] = {"parameters": dataclasses.asdict(params)}
    return table


def claims(params: Params = Params()) -> dict[str, float]:  # noqa: B008 - it is frozen
    """Modelled values of the figure's claims about the transfer engine, in their rows' units."""
    values = {}
    for network, rate in NETWORKS.items():
        rows = engine_rows(params, load_calibration(), network, rate, (1e9, 10e9, 40e9, 100e9))
        for row in rows:
            size = f"{row['transferred_bytes'] / 1e9:.0f}gb"
            values[f"fast25.fig12.latency.{network.lower()}.transfer_engine.{size}"] = row["transfer_s"]
        (at_40_gb,) = (row for row in rows if row["transferred_bytes"] == 40e9)
        values[f"fast25.fig12.bw_{network.removesuffix('Gbps')}"] = 40 / at_40_gb["transfer_s"]
    return values
