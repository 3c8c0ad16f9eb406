"""The figures that a page can compute again."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mooncake_companion.live import (
    balancing_threshold,
    byte_flows,
    cache_capacity,
    cache_snapshot,
    deployment_timeline,
    end_to_end,
    goodput,
    hit_rate_counts,
    hot_blocks,
    hot_holder,
    latency_breakdown,
    local_caches,
    measured_costs,
    network_bandwidth,
    node_split,
    overload,
    prefill_pipeline,
    prefill_scheduling,
    prefill_scheduling_arxiv,
    prefix_choices,
    rejection,
    remote_kv,
    request_rate,
    returned_answers,
    storage_for_compute,
    systems,
    transfer_latency,
    transfer_tax,
    two_phases,
    walkthrough,
    workloads,
    your_cluster,
)
from mooncake_companion.live.outcome import Outcome, Progress
from mooncake_companion.live.slices import MOST_REQUESTS, SliceParams
from mooncake_companion.parameters import Parameter, describe


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFigure:
    """How one figure is computed in a page.

    Parameters
    ----------
    params : type
        Declares its parameters, as for the command line.
    shown : tuple of str
        Those that the page lets a reader change; the others keep their defaults.
    model : callable
        Given a `params`, the `Slice` to replay (None if `replays` is not set) and a `Progress`.
    replays : bool
        Whether it replays a slice of the trace that the book's figure was made from.
    asks_requests : bool
        Whether a reader says how much of the slice; else the model takes what it needs.
    requests : int
        How much of it, if the reader leaves it so.
    beside_reported : bool
        Whether the figure also has what a paper reports, which stays.
    trace : str
        Whose slice, where the figure's own parameters do not say; else empty.
    trace_parameter : str
        Else the parameter of the book's figure that names its trace.
    """

    params: type
    shown: tuple[str, ...]
    model: Callable[[Any, Any, Progress], Outcome]
    replays: bool = True
    asks_requests: bool = True
    requests: int = SliceParams().requests
    beside_reported: bool = True
    trace: str = ""
    trace_parameter: str = "trace"

    def fields(self) -> tuple[Parameter, ...]:
        """What the page asks for, in its order."""
        declared = {each.name: each for each in describe(self.params)}
        length = describe(SliceParams) if self.replays and self.asks_requests else ()
        length = tuple(dataclasses.replace(each, default=self.requests) for each in length)
        return (*length, *(declared[name] for name in self.shown))


_CONDUCTOR = (
    "nodes",
    "prefill_nodes",
    "kvcache_balancing_threshold",
    "cache_tokens_per_node",
    "nic_bytes_per_s",
    "arrival_speedup",
)
_SYSTEMS = ("arrival_speedup", "nodes", "prefill_nodes", "cache_tokens_per_node", "chunk_tokens")
_LIMITS = ("ttft_limit_s", "tbt_limit_s", "predicted_decode_s")

_DEPLOYMENTS = ("nodes", "prefill_nodes", "chunk_tokens", "cache_tokens_per_node", "arrival_speedup")

LIVE: Mapping[str, LiveFigure] = {
    "served-in-time": LiveFigure(
        params=systems.Params, shown=_SYSTEMS, model=end_to_end.in_time, trace=systems.TRACE
    ),
    "two-phases": LiveFigure(
        params=two_phases.Params,
        shown=("node", "model", "decode_context_tokens", "waits_for_host"),
        model=two_phases.run,
        replays=False,
    ),
    "deployment-timeline": LiveFigure(
        params=deployment_timeline.Params,
        shown=("window_start_s", *_DEPLOYMENTS),
        model=deployment_timeline.timeline,
        asks_requests=False,
        beside_reported=False,
    ),
    "latency-budget": LiveFigure(
        params=deployment_timeline.Params,
        shown=(*_DEPLOYMENTS, "node"),
        model=deployment_timeline.budget,
        beside_reported=False,
    ),
    "transfer-tax": LiveFigure(
        params=transfer_tax.NetworkParams,
        shown=("node", "model", "bandwidth_gbit_per_s"),
        model=transfer_tax.run,
        replays=False,
    ),
    "prefix-break-even": LiveFigure(
        params=storage_for_compute.NodeParams,
        shown=("node", "gpus", "model", "cached_tokens"),
        model=storage_for_compute.break_even,
        replays=False,
    ),
    "prefix-actions": LiveFigure(
        params=storage_for_compute.MapParams,
        shown=("model", "new_tokens"),
        model=storage_for_compute.actions,
        replays=False,
        beside_reported=False,
    ),
    "network-bandwidth": LiveFigure(
        params=network_bandwidth.RangeParams,
        shown=(
            "nodes",
            "prefill_nodes",
            "slowest_gbit_per_s",
            "fastest_gbit_per_s",
            "cache_tokens_per_node",
            "kvcache_balancing_threshold",
        ),
        model=network_bandwidth.run,
        trace=network_bandwidth.TRACE,
    ),
    "workload-distributions": LiveFigure(
        params=workloads.ReuseParams,
        shown=("block_tokens", "common_tokens"),
        model=workloads.distributions,
        requests=MOST_REQUESTS,
        beside_reported=False,
        trace=workloads.TRACE,
    ),
    "workload-arrivals": LiveFigure(
        params=workloads.ArrivalParams,
        shown=("window_s", "short_window_s", "beginning_s"),
        model=workloads.arrivals,
        requests=MOST_REQUESTS,
        beside_reported=False,
        trace=workloads.TRACE,
    ),
    "workload-length-histograms": LiveFigure(
        params=workloads.HistogramParams,
        shown=(
            "bins",
            "least_prompt_tokens",
            "most_prompt_tokens",
            "least_answer_tokens",
            "most_answer_tokens",
        ),
        model=workloads.histograms,
        requests=MOST_REQUESTS,
        trace_parameter="arxiv",
    ),
    "cache-block-heat": LiveFigure(
        params=cache_snapshot.PageParams,
        shown=(
            "requests",
            "prefill_nodes",
            "vram_blocks",
            "dram_blocks",
            "ssd_blocks",
            "eviction",
            "kvcache_balancing_threshold",
        ),
        model=cache_snapshot.run,
        asks_requests=False,
        beside_reported=False,
    ),
    "cache-byte-flows": LiveFigure(
        params=byte_flows.Params,
        shown=(
            "input_tokens",
            "reused_tokens",
            "nic_bytes_per_s",
            "ssd_read_bytes_per_s",
            "cache_tokens_per_node",
            "node",
            "model",
        ),
        model=byte_flows.run,
        beside_reported=False,
    ),
    "prefix-choices": LiveFigure(
        params=prefix_choices.WindowParams,
        shown=(
            "count_every_s",
            "prefill_nodes",
            "decode_nodes",
            "cache_tokens_per_node",
            "hot_from_uses",
            "kvcache_balancing_threshold",
        ),
        model=prefix_choices.run,
        beside_reported=False,
    ),
    "cache-policies": LiveFigure(
        params=cache_capacity.PolicyParams,
        shown=("other_policy", "least_capacity_blocks", "most_capacity_blocks"),
        model=cache_capacity.run,
        trace_parameter="table_trace",
    ),
    "hot-block-replicas": LiveFigure(
        params=hot_blocks.Params,
        shown=(
            "prefill_nodes",
            "cache_tokens_per_node",
            "shared_recency",
            "shortlist_nodes",
            "kvcache_balancing_threshold",
            "sample_s",
        ),
        model=hot_blocks.run,
        requests=MOST_REQUESTS,
        trace=hot_blocks.TRACE,
    ),
    "prefill-pipeline-stages": LiveFigure(
        params=prefill_pipeline.InstanceParams,
        shown=("pipeline_nodes", "chunk_tokens", "long_tokens", "short_tokens", "node", "model"),
        model=prefill_pipeline.stages,
        replays=False,
        beside_reported=False,
    ),
    "prefill-pipeline-speedup": LiveFigure(
        params=prefill_pipeline.InstanceParams,
        shown=("pipeline_nodes", "chunk_tokens", "long_tokens", "node", "model"),
        model=prefill_pipeline.speedup,
        replays=False,
        beside_reported=False,
    ),
    "prefill-pipeline-load": LiveFigure(
        params=prefill_pipeline.LoadParams,
        shown=(
            "drawn_requests",
            "prefill_nodes",
            "chunk_tokens",
            "short_tokens",
            "long_tokens",
            "long_share",
            "seed",
        ),
        model=prefill_pipeline.under_load,
        replays=False,
        beside_reported=False,
    ),
    "prefill-scheduling-ttft": LiveFigure(
        params=prefill_scheduling.Params, shown=_CONDUCTOR, model=prefill_scheduling.run
    ),
    "prefill-scheduling-ttft-arxiv": LiveFigure(
        params=prefill_scheduling_arxiv.Params, shown=_CONDUCTOR, model=prefill_scheduling_arxiv.run
    ),
    "request-walkthrough": LiveFigure(
        params=walkthrough.Params,
        shown=("request", *_CONDUCTOR),
        model=walkthrough.run,
        asks_requests=False,
        beside_reported=False,
    ),
    "balancing-threshold-ttft": LiveFigure(
        params=prefill_scheduling.Params,
        shown=_CONDUCTOR,
        model=balancing_threshold.ttft,
        requests=200,
        beside_reported=False,
    ),
    "overload-rejected": LiveFigure(
        params=rejection.Params,
        shown=("arrival_speedup", "prefill_nodes", "decode_pool_nodes", *_LIMITS),
        model=rejection.rejected,
        requests=MOST_REQUESTS,
    ),
    "overload-mechanism": LiveFigure(
        params=overload.Params,
        shown=(
            "prefill_nodes",
            "identical_input_tokens",
            "identical_offered_load",
            "identical_prefill_excess",
            "ttft_limit_s",
            "tbt_limit_s",
        ),
        model=rejection.mechanism,
        replays=False,
        beside_reported=False,
    ),
    "overload-pool-loads": LiveFigure(
        params=rejection.LoadParams,
        shown=("replay_speedup", "prefill_pool_nodes", "decode_pool_nodes", *_LIMITS),
        model=rejection.loads,
        requests=MOST_REQUESTS,
    ),
    "overload-decode-time": LiveFigure(
        params=rejection.Params,
        shown=("arrival_speedup", "prefill_nodes", "decode_pool_nodes", "ttft_limit_s", "tbt_limit_s"),
        model=rejection.decode_times,
        requests=MOST_REQUESTS,
        beside_reported=False,
    ),
    "tbt-distribution": LiveFigure(
        params=systems.Params, shown=_SYSTEMS, model=end_to_end.tbt, trace=systems.TRACE
    ),
    "effective-capacity": LiveFigure(
        params=systems.Params, shown=_SYSTEMS, model=end_to_end.capacity, trace=systems.TRACE
    ),
    "goodput": LiveFigure(
        params=goodput.LiveParams,
        shown=(
            "highest_speedup",
            "nodes",
            "prefill_nodes",
            "ttft_limit_s",
            "tbt_limit_s",
            "admission",
        ),
        model=goodput.run,
        trace=systems.TRACE,
    ),
    "node-split": LiveFigure(
        params=node_split.Params,
        shown=(
            "nodes",
            "least_prefill_nodes",
            "most_prefill_nodes",
            "ttft_limit_s",
            "tbt_limit_s",
            "cache_tokens_per_node",
            "kvcache_balancing_threshold",
        ),
        model=node_split.run,
    ),
    "request-rate": LiveFigure(
        params=request_rate.LiveParams,
        shown=(
            "lowest_rate_per_s",
            "highest_rate_per_s",
            "nodes",
            "ttft_multiple",
            "tbt_multiple",
            "cache_tokens_per_node",
        ),
        model=request_rate.run,
        requests=200,
        trace=request_rate.TRACE,
    ),
    "transfer-latency": LiveFigure(
        params=transfer_latency.NetworkParams,
        shown=("bandwidth_gbit_per_s", "network_utilisation", "startup_s"),
        model=transfer_latency.run,
        replays=False,
    ),
    "latency-breakdown": LiveFigure(
        params=latency_breakdown.ShareParams,
        shown=("node", "model", "network_gbit_per_s", "cached_pct", "decoded_tokens"),
        model=latency_breakdown.run,
        replays=False,
    ),
    "hot-holder-under-way": LiveFigure(
        params=hot_holder.LiveParams,
        shown=(
            "requests",
            "requests_per_s",
            "prefix_tokens",
            "new_tokens",
            "prefill_nodes",
            "bandwidth_gbit_per_s",
            "seed",
        ),
        model=hot_holder.run,
        replays=False,
        beside_reported=False,
    ),
    "measured-prefill": LiveFigure(
        params=measured_costs.PrefillParams,
        shown=("gpus", "prefill_overhead_s", "linear_utilisation", "attention_utilisation"),
        model=measured_costs.prefills,
        replays=False,
        beside_reported=False,
    ),
    "measured-decode": LiveFigure(
        params=measured_costs.StepParams,
        shown=("gpus", "decode_overhead_s", "hbm_utilisation", "host_sequence_s"),
        model=measured_costs.steps,
        replays=False,
        beside_reported=False,
    ),
    "cluster-nodes": LiveFigure(
        params=your_cluster.Params,
        shown=(
            "prefill_nodes",
            "decode_nodes",
            "network_gbit_per_s",
            "arrival_speedup",
            "ttft_limit_s",
            "tbt_limit_s",
        ),
        model=your_cluster.by_node,
        beside_reported=False,
    ),
    "cluster-models": LiveFigure(
        params=your_cluster.ModelParams,
        shown=(
            "layers",
            "kv_elements_per_layer",
            "element_bytes",
            "parameters",
            "active_parameters",
            "weight_element_bytes",
            "cache_bytes_per_node",
        ),
        model=your_cluster.by_model,
        replays=False,
        beside_reported=False,
    ),
    "cluster-break-even": LiveFigure(
        params=your_cluster.GpuParams,
        shown=("cached_tokens", "network_gbit_per_s", "gpus"),
        model=your_cluster.break_even,
        replays=False,
        beside_reported=False,
    ),
    "hit-rate-counts": LiveFigure(
        params=hit_rate_counts.PageParams,
        shown=("capacity_blocks", "warmup_share", "finer_block_tokens"),
        model=hit_rate_counts.run,
        requests=MOST_REQUESTS,
        trace=hit_rate_counts.TRACE,
    ),
    "local-cache-explanations": LiveFigure(
        params=local_caches.PageParams,
        shown=(
            "prefill_nodes",
            "cache_tokens_per_node",
            "block_tokens",
            "kvcache_balancing_threshold",
            "other_shortlist_nodes",
        ),
        model=local_caches.run,
        requests=400,
        trace=local_caches.TRACE,
    ),
    "balancing-threshold-bytes": LiveFigure(
        params=prefill_scheduling.Params,
        shown=_CONDUCTOR,
        model=balancing_threshold.fetched,
        beside_reported=False,
    ),
    "remote-kv-reads": LiveFigure(
        params=remote_kv.NetworkParams,
        shown=("input_tokens", "network_gbit_per_s", "node", "model"),
        model=remote_kv.run,
        replays=False,
        beside_reported=False,
    ),
    "returned-answers": LiveFigure(
        params=returned_answers.Params,
        shown=(
            "nodes",
            "prefill_nodes",
            "cache_tokens_per_node",
            "nic_bytes_per_s",
            "arrival_speedup",
            "pairs",
        ),
        model=returned_answers.run,
        beside_reported=False,
        trace=returned_answers.WORKLOAD,
    ),
}
"""Live figures by their id, in the order of the chapters."""

_OF_ALL = "it takes every experiment of the book; `companion scoreboard` computes them all"
_RECORDED = (
    "its hundreds of whole replays take minutes; `python -m mooncake_companion.experiments.sensitivity` "
    "makes them anew"
)
ELSEWHERE: Mapping[str, str] = {
    "scoreboard-agreement": _OF_ALL,
    "scoreboard-ratios": _OF_ALL,
    "sensitivity-one-at-a-time": _RECORDED,
    "sensitivity-variance": _RECORDED,
}
"""Interactive figures that are too much for a page: why, and where they can be computed."""
