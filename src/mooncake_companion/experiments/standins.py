"""Stand-ins: those made from what the papers print and draw, and how like a released trace one is.

``python -m mooncake_companion.experiments.standins`` writes the workloads without a trace to fit
anew into ``data/workloads``. What is taken from where, and what is assumed, stands with each.
"""

import dataclasses
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from mooncake_companion import reported, traces
from mooncake_companion.datafiles import data_path, replacing
from mooncake_companion.errors import CompanionError, InputError
from mooncake_companion.experiments import prefill_scheduling
from mooncake_companion.simulator import Batching, Cluster, CoupledCluster, Routing, simulate
from mooncake_companion.simulator.reuse_distance import lru_hit_curve
from mooncake_companion.traces import BLOCK_TOKENS, Kind, Trace, Workload, load_workload
from mooncake_companion.traces.workload import LEVELS, Row, format_workload

COMMAND = "python -m mooncake_companion.experiments.standins"

CAPACITIES_TOKENS = (*(m * 10**e for e in (5, 6, 7) for m in (1, 2, 5)), 10**8)
"""Capacities at which `fidelity` compares hit ratios."""

QUANTILES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
"""Levels at which it compares lengths."""

_RANDOM_RUNS = 20

_COLUMNS = (
    *("quantity", "condition", "unit", "released", "standin"),
    *("error", "error_kind", "limit", "within"),
)

_FIRST_BLOCK_REQUESTS = 10_937
_TOOL_REQUESTS = 9_202
"""Uses of the two most used sets of blocks (arXiv, Figure 6)."""

_TOOL_REQUESTS_BY_BIN = (0, 7_000, 2_100, 102)
"""Of these, in the first bins of Figure 5: as many as make the others fall smoothly. An assumption."""

_TOOL_PROMPT_BLOCKS = 12
"""The most that fits in most prompts of the second bin, of which Figure 6 asks 9,202."""

_RUN_REQUESTS = 1_000
_RUN_REQUESTS_PER_S = 1.0
"""Of a run whose size the arXiv report does not print; replay it faster or slower for another rate."""


def toolagent(*, returns: float = 0.425, chat_prompt_blocks: int = 4) -> Workload:
    """Tool and agent requests (FAST'25, Table 2 and Figure 9).

    Number, mean lengths and hour are printed. Assumed: they are the requests of the arXiv report's
    trace, which are as many and have the same mean answer; so the lengths are those of its Figure 5.
    The hit rate of Figure 9, which counts blocks of 256 tokens, is met with the trace's blocks of 512.

    Parameters
    ----------
    returns : float
        Share of the chat requests that continue a session; chosen for the plateau of Figure 9.
    chat_prompt_blocks : int
        Blocks of their system prompt; chosen for Figure 9 at a capacity of 100,000 tokens.
    """
    basis = "FAST'25 Table 2 and Figure 9; arXiv 2407.00079 Figures 5 and 6"
    return _online("toolagent", basis, returns, chat_prompt_blocks)


def arxiv(*, returns: float = 0.41) -> Workload:
    """The trace of the arXiv report (its section 4, Figures 5 and 6, Table 1).

    Two of its numbers are not met. It prints a mean prompt of 7,590 tokens; beside 9,202 requests
    with a system prompt of 12 blocks, its own histogram allows that only if all others lie in the
    lowest 4 % of their bins. The mean is therefore that of the tool and agent trace in FAST'25,
    with as many requests and the same mean answer. And of Figure 6 only the two greatest counts are
    met: below them its blocks are asked for 2.2 times on average, so that an infinite cache would
    hit two of three times, not the 51 % of Table 1.

    Parameters
    ----------
    returns : float
        Share of the chat requests that continue a session; chosen for Table 1 with infinite capacity.
    """
    basis = "arXiv 2407.00079 section 4, Figures 5 and 6, Table 1; mean prompt of FAST'25 Table 2"
    return _online("arxiv", basis, returns, 1)


def _online(name: str, basis: str, returns: float, chat_prompt_blocks: int) -> Workload:
    """One hour of online requests: one tool with a long system prompt, chats with a short one, others.

    The sizes of the first two are the two greatest hit counts of Figure 6. Assumed: ticks of 3 s,
    and sessions that return and grow as those of the conversation trace, whose fit is taken over.
    """
    count = int(reported.claim("arxiv.trace.requests"))
    drawn = reported.figure("arxiv_fig05").query("quantity == 'input_length'")
    counts = drawn["requests"].to_numpy(float)
    low, high = drawn["bin_low_tokens"].to_numpy(float), drawn["bin_high_tokens"].to_numpy(float)
    of_tool = np.zeros_like(counts)
    of_tool[: len(_TOOL_REQUESTS_BY_BIN)] = _TOOL_REQUESTS_BY_BIN
    tool_tokens = _quantiles(np.maximum(low, _TOOL_PROMPT_BLOCKS * BLOCK_TOKENS + 1), high, of_tool)
    total = count * reported.claim("fast25.table2.toolagent.input") - _TOOL_REQUESTS * _mean(tool_tokens)
    rest_tokens = _quantiles(low, high, counts - of_tool, mean=total / (count - _TOOL_REQUESTS))
    answers = reported.figure("arxiv_fig05").query("quantity == 'output_length'")
    output_tokens = _quantiles(
        *(answers[c].to_numpy(float) for c in ("bin_low_tokens", "bin_high_tokens", "requests")),
        mean=reported.claim("arxiv.trace.output"),
    )
    sessions = load_workload("conversation").kinds[0]
    by_part = np.asarray(sessions.continuation_by_part)
    chat = dataclasses.replace(
        sessions,
        name="chat",
        share=_FIRST_BLOCK_REQUESTS / count,
        prompts=1,
        prompt_blocks=(float(chat_prompt_blocks),),
        input_tokens=rest_tokens,
        first_tokens=(),
        first_class_by_part=((1.0,),),
        output_tokens=(output_tokens,),
        continuation_by_part=_row(returns * by_part / by_part.mean()),
        reused_blocks=(),
    )
    other_share = 1 - (_FIRST_BLOCK_REQUESTS + _TOOL_REQUESTS) / count
    tool = Kind(
        name="tool",
        share=_TOOL_REQUESTS / count,
        prompts=1,
        prompt_blocks=(float(_TOOL_PROMPT_BLOCKS),),
        input_tokens=tool_tokens,
        output_tokens=(output_tokens,),
    )
    other = dataclasses.replace(chat, name="other", share=other_share, prompts=0, prompt_blocks=(0.0,))
    return Workload(
        name=name,
        basis=basis,
        requests=count,
        duration_s=3600 * reported.claim("arxiv.trace.hours"),
        tick_s=load_workload("conversation").tick_s,
        kinds=(tool, chat, other),
    )


def arxiv_summarization() -> Workload:
    """ArXiv Summarization (arXiv report, Table 2): long prompts without reuse, Poisson arrivals.

    Printed: the mean lengths, that the cache ratio is about 0, and Poisson. Assumed: lognormal
    lengths, that of prompts with a standard deviation of 0.5 in the logarithm, of answers 0.3.
    """
    return _run("arxiv-summarization", "arxiv_summarization", input_spread=0.5, output_spread=0.3)


def l_eval() -> Workload:
    """L-Eval (arXiv report, Table 2): several questions about each long document.

    Printed: the mean lengths, a cache ratio above 80 %, and Poisson. Assumed: six questions about a document
    one after the other, of 100 tokens each; lognormal lengths, with a standard deviation of 0.6 in
    the logarithm of prompts and of 1 in that of answers.
    """
    questions = 6
    made = _run("l-eval", "l_eval", input_spread=0.6, output_spread=1.0)
    document = dataclasses.replace(
        made.kinds[0],
        name="question",
        input_tokens=(),
        first_tokens=made.kinds[0].input_tokens,
        continuation_by_part=(1 - 1 / questions,),
        return_age_s=(0.0, 60.0, 600.0),
        return_rate=((1.0, 0.01),) * 3 + ((0.3, 0.003),) + ((0.0, 0.0),),
        new_tokens=((50.0, 150.0),),
    )
    return dataclasses.replace(made, kinds=(document,))


def simulated(thousand_tokens: int) -> Workload:
    """Simulated prompts (arXiv report, Table 2): all of one length, half of it reused.

    Printed: 16k to 128k tokens, answers of 512, a cache ratio of 50 %, and Poisson. Assumed: the
    first half is one of ten, each used as often.
    """
    tokens = thousand_tokens * 1024
    kind = Kind(
        name="prompt",
        prompts=10,
        prompt_blocks=(float(tokens // 2 // BLOCK_TOKENS),),
        first_tokens=(float(tokens),),
        output_tokens=((reported.claim("arxiv.table2.simulated.output"),),),
    )
    return _benchmark(f"simulated-{thousand_tokens}k", kind)


def _run(name: str, claimed: str, *, input_spread: float, output_spread: float) -> Workload:
    input_tokens = _lognormal(reported.claim(f"arxiv.table2.{claimed}.input"), input_spread)
    output_tokens = _lognormal(reported.claim(f"arxiv.table2.{claimed}.output"), output_spread)
    return _benchmark(
        name,
        Kind(
            name="prompt",
            input_tokens=input_tokens,
            output_tokens=(output_tokens,),
        ),
    )


def _benchmark(name: str, kind: Kind) -> Workload:
    return Workload(
        name=name,
        basis="arXiv 2407.00079 Table 2",
        requests=_RUN_REQUESTS,
        duration_s=_RUN_REQUESTS / _RUN_REQUESTS_PER_S,
        kinds=(kind,),
    )


def _quantiles(
    low: npt.NDArray[np.float64],
    high: npt.NDArray[np.float64],
    counts: npt.NDArray[np.float64],
    *,
    mean: float | None = None,
) -> Row:
    """A knot row from a histogram; lengths lie in their bins evenly, or all as low as the mean asks."""
    width = high - low
    share = 0.5 if mean is None else (mean * counts.sum() - low @ counts) / (width @ counts)
    power = 1 / share - 1  # a number v in [0, 1) becomes v ** power, of that mean
    reached = np.concatenate(([0.0], np.cumsum(counts))) / counts.sum()
    u = np.asarray(LEVELS)
    at = np.clip(np.searchsorted(reached, u, side="right") - 1, 0, np.flatnonzero(counts)[-1])
    inside = (u - reached[at]) / np.diff(reached)[at]
    return _row(low[at] + width[at] * inside**power)


def _lognormal(mean: float, spread: float) -> Row:
    """A knot row of a lognormal distribution, cut at its 0.1 and 99.9 % quantiles, with a given mean."""
    normal = np.array([NormalDist().inv_cdf(min(max(u, 0.001), 0.999)) for u in LEVELS])
    row = np.exp(spread * normal)
    return _row(row * mean / _mean(row))


def _mean(row: Row | npt.NDArray[np.float64]) -> float:
    return float(np.trapezoid(row, LEVELS))


def _row(values: npt.NDArray[np.float64]) -> Row:
    return tuple(float(f"{v:.6g}") for v in values.tolist())


def described() -> dict[str, Workload]:
    """Give all workloads that are made from the papers, by name."""
    made = [toolagent(), arxiv(), arxiv_summarization(), l_eval(), *map(simulated, (16, 32, 64, 128))]
    return {workload.name: workload for workload in made}


def write() -> None:
    """Make them anew and replace their files in ``data/workloads``."""
    folder = data_path("workloads", "README.md").parent
    for name, workload in described().items():
        with replacing(folder / f"{name}.toml") as part:
            part.write_text(format_workload(workload, made_by=COMMAND), "utf-8")


def room_for_printed_mean() -> float:
    """Where in their bins the arXiv report's other prompts must lie for its printed mean to hold.

    Its Figure 5 tells lengths by bins, and its Figure 6 that 9,202 requests share a set of blocks, here
    a system prompt of 12 of them, after which nothing follows. 0: all others at their bins' lower ends;
    1: at the upper ones.
    """
    drawn = reported.figure("arxiv_fig05").query("quantity == 'input_length'")
    counts, low, high = (drawn[c].to_numpy(float) for c in ("requests", "bin_low_tokens", "bin_high_tokens"))
    of_tool = np.zeros_like(counts)
    of_tool[: len(_TOOL_REQUESTS_BY_BIN)] = _TOOL_REQUESTS_BY_BIN
    tool_tokens = np.maximum(low, _TOOL_PROMPT_BLOCKS * BLOCK_TOKENS + 1)
    total = counts.sum() * reported.claim("arxiv.trace.input") - tool_tokens @ of_tool
    others = counts - of_tool
    return float((total - low @ others) / ((high - low) @ others))


def kept(names: tuple[str, ...] = ("conversation", "synthetic")) -> pd.DataFrame:
    """`fidelity` of those traces that can be had, one below the other, with their ``workload``."""
    tables = []
    for name in names:
        try:
            tables.append(fidelity(name).assign(workload=name))
        except CompanionError:
            continue  # there is nothing to compare a stand-in with
    columns = ["workload", *_COLUMNS]
    return pd.concat(tables, ignore_index=True)[columns] if tables else pd.DataFrame(columns=columns)


def fidelity(name: str, *, seed: int = traces.STANDIN_SEED) -> pd.DataFrame:
    """Measure how like the released trace its stand-in is, for itself and in what the model makes of it.

    Parameters
    ----------
    name : str
        Of a released trace that is on this machine or can be downloaded.
    seed : int
        Of the stand-in; the registered one's, if not given.

    Returns
    -------
    DataFrame
        Columns: ``quantity``, ``condition``, ``unit``, ``released``, ``standin``, ``error`` (of
        the stand-in), ``error_kind`` ("points", "relative"), ``limit`` (that the error should
        keep), ``within``. Hit ratios are those of one LRU cache, in percent of the block
        requests; the quantiles of lengths count as kept, too, within one token.

    Raises
    ------
    InputError
        If the released trace cannot be had: a stand-in is not compared with itself.
    """
    released = traces.load(name)
    if released.origin != "released":
        raise InputError(f"the released {name} trace cannot be had; there is nothing to compare with")
    made = traces.standin(name)
    if seed != traces.STANDIN_SEED:
        made = traces.generate(load_workload(name), np.random.default_rng(seed))
    rows = [
        {**key._asdict(), "released": value, "standin": measured}
        for measure in (_hit_ratios, _lengths, _headlines)
        for (key, value), measured in zip(measure(released).items(), measure(made).values(), strict=True)
    ]
    table = pd.DataFrame(rows)
    difference = table["standin"] - table["released"]
    in_points = table["error_kind"] == "points"
    table["error"] = difference.where(in_points, difference / table["released"])
    within_a_token = (table["unit"] == "tokens") & (difference.abs() <= 1)
    table["within"] = (table["error"].abs() <= table["limit"]) | within_a_token
    table = table[list(_COLUMNS)]
    table.attrs["provenance"] = {
        "trace": released.name,
        "trace_sha256": released.sha256,
        "trace_source": released.source,
        "standin_sha256": made.sha256,
        "parameters": {"name": name, "seed": seed},
    }
    return table


class _Key(NamedTuple):
    quantity: str
    condition: str
    unit: str
    error_kind: str
    limit: float


def lru_curve(trace: Trace) -> npt.NDArray[np.float64]:
    """Hit ratio of one LRU cache by its capacity in blocks, from 0 to all distinct ones; in percent."""
    return 100 * lru_hit_curve(trace.block_ids) / len(trace.block_ids)


def _hit_ratios(trace: Trace) -> dict[_Key, float]:
    curve = lru_curve(trace)
    return {
        _Key("LRU hit ratio", f"{capacity:,} tokens", "%", "points", 2.0): float(
            curve[min(capacity // BLOCK_TOKENS, len(curve) - 1)]
        )
        for capacity in CAPACITIES_TOKENS
    }


def _lengths(trace: Trace) -> dict[_Key, float]:
    return {
        _Key(f"{title} length", f"{100 * level:g} % quantile", "tokens", "relative", 0.03): float(
            np.quantile(column, level)
        )
        for title, column in (("input", trace.input_tokens), ("output", trace.output_tokens))
        for level in QUANTILES
    }


def _headlines(trace: Trace) -> dict[_Key, float]:
    """What Figures 1 and 5 show, of this trace: TTFT by routing (conversation only), requests within limits.

    On the synthetic trace the routings that disregard caches are near saturation, where TTFT
    differs by a factor of 2 between equally good stand-ins; Figure 5 does not use that trace.
    """
    within = {
        _Key("requests within the TBT limit", f"{system}, {limit_ms} ms", "%", "relative", 0.1): float(
            100 * (result.tbt_s <= limit_ms / 1000).mean()
        )
        for system, cluster in _systems().items()
        for result in [simulate(trace, cluster)]
        for limit_ms in (100, 200, 300)
    }
    if not trace.name.startswith("conversation"):
        return within
    params = prefill_scheduling.Params()
    mean_s = {
        title: np.mean(
            [
                simulate(trace, params.cluster(routing, params.prefill_nodes), rng=rng).ttft_s.mean()
                for rng in np.random.default_rng(params.seed).spawn(
                    _RANDOM_RUNS if routing is Routing.RANDOM else 1
                )
            ]
        )
        for routing, title in prefill_scheduling.TITLES.items()
    }
    best_s, *others_s = mean_s.items()
    ratios = {
        _Key("mean TTFT over that of global cache aware", title, "", "relative", 0.1): float(s / best_s[1])
        for title, s in others_s
    }
    return {**ratios, **within}


def _systems() -> dict[str, Cluster | CoupledCluster]:
    """The four systems of Figure 1 on 16 nodes; the split is that of Figure 5, an assumption."""
    params = prefill_scheduling.Params()
    pools = params.cluster(Routing.GLOBAL_CACHE_AWARE, params.prefill_nodes)
    coupled = {
        f"vLLM, {batching.replace('_', ' ')}": CoupledCluster.from_presets(
            params.node, params.model, nodes=params.nodes, batching=batching
        )
        for batching in Batching
    }
    return {"Mooncake": pools, **coupled}


if __name__ == "__main__":
    write()
