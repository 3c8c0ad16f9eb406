"""One request's way through Conductor, term by term: FAST'25, section 4.1, Figure 3 and Algorithm 1.

The papers print the algorithm and no example of it. These are requests of a replayed trace, picked by
the rules of `SCENARIOS` and not by hand, with every candidate that Conductor weighed for them.
"""

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from mooncake_companion import traces
from mooncake_companion.costs import decode_step_time, load_calibration
from mooncake_companion.errors import InputError
from mooncake_companion.experiments import prefill_scheduling
from mooncake_companion.experiments.paper_traces import provenance
from mooncake_companion.hardware import load_node
from mooncake_companion.llm import load_model
from mooncake_companion.parameters import check, parameter
from mooncake_companion.settings import (
    cache_parameter,
    model_parameter,
    network_parameter,
    node_parameter,
    threshold_parameter,
)
from mooncake_companion.simulator import Admission, Cluster, Outcome, Result, decisions, simulate
from mooncake_companion.simulator.overload import DecodeLoad, Limits, is_full, mean_load, share_of_limits
from mooncake_companion.traces import Trace, make_trace

OWN, FETCHED = "Own prefix", "Fetched prefix"
ANY = "First of the window"
TOO_SHORT, NO_HEADROOM = "The same, shared start too short", "The same, no decode headroom"
SCENARIOS = {
    FETCHED: "of those whose winner fetches from a node with a longer queue, the one that fetches most",
    TOO_SHORT: "that request again, were only so much of its prompt known as the threshold lets no node "
    "fetch that holds a part",
    NO_HEADROOM: "that request again, with early rejection and the most decode nodes with which their pool "
    "is too full for it",
    OWN: "of those whose winner holds the longest prefix and whose queue is not the shortest, the one that "
    "waits longest for it",
    ANY: "the first, where none of the others is there",
}
"""What is shown, and the rule that picks each request from the window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """The trace and the cluster; the defaults are those of `prefill_scheduling`.

    Assumed beyond it: the window from which requests are picked, late enough for the caches to hold
    something; and for the last scenario the limits of the report's section 8.1.3.
    """

    trace: str = parameter("conversation", help="registered trace, or the path of a JSONL file")
    nodes: int = parameter(16, unit="nodes", low=2, high=64, help="nodes of the whole cluster")
    prefill_nodes: int = parameter(
        8, unit="nodes", low=1, high=63, help="nodes that prefill; the others decode"
    )
    kvcache_balancing_threshold: float = threshold_parameter()
    cache_tokens_per_node: int = cache_parameter()
    nic_bytes_per_s: float = network_parameter()
    arrival_speedup: float = parameter(
        1.0, low=0.01, high=100, help="replay the trace this many times as fast"
    )
    node: str = node_parameter()
    model: str = model_parameter()
    window_start_share: float = parameter(
        1 / 6, low=0, high=1, help="share of the trace's time after which requests are picked"
    )
    window_share: float = parameter(
        1 / 12, low=0, high=1, help="length of that window, as a share of the trace's time"
    )
    ttft_limit_s: float = parameter(
        30.0, unit="s", low=0.1, high=1e4, help="limit of the time to first token"
    )
    tbt_limit_s: float = parameter(
        0.1, unit="s", low=0.001, high=100, help="limit of the time between tokens"
    )

    def __post_init__(self) -> None:
        check(self)
        if self.prefill_nodes >= self.nodes:
            raise InputError(
                f"parameter prefill_nodes: {self.prefill_nodes} leaves no node of {self.nodes} to decode; "
                f"expected 1 to {self.nodes - 1}"
            )

    def cluster(self, *, decode_nodes: int = 0, admission: Admission = Admission.NONE) -> Cluster:
        """The two pools; `decode_nodes` if they are to be fewer."""
        node = load_node(self.node)
        return Cluster(
            node=dataclasses.replace(node, nic_bytes_per_s=self.nic_bytes_per_s or node.nic_bytes_per_s),
            model=load_model(self.model),
            calibration=load_calibration(),
            prefill_nodes=self.prefill_nodes,
            decode_nodes=decode_nodes or self.nodes - self.prefill_nodes,
            cache_tokens_per_node=self.cache_tokens_per_node,
            kvcache_balancing_threshold=self.kvcache_balancing_threshold,
            admission=admission,
            ttft_limit_s=self.ttft_limit_s,
            tbt_limit_s=self.tbt_limit_s,
        )


class _Weighed(NamedTuple):
    """A replay, and what Conductor weighed for some of its requests."""

    trace: Trace
    cluster: Cluster
    result: Result
    prefill: pd.DataFrame
    decode: pd.DataFrame


def run(params: Params) -> pd.DataFrame:
    """Every candidate of every scenario's request, with all terms.

    Returns
    -------
    DataFrame
        A row for each scenario, pool ("prefill", "decode") and node. Columns: ``scenario``, ``pool``,
        ``node``, ``wins``; of the request ``request``, ``arrival_s``, ``input_tokens``,
        ``output_tokens``, ``decode_nodes``, ``rejected``, ``pool_share`` (see below). Of a prefill candidate
        ``local_tokens``, ``fetched_tokens``, ``source_node``, ``computed_tokens``, ``queue_s``,
        ``transfer_s``, ``prefill_s``, ``ttft_s`` (their sum). Of a decode candidate, with the request in
        it: ``sequences``, ``tokens`` and ``step_s`` of all that the node was given; ``running_share``
        of all that has its first token there, over the node's limits; ``headroom``, 1 less that. The
        pool's mean of it, ``pool_share``, is what early rejection looks at: above 1 there is none.
        Terms of the other pool are missing. A scenario for which there is no request is left out.
    """
    trace = _replayed(params)
    window = _window(params, trace)
    usual = _weigh(trace, params.cluster(), window)
    own, fetched = _holder_wins(usual.prefill), _fetches_most(usual.prefill)
    tables = []
    if fetched is not None:
        tables.append(_rows(FETCHED, usual, fetched))
        shorter = _weigh(_too_short(trace, usual.prefill, fetched, params), params.cluster(), [fetched])
        if not (shorter.prefill["chosen"] & (shorter.prefill["fetched_tokens"] > 0)).any():
            tables.append(_rows(TOO_SHORT, shorter, fetched))
        full = _without_headroom(params, trace, fetched)
        if full is not None:
            tables.append(_rows(NO_HEADROOM, _weigh(trace, full, [fetched]), fetched))
    if own is not None:
        tables.append(_rows(OWN, usual, own))
    table = pd.concat(tables or [_rows(ANY, usual, window[0])], ignore_index=True)
    table.attrs["provenance"] = provenance(params, {params.trace: trace})
    return table


_TOLD = {FETCHED: "fetched", TOO_SHORT: "too short", NO_HEADROOM: "no headroom", OWN: "own"}


def told(table: pd.DataFrame) -> dict[str, dict[str, str]]:
    """What a text can say of each scenario: the winner's terms as they are printed.

    Keys: "fetched", "too short", "no headroom", "own". Every key and term is there: "none" for a
    scenario that the table lacks. Also ``pool_pct``, and ``others_transfer_s``, the least
    that another candidate would have to transfer.
    """
    chosen = winners(table)
    others = table[(table["pool"] == "prefill") & ~table["wins"]]
    chosen["others_transfer_s"] = others.groupby("scenario")["transfer_s"].min()
    chosen["pool_pct"] = 100 * chosen["pool_share"]
    printed = {
        "input_tokens": "{:,.0f}",
        "fetched_tokens": "{:,.0f}",
        "transfer_s": "{:.2f}",
        "others_transfer_s": "{:.2f}",
        "queue_s": "{:.2f}",
        "ttft_s": "{:.2f}",
        "decode_nodes": "{:.0f}",
        "pool_pct": "{:.0f}",
    }
    return {
        key: {
            name: form.format(chosen.loc[scenario, name]) if scenario in chosen.index else "none"
            for name, form in printed.items()
        }
        for scenario, key in _TOLD.items()
    }


def on_cluster_of(params: prefill_scheduling.Params) -> Params:
    """The walkthrough with the trace and the cluster of another experiment."""
    theirs = dataclasses.asdict(params)
    return Params(**{f.name: theirs[f.name] for f in dataclasses.fields(Params) if f.name in theirs})


def winners(table: pd.DataFrame) -> pd.DataFrame:
    """What Conductor chose, a row a scenario; index: scenario.

    Columns: ``request``, ``input_tokens``, ``prefill_node``, ``local_tokens``, ``fetched_tokens``,
    ``queue_s``, ``transfer_s``, ``prefill_s``, ``ttft_s``, ``decode_node``, ``decode_nodes``, ``rejected``,
    ``pool_share``.
    """
    chosen = table[table["wins"]]
    columns = ["request", "input_tokens", "local_tokens", "fetched_tokens", "queue_s", "transfer_s"]
    columns += ["prefill_s", "ttft_s", "decode_nodes", "rejected", "pool_share"]
    prefill = chosen[chosen["pool"] == "prefill"].set_index("scenario")
    decode = chosen[chosen["pool"] == "decode"].set_index("scenario")
    return prefill[columns].assign(prefill_node=prefill["node"], decode_node=decode["node"])


def _replayed(params: Params) -> Trace:
    trace = traces.load(params.trace)
    return dataclasses.replace(trace, arrival_s=trace.arrival_s / params.arrival_speedup)


def _window(params: Params, trace: Trace) -> list[int]:
    """The requests to pick from; all of them if the window has none."""
    since_s = trace.arrival_s - trace.arrival_s[0] - params.window_start_share * trace.duration_s
    inside = np.flatnonzero((since_s >= 0) & (since_s < params.window_share * trace.duration_s))
    return [int(request) for request in inside] or list(range(len(trace)))


def _weigh(trace: Trace, cluster: Cluster, requests: list[int]) -> _Weighed:
    weighed = decisions(trace, cluster, requests)
    head = trace.head(max(requests) + 1)
    return _Weighed(head, cluster, simulate(head, cluster), *weighed)


def _holder_wins(prefill: pd.DataFrame) -> int | None:
    """The request that waits longest for its prefix, longer than it would elsewhere."""
    by_request = prefill.groupby("request")
    shortest_s, longest_tokens = (
        by_request["queue_s"].transform("min"),
        by_request["local_tokens"].transform("max"),
    )
    fits = prefill[
        prefill["chosen"]
        & (prefill["fetched_tokens"] == 0)
        & (prefill["local_tokens"] > 0)
        & (prefill["local_tokens"] == longest_tokens)
        & (prefill["queue_s"] > shortest_s)
    ]
    return _largest(fits, fits["queue_s"] - shortest_s[fits.index])


def _fetches_most(prefill: pd.DataFrame) -> int | None:
    """The request whose winner fetches the most tokens from a node with a longer queue."""
    queues_s = prefill.set_index(["request", "node"])["queue_s"]
    fits = prefill[prefill["chosen"] & (prefill["fetched_tokens"] > 0)]
    sources = pd.MultiIndex.from_frame(fits[["request", "source_node"]])
    fits = fits[queues_s.reindex(sources).to_numpy() > fits["queue_s"].to_numpy()]
    return _largest(fits, fits["fetched_tokens"])


def _largest(rows: pd.DataFrame, values: pd.Series) -> int | None:
    return None if rows.empty else int(rows["request"].to_numpy()[values.to_numpy().argmax()])


def _too_short(trace: Trace, prefill: pd.DataFrame, request: int, params: Params) -> Trace:
    """The trace up to a request, which shares less of its prompt: the rest are blocks never seen.

    The most blocks are shared for which no node fetches that holds anything of them. A node that holds
    nothing always fetches, whatever the threshold.
    """
    held = prefill.loc[prefill["request"] == request, "local_tokens"] // trace.block_tokens
    least = int(held[held > 0].min())
    shared = max(1, min(int(least * params.kvcache_balancing_threshold), int(held.max())))
    head = trace.head(request + 1)
    blocks = head.block_ids.copy()
    start = int(head.block_offsets[request]) + shared
    blocks[start:] = int(trace.block_ids.max()) + 1 + np.arange(len(blocks) - start)
    columns = {f.name: getattr(head, f.name) for f in dataclasses.fields(head)}
    del columns["sha256"]
    return make_trace(
        **columns | {"block_ids": blocks, "source": f"altered request {request}: {head.source}"}
    )


def _without_headroom(params: Params, trace: Trace, request: int) -> Cluster | None:
    """The most decode nodes with which early rejection turns a request away for want of decode."""
    for nodes in range(params.nodes - params.prefill_nodes, 0, -1):
        cluster = params.cluster(decode_nodes=nodes, admission=Admission.EARLY)
        result = simulate(trace.head(request + 1), cluster)
        load = mean_load(_running(result, request, cluster))
        full = is_full(load, _tokens(trace, request), _limits(cluster))
        if full and result.outcome[request] == Outcome.REJECTED_AT_ARRIVAL:
            return cluster
    return None


def _rows(scenario: str, weighed: _Weighed, request: int) -> pd.DataFrame:
    prefill = weighed.prefill[weighed.prefill["request"] == request].assign(pool="prefill")
    decode = weighed.decode[weighed.decode["request"] == request].assign(pool="decode")
    tokens, limits = _tokens(weighed.trace, request), _limits(weighed.cluster)
    loads = _running(weighed.result, request, weighed.cluster)
    decode["running_share"] = [share_of_limits(_with(load, tokens), limits) for load in loads]
    decode["headroom"] = 1 - decode["running_share"]
    rows = pd.concat([prefill, decode], ignore_index=True)
    input_tokens = int(weighed.trace.input_tokens[request])
    rows["computed_tokens"] = input_tokens - rows["local_tokens"] - rows["fetched_tokens"]
    facts: dict[str, Any] = {
        "scenario": scenario,
        "request": request,
        "arrival_s": float(weighed.trace.arrival_s[request]),
        "input_tokens": input_tokens,
        "output_tokens": int(weighed.trace.output_tokens[request]),
        "decode_nodes": weighed.cluster.decode_nodes,
        "rejected": bool(weighed.result.outcome[request] == Outcome.REJECTED_AT_ARRIVAL),
        "pool_share": share_of_limits(_with(mean_load(loads), tokens), limits),
    }
    kept = ["pool", "node", "chosen", "local_tokens", "fetched_tokens", "source_node", "computed_tokens"]
    kept += ["queue_s", "transfer_s", "prefill_s", "ttft_s", "sequences", "tokens", "step_s"]
    kept += ["running_share", "headroom"]
    return rows[kept].rename(columns={"chosen": "wins"}).assign(**facts)


def _running(result: Result, request: int, cluster: Cluster) -> list[DecodeLoad]:
    """What has its first token on each decode node, and is not done, when a request arrives."""
    now_s = result.arrival_s[request]
    there = (result.outcome == Outcome.FINISHED) & (result.first_token_s <= now_s) & (now_s < result.finish_s)
    there &= result.output_tokens > 1
    tokens = result.input_tokens + result.output_tokens
    nodes = result.decode_node[there]
    sequences = np.bincount(nodes, minlength=cluster.decode_nodes)
    held = np.bincount(nodes, weights=tokens[there], minlength=cluster.decode_nodes)
    return [DecodeLoad(int(n), int(t)) for n, t in zip(sequences, held, strict=True)]


def _with(load: DecodeLoad, request_tokens: int) -> DecodeLoad:
    return DecodeLoad(load.sequences + 1, load.tokens + request_tokens)


def _tokens(trace: Trace, request: int) -> int:
    return int(trace.input_tokens[request] + trace.output_tokens[request])


def _limits(cluster: Cluster) -> Limits:
    step_s = partial(decode_step_time, cluster.node, cluster.model, calibration=cluster.calibration)
    return Limits(step_s, cluster.tbt_limit_s, cluster.vram_tokens)
