"""The papers' headlines as functions of what the papers leave open.

A study is what one set of runs says: a function from assumptions to one or more headline numbers. Its
assumptions have a nominal value, which is that of the experiment it belongs to, and a range with the
reason for it. `sensitivity` varies them. The ranges look at no reported headline.

An assumption that is named after a field of a cluster or after a constant of the calibration sets that;
six others have a meaning of their own here: ``arrival_speedup``, ``tick_spread``, ``block_tokens``,
``vram_share``, ``decode_time`` (t_d in mean decode times), and ``seed`` (of random routing).
"""

import dataclasses
import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TypeVar

import numpy as np

from mooncake_companion import reported, traces
from mooncake_companion.costs import Calibration, load_calibration
from mooncake_companion.datafiles import data_path
from mooncake_companion.errors import CompanionError, InputError
from mooncake_companion.experiments import cache_sharing, overload, prefill_scheduling
from mooncake_companion.experiments.paper_traces import without_decode
from mooncake_companion.simulator import (
    Admission,
    Batching,
    Cluster,
    CoupledCluster,
    Outcome,
    Result,
    Routing,
    simulate,
)
from mooncake_companion.simulator.cluster import VRAM_SHARE
from mooncake_companion.traces import Trace
from mooncake_companion.traces.finer_blocks import with_block_tokens

Values = Mapping[str, float]
Workloads = Mapping[str, Trace]
C = TypeVar("C", Cluster, CoupledCluster)

TBT_LIMITS_S = (0.1, 0.2, 0.3)
"""Thresholds I, II and III of FAST'25, Figure 1."""

_PREFILL_CONSTANTS = (
    "prefill_overhead_s",
    "linear_utilisation",
    "attention_utilisation",
    "network_utilisation",
)
"""Constants that prefill and transfer depend on; the others are of decode alone."""
_WITHOUT_HOST = (*_PREFILL_CONSTANTS, "decode_overhead_s", "hbm_utilisation")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """One thing that the papers leave open, and how far it may be from what is assumed.

    Parameters
    ----------
    name, title, unit : str
        In code, in a chart, and after a number.
    nominal : float
        What the experiment assumes.
    low, high : float
        The range; both ends included. Of discrete `values` they are the ends.
    values : tuple of float
        The only values, all as likely; empty for any between `low` and `high`.
    logarithmic : bool
        Whether the logarithm is as likely everywhere in the range, rather than the value.
    why : str
        Why this range.
    """

    name: str
    title: str
    unit: str = ""
    nominal: float
    low: float
    high: float
    values: tuple[float, ...] = ()
    logarithmic: bool = False
    why: str

    def __post_init__(self) -> None:
        if not self.low <= self.nominal <= self.high or (self.values and self.nominal not in self.values):
            raise InputError(f"assumption {self.name}: nominal {self.nominal} is not within its range")

    @property
    def levels(self) -> tuple[float, ...]:
        """What is tried when it is varied alone: all discrete values, or both ends."""
        return self.values or (self.low, self.high)

    def at(self, u: float) -> float:
        """The value at quantile `u`, in [0, 1).

        >>> split = one_of("prefill_nodes", "Prefill nodes", 8, (6, 7, 8), why="")
        >>> split.at(0.0), split.at(0.99)
        (6, 8)
        """
        if self.values:
            return self.values[min(int(u * len(self.values)), len(self.values) - 1)]
        if self.logarithmic:
            return float(self.low * (self.high / self.low) ** u)
        return self.low + u * (self.high - self.low)


def one_of(
    name: str, title: str, nominal: float, values: tuple[float, ...], *, why: str, unit: str = ""
) -> Assumption:
    """An assumption with discrete values."""
    return Assumption(
        name=name,
        title=title,
        unit=unit,
        nominal=nominal,
        low=min(values),
        high=max(values),
        values=values,
        why=why,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """One number that a study gives.

    Parameters
    ----------
    name : str
        Id of the reported claim, where there is one.
    title, unit : str
    where : str
        Figure or table.
    reported : float
        What the paper has, in `unit`.
    kind : {"amount", "ratio", "gain"}
        Variance is shared out of the logarithm of a ratio, and of one plus a gain in percent, as
        both may grow without bound; of an amount as it is.
    """

    name: str
    title: str
    unit: str
    where: str
    reported: float
    kind: str = "amount"

    def scaled(self, value: float) -> float:
        """The number whose variance is decomposed."""
        if self.kind == "amount":
            return value
        return math.log(value if self.kind == "ratio" else 1 + value / 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Headlines that come from the same runs.

    Parameters
    ----------
    name : str
    workloads : tuple of str
        Traces that are replayed.
    assumptions : tuple of Assumption
    headlines : tuple of Headline
    model : callable
        From traces by workload and values by assumption to numbers by headline.
    """

    name: str
    workloads: tuple[str, ...]
    assumptions: tuple[Assumption, ...]
    headlines: tuple[Headline, ...]
    model: Callable[[Workloads, Values], dict[str, float]]

    @property
    def nominal(self) -> dict[str, float]:
        """Nominal value of every assumption."""
        return {assumption.name: assumption.nominal for assumption in self.assumptions}

    def __call__(self, workloads: Workloads, values: Values) -> dict[str, float]:
        """The headlines under some values; assumptions that are not named keep their nominal one.

        Raises
        ------
        InputError
            For a name that is no assumption of this study.
        """
        if unknown := values.keys() - self.nominal.keys():
            raise InputError(f"{self.name} does not assume {', '.join(sorted(unknown))}")
        return self.model(workloads, {**self.nominal, **values})


def fitted(names: tuple[str, ...] | None = None) -> tuple[Assumption, ...]:
    """The fitted constants within their 95 % confidence intervals.

    Parameters
    ----------
    names : tuple of str, optional
        Those that count; all, if not given. What is stated and not fitted is no assumption.
    """
    constants = tomllib.loads(data_path("calibration.toml").read_text("utf-8"))
    return tuple(
        Assumption(
            name=name,
            title=name.removesuffix("_s").replace("_", " ").capitalize().replace("Hbm", "HBM"),
            unit="s" if name.endswith("_s") else "",
            nominal=row["value"],
            low=row["low"],
            high=row["high"],
            logarithmic=True,
            why="95 % confidence interval of the fit, taken by itself",
        )
        for name, row in constants.items()
        if "low" in row and (names is None or name in names)
    )


@cache
def study(name: str) -> Study:
    """A study by its name in `STUDIES`.

    Raises
    ------
    InputError
        If there is none of that name.
    """
    if name not in _STUDIES:
        raise InputError(f"no study {name!r}; known are {', '.join(_STUDIES)}")
    return _STUDIES[name]()


def _effective_capacity() -> Study:
    """FAST'25, Figure 1: gains in effective capacity on the conversation trace."""
    return Study(
        name="effective-capacity",
        workloads=("conversation",),
        assumptions=(*_pools(), *_ARRIVALS, _BLOCKS, *_VLLM, *_DECODE, _MEMORY, *fitted()),
        headlines=tuple(
            Headline(
                name=f"fast25.fig01.gain.{round(1e3 * limit_s)}ms",
                title=f"Capacity gain, {round(1e3 * limit_s)} ms",
                unit="%",
                where="FAST'25, Figure 1",
                reported=reported.claim(f"fast25.fig01.gain.{round(1e3 * limit_s)}ms"),
                kind="gain",
            )
            for limit_s in TBT_LIMITS_S
        ),
        model=_gains,
    )


def _prefill_scheduling() -> Study:
    """FAST'25, Figure 5: mean TTFT over that of global cache-aware routing."""
    mean = "fast25.fig05.ttft_mean."
    best_s = reported.claim(mean + "global_cache_aware")
    return Study(
        name="prefill-scheduling",
        workloads=("conversation",),
        assumptions=(*_pools(), *_ARRIVALS, _BLOCKS, _SHORTLIST, _SEED, *fitted(_PREFILL_CONSTANTS)),
        headlines=tuple(
            Headline(
                name=f"fast25.fig05.ratio.{policy}",
                title=f"TTFT ratio, {title.lower()}",
                unit="×",
                where="FAST'25, Figure 5",
                reported=reported.claim(mean + policy) / best_s,
                kind="ratio",
            )
            for policy, title in _POLICIES.items()
        ),
        model=_ttft_ratios,
    )


def _prefill_time() -> Study:
    """FAST'25, Figure 8: GPU time of prefill that Mooncake saves against plain vLLM."""
    return Study(
        name="prefill-time",
        workloads=("conversation", "synthetic"),
        assumptions=(*_pools(), *_ARRIVALS, _BLOCKS, _SHORTLIST, *fitted(_PREFILL_CONSTANTS)),
        headlines=tuple(
            Headline(
                name=f"fast25.fig08.reduction.{workload}",
                title=f"Prefill time saved, {workload}",
                unit="%",
                where="FAST'25, Figure 8",
                reported=reported.claim(f"fast25.fig08.reduction.{workload}"),
            )
            for workload in ("conversation", "synthetic")
        ),
        model=_prefill_saved,
    )


def _cache_sharing() -> Study:
    """FAST'25, Figure 10: hit rate with a global cache over that with local ones."""
    params = cache_sharing.Params()
    return Study(
        name="cache-sharing",
        workloads=("conversation", "synthetic"),
        assumptions=(
            one_of(
                "shortlist_nodes",
                "Nodes weighed",
                params.shortlist_nodes,
                tuple(range(1, params.prefill_nodes + 1)),
                unit="nodes",
                why="queues that Conductor looks at: the shortest alone to all, as Algorithm 1 is printed",
            ),
            _THRESHOLD,
            *_ARRIVALS,
            one_of(
                "block_tokens", "Block", params.block_tokens, (128, 256, 512), unit="tokens", why=_WHY_BLOCKS
            ),
            one_of(
                "shared_recency",
                "Shared recency",
                1,
                (0, 1),
                why="of the global cache; the paper does not say whether a use counts for every replica",
            ),
            *fitted(_PREFILL_CONSTANTS),
        ),
        headlines=tuple(
            Headline(
                name=f"fast25.fig10.hit_ratio.{workload}",
                title=f"Hit ratio, {workload}",
                unit="×",
                where="FAST'25, Figure 10",
                reported=reported.claim(f"fast25.fig10.hit_ratio.{workload}"),
                kind="ratio",
            )
            for workload in ("conversation", "synthetic")
        ),
        model=_hit_ratios,
    )


def _overload() -> Study:
    """arXiv, Table 3: requests rejected; decode nodes and t_d by the rules of `overload.Params`."""
    params = overload.Params()
    table = overload.run(params).query("origin == 'modelled'").set_index("policy")
    predicted = table.loc[overload.TITLES[Admission.PREDICTIVE]].to_dict()
    multiple = float(predicted["predicted_decode_s"]) / _mean_decode_s()
    nodes = int(predicted["decode_nodes"])
    limits = "stated for another experiment (arXiv, section 8.1.3); half to twice that"
    return Study(
        name="overload",
        workloads=(overload.TRACE,),
        assumptions=(
            one_of(
                "decode_nodes",
                "Decode nodes",
                nodes,
                tuple(range(max(1, nodes - 1), nodes + 2)),
                unit="nodes",
                why="8 are stated, which are not overloaded; so few that they are, and one more or less",
            ),
            one_of(
                "decode_time",
                "Decode time t_d",
                min(overload.DECODE_TIMES, key=lambda tried: abs(tried - multiple)),
                overload.DECODE_TIMES,
                unit="mean decode times",
                why="left open; those that the experiment tries",
            ),
            _between("ttft_limit_s", "TTFT limit", params.ttft_limit_s, 15, 60, unit="s", why=limits),
            _between("tbt_limit_s", "TBT limit", params.tbt_limit_s, 0.05, 0.2, unit="s", why=limits),
            _THRESHOLD,
            _CACHE,
            _ARRIVALS[1],
            _BLOCKS,
            _MEMORY,
            *fitted(_WITHOUT_HOST),
            _between(
                "host_sequence_s",
                "Host, a sequence",
                0.0,
                0.0,
                load_calibration().host_sequence_s,
                logarithmic=False,
                unit="s",
                why="none, as the report's own Figure 2 has it, to what FAST'25, Figure 15, was fitted with",
            ),
        ),
        headlines=tuple(
            Headline(
                name=f"arxiv.table3.rejected.{name}",
                title=f"Rejected, {name}",
                unit="requests",
                where="arXiv 2407.00079, Table 3",
                reported=reported.claim(f"arxiv.table3.rejected.{name}"),
            )
            for name in _REJECTIONS.values()
        ),
        model=_rejections,
    )


_STUDIES: dict[str, Callable[[], Study]] = {
    "effective-capacity": _effective_capacity,
    "prefill-scheduling": _prefill_scheduling,
    "prefill-time": _prefill_time,
    "cache-sharing": _cache_sharing,
    "overload": _overload,
}
STUDIES = tuple(_STUDIES)
"""Names of all studies."""


def _between(
    name: str,
    title: str,
    nominal: float,
    low: float,
    high: float,
    *,
    why: str,
    unit: str = "",
    logarithmic: bool = True,
) -> Assumption:
    return Assumption(
        name=name,
        title=title,
        unit=unit,
        nominal=nominal,
        low=low,
        high=high,
        logarithmic=logarithmic,
        why=why,
    )


_BASE = prefill_scheduling.Params()
_POLICIES = {
    routing.value: title
    for routing, title in prefill_scheduling.TITLES.items()
    if routing is not Routing.GLOBAL_CACHE_AWARE
}
_REJECTIONS = dict(zip(overload.REJECTING, ("baseline", "early", "predicted"), strict=True))
"""Policies of Table 3, with their names in the ids of claims."""

_WHY_BLOCKS = "the paper's store has blocks of 256 tokens (section 5.1), the released traces of 512"
_THRESHOLD = _between(
    "kvcache_balancing_threshold",
    "Balancing threshold",
    _BASE.kvcache_balancing_threshold,
    1,
    10,
    why="left open; from fetching every longer prefix to those ten times as long",
)
_CACHE = _between(
    "cache_tokens_per_node",
    "Cache of a node",
    _BASE.cache_tokens_per_node,
    1e6,
    1e7,
    unit="tokens",
    why="about 1 TB is stated for another experiment (section 5.3); a third to three times that",
)
_ARRIVALS = (
    _between(
        "arrival_speedup",
        "Replay speed",
        1.0,
        0.8,
        1.25,
        unit="×",
        why="nothing says that arrivals were scaled; a quarter either way",
    ),
    _between(
        "tick_spread",
        "Spread in a tick",
        0.0,
        0.0,
        1.0,
        logarithmic=False,
        unit="of 3 s",
        why="the conversation trace has arrivals every 3 s; from all at once to evenly between",
    ),
)
_BLOCKS = one_of("block_tokens", "Block", 512, (256, 512), unit="tokens", why=_WHY_BLOCKS)
_MEMORY = _between(
    "vram_share",
    "GPU memory used",
    VRAM_SHARE,
    0.8,
    0.95,
    logarithmic=False,
    why="share for weights and KV cache; vLLM's default is 0.9",
)
_SHORTLIST = one_of(
    "shortlist_nodes",
    "Nodes weighed",
    10,
    (2, 3, 5, 7, 10),
    unit="nodes",
    why="queues that Conductor looks at: all, as Algorithm 1 is printed, to Figure 10's two",
)
_SEED = one_of("seed", "Random seed", 0, tuple(range(8)), why="eight runs")
_VLLM = (
    one_of(
        "chunk_tokens",
        "vLLM's chunk",
        2048,
        (512, 1024, 2048, 4096, 8192),
        unit="tokens",
        why="left open; from vLLM's own default to two thirds of a mean prompt",
    ),
    one_of(
        "max_batched_tokens",
        "vLLM's batch limit",
        131_072,
        (16_384, 32_768, 65_536, 131_072),
        unit="tokens",
        why="left open; from about one mean prompt to vLLM's default for the model's longest context",
    ),
)


_DECODE = (
    one_of(
        "host_overlaps",
        "vLLM's host overlaps",
        0,
        (0, 1),
        why="vLLM 0.5.1 seems to work on its sequences while the GPUs wait; since 0.6.0 it does so meanwhile",
    ),
    one_of(
        "first_interval_counts",
        "First interval counts",
        0,
        (0, 1),
        why="the paper does not say whether the gap behind the first token belongs to TBT",
    ),
)


def _pools() -> tuple[Assumption, ...]:
    split = one_of(
        "prefill_nodes",
        "Prefill nodes of 16",
        _BASE.prefill_nodes,
        (6, 7, 8, 9, 10),
        unit="nodes",
        why="left open; section 5.5 recommends about equal numbers",
    )
    return split, _THRESHOLD, _CACHE


def _gains(workloads: Workloads, values: Values) -> dict[str, float]:
    trace = _replayed(workloads["conversation"], values)
    capacity = _shares(simulate(trace, _mooncake(Routing.GLOBAL_CACHE_AWARE, values)))
    best = np.max([_shares(simulate(trace, _vllm(batching, values))) for batching in Batching], axis=0)
    return {
        f"fast25.fig01.gain.{round(1e3 * limit_s)}ms": float(100 * (gained - 1))
        for limit_s, gained in zip(TBT_LIMITS_S, capacity / best, strict=True)
    }


def _ttft_ratios(workloads: Workloads, values: Values) -> dict[str, float]:
    trace = _replayed(workloads["conversation"], values)
    seed = int(values["seed"])
    means_s = {
        routing: simulate(trace, _mooncake(routing, values), rng=np.random.default_rng(seed)).ttft_s.mean()
        for routing in Routing
    }
    best_s = means_s[Routing.GLOBAL_CACHE_AWARE]
    return {f"fast25.fig05.ratio.{policy}": float(means_s[Routing(policy)] / best_s) for policy in _POLICIES}


def _prefill_saved(workloads: Workloads, values: Values) -> dict[str, float]:
    saved = {}
    for workload in ("conversation", "synthetic"):
        trace = _replayed(workloads[workload], values)
        ours = simulate(trace, _mooncake(Routing.GLOBAL_CACHE_AWARE, values)).prefill_s.mean()
        plain = simulate(trace, _vllm(Batching.PLAIN, values)).prefill_s.mean()
        saved[f"fast25.fig08.reduction.{workload}"] = float(100 * (1 - ours / plain))
    return saved


def _hit_ratios(workloads: Workloads, values: Values) -> dict[str, float]:
    params = cache_sharing.Params()
    ratios = {}
    for workload in ("conversation", "synthetic"):
        trace = without_decode(_replayed(workloads[workload], values))
        hits = {}
        for kind, routing in cache_sharing.CACHES.items():
            cluster = params.cluster(
                routing,
                shortlist_nodes=params.shortlist_nodes,
                cache_tokens_per_node=params.cache_tokens_per_node,
            )
            alone = {"shared_recency": 0.0} if kind == "local" else {}
            hits[kind] = simulate(trace, _assumed(cluster, {**values, **alone})).hit_ratio
        if not hits["local"]:
            raise CompanionError(f"{trace.name}: too few requests for any to hit a local cache; take more")
        ratios[f"fast25.fig10.hit_ratio.{workload}"] = hits["global"] / hits["local"]
    return ratios


def _rejections(workloads: Workloads, values: Values) -> dict[str, float]:
    params = overload.Params()
    speedup = {"arrival_speedup": params.arrival_speedup}
    trace = _replayed(workloads[overload.TRACE], {**values, **speedup})
    decode_s = values["decode_time"] * _mean_decode_s()
    counts = {}
    for admission, name in _REJECTIONS.items():
        cluster = params.cluster(admission, int(values["decode_nodes"]), decode_s)
        rejected = simulate(trace, _assumed(cluster, values)).outcome != Outcome.FINISHED
        counts[f"arxiv.table3.rejected.{name}"] = float(
            reported.claim("arxiv.fig08.requests") * rejected.mean()
        )
    return counts


@cache
def _mean_decode_s() -> float:
    """Mean decode time of Table 3's experiment, in which t_d is counted."""
    params = overload.Params()
    trace = traces.load(params.trace)
    faster = dataclasses.replace(trace, arrival_s=trace.arrival_s / params.arrival_speedup)
    return overload.demand(faster, params).mean_decode_s


def _mooncake(routing: Routing, values: Values) -> Cluster:
    prefill_nodes = int(values["prefill_nodes"])
    return _assumed(_BASE.cluster(routing, prefill_nodes), values)


def _vllm(batching: Batching, values: Values) -> CoupledCluster:
    cluster = CoupledCluster.from_presets(_BASE.node, _BASE.model, nodes=_BASE.nodes, batching=batching)
    return _assumed(cluster, values)


def _assumed(cluster: C, values: Values) -> C:
    """The cluster with every value that is named after one of its fields or a fitted constant."""
    own = {field.name for field in dataclasses.fields(cluster)} & values.keys()
    constants = {field.name for field in dataclasses.fields(Calibration)} & values.keys()
    share = values.get("vram_share", VRAM_SHARE) / VRAM_SHARE
    return dataclasses.replace(
        cluster,
        node=dataclasses.replace(cluster.node, hbm_bytes=round(share * cluster.node.hbm_bytes)),
        calibration=dataclasses.replace(cluster.calibration, **{name: values[name] for name in constants}),
        **{name: type(getattr(cluster, name))(values[name]) for name in own},
    )


def _replayed(trace: Trace, values: Values) -> Trace:
    """The trace in blocks, with the arrivals and at the speed that are assumed."""
    arrival_s = trace.arrival_s + values["tick_spread"] * _offsets_s(trace)
    blocks = with_block_tokens(trace, int(values["block_tokens"]))
    return dataclasses.replace(blocks, arrival_s=arrival_s / values.get("arrival_speedup", 1.0))


@lru_cache(maxsize=8)
def _offsets_s(trace: Trace) -> np.ndarray:
    """Seconds after its tick at which each request comes if those of a tick come evenly, in file order."""
    tick_s = traces.tick_s(trace)
    if tick_s is None:
        return np.zeros(len(trace))
    tick = np.floor(trace.arrival_s / tick_s + 0.5).astype(np.int64)
    _, first, count = np.unique(tick, return_index=True, return_counts=True)
    rank = np.arange(len(trace)) - np.repeat(first, count)
    offsets_s = tick_s * rank / np.repeat(count, count)
    return np.asarray(np.maximum.accumulate(trace.arrival_s + offsets_s) - trace.arrival_s)


def _shares(result: Result) -> np.ndarray:
    """Share of the requests with a TBT within each limit; one without a TBT counts."""
    tbt_s = np.nan_to_num(result.tbt_s, nan=0.0)
    return np.array([(tbt_s <= limit_s).mean() for limit_s in TBT_LIMITS_S])
