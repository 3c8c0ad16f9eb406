"""What is done for the start of every prompt, over time, and why: FAST'25, sections 3.2 and 4.2.

Four things can be done (`scheduler.Action`): **hydrate**, lift the prefix from the node's own slower
memory; **recompute** it; **migrate** it from another node; **replicate** it, so that both nodes have it
from then on. The papers describe all four and show no counts; these are the model's.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from mooncake_companion import traces
from mooncake_companion.costs import load_calibration
from mooncake_companion.experiments.paper_traces import provenance
from mooncake_companion.hardware import load_node, load_nodes
from mooncake_companion.llm import load_model, load_models
from mooncake_companion.parameters import check, parameter
from mooncake_companion.simulator import Action, Cluster, Result, Routing, simulate
from mooncake_companion.traces import Trace

REASONS = {
    "nothing known": "nothing of it was computed before",
    "known, not used": "its start was computed before, but is gone, not yet there, or not on the chosen node",
    "own, all of it": "the node itself holds all of its start that was ever computed",
    "own, a part": "the node itself holds a part; the rest is gone, or below the threshold for a fetch",
    "another's, cold": "the best prefix is another node's, and too few asked for it to keep two copies",
    "another's": "the best prefix is another node's, and exceeds the own by the threshold",
}
"""Why a choice was made, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """The trace and the cluster; the defaults are those of `prefill_scheduling`.

    Assumed beyond it: a block counts as hot from the third request that asks for it on, where only hot
    blocks are copied; the tiers of `byte_flows`.
    """

    trace: str = parameter("conversation", help="registered trace, or the path of a JSONL file")
    prefill_nodes: int = parameter(8, unit="nodes", low=1, high=64, help="nodes that prefill")
    decode_nodes: int = parameter(8, unit="nodes", low=1, high=64, help="nodes that decode")
    cache_tokens_per_node: int = parameter(
        3_000_000, unit="tokens", low=0, high=10**10, help="DRAM for KV cache on each prefill node"
    )
    hot_from_uses: int = parameter(
        3, unit="requests", low=2, high=10**6, help="that ask for a block make it worth a copy"
    )
    window_s: float = parameter(120.0, unit="s", low=1, high=3600, help="in which choices are counted")
    kvcache_balancing_threshold: float = parameter(
        2.0, low=1, high=1e6, help="of Algorithm 1: fetch when the best prefix exceeds the own by this factor"
    )
    node: str = parameter("a800", choices=tuple(load_nodes()), help="what every node is")
    model: str = parameter("llama3-70b", choices=tuple(load_models()), help="what it serves")

    def __post_init__(self) -> None:
        check(self)

    def clusters(self) -> dict[str, Cluster]:
        """The settings that are compared, by name."""
        small = self.cache_tokens_per_node // 10
        return {
            "A fetched prefix is copied": self._cluster(),
            "Only hot blocks are copied": self._cluster(replicate_after_uses=self.hot_from_uses),
            "A tenth of the DRAM": self._cluster(cache_tokens_per_node=small),
            "A tenth of the DRAM, and SSD": self._cluster(
                cache_tokens_per_node=small, ssd_cache_tokens_per_node=10 * self.cache_tokens_per_node
            ),
            "Nothing is fetched": self._cluster(routing=Routing.LOCAL_CACHE_AWARE),
        }

    def _cluster(self, **settings: object) -> Cluster:
        given: dict[str, object] = {"cache_tokens_per_node": self.cache_tokens_per_node}
        chosen: dict[str, object] = given | settings
        return Cluster(
            node=load_node(self.node),
            model=load_model(self.model),
            calibration=load_calibration(),
            prefill_nodes=self.prefill_nodes,
            decode_nodes=self.decode_nodes,
            kvcache_balancing_threshold=self.kvcache_balancing_threshold,
            **chosen,  # type: ignore[arg-type]
        )


def run(params: Params) -> pd.DataFrame:
    """Count the choices in windows of time, for each setting.

    Returns
    -------
    DataFrame
        ``setting``, ``time_s`` (the window's start), ``action``, ``requests``; ``share`` of the window's
        requests; their ``reused_tokens``, in all; means over them: ``mean_input_tokens``,
        ``mean_reused_tokens``, ``mean_ttft_s``.
    """
    trace = traces.load(params.trace)
    tables = [_windows(result, params.window_s).assign(setting=name) for name, result in _runs(params, trace)]
    table = pd.concat(tables, ignore_index=True)
    table.attrs["provenance"] = provenance(params, {params.trace: trace})
    return table


def reasons(params: Params) -> pd.DataFrame:
    """Count the choices of the whole trace by why they were made.

    Returns
    -------
    DataFrame
        ``setting``, ``action``, ``reason`` (a key of `REASONS`), ``requests``, ``share`` of all requests,
        ``reused_share`` of the prompts' tokens.
    """
    trace = traces.load(params.trace)
    known_blocks = traces.infinite_cache_leading_hits(trace)
    tables = []
    for name, result in _runs(params, trace):
        each = pd.DataFrame(
            {
                "action": result.action,
                "reason": _reasons(result, known_blocks, trace.block_tokens),
                "input_tokens": result.input_tokens,
                "reused_tokens": result.cached_tokens,
            }
        )
        counted = each.groupby(["action", "reason"], as_index=False).agg(
            requests=("action", "size"), input_tokens=("input_tokens", "sum"), reused=("reused_tokens", "sum")
        )
        counted["share"] = counted["requests"] / len(trace)
        counted["reused_share"] = counted["reused"] / counted["input_tokens"]
        tables.append(counted.drop(columns=["input_tokens", "reused"]).assign(setting=name))
    return pd.concat(tables, ignore_index=True)


def _runs(params: Params, trace: Trace) -> list[tuple[str, Result]]:
    return [(name, simulate(trace, cluster)) for name, cluster in params.clusters().items()]


def _windows(result: Result, window_s: float) -> pd.DataFrame:
    each = pd.DataFrame(
        {
            "time_s": window_s * (result.arrival_s // window_s),
            "action": result.action,
            "input_tokens": result.input_tokens,
            "reused_tokens": result.cached_tokens,
            "ttft_s": result.ttft_s,
        }
    )
    keys = ["time_s", "action"]
    counted = each.groupby(keys).mean().add_prefix("mean_")
    counted["requests"] = each.groupby(keys).size()
    counted["reused_tokens"] = each.groupby(keys)["reused_tokens"].sum()
    every = pd.MultiIndex.from_product([np.unique(each["time_s"]), [a.value for a in Action]], names=keys)
    counted = counted.reindex(every)
    totals = ["requests", "reused_tokens"]
    counted[totals] = counted[totals].fillna(0).astype(int)
    counted["share"] = counted["requests"] / counted.groupby("time_s")["requests"].transform("sum")
    return counted.reset_index()


def _reasons(result: Result, known_blocks: np.ndarray, block_tokens: int) -> np.ndarray:
    """Why, by what was done and how much of the prompt had come before."""
    reused_blocks = -(-result.cached_tokens // block_tokens)
    recomputed = np.where(known_blocks > 0, "known, not used", "nothing known")
    hydrated = np.where(reused_blocks >= known_blocks, "own, all of it", "own, a part")
    names = {
        Action.RECOMPUTE: recomputed,
        Action.HYDRATE: hydrated,
        Action.MIGRATE: np.array("another's, cold"),
        Action.REPLICATE: np.array("another's"),
    }
    return np.select([result.action == action.value for action in names], list(names.values()), default="")
