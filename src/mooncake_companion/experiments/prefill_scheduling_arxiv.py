"""arXiv 2407.00079, Figure 8: the experiment of FAST'25, Figure 5, on the earlier report's own trace."""

import numpy as np
import pandas as pd

from mooncake_companion import reported
from mooncake_companion.experiments import prefill_scheduling
from mooncake_companion.experiments.prefill_scheduling import TITLES
from mooncake_companion.live.prefill_scheduling_arxiv import Params
from mooncake_companion.simulator import Routing

__all__ = ["POLICIES", "Params", "claims", "nearest_split", "run"]

POLICIES = {
    "KVCache-centric": TITLES[Routing.GLOBAL_CACHE_AWARE],
    "cache-aware": TITLES[Routing.LOCAL_CACHE_AWARE],
    "load-balancing": TITLES[Routing.LOAD_BALANCING],
    "random": TITLES[Routing.RANDOM],
}
"""The report's names of the four policies, to those of FAST'25."""
_STATISTICS = {
    "ttft_mean": "mean_s",
    "ttft_q1": "q1_s",
    "ttft_median": "median_s",
    "ttft_q3": "q3_s",
    "ttft_whisker_low": "whisker_low_s",
    "ttft_whisker_high": "whisker_high_s",
}


def run(params: Params) -> pd.DataFrame:
    """Box-plot statistics of TTFT by policy for every split of the nodes, beside the report's.

    Returns
    -------
    DataFrame
        As `prefill_scheduling.run` returns it.
    """
    fast25 = prefill_scheduling.run(params)
    drawn = reported.figure("arxiv_fig08").drop(columns="mean_marker_s")
    drawn = drawn.rename(columns={"mean_printed_s": "mean_s"}).assign(
        policy=drawn["policy"].map(POLICIES), origin="reported", prefill_nodes=params.prefill_nodes
    )
    drawn["ratio_to_global"] = drawn["mean_s"] / drawn["mean_s"].min()  # global's is the least
    table = pd.concat([fast25[fast25["origin"] == "modelled"], drawn], ignore_index=True)
    table.attrs["provenance"] = fast25.attrs["provenance"]
    return table


def nearest_split(table: pd.DataFrame) -> tuple[int, float]:
    """The split whose mean TTFTs come nearest to the reported ones, and by which factor they are off.

    Parameters
    ----------
    table : DataFrame
        As `run` returns it.

    Returns
    -------
    prefill_nodes : int
    factor : float
        Geometric mean over the policies of the larger over the smaller of both values; 1 is equal.
    """
    means_s = table.pivot(index=["origin", "prefill_nodes"], columns="policy", values="mean_s")
    modelled_s, reported_s = means_s.loc["modelled"], means_s.loc["reported"].iloc[0]
    apart = np.abs(np.log(modelled_s.to_numpy() / reported_s.to_numpy())).mean(axis=1)
    nearest = int(apart.argmin())
    return int(modelled_s.index[nearest]), float(np.exp(apart[nearest]))


def claims(params: Params = Params()) -> dict[str, float]:  # noqa: B008 - it is frozen
    """Modelled values of the figure's boxes by claim id, in seconds."""
    boxes = run(params).query("origin == 'modelled' and prefill_nodes == @params.prefill_nodes")
    boxes = boxes.set_index("policy")
    return {
        f"arxiv.fig08.{claim}.{name.lower().replace('-', '_')}": float(boxes[column][title])
        for name, title in POLICIES.items()
        for claim, column in _STATISTICS.items()
    }
