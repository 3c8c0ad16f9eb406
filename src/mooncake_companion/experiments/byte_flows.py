"""Bytes that a request moves between tiers and nodes, and which of these moves it waits for.

FAST'25, sections 3.2 and 3.3, describe the moves; no figure counts them. Each scenario is a short trace
that brings the caches into a state, and a last request that finds it so, replayed by the engine; the
whole trace is averaged over its requests. A move is *on the critical path* if decode would begin
earlier without it, and hidden otherwise: behind the computation, or done when nobody waits.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from mooncake_companion import traces
from mooncake_companion.costs import load_calibration, prefill_time, with_tier_seconds
from mooncake_companion.experiments.paper_traces import provenance
from mooncake_companion.hardware import load_node, load_nodes
from mooncake_companion.llm import load_model, load_models
from mooncake_companion.parameters import check, parameter
from mooncake_companion.simulator import Cluster, Result, Routing, simulate
from mooncake_companion.traces import BLOCK_TOKENS, Trace

Floats = npt.NDArray[np.float64]

WAYS = {
    "ssd_read": ("Read from SSD", "Prefill node", "SSD", "Prefill node", "DRAM"),
    "fetch": ("Fetch from another node", "Another prefill node", "DRAM", "Prefill node", "DRAM"),
    "prefix_load": ("Load the prefix", "Prefill node", "DRAM", "Prefill node", "VRAM"),
    "store": ("Store new blocks", "Prefill node", "VRAM", "Prefill node", "DRAM"),
    "demotion": ("Move cold blocks down", "Prefill node", "DRAM", "Prefill node", "SSD"),
    "stream": ("Hand over to decode", "Prefill node", "DRAM", "Decode node", "DRAM"),
    "decode_load": ("Load for decode", "Decode node", "DRAM", "Decode node", "VRAM"),
}
"""Moves in words, with the node and the tier that each leaves and reaches."""

_AGO_S = 1000.0
_NOTICEABLE_S = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """The request of the scenarios, the trace, and the nodes.

    Assumed: a prompt of 16,384 tokens, three quarters of it known, which is near the mean of the
    synthetic trace in both; the split and the threshold of `prefill_scheduling`; for the whole trace
    with all tiers, 400,000 tokens of VRAM for cached blocks, a third of what the weights leave free, and
    30 million of SSD, ten times DRAM.
    """

    input_tokens: int = parameter(16_384, unit="tokens", low=1024, high=131_072, help="prompt")
    reused_tokens: int = parameter(
        12_288,
        unit="tokens",
        low=512,
        high=130_560,
        help="of it known before, in whole blocks; less than all",
    )
    trace: str = parameter("conversation", help="registered trace, or the path of a JSONL file")
    prefill_nodes: int = parameter(8, unit="nodes", low=1, high=64, help="nodes that prefill the trace")
    decode_nodes: int = parameter(8, unit="nodes", low=1, high=64, help="nodes that decode it")
    vram_cache_tokens_per_node: int = parameter(
        400_000, unit="tokens", low=0, high=10**9, help="of VRAM for cached blocks, with all tiers"
    )
    cache_tokens_per_node: int = parameter(
        3_000_000, unit="tokens", low=0, high=10**10, help="DRAM for KV cache on each prefill node"
    )
    ssd_cache_tokens_per_node: int = parameter(
        30_000_000, unit="tokens", low=0, high=10**11, help="of SSD, with all tiers"
    )
    nic_bytes_per_s: float = parameter(
        0.0, unit="bytes/s", low=0, high=1e13, help="line rate of a node's network; 0: that of `node`"
    )
    ssd_read_bytes_per_s: float = parameter(
        0.0, unit="bytes/s", low=0, high=1e13, help="of a node's SSDs; 0: that of `node`"
    )
    kvcache_balancing_threshold: float = parameter(
        2.0, low=1, high=1e6, help="of Algorithm 1: fetch when the best prefix exceeds the own by this factor"
    )
    node: str = parameter("a800", choices=tuple(load_nodes()), help="what every node is")
    model: str = parameter("llama3-70b", choices=tuple(load_models()), help="what it serves")

    def __post_init__(self) -> None:
        check(self)

    def cluster(self, prefill_nodes: int, decode_nodes: int = 1, **settings: object) -> Cluster:
        """Nodes of these parameters; caches as in `settings`, else DRAM alone."""
        node = load_node(self.node)
        rates = {
            name: getattr(self, name) or getattr(node, name)
            for name in ("nic_bytes_per_s", "ssd_read_bytes_per_s")
        }
        given: dict[str, object] = {
            "kvcache_balancing_threshold": self.kvcache_balancing_threshold,
            "cache_tokens_per_node": self.cache_tokens_per_node,
        }
        chosen: dict[str, object] = given | settings
        return Cluster(
            node=dataclasses.replace(node, **rates),
            model=load_model(self.model),
            calibration=load_calibration(),
            prefill_nodes=prefill_nodes,
            decode_nodes=decode_nodes,
            **chosen,  # type: ignore[arg-type]
        )


def run(params: Params) -> pd.DataFrame:
    """Bytes on every way by scenario, and what each delays the start of decode.

    Returns
    -------
    DataFrame
        A row for each scenario and move that takes place. ``scenario``; ``requests`` (1, or the
        trace's); ``way``, ``title``, ``source_node``, ``source_tier``, ``target_node``,
        ``target_tier``; ``bytes`` and ``delay_s``, mean per request; ``critical``, whether the delay is
        above a millisecond; ``delayed_share``, of the requests that it delays by more than that.
    """
    rows = [
        {"scenario": name, "requests": requests, **row}
        for name, requests, moves in _scenarios(params)
        for row in moves
    ]
    table = pd.DataFrame(rows)
    table.attrs["provenance"] = provenance(params, {params.trace: traces.load(params.trace)})
    return table


def times(params: Params) -> pd.DataFrame:
    """How long the single request of each scenario takes to its first token and to its decode.

    Returns
    -------
    DataFrame
        Indexed by ``scenario``: ``reused_tokens``, ``ttft_s``, ``decode_start_s`` (both from arrival).
    """
    rows = [
        {
            "scenario": name,
            "reused_tokens": int(result.cached_tokens[-1]),
            "ttft_s": float(result.ttft_s[-1]),
            "decode_start_s": float(result.join_s[-1] - result.arrival_s[-1]),
        }
        for name, cluster, requests in _single(params)
        for result in [simulate(_trace(requests), cluster)]
    ]
    return pd.DataFrame(rows).set_index("scenario")


class Move(NamedTuple):
    """What some requests move on one way; arrays of shape (requests,).

    Parameters
    ----------
    way : str
        A key of `WAYS`.
    tokens : array of int
    delay_s : array of float64
        How much sooner each request's decode would begin without this move, in seconds.
    """

    way: str
    tokens: np.ndarray
    delay_s: Floats


def moves(result: Result, cluster: Cluster) -> list[Move]:
    """Every move of a run that takes time; those down to SSD the engine counts, but does not time.

    Parameters
    ----------
    result : Result
        Of prefill nodes that work alone, not in pipelines.
    cluster : Cluster
    """
    decodes = np.isfinite(result.loaded_s)
    decoded_tokens = np.where(decodes, result.input_tokens, 0)
    stream_s = result.streamed_s - result.first_token_s
    load_s = result.loaded_s - np.maximum(result.streamed_s, result.first_token_s)
    read_s, prefix_s, store_s = _tier_delays_s(result, cluster)
    found = [
        Move("ssd_read", result.ssd_tokens, read_s),
        Move("fetch", result.fetched_tokens, _fetch_delays_s(result)),
        Move("prefix_load", result.cached_tokens - result.vram_tokens, prefix_s),
        Move("store", result.input_tokens - result.cached_tokens, store_s),
        Move("stream", decoded_tokens, np.where(decodes, stream_s, 0.0)),
        Move("decode_load", decoded_tokens, np.where(decodes, load_s, 0.0)),
    ]
    return [move._replace(delay_s=np.maximum(move.delay_s, 0.0)) for move in found]


def _tier_delays_s(result: Result, cluster: Cluster) -> tuple[Floats, Floats, Floats]:
    """What reading from SSD, loading from DRAM and storing there each add to a prefill, in seconds."""
    compute_s = prefill_time(
        cluster.node,
        cluster.model,
        result.input_tokens,
        result.cached_tokens,
        calibration=cluster.calibration,
    )
    parts_s = (
        result.ssd_tokens * cluster.ssd_token_s,
        (result.cached_tokens - result.vram_tokens) * cluster.host_link_token_s,
        (result.input_tokens - result.cached_tokens) * cluster.host_link_token_s,
    )

    def whole_s(*moved_s: Floats) -> Floats:
        each = zip(compute_s.tolist(), *(part.tolist() for part in moved_s), strict=True)
        return np.array(
            [
                with_tier_seconds(compute, read, load, store, cluster.layerwise)
                for compute, read, load, store in each
            ]
        )

    read_s, load_s, store_s = parts_s
    nothing_s = np.zeros_like(read_s)
    full_s = whole_s(read_s, load_s, store_s)
    return (
        full_s - whole_s(nothing_s, load_s, store_s),
        full_s - whole_s(read_s, nothing_s, store_s),
        full_s - whole_s(read_s, load_s, nothing_s),
    )


def _fetch_delays_s(result: Result) -> Floats:
    """How long each request's node was free and waited for its prefix from another one, in seconds."""
    free_s = np.zeros(len(result))
    for node in np.unique(result.prefill_node):
        there = np.flatnonzero(result.prefill_node == node)
        in_turn = there[np.argsort(result.start_s[there], kind="stable")]
        free_s[in_turn[1:]] = result.first_token_s[in_turn[:-1]]
    waited_s = result.fetched_s - np.maximum(result.arrival_s, free_s)
    return np.where(result.fetched_tokens > 0, waited_s, 0.0)


_Requests = list[tuple[float, int, int, Sequence[int]]]


def _single(params: Params) -> list[tuple[str, Cluster, _Requests]]:
    """Scenarios of one request: its cluster, and what comes before it; the request is the last."""
    n, blocks = params.input_tokens, -(-params.input_tokens // BLOCK_TOKENS)
    known = min(params.reused_tokens, n - 1) // BLOCK_TOKENS
    earlier = (0.0, known * BLOCK_TOKENS, 2, range(known))
    filler = (_AGO_S, n, 2, range(1000, 1000 + blocks))
    prompt = range(blocks)
    room = blocks * BLOCK_TOKENS
    return [
        ("Cold prompt", params.cluster(1), [(0.0, n, 2, prompt)]),
        (
            "Prefix in VRAM",
            params.cluster(1, vram_cache_tokens_per_node=room),
            [earlier, (_AGO_S, n, 2, prompt)],
        ),
        ("Prefix in DRAM", params.cluster(1), [earlier, (_AGO_S, n, 2, prompt)]),
        (
            "Prefix on SSD",
            params.cluster(1, cache_tokens_per_node=room, ssd_cache_tokens_per_node=10 * room),
            [earlier, filler, (2 * _AGO_S, n, 2, prompt)],
        ),
        ("Prefix on another node", params.cluster(2), [earlier, filler, (_AGO_S, n, 2, prompt)]),
        (
            "Prefix in DRAM, late hand-over",
            params.cluster(1, kv_streaming=False),
            [earlier, (_AGO_S, n, 2, prompt)],
        ),
        (
            "Prefix in DRAM, nothing overlapped",
            params.cluster(1, kv_streaming=False, layerwise=False),
            [earlier, (_AGO_S, n, 2, prompt)],
        ),
    ]


def _whole(params: Params) -> dict[str, Cluster]:
    nodes = params.prefill_nodes, params.decode_nodes
    return {
        "Whole trace, DRAM alone": params.cluster(*nodes),
        "Whole trace, all tiers": params.cluster(
            *nodes,
            vram_cache_tokens_per_node=params.vram_cache_tokens_per_node,
            ssd_cache_tokens_per_node=params.ssd_cache_tokens_per_node,
        ),
        "Whole trace, nothing shared": params.cluster(*nodes, routing=Routing.LOCAL_CACHE_AWARE),
    }


def _scenarios(params: Params) -> list[tuple[str, int, list[dict[str, object]]]]:
    found = []
    for name, cluster, requests in _single(params):
        result = simulate(_trace(requests), cluster)
        before = simulate(_trace(requests[:-1]), cluster).counters["demoted_to_ssd"] if requests[:-1] else 0
        demoted = result.counters["demoted_to_ssd"] - before
        last = [
            move._replace(tokens=move.tokens[-1:], delay_s=move.delay_s[-1:])
            for move in moves(result, cluster)
        ]
        found.append((name, 1, _rows(last, demoted * BLOCK_TOKENS, cluster)))
    trace = traces.load(params.trace)
    for name, cluster in _whole(params).items():
        result = simulate(trace, cluster)
        demoted = result.counters["demoted_to_ssd"] * trace.block_tokens
        found.append((name, len(trace), _rows(moves(result, cluster), demoted, cluster)))
    return found


def _rows(moved: list[Move], demoted_tokens: int, cluster: Cluster) -> list[dict[str, object]]:
    requests = len(moved[0].tokens)
    demoted = Move("demotion", np.array([demoted_tokens]), np.zeros(1))
    rows: list[dict[str, object]] = []
    for way, tokens, delay_s in [*moved, demoted]:
        if not tokens.sum():
            continue
        title, source_node, source_tier, target_node, target_tier = WAYS[way]
        mean_s = float(delay_s.sum()) / requests
        rows.append(
            {
                "way": way,
                "title": title,
                "source_node": source_node,
                "source_tier": source_tier,
                "target_node": target_node,
                "target_tier": target_tier,
                "bytes": float(tokens.sum()) / requests * cluster.model.kv_bytes_per_token,
                "delay_s": mean_s,
                "critical": mean_s > _NOTICEABLE_S,
                "delayed_share": float((delay_s > _NOTICEABLE_S).sum()) / requests,
            }
        )
    return rows


def _trace(requests: _Requests) -> Trace:
    return Trace.from_requests(requests, name="scenario")
