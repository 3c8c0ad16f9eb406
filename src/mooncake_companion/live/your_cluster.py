"""Another cluster than the papers', on a slice of the trace."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mooncake_companion.costs import (
    Calibration,
    break_even_bandwidth,
    load_calibration,
    prefill_cost,
    prefill_seconds,
)
from mooncake_companion.errors import InputError
from mooncake_companion.hardware import GpuNode, load_node, load_nodes
from mooncake_companion.live.network import on_network, own_or_other_network
from mooncake_companion.live.outcome import Outcome, Progress, Row
from mooncake_companion.live.slices import Slice, hit_ratio, ttfts_s
from mooncake_companion.live.systems import BATCHINGS, MOONCAKE
from mooncake_companion.llm import TransformerModel, load_model, load_models
from mooncake_companion.parameters import check, parameter
from mooncake_companion.presets import is_file
from mooncake_companion.settings import threshold_parameter
from mooncake_companion.simulator import reference
from mooncake_companion.simulator.cluster import Cluster, Deployment
from mooncake_companion.simulator.coupled import CoupledCluster
from mooncake_companion.simulator.overload import Admission
from mooncake_companion.simulator.watched import require_room
from mooncake_companion.statistics import mean, quantile

PERCENTILES = (50, 90, 99)
BYTES = ("fetched_bytes", "streamed_bytes", "loaded_bytes")
"""What is moved, by way: between prefill nodes, to the decode node, and into its GPU memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """A cluster; the defaults are those of FAST'25, section 5.2, with 1 TB of cache a node.

    Assumed as there: half of the nodes prefill, and the interval in which a KV cache moves to its
    decode node is none of the TBT's. What was fitted on A800 nodes, shares of what the hardware can
    do, is taken for all; `host_time` alone can be left out.
    """

    trace: str = parameter("conversation", help="registered trace, or the path of a JSONL file")
    block_tokens: int = parameter(
        512, unit="tokens", low=1, high=2**20, help="in a hashed block of that file"
    )
    node: str = parameter("a800", help="preset of what every node is, or a TOML file with a table [node]")
    model: str = parameter("llama3-70b", help="preset of what it serves, or a TOML file with a table [model]")
    prefill_nodes: int = parameter(8, unit="nodes", low=1, high=256, help="nodes that prefill")
    decode_nodes: int = parameter(8, unit="nodes", low=1, high=256, help="nodes that decode")
    cache_bytes_per_node: float = parameter(
        1e12, unit="bytes", low=0, high=1e15, help="DRAM for KV cache on each prefill node"
    )
    network_gbit_per_s: float = own_or_other_network()
    kvcache_balancing_threshold: float = threshold_parameter()
    admission: str = parameter("none", choices=tuple(Admission), help="when requests are turned away")
    ttft_limit_s: float = parameter(30.0, unit="s", low=0.01, high=1000, help="limit of the first token")
    tbt_limit_s: float = parameter(0.1, unit="s", low=0.001, high=100, help="limit of the token rhythm")
    predicted_decode_s: float = parameter(
        15.0, unit="s", low=0.01, high=1e4, help="t_d of predictive admission"
    )
    arrival_speedup: float = parameter(
        1.0, low=0.01, high=100, help="replay the trace this many times as fast"
    )
    host_time: bool = parameter(
        True, help="whether decode steps wait for the host, as fitted on FAST'25, Figure 15"
    )
    cached_tokens: int = parameter(
        8192, unit="tokens", low=1, high=10**7, help="prefix of which the break-even bandwidth is told"
    )

    def __post_init__(self) -> None:
        check(self)
        node = self.gpu_node
        if node.dram_bytes is not None and self.cache_bytes_per_node > node.dram_bytes:
            raise InputError(
                f"parameter cache_bytes_per_node: {self.cache_bytes_per_node:g} is more than the "
                f"{node.dram_bytes:g} bytes of DRAM of {node.title}"
            )
        self.cluster(MOONCAKE)  # refuses a model that does not fit

    @property
    def gpu_node(self) -> GpuNode:
        """The node, with the network that was asked for."""
        return self.on_network(load_node(self.node))

    def cluster(
        self, system: str, *, node: GpuNode | None = None, host_time: bool | None = None
    ) -> Cluster | CoupledCluster:
        """One of `systems.SYSTEMS`, by its title; on another node, or without the host's time.

        Raises
        ------
        InputError
            If the model does not fit on the node.
        """
        model = load_model(self.model)
        served: dict[str, Any] = {
            "node": self.gpu_node if node is None else self.on_network(node),
            "model": model,
            "calibration": self.calibration(host_time),
            "first_interval_counts": False,
        }
        if system != MOONCAKE:
            nodes = self.prefill_nodes + self.decode_nodes
            return CoupledCluster(**served, nodes=nodes, batching=BATCHINGS[system])
        return Cluster(
            **served,
            prefill_nodes=self.prefill_nodes,
            decode_nodes=self.decode_nodes,
            cache_tokens_per_node=int(self.cache_bytes_per_node // model.kv_bytes_per_token),
            kvcache_balancing_threshold=self.kvcache_balancing_threshold,
            admission=Admission(self.admission),
            ttft_limit_s=self.ttft_limit_s,
            tbt_limit_s=self.tbt_limit_s,
            predicted_decode_s=self.predicted_decode_s,
        )

    def calibration(self, host_time: bool | None = None) -> Calibration:
        """The fitted constants, with or without the host's time."""
        return load_calibration(host=self.host_time if host_time is None else host_time)

    def on_network(self, node: GpuNode) -> GpuNode:
        """A node with the network that was asked for."""
        return on_network(node, self.network_gbit_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuParams(Params):
    """The same, and how many GPUs every node has."""

    gpus: int = parameter(8, unit="GPUs", low=1, high=72, help="of every node, with the links of all of it")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelParams:
    """A model of a reader's own, with the shape of LLaMA3-70B unless told otherwise, and a node's cache."""

    layers: int = parameter(80, unit="layers", low=1, high=10_000, help="of your model")
    kv_elements_per_layer: int = parameter(
        2048,
        unit="elements",
        low=1,
        high=10**7,
        help="kept of a token in a layer: 2 × key/value heads × their dimension, or a latent vector's",
    )
    element_bytes: int = parameter(
        2, unit="bytes", low=1, high=8, help="of such an element: 2 in BF16, 1 in FP8"
    )
    parameters: int = parameter(70_553_706_496, low=1, high=10**16, help="of your model: weights, as a count")
    active_parameters: int = parameter(
        0, low=0, high=10**16, help="of these, what one token uses in a mixture of experts; 0 takes all"
    )
    weight_element_bytes: int = parameter(
        2, unit="bytes", low=1, high=8, help="of a weight: 2 in BF16, 1 in FP8"
    )
    cache_bytes_per_node: float = parameter(
        1e12, unit="bytes", low=0, high=1e15, help="DRAM for KV cache on each prefill node"
    )

    def __post_init__(self) -> None:
        check(self)
        if self.active_parameters > self.parameters:
            raise InputError(
                f"parameter active_parameters: {self.active_parameters:,} is more than all "
                f"{self.parameters:,} parameters"
            )

    @property
    def own(self) -> TransformerModel:
        """The model; what is not told of it is LLaMA3-70B's, and matters to no row of `model_rows`."""
        return replace(
            load_model("llama3-70b"),
            title="Your model",
            layers=self.layers,
            query_heads_per_kv_head=None,
            kv_elements_per_layer=self.kv_elements_per_layer,
            element_bytes=self.element_bytes,
            weight_element_bytes=self.weight_element_bytes,
            parameters=self.parameters,
            active_parameters=self.active_parameters or None,
        )


def nodes_of(params: Params) -> dict[str, GpuNode]:
    """Every node preset, and the chosen node if it is none."""
    return load_nodes() | {short_name(params.node): load_node(params.node)}


def models_of(params: Params) -> dict[str, TransformerModel]:
    """Every model preset, and the chosen model if it is none."""
    return load_models() | {short_name(params.model): load_model(params.model)}


def short_name(name: str) -> str:
    """How a preset or a file is called in a table."""
    return Path(name).stem if is_file(name) else name


def model_rows(models: Mapping[str, TransformerModel], chosen: str, cache_bytes_per_node: float) -> list[Row]:
    """A row for each model; columns as of `experiments.your_cluster.by_model`."""
    return [
        {
            "model": name,
            "title": model.title,
            "chosen": name == chosen,
            "kv_bytes_per_token": model.kv_bytes_per_token,
            "weights_bytes": model.weights_bytes,
            "parameters": model.parameters,
            "active_parameters": model.active_parameters or model.parameters,
            "cache_tokens": int(cache_bytes_per_node // model.kv_bytes_per_token),
        }
        for name, model in models.items()
    ]


def by_model(params: ModelParams, _sliced: None, progress: Progress) -> Outcome:
    """The presets and the reader's own model; columns as of `experiments.your_cluster.by_model`."""
    progress(0, 1)
    name = "yours"
    rows = model_rows(load_models() | {name: params.own}, name, params.cache_bytes_per_node)
    parts = [f"{row['title']} {row['kv_bytes_per_token'] / 1e3:,.1f} KB" for row in rows]
    return Outcome(
        rows=rows,
        description=(
            "KV cache that each model and yours keep of a token, computed in this browser: "
            f"{', '.join(parts)}. A node's cache holds {rows[-1]['cache_tokens']:,} tokens of yours."
        ),
    )


def break_even_rows(params: Params, nodes: Mapping[str, GpuNode], lengths: Iterable[int]) -> list[Row]:
    """A row for each model, node and prefix; columns as of `experiments.your_cluster.break_even`."""
    calibration = params.calibration()
    rows = []
    for name, model in models_of(params).items():
        for node_name, each in nodes.items():
            node = params.on_network(each)
            vram_tokens = Deployment(node=node, model=model, calibration=calibration).vram_tokens
            cost = prefill_cost(node, model, calibration)
            for tokens in lengths:
                peak = float(break_even_bandwidth(node, model, tokens))
                saved_s = float(prefill_seconds(0.0, cost.token_s, cost.pair_s, tokens, 0))
                rows.append(
                    {
                        "model": name,
                        "node": node_name,
                        "model_title": model.title,
                        "node_title": node.title,
                        "cached_tokens": tokens,
                        "break_even_bytes_per_s": peak,
                        "fitted_break_even_bytes_per_s": tokens * model.kv_bytes_per_token / saved_s,
                        "network_bytes_per_s": node.nic_bytes_per_s,
                        "network_share": peak / node.nic_bytes_per_s,
                        "fits": vram_tokens >= 1,
                        "vram_tokens": max(vram_tokens, 0),
                    }
                )
    return rows


def break_even(params: GpuParams, _sliced: None, progress: Progress) -> Outcome:
    """Bandwidth from which on loading one prefix pays, by model and node."""
    progress(0, 1)
    nodes = {name: replace(node, gpus=params.gpus) for name, node in nodes_of(params).items()}
    rows = break_even_rows(params, nodes, [params.cached_tokens])
    fitting = sorted(
        (row for row in rows if row["fits"]), key=lambda row: float(row["break_even_bytes_per_s"])
    )
    if not fitting:
        raise InputError(f"parameter gpus: no model fits on {params.gpus} GPUs of any node")
    ends = " to ".join(
        f"{row['break_even_bytes_per_s'] / 1e9:.1f} GB/s for {row['model_title']} on {row['node']}"
        for row in (fitting[0], fitting[-1])
    )
    return Outcome(
        rows=rows,
        description=(
            f"Bandwidth above which loading a prefix of {params.cached_tokens:,} tokens beats computing it "
            f"(Equation 2), by model and node, computed in this browser: from {ends}."
        ),
        fixed={"prefix": params.cached_tokens},
    )


def by_node(params: Params, sliced: Slice, progress: Progress) -> Outcome:
    """The same requests on every node preset; columns as of `experiments.your_cluster.by_node`."""
    sliced = sliced.head(len(sliced.requests), speedup=params.arrival_speedup)
    places = [(name, node, host) for name, node in nodes_of(params).items() for host in (True, False)]
    found: list[tuple[Row, Row | None]] = []
    for done, (name, node, host_time) in enumerate(places):
        progress(done, len(places))
        told = {"node": name, "title": node.title, "chosen": name == short_name(params.node)}
        told |= {"host_time": host_time, "speedup": 1.0}
        try:
            cluster = params.cluster(MOONCAKE, node=node, host_time=host_time)
        except InputError:  # the model does not fit
            found.append((told, None))
            continue
        assert isinstance(cluster, Cluster)
        found.append((told, numbers(params, cluster, sliced)))
    columns = next((list(row) for _, row in found if row is not None), [])
    nothing = dict.fromkeys(columns, math.nan)
    rows = [{**told, "fits": row is not None, **(nothing if row is None else row)} for told, row in found]
    return Outcome(
        rows=rows,
        description=_describe_nodes([row for row in rows if row["host_time"]]),
        fixed={"speed": 1, "ttft_limit_s": params.ttft_limit_s, "tbt_limit_s": params.tbt_limit_s},
    )


def numbers(params: Params, cluster: Cluster, sliced: Slice) -> Row:
    """The replay by Mooncake in numbers, as `experiments.your_cluster.summary` has them."""
    require_room(sliced.requests, cluster, sliced.block_tokens)
    run = reference.replay(sliced.requests, cluster, block_tokens=sliced.block_tokens, draws=sliced.draws)
    records, requests = run.records, sliced.requests
    outcomes = [record.outcome for record in records]
    finished = outcomes.count(reference.Outcome.FINISHED)
    ttft_s, tbt_s = ttfts_s(sliced, records), [record.tbt_s for record in records]
    good = sum(
        record.outcome == reference.Outcome.FINISHED
        and first_s <= params.ttft_limit_s
        and not record.tbt_s > params.tbt_limit_s
        for first_s, record in zip(ttft_s, records, strict=True)
    )
    ends_s = _known([*(each.finish_s for each in records), *(each.first_token_s for each in records)])
    first_s, last_s = requests[0].arrival_s, requests[-1].arrival_s
    gpu_s = (
        cluster.node.gpus * (params.prefill_nodes + params.decode_nodes) * (max(*ends_s, last_s) - first_s)
    )
    prefill_s = [
        record.choice.prefill_s
        for record in records
        if record.choice is not None and not math.isnan(record.start_s)
    ]
    return {
        "system": MOONCAKE,
        "requests": len(records),
        "finished": finished,
        "rejected_at_arrival": outcomes.count(reference.Outcome.REJECTED_AT_ARRIVAL),
        "rejected_after_prefill": outcomes.count(reference.Outcome.REJECTED_AFTER_PREFILL),
        "late": finished - good,
        **_spread("ttft", ttft_s),
        **_spread("tbt", tbt_s),
        "effective_capacity": good / len(records),
        "goodput_requests_per_s": good / (last_s - first_s) if last_s > first_s else math.nan,
        "hit_ratio": hit_ratio(sliced, records),
        **_bytes_by_way(run.sent_bytes, cluster),
        "gpu_s": gpu_s,
        "prefill_gpu_s": cluster.node.gpus * math.fsum(prefill_s),
        "gpu_s_per_good_request": gpu_s / good if good else math.nan,
    }


def _known(values: Iterable[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]


def _spread(metric: str, values_s: Iterable[float]) -> Row:
    known = sorted(_known(values_s))
    levels = [quantile(known, level / 100) if known else math.nan for level in PERCENTILES]
    return {
        f"{metric}_mean_s": mean(known) if known else math.nan,
        **{f"{metric}_p{level}_s": value for level, value in zip(PERCENTILES, levels, strict=True)},
    }


def _bytes_by_way(sent_bytes: Sequence[int], cluster: Cluster) -> dict[str, int]:
    """Bytes into prefill nodes, decode nodes and GPU memory; links are as of `reference.Run`."""
    nodes = cluster.prefill_instances + cluster.decode_nodes
    ingress, loads = sent_bytes[nodes : 2 * nodes], sent_bytes[2 * nodes : 3 * nodes]
    sums = (
        sum(ingress[: cluster.prefill_instances]),
        sum(ingress[cluster.prefill_instances :]),
        sum(loads),
    )
    return dict(zip(BYTES, sums, strict=True))


def _describe_nodes(rows: Sequence[Row]) -> str:
    parts = [
        f"{row['node']} TTFT {row['ttft_p50_s']:.2f} s, TBT {row['tbt_p50_s']:.3f} s, "
        f"{row['goodput_requests_per_s']:.2f} requests/s within both limits"
        if row["fits"]
        else f"{row['node']}: the model does not fit"
        for row in rows
    ]
    return f"The same requests on every node, computed in this browser. Medians: {'; '.join(parts)}."
