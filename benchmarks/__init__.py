"""How fast the model is, and how much memory it takes: the benchmarks of `companion bench`.

Each benchmark gives records as `records.record` makes them. Where two things are compared, both are
measured in the same run, and what is kept is their ratio.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from . import bench_caches, bench_simulator, bench_startup, kimi_day
from .records import Goal, Record, machine

__all__ = ["BENCHMARKS", "Benchmark", "Goal", "machine", "run"]


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """One name that `companion bench` knows.

    Parameters
    ----------
    summary : str
        What is measured, in a phrase.
    measure : callable
        Takes the keywords ``repeats`` and, if it is not None, ``most_requests``.
    goal : Goal, optional
        What each of its records should reach.
    sized : bool
        Whether ``most_requests`` changes anything.
    by_default : bool
        Whether it runs when nothing is named.
    """

    summary: str
    measure: Callable[..., list[Record]]
    goal: Goal | None = None
    sized: bool = False
    by_default: bool = True


BENCHMARKS = {
    "conversation-mooncake": Benchmark(
        summary="the conversation trace on 8 + 8 nodes, every TBT, beside the reference engine",
        measure=bench_simulator.conversation_mooncake,
        goal=Goal(key="requests_per_s", least=100_000),
    ),
    **{
        name: Benchmark(
            summary=f"the conversation trace on 16 coupled nodes, {batching.replace('_', ' ')}",
            measure=partial(bench_simulator.conversation_coupled, batching),
            goal=Goal(key="requests_per_s", least=50_000),
        )
        for batching, name in bench_simulator.COUPLED.items()
    },
    "lru-curve": Benchmark(
        summary="hits of LRU at every capacity, beside a plain LRU cache at one",
        measure=bench_caches.lru_curve,
        goal=Goal(key="requests_per_s", least=10_000_000),
    ),
    "scaling-requests": Benchmark(
        summary="10 thousand requests and more on the same 16 nodes at the same rate",
        measure=bench_simulator.scaling_requests,
        goal=Goal(key="time_exponent", most=1.05),
        sized=True,
    ),
    "scaling-nodes": Benchmark(
        summary="16 to 1,000 nodes with the same load on each",
        measure=bench_simulator.scaling_nodes,
    ),
    "import-time": Benchmark(
        summary="a new interpreter imports the package and ends",
        measure=bench_startup.import_time,
        goal=Goal(key="seconds", most=0.5),
    ),
    "compile-time": Benchmark(
        summary="a first replay with nothing compiled, beside one by the next process",
        measure=bench_startup.compile_time,
    ),
    "kimi-day": Benchmark(
        summary="8 million requests on 1,000 nodes: about 100 billion tokens in a day",
        measure=kimi_day.kimi_day,
        goal=Goal(key="seconds", most=600),
        sized=True,
        by_default=False,
    ),
}


def run(name: str, *, repeats: int | None = None, most_requests: int | None = None) -> list[Record]:
    """Run one benchmark; its records say whether they meet the goal."""
    benchmark = BENCHMARKS[name]
    given: dict[str, Any] = {"repeats": repeats}
    if benchmark.sized:
        given["most_requests"] = most_requests
    records = benchmark.measure(**{key: value for key, value in given.items() if value is not None})
    goal = benchmark.goal
    return [record | goal.judged(record) if goal else record for record in records]
