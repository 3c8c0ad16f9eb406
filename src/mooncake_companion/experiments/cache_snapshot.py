"""The blocks in the tiers of every node, looked at from time to time (FAST'25, section 3.2).

No figure of the papers shows this: it is what the model keeps while it replays a trace. The tiers are
small, so that every block can be drawn; the rules are those of the whole cluster.
"""

import pandas as pd

from mooncake_companion import traces
from mooncake_companion.experiments.paper_traces import provenance
from mooncake_companion.live.cache_snapshot import Params, snapshots
from mooncake_companion.simulator.serving_path import requests_of

__all__ = ["Params", "run", "tiers"]


def run(params: Params) -> pd.DataFrame:
    """Every block that a node holds, at every snapshot.

    Returns
    -------
    DataFrame
        ``time_s``; ``node`` and ``tier`` ("VRAM", "DRAM", "SSD"); ``slot``, a place that a block
        keeps as long as it stays in the tier; ``block``, its number in order of first use;
        ``position``, blocks before it in its prefix; ``uses``, requests that have asked for it so
        far, wherever they ran; ``age_s`` since its last use on this node; ``holders``, the nodes that
        hold it, as text; ``copies``, how many these are.
    """
    trace = traces.load(params.trace)
    head = trace.head(params.requests)
    table = pd.DataFrame(snapshots(params, requests_of(head), trace.block_tokens))
    table["copies"] = table["holders"].str.count(",") + 1
    table.attrs["provenance"] = provenance(params, {params.trace: trace})
    return table


def tiers(table: pd.DataFrame) -> pd.DataFrame:
    """What each tier holds at the last snapshot, all nodes together.

    Returns
    -------
    DataFrame
        Indexed by ``tier``: ``blocks``, ``used_once_share``, ``median_age_s``, ``copied_share`` (of
        the blocks, those that another node holds, too).
    """
    last = table[table["time_s"] == table["time_s"].max()]
    return last.groupby("tier").agg(
        blocks=("block", "size"),
        used_once_share=("uses", lambda uses: float((uses == 1).mean())),
        median_age_s=("age_s", "median"),
        copied_share=("copies", lambda copies: float((copies > 1).mean())),
    )
