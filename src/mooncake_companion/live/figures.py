"""The figures that a page can compute again, and the one function that it asks."""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mooncake_companion.errors import InputError
from mooncake_companion.live import (
    byte_flows,
    cache_capacity,
    cache_snapshot,
    deployment_timeline,
    node_split,
    prefill_scheduling,
    storage_for_compute,
    transfer_tax,
    walkthrough,
    your_cluster,
)
from mooncake_companion.live.outcome import Outcome, Progress
from mooncake_companion.live.slices import Slice, SliceParams
from mooncake_companion.parameters import Parameter, Value, describe

_NAMED = re.compile(r"^parameter (\w+): ")


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
    beside_reported : bool
        Whether the figure also has what a paper reports, which stays.
    trace : str
        The parameter of the book's figure that names its trace.
    """

    params: type
    shown: tuple[str, ...]
    model: Callable[[Any, Any, Progress], Outcome]
    replays: bool = True
    asks_requests: bool = True
    beside_reported: bool = True
    trace: str = "trace"

    def fields(self) -> tuple[Parameter, ...]:
        """What the page asks for, in its order."""
        declared = {each.name: each for each in describe(self.params)}
        length = describe(SliceParams) if self.replays and self.asks_requests else ()
        return (*length, *(declared[name] for name in self.shown))


_CONDUCTOR = (
    "nodes",
    "prefill_nodes",
    "kvcache_balancing_threshold",
    "cache_tokens_per_node",
    "nic_bytes_per_s",
    "arrival_speedup",
)

_DEPLOYMENTS = ("nodes", "prefill_nodes", "chunk_tokens", "cache_tokens_per_node", "arrival_speedup")

LIVE: Mapping[str, LiveFigure] = {
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
    "cluster-break-even": LiveFigure(
        params=your_cluster.GpuParams,
        shown=("cached_tokens", "network_gbit_per_s", "gpus"),
        model=your_cluster.break_even,
        replays=False,
        beside_reported=False,
    ),
    "prefix-actions": LiveFigure(
        params=storage_for_compute.MapParams,
        shown=("model", "new_tokens"),
        model=storage_for_compute.actions,
        replays=False,
        beside_reported=False,
    ),
    "request-walkthrough": LiveFigure(
        params=walkthrough.Params,
        shown=("request", *_CONDUCTOR),
        model=walkthrough.run,
        asks_requests=False,
        beside_reported=False,
    ),
    "prefill-scheduling-ttft": LiveFigure(
        params=prefill_scheduling.Params, shown=_CONDUCTOR, model=prefill_scheduling.run
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
    "cache-policies": LiveFigure(
        params=cache_capacity.PolicyParams,
        shown=("other_policy", "least_capacity_blocks", "most_capacity_blocks"),
        model=cache_capacity.run,
        trace="table_trace",
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
}
"""Live figures by their id."""


def compute(
    figure: str, given: Mapping[str, str], sliced: Slice | None, progress: Progress = lambda _done, _all: None
) -> tuple[Outcome, str]:
    """Compute a figure with a reader's values.

    Parameters
    ----------
    figure : str
        A key of `LIVE`.
    given : mapping of str
        Values as they were typed, by parameter.
    sliced : Slice or None
        Of the trace, where the figure replays one.
    progress : callable

    Returns
    -------
    tuple
        The outcome, and a sentence that says what was computed from what.

    Raises
    ------
    InputError
        For a value that its declaration does not allow, as on the command line.
    """
    live = LIVE[figure]
    values = {field.name: field.parse(given[field.name]) for field in live.fields() if field.name in given}
    settings = dict(values)
    if sliced is not None and live.asks_requests:
        sliced = sliced.head(int(settings.pop("requests", SliceParams().requests)))
    outcome = live.model(live.params(**settings), sliced, progress)
    if sliced is not None and outcome.replayed:
        sliced = sliced.head(outcome.replayed)
    return outcome, _told(live, sliced, values)


def _told(live: LiveFigure, sliced: Slice | None, values: Mapping[str, Value]) -> str:
    published = {field.name: field.default for field in live.fields()}
    changed = [
        f"{name} = {value}"
        for name, value in values.items()
        if value != published[name] and name != "requests"
    ]
    setting = f"with {', '.join(changed)}, all else as published" if changed else "with the published setting"
    of_what = ""
    if sliced is not None:
        of_what = (
            f"on the first {len(sliced.requests):,} of {sliced.trace_requests:,} requests of the "
            f"{sliced.source.rstrip('. ')}, "
        )
    told = f"Modelled here, in your browser, {of_what}{setting}."
    whole = " and the whole trace" if sliced is not None else ""
    kept = f" What is reported is as in the paper, for its own setting{whole}."
    return told + kept if live.beside_reported else told


def answer(figure: str, given: str, sliced: str, progress: Progress) -> str:
    """`compute`, from JSON to JSON: what the page's worker calls.

    Parameters
    ----------
    figure : str
    given : str
        An object of strings.
    sliced : str
        As `Slice.to_json` tells it; empty for none.
    progress : callable

    Returns
    -------
    str
        An object with ``rows``, ``description``, ``fixed``, ``offered`` and ``told``; or with ``error``
        and, if it is about one parameter, ``field``.
    """
    try:
        outcome, told = compute(
            figure, json.loads(given), Slice.from_json(json.loads(sliced)) if sliced else None, progress
        )
    except InputError as error:
        named = _NAMED.match(str(error))
        return json.dumps({"error": str(error), "field": named[1] if named else ""})
    rows = [{name: _finite(value) for name, value in row.items()} for row in outcome.rows]
    controls = {
        "fixed": dict(outcome.fixed),
        "offered": {name: list(values) for name, values in outcome.offered.items()},
    }
    return json.dumps({"rows": rows, "description": outcome.description, "told": told} | controls)


def _finite(value: Any) -> Any:
    """JSON has no NaN; Vega takes null for a missing value."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
