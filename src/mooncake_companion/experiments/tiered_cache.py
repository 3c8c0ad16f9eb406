"""What the chapter on the tiered cache lets a reader change, and the experiments that it sets."""

import dataclasses
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from mooncake_companion.experiments import (
    byte_flows,
    cache_capacity,
    cache_sharing,
    cache_snapshot,
    hot_blocks,
    prefix_choices,
)
from mooncake_companion.parameters import check, parameter
from mooncake_companion.settings import (
    cache_parameter,
    model_parameter,
    network_parameter,
    node_parameter,
    threshold_parameter,
)

P = TypeVar("P")


class Gain(NamedTuple):
    """What sharing caches gains: hit rate over that of local ones, and the share of prefill time saved."""

    hit_ratio: float
    saving: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Parameters of several experiments at once; what each states and assumes stands with it."""

    trace: str = parameter("", help="of Figures 9 to 11: this one alone; empty: the paper's three")
    served_trace: str = parameter("conversation", help="of the byte flows and the choices")
    heat_trace: str = parameter("toolagent", help="of the heat map")
    cache_tokens_per_node: int = cache_parameter()
    shortlist_nodes: int = parameter(
        2,
        unit="nodes",
        low=0,
        high=64,
        help="shortest queues that Conductor weighs in Figures 10, 11; 0: all",
    )
    kvcache_balancing_threshold: float = threshold_parameter()
    input_tokens: int = parameter(
        16_384, unit="tokens", low=1024, high=131_072, help="prompt of the byte flows' single request"
    )
    reused_tokens: int = parameter(
        12_288,
        unit="tokens",
        low=512,
        high=130_560,
        help="of it known before, in whole blocks; less than all",
    )
    nic_bytes_per_s: float = network_parameter("network of a node, in the byte flows; 0: that of `node`")
    ssd_read_bytes_per_s: float = parameter(
        0.0, unit="bytes/s", low=0, high=1e13, help="SSDs of a node, in the byte flows; 0: those of `node`"
    )
    node: str = node_parameter()
    model: str = model_parameter()

    def __post_init__(self) -> None:
        check(self)

    @property
    def capacity(self) -> cache_capacity.Params:
        """Of Figure 9 and arXiv Table 1."""
        return self._part(cache_capacity.Params)

    @property
    def sharing(self) -> cache_sharing.Params:
        """Of Figure 10."""
        return self._part(cache_sharing.Params)

    @property
    def hot_blocks(self) -> hot_blocks.Params:
        """Of Figure 11."""
        return self._part(hot_blocks.Params)

    @property
    def snapshot(self) -> cache_snapshot.Params:
        """Of the heat map."""
        return self._part(cache_snapshot.Params, trace=self.heat_trace)

    @property
    def flows(self) -> byte_flows.Params:
        """Of the bytes that move."""
        return self._part(byte_flows.Params, trace=self.served_trace)

    @property
    def choices(self) -> prefix_choices.Params:
        """Of what is done for each prompt's start."""
        return self._part(prefix_choices.Params, trace=self.served_trace)

    def _part(self, params: type[P], **others: Any) -> P:
        """Another experiment's parameters, those of the same name with the values here."""
        mine = dataclasses.asdict(self)
        shared = {f.name: mine[f.name] for f in dataclasses.fields(params) if f.name in mine}  # type: ignore[arg-type]
        return params(**shared | others)


def run(params: Params) -> pd.DataFrame:
    """Hit rate and prefill time with local caches and with a global one; see `cache_sharing.run`."""
    return cache_sharing.run(params.sharing)


def best_gain(sharing: pd.DataFrame) -> Gain:
    """The largest modelled gain among the workloads of `cache_sharing.run`'s table."""
    modelled = sharing[sharing["origin"] == "modelled"].pivot(index="workload", columns="cache")
    hits, seconds = modelled["hit_rate_pct"], modelled["prefill_gpu_time_s"]
    return Gain(
        hit_ratio=float((hits["global"] / hits["local"]).max()),
        saving=float((1 - seconds["global"] / seconds["local"]).max()),
    )


def local_hits(shortlists: pd.DataFrame, weighed: int) -> dict[str, Any]:
    """Hit rates of local caches in percent, from `cache_sharing.routings`' table, for its first workload.

    Returns
    -------
    dict
        ``workload``; ``as set``, with `weighed` nodes weighed (all if 0 or more than there are);
        ``all nodes``; ``as set, unbounded caches``; ``reported`` (NaN where the paper has none).
    """
    workload = shortlists["workload"].iloc[0]
    local = shortlists[(shortlists["workload"] == workload) & (shortlists["cache"] == "local")]

    def rates(rule: str) -> pd.Series:
        return local[local["rule"] == rule].set_index("shortlist_nodes")["hit_rate_pct"].sort_index()

    listed, unbounded, stated = rates("shortlist"), rates("shortlist, unbounded caches"), rates("as reported")
    at = (
        listed.index[listed.index >= weighed].min()
        if 0 < weighed < listed.index.max()
        else listed.index.max()
    )
    return {
        "workload": workload,
        "as set": float(listed[at]),
        "all nodes": float(listed.iloc[-1]),
        "as set, unbounded caches": float(unbounded[at]),
        "reported": float(stated.iloc[0]) if len(stated) else np.nan,
    }


def move(flows: pd.DataFrame, scenario: str, way: str) -> dict[str, float]:
    """One move of `byte_flows.run`'s table, in ``gigabytes``, ``delay_ms``, ``delayed_pct``; 0 for none."""
    found = flows[(flows["scenario"] == scenario) & (flows["way"] == way)]
    return {
        "gigabytes": float(found["bytes"].sum()) / 1e9,
        "delay_ms": 1000 * float(found["delay_s"].sum()),
        "delayed_pct": 100 * float(found["delayed_share"].sum()),
    }


def choice_shares(choices: pd.DataFrame) -> pd.DataFrame:
    """Each action's share of the requests and of the reused tokens, in percent.

    Returns
    -------
    DataFrame
        Indexed by ``setting`` and ``action``: ``requests_pct``, ``tokens_pct``.
    """
    sums = choices.groupby(["setting", "action"], sort=False)[["requests", "reused_tokens"]].sum()
    shares = 100 * sums / sums.groupby("setting").transform("sum")
    return shares.rename(columns={"requests": "requests_pct", "reused_tokens": "tokens_pct"})
