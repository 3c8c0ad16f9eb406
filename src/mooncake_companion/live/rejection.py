"""arXiv 2407.00079, section 7, in a page: what is turned away, and how the pools' loads swing."""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mooncake_companion.errors import InputError
from mooncake_companion.live import overload
from mooncake_companion.live.outcome import Outcome, Progress, Row
from mooncake_companion.live.overload import REJECTING, TITLES, Demand
from mooncake_companion.live.slices import Slice
from mooncake_companion.parameters import parameter
from mooncake_companion.simulator import reference
from mooncake_companion.simulator.cluster import Cluster
from mooncake_companion.simulator.overload import Admission, DecodeLoad, share_of_limits
from mooncake_companion.simulator.reference import Record, Request
from mooncake_companion.statistics import mean

INTERVAL_S = 15.0
"""Between two loads that are shown, as in Figure 9; less where few minutes are replayed."""
_LEAST_POINTS = 60
_MOST_IDENTICAL = 7000
"""Identical requests that a page replays in less than half a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params(overload.Params):
    """As of the experiment; who wants to can set the decode nodes whether overloaded or not."""

    decode_pool_nodes: int = parameter(
        0,
        unit="nodes",
        low=0,
        high=64,
        help="nodes that decode; 0: the stated ones, or so few that they are overloaded",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadParams(Params):
    """Half of the cluster of Figure 9, and each of its nodes offered as much as in Table 3."""

    prefill_pool_nodes: int = parameter(
        overload.MACHINES // 2, unit="nodes", low=1, high=64, help="nodes that prefill"
    )
    replay_speedup: float = parameter(2.5, low=0.01, high=100, help="replay the trace so many times as fast")


class Played(NamedTuple):
    """A replay under one policy."""

    requests: Sequence[Request]
    cluster: Cluster
    records: Sequence[Record]

    @property
    def rejected(self) -> int:
        """Requests that were turned away."""
        return len(self.records) - self.count(reference.Outcome.FINISHED)

    def count(self, outcome: reference.Outcome) -> int:
        """Requests with this fate."""
        return sum(record.outcome is outcome for record in self.records)


# --- on a slice of the trace ----------------------------------------------------------------------


def rejected(params: Params, sliced: Slice, progress: Progress) -> Outcome:
    """What becomes of the requests under each policy; columns as of `experiments.overload.run`."""
    head = sliced.head(len(sliced.requests), speedup=params.arrival_speedup)
    asked = _demand(head, params)
    nodes = _decode_nodes(params, asked)
    rows = [_row(run, asked.nodes / nodes) for run in _fewest(head, params, nodes, asked, progress)]
    shares = ", ".join(f"{row['policy']} {row['rejected_share']:.1%}" for row in rows)
    return Outcome(
        rows=rows,
        description=(
            "Bars: share of the requests that each policy rejects, at arrival or after the prefill, computed "
            f"in this browser with {_pools(params.prefill_nodes, nodes)}. Modelled: {shares}."
        ),
    )


def loads(params: LoadParams, sliced: Slice, progress: Progress) -> Outcome:
    """Load of both pools under each policy; columns as of `experiments.overload.series`."""
    observed = dataclasses.replace(
        params,
        prefill_nodes=params.prefill_pool_nodes,
        decode_nodes=overload.MACHINES // 2,
        arrival_speedup=params.replay_speedup,
    )
    head = sliced.head(len(sliced.requests), speedup=observed.arrival_speedup)
    asked = _demand(head, observed)
    nodes = _decode_nodes(observed, asked)
    last_s = head.requests[-1].arrival_s
    length_s = min(last_s, overload.WINDOW_S)
    rows = [
        row
        for run in _fewest(head, observed, nodes, asked, progress)
        for row in load_rows(
            run, last_s - length_s, overload.WINDOW_S, min(INTERVAL_S, length_s / _LEAST_POINTS)
        )
    ]
    return Outcome(
        rows=rows,
        description=(
            f"Load of the prefill and of the decode pool over {length_s / 60:.1f} minutes, a panel for each "
            f"policy, computed in this browser with {_pools(observed.prefill_nodes, nodes)}. {_spans(rows)}"
        ),
        without_reported="What is reported, of 20 minutes of a production cluster, is left out.",
    )


def decode_times(params: Params, sliced: Slice, progress: Progress) -> Outcome:
    """Requests rejected by t_d; columns as of `experiments.overload.decode_time_sweep`."""
    head = sliced.head(len(sliced.requests), speedup=params.arrival_speedup)
    asked = _demand(head, params)
    nodes = _decode_nodes(params, asked)
    runs = list(_runs(head, dataclasses.replace(params, predicted_decode_s=0.0), nodes, asked, progress))
    rows = [
        {
            "policy": TITLES[admission],
            "multiple": multiple,
            "predicted_decode_s": multiple * asked.mean_decode_s,
            **_counts(run),
        }
        for admission, tried in zip(REJECTING, runs, strict=True)
        for multiple, run in _at_all_decode_times(tried)
    ]
    best = min((row for row in rows[-len(overload.DECODE_TIMES) :]), key=lambda row: int(row["rejected"]))
    return Outcome(
        rows=rows,
        description=(
            "Requests that prediction rejects by the decode time t_d that it assumes, computed in this "
            f"browser with {_pools(params.prefill_nodes, nodes)}: fewest, {best['rejected']:,}, at "
            f"{best['multiple']:g} mean decode times. Level lines: the two others."
        ),
    )


def _at_all_decode_times(tried: Sequence[Played]) -> Iterator[tuple[float, Played]]:
    """A policy that has no t_d was replayed once, for all."""
    for place, multiple in enumerate(overload.DECODE_TIMES):
        yield multiple, tried[min(place, len(tried) - 1)]


def _demand(sliced: Slice, params: Params) -> Demand:
    prompts = [request.input_tokens for request in sliced.requests]
    answers = [request.output_tokens for request in sliced.requests]
    return overload.demand(prompts, answers, sliced.requests[-1].arrival_s, params)


def _decode_nodes(params: Params, asked: Demand) -> int:
    return params.decode_pool_nodes or overload.overloaded_decode_nodes(asked, params)


def _runs(
    sliced: Slice, params: Params, nodes: int, asked: Demand, progress: Progress
) -> Iterator[list[Played]]:
    """The replays of each policy: prediction's with every t_d that is to be tried."""
    tried = {admission: overload.decode_times_s(params, admission, asked) for admission in REJECTING}
    done, parts = 0, sum(map(len, tried.values()))
    for admission, decode_times_s in tried.items():
        runs = []
        for decode_s in decode_times_s:
            progress(done, parts)
            cluster = params.cluster(admission, nodes, decode_s)
            runs.append(_play(sliced.requests, cluster, sliced.block_tokens, sliced.draws))
            done += 1
        yield runs


def _fewest(sliced: Slice, params: Params, nodes: int, asked: Demand, progress: Progress) -> Iterator[Played]:
    """A replay of each policy; prediction with the t_d that rejects fewest, unless it is told one."""
    for runs in _runs(sliced, params, nodes, asked, progress):
        yield min(runs, key=lambda run: run.rejected)


def _play(requests: Sequence[Request], cluster: Cluster, block_tokens: int, draws: Sequence[float]) -> Played:
    run = reference.replay(requests, cluster, block_tokens=block_tokens, draws=draws)
    return Played(requests, cluster, run.records)


def _counts(run: Played) -> Row:
    at_arrival = run.count(reference.Outcome.REJECTED_AT_ARRIVAL)
    after_prefill = run.count(reference.Outcome.REJECTED_AFTER_PREFILL)
    return {
        "rejected": at_arrival + after_prefill,
        "rejected_at_arrival": at_arrival,
        "rejected_after_prefill": after_prefill,
    }


def _row(run: Played, offered_decode_load: float) -> Row:
    requests, cluster, records = run
    pairs = list(zip(requests, records, strict=True))
    duration_s = requests[-1].arrival_s
    pool_s = cluster.prefill_nodes * duration_s
    good = sum(_meets(request, record, cluster) for request, record in pairs)
    away = [request for request, record in pairs if record.outcome is not reference.Outcome.FINISHED]
    asked, lost = (sum(each.output_tokens for each in part) for part in (requests, away))
    predictive = cluster.admission is Admission.PREDICTIVE
    return {
        "origin": "modelled",
        "policy": TITLES[cluster.admission],
        "requests": len(requests),
        **_counts(run),
        "late": len(requests) - len(away) - good,
        "within_limits_share": good / len(requests),
        "goodput_requests_per_s": good / duration_s,
        "answer_tokens_share": (asked - lost) / asked,
        "prefill_busy_share": math.fsum(map(_prefill_s, records)) / pool_s,
        "prefill_wasted_share": math.fsum(
            _prefill_s(record)
            for record in records
            if record.outcome is reference.Outcome.REJECTED_AFTER_PREFILL
        )
        / pool_s,
        "rejected_input_tokens": mean([request.input_tokens for request in away]) if away else math.nan,
        "offered_decode_load": offered_decode_load,
        "decode_nodes": cluster.decode_nodes,
        "predicted_decode_s": cluster.predicted_decode_s if predictive else math.nan,
        "rejected_share": len(away) / len(requests),
    }


def _meets(request: Request, record: Record, cluster: Cluster) -> bool:
    """Whether a request finished within both limits; one without a TBT meets any."""
    return (
        record.outcome is reference.Outcome.FINISHED
        and record.first_token_s - request.arrival_s <= cluster.ttft_limit_s
        and not record.tbt_s > cluster.tbt_limit_s
    )


def _prefill_s(record: Record) -> float:
    """Seconds that a prefill node worked on a request."""
    if record.outcome is reference.Outcome.REJECTED_AT_ARRIVAL or record.choice is None:
        return 0.0
    return record.choice.prefill_s


# --- on identical requests ------------------------------------------------------------------------


def mechanism(params: overload.Params, _sliced: None, progress: Progress) -> Outcome:
    """Load of both pools when all requests are alike; columns as of `experiments.overload.mechanism`."""
    alike = overload.identical(params)
    tokens = alike.input_tokens
    if alike.count > _MOST_IDENTICAL:
        raise InputError(
            f"parameter identical_input_tokens: {alike.count:,} prompts of {tokens:,} tokens come in ten "
            f"minutes, and a page replays {_MOST_IDENTICAL:,}; take longer ones, or fewer prefill_nodes"
        )
    requests, rows = alike.requests(), list[Row]()
    for done, admission in enumerate(REJECTING):
        progress(done, len(REJECTING))
        cluster = params.cluster(admission, alike.decode_nodes, alike.decode_s)
        run = _play(requests, cluster, overload.BLOCK_TOKENS, [0.0] * len(requests))
        length_s = overload.ALIKE_S - overload.SETTLED_S
        rows += load_rows(run, overload.SETTLED_S, length_s, overload.ALIKE_INTERVAL_S)
    return Outcome(
        rows=[{**row, "input_tokens": tokens} for row in rows],
        description=(
            "Load of the prefill and of the decode pool over time when identical requests come evenly, a "
            f"panel for each policy, computed in this browser with prompts of {tokens:,} and answers of "
            f"{alike.output_tokens:,} tokens, {alike.requests_per_s:.2f} of them a second, for "
            f"{_pools(params.prefill_nodes, alike.decode_nodes)}. {_spans(rows)}"
        ),
        fixed={"length": tokens},
    )


# --- load over time -------------------------------------------------------------------------------


def load_rows(run: Played, start_s: float, length_s: float, interval_s: float) -> list[Row]:
    """Loads of both pools within a window, as `simulator.load_series` measures them.

    Parameters
    ----------
    run : Played
    start_s, length_s : float
        Of the window, in seconds of the replay; it begins at the next multiple of `interval_s`.
    interval_s : float
        Between two rows.

    Returns
    -------
    list of dict
        ``time_s`` from the window's start, ``pool``, ``load``, ``origin``, ``policy``.
    """
    first = math.ceil(start_s / interval_s)
    steps = range(first, math.ceil((run.requests[-1].arrival_s + interval_s) / interval_s))
    times_s = [step * interval_s for step in steps]
    times_s = [time_s for time_s in times_s if time_s - interval_s * first <= length_s]
    return [
        {
            "time_s": time_s - interval_s * first,
            "pool": pool,
            "load": load,
            "origin": "modelled",
            "policy": TITLES[run.cluster.admission],
        }
        for pool, found in (("Prefill", _prefill_loads), ("Decode", _decode_loads))
        for time_s, load in zip(times_s, found(run, times_s), strict=True)
    ]


def _prefill_loads(run: Played, times_s: Sequence[float]) -> Iterator[float]:
    """How long the last request given to a node has still to wait for its first token, over the limit."""
    given = defaultdict(list)
    for request, record in zip(run.requests, run.records, strict=True):
        if record.outcome is not reference.Outcome.REJECTED_AT_ARRIVAL and record.choice is not None:
            given[record.choice.node].append((request.arrival_s, record.first_token_s))
    for time_s in times_s:
        waits_s = [
            max((done_s for arrival_s, done_s in each if arrival_s <= time_s), default=0.0) - time_s
            for each in given.values()
        ]
        waited_s = math.fsum(max(0.0, wait_s) for wait_s in waits_s)
        yield waited_s / run.cluster.ttft_limit_s / run.cluster.prefill_instances


def _decode_loads(run: Played, times_s: Sequence[float]) -> Iterator[float]:
    """How near to its limits a decode node is with the requests that have their first token."""
    limits = overload.limits_of(run.cluster)
    decodes: list[list[tuple[float, float, int]]] = [[] for _ in range(run.cluster.decode_nodes)]
    for request, record in zip(run.requests, run.records, strict=True):
        if record.outcome is reference.Outcome.FINISHED and request.output_tokens > 1:
            tokens = request.input_tokens + request.output_tokens
            decodes[record.decode_node].append((record.first_token_s, record.finish_s, tokens))
    for time_s in times_s:
        running = [[tokens for began, ended, tokens in each if began <= time_s < ended] for each in decodes]
        yield mean([share_of_limits(DecodeLoad(len(each), sum(each)), limits) for each in running])


def _pools(prefill_nodes: int, decode_nodes: int) -> str:
    return f"{prefill_nodes} prefill and {decode_nodes} decode node{'s' if decode_nodes > 1 else ''}"


def _spans(rows: Sequence[Row]) -> str:
    """From where to where each load goes, in words."""
    spans = []
    for policy in (TITLES[admission] for admission in REJECTING):
        pools = []
        for pool in ("Prefill", "Decode"):
            found = [row["load"] for row in rows if (row["policy"], row["pool"]) == (policy, pool)]
            pools.append(f"{pool.lower()} {min(found):.0%} to {max(found):.0%}")
        spans.append(f"{policy}: {', '.join(pools)}.")
    return " ".join(spans)
