"""Bytes that a request moves between tiers and nodes, and which of these moves it waits for.

FAST'25, sections 3.2 and 3.3. What the book's figure and a page's compute is here; they differ in the
engine that replays the requests, and in how much of the trace.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mooncake_companion.costs import load_calibration, prefill_time, with_tier_seconds
from mooncake_companion.errors import InputError
from mooncake_companion.hardware import load_node
from mooncake_companion.live.outcome import Outcome, Progress, Row
from mooncake_companion.live.refusals import beside
from mooncake_companion.live.slices import Slice
from mooncake_companion.llm import load_model
from mooncake_companion.parameters import check, parameter
from mooncake_companion.settings import (
    cache_parameter,
    model_parameter,
    network_parameter,
    node_parameter,
    threshold_parameter,
)
from mooncake_companion.simulator import reference
from mooncake_companion.simulator.cluster import Cluster
from mooncake_companion.simulator.reference import Request, Run
from mooncake_companion.simulator.scheduler import Routing
from mooncake_companion.simulator.watched import require_room

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
    cache_tokens_per_node: int = cache_parameter()
    ssd_cache_tokens_per_node: int = parameter(
        30_000_000, unit="tokens", low=0, high=10**11, help="of SSD, with all tiers"
    )
    nic_bytes_per_s: float = network_parameter()
    ssd_read_bytes_per_s: float = parameter(
        0.0, unit="bytes/s", low=0, high=1e13, help="of a node's SSDs; 0: that of `node`"
    )
    kvcache_balancing_threshold: float = threshold_parameter()
    node: str = node_parameter()
    model: str = model_parameter()

    def __post_init__(self) -> None:
        check(self)
        node = load_node(self.node)
        if not (self.ssd_read_bytes_per_s or node.ssd_read_bytes_per_s):
            raise InputError(
                f"parameter ssd_read_bytes_per_s: how fast the SSDs of {node.title} read is unknown; give it"
            )

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


class Scenario(NamedTuple):
    """A request that finds the caches in a known state.

    Parameters
    ----------
    name : str
    cluster : Cluster
    requests : list of Request
        What brings the caches into that state, and last the request itself.
    """

    name: str
    cluster: Cluster
    requests: list[Request]


class Served(NamedTuple):
    """What became of one request: fields as of `simulator.Result`."""

    arrival_s: float
    input_tokens: int
    cached_tokens: int
    vram_tokens: int
    ssd_tokens: int
    fetched_tokens: int
    prefill_node: int
    start_s: float
    fetched_s: float
    first_token_s: float
    streamed_s: float
    loaded_s: float


class Move(NamedTuple):
    """What some requests move on one way.

    Parameters
    ----------
    way : str
        A key of `WAYS`.
    tokens : sequence of int, shape (requests,)
    delay_s : sequence of float, shape (requests,)
        How much sooner each request's decode would begin without this move, in seconds.
    """

    way: str
    tokens: Sequence[int]
    delay_s: Sequence[float]

    def last(self) -> "Move":
        """That of the last request alone."""
        return self._replace(tokens=self.tokens[-1:], delay_s=self.delay_s[-1:])


def scenarios(params: Params, block_tokens: int) -> list[Scenario]:
    """Those of a single request."""
    n, blocks = params.input_tokens, -(-params.input_tokens // block_tokens)
    known = min(params.reused_tokens, n - 1) // block_tokens
    room = blocks * block_tokens
    before = Request(0.0, known * block_tokens, 2, range(known))
    filler = Request(_AGO_S, n, 2, range(1000, 1000 + blocks))
    cold, warm, late = (Request(ago_s, n, 2, range(blocks)) for ago_s in (0.0, _AGO_S, 2 * _AGO_S))
    alone, serial = params.cluster(1), {"kv_streaming": False, "layerwise": False}
    in_vram = params.cluster(1, vram_cache_tokens_per_node=room)
    on_ssd = params.cluster(1, cache_tokens_per_node=room, ssd_cache_tokens_per_node=10 * room)
    return [
        Scenario("Cold prompt", alone, [cold]),
        Scenario("Prefix in VRAM", in_vram, [before, warm]),
        Scenario("Prefix in DRAM", alone, [before, warm]),
        Scenario("Prefix on SSD", on_ssd, [before, filler, late]),
        Scenario("Prefix on another node", params.cluster(2), [before, filler, warm]),
        Scenario("Prefix in DRAM, late hand-over", params.cluster(1, kv_streaming=False), [before, warm]),
        Scenario("Prefix in DRAM, nothing overlapped", params.cluster(1, **serial), [before, warm]),
    ]


def whole_trace(params: Params) -> dict[str, Cluster]:
    """Settings under which all requests are served."""
    nodes = params.prefill_nodes, params.decode_nodes
    return {
        "DRAM alone": params.cluster(*nodes),
        "all tiers": params.cluster(
            *nodes,
            vram_cache_tokens_per_node=params.vram_cache_tokens_per_node,
            ssd_cache_tokens_per_node=params.ssd_cache_tokens_per_node,
        ),
        "nothing shared": params.cluster(*nodes, routing=Routing.LOCAL_CACHE_AWARE),
    }


def moves(served: Sequence[Served], cluster: Cluster) -> list[Move]:
    """Every move of a run that takes time; those down to SSD the engine counts, but does not time.

    Parameters
    ----------
    served : sequence of Served
        By prefill nodes that work alone, not in pipelines.
    cluster : Cluster
    """
    delays = [_tier_delays_s(each, cluster) for each in served]
    decodes = [math.isfinite(each.loaded_s) for each in served]
    decoded_tokens = [each.input_tokens if there else 0 for each, there in zip(served, decodes, strict=True)]
    stream_s = [each.streamed_s - each.first_token_s for each in served]
    load_s = [each.loaded_s - max(each.streamed_s, each.first_token_s) for each in served]
    found = [
        Move("ssd_read", [each.ssd_tokens for each in served], [read_s for read_s, _, _ in delays]),
        Move("fetch", [each.fetched_tokens for each in served], _fetch_delays_s(served)),
        Move(
            "prefix_load",
            [each.cached_tokens - each.vram_tokens for each in served],
            [prefix_s for _, prefix_s, _ in delays],
        ),
        Move(
            "store",
            [each.input_tokens - each.cached_tokens for each in served],
            [store_s for _, _, store_s in delays],
        ),
        Move("stream", decoded_tokens, _where(decodes, stream_s)),
        Move("decode_load", decoded_tokens, _where(decodes, load_s)),
    ]
    return [move._replace(delay_s=[max(delay_s, 0.0) for delay_s in move.delay_s]) for move in found]


def _where(there: Sequence[bool], values: Sequence[float]) -> list[float]:
    return [value if here else 0.0 for here, value in zip(there, values, strict=True)]


def _tier_delays_s(served: Served, cluster: Cluster) -> tuple[float, float, float]:
    """What reading from SSD, loading from DRAM and storing there each add to a prefill, in seconds."""
    compute_s = prefill_time(
        cluster.node,
        cluster.model,
        served.input_tokens,
        served.cached_tokens,
        calibration=cluster.calibration,
    )
    read_s = served.ssd_tokens * cluster.ssd_token_s
    load_s = (served.cached_tokens - served.vram_tokens) * cluster.host_link_token_s
    store_s = (served.input_tokens - served.cached_tokens) * cluster.host_link_token_s
    full_s = with_tier_seconds(compute_s, read_s, load_s, store_s, cluster.layerwise)
    return (
        full_s - with_tier_seconds(compute_s, 0.0, load_s, store_s, cluster.layerwise),
        full_s - with_tier_seconds(compute_s, read_s, 0.0, store_s, cluster.layerwise),
        full_s - with_tier_seconds(compute_s, read_s, load_s, 0.0, cluster.layerwise),
    )


def _fetch_delays_s(served: Sequence[Served]) -> list[float]:
    """How long each request's node was free and waited for its prefix from another one, in seconds."""
    waited_s = [0.0] * len(served)
    free_s: dict[int, float] = {}
    for index in sorted(range(len(served)), key=lambda index: served[index].start_s):
        each = served[index]
        if each.fetched_tokens:
            waited_s[index] = each.fetched_s - max(each.arrival_s, free_s.get(each.prefill_node, 0.0))
        free_s[each.prefill_node] = each.first_token_s
    return waited_s


def flow_rows(scenario: str, moved: Sequence[Move], demoted_tokens: int, cluster: Cluster) -> list[Row]:
    """A row for each way that anything moves on; columns as of `experiments.byte_flows.run`."""
    requests = len(moved[0].tokens)
    demoted = Move("demotion", [demoted_tokens], [0.0])
    rows: list[Row] = []
    for way, tokens, delay_s in [*moved, demoted]:
        if not sum(tokens):
            continue
        title, source_node, source_tier, target_node, target_tier = WAYS[way]
        mean_s = math.fsum(delay_s) / requests
        rows.append(
            {
                "scenario": scenario,
                "requests": requests,
                "way": way,
                "title": title,
                "source_node": source_node,
                "source_tier": source_tier,
                "target_node": target_node,
                "target_tier": target_tier,
                "bytes": float(sum(tokens)) / requests * cluster.model.kv_bytes_per_token,
                "delay_s": mean_s,
                "critical": mean_s > _NOTICEABLE_S,
                "delayed_share": sum(each > _NOTICEABLE_S for each in delay_s) / requests,
            }
        )
    return rows


def run(params: Params, sliced: Slice, progress: Progress) -> Outcome:
    """Bytes on every way, the last scenarios over the slice; columns as of `experiments.byte_flows`."""
    with beside("model"):
        single, whole = scenarios(params, sliced.block_tokens), whole_trace(params)
    rows: list[Row] = []
    for name, cluster, requests in single:
        before, after = (_replay(part, cluster, sliced.block_tokens) for part in (requests[:-1], requests))
        last = [move.last() for move in moves(_served(requests, after), cluster)]
        demoted = after.counters["demoted_to_ssd"] - before.counters["demoted_to_ssd"]
        rows += flow_rows(name, last, demoted * sliced.block_tokens, cluster)
    for done, (name, cluster) in enumerate(whole.items()):
        progress(done, len(whole))
        done_run = _replay(sliced.requests, cluster, sliced.block_tokens)
        demoted = done_run.counters["demoted_to_ssd"] * sliced.block_tokens
        moved = moves(_served(sliced.requests, done_run), cluster)
        rows += flow_rows(f"First {len(sliced.requests):,} requests, {name}", moved, demoted, cluster)
    return Outcome(
        rows=rows,
        description=_description(rows),
        offered={"scenario": list(dict.fromkeys(row["scenario"] for row in rows))},
    )


def _replay(requests: Sequence[Request], cluster: Cluster, block_tokens: int) -> Run:
    with beside("node"):
        require_room(requests, cluster, block_tokens)
    return reference.replay(requests, cluster, block_tokens=block_tokens, draws=[0.0] * len(requests))


def _served(requests: Sequence[Request], done: Run) -> list[Served]:
    return [
        Served(
            arrival_s=request.arrival_s,
            input_tokens=request.input_tokens,
            cached_tokens=choice.local_tokens + choice.fetched_tokens,
            vram_tokens=choice.vram_tokens,
            ssd_tokens=choice.ssd_tokens,
            fetched_tokens=choice.fetched_tokens,
            prefill_node=choice.node,
            start_s=record.start_s,
            fetched_s=record.fetched_s,
            first_token_s=record.first_token_s,
            streamed_s=record.streamed_s,
            loaded_s=record.loaded_s,
        )
        for request, record in zip(requests, done.records, strict=True)
        if (choice := record.choice) is not None
    ]


def _description(rows: Sequence[Row]) -> str:
    parts = []
    for name in dict.fromkeys(row["scenario"] for row in rows):
        moved = [row for row in rows if row["scenario"] == name]
        waited = ", ".join(row["title"].lower() for row in moved if row["critical"]) or "none"
        gigabytes = sum(row["bytes"] for row in moved) / 1e9
        parts.append(f"{name}: {gigabytes:.1f} GB a request, on the critical path {waited}.")
    return f"Flow diagram of bytes between tiers and nodes, computed in this browser. {' '.join(parts)}"
