"""Measure a call and say what came out, in one form for all benchmarks."""

import gc
import math
import os
import platform
import resource
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Record = dict[str, Any]

ENOUGH_S = 10.0
"""No further repeat begins once so many seconds were measured."""


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What a record's entry `key` should be at `least` or at `most`."""

    key: str
    least: float = -math.inf
    most: float = math.inf

    def judged(self, record: Record) -> Record:
        """The goal and whether a record meets it, as entries of the record; none if it has no such key."""
        value = record.get(self.key)
        return {} if value is None else {"goal": str(self), "met": self.least <= value <= self.most}

    def __str__(self) -> str:
        sign, limit = (">=", self.least) if math.isfinite(self.least) else ("<=", self.most)
        return f"{self.key} {sign} {limit:,g}" if limit < 1000 else f"{self.key} {sign} {limit:,.0f}"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The best of some calls.

    Parameters
    ----------
    seconds, cpu_s : float
        By the clock, and of the processor, each the least over the repeats.
    repeats : int
    peak_bytes : int
        See `peak_of`.
    peak_of : {"call", "process"}
        Most that the call itself had allocated at once, as tracemalloc counts it (NumPy's arrays
        included, touched or not; compiled code allocates nothing else); or the most that the whole
        process had in memory until then, with interpreter, libraries and input.
    """

    seconds: float
    cpu_s: float
    repeats: int
    peak_bytes: int
    peak_of: Literal["call", "process"]


def measured(run: Callable[[], Any], *, repeats: int, warm_up: bool = True) -> Measured:
    """Time a call in this process, and trace its allocations in one more that is not timed.

    Parameters
    ----------
    run : callable
    repeats : int
        At most; at least one.
    warm_up : bool
        Whether to call it once beforehand, so that compilation is not timed.
    """
    if warm_up:
        run()
    times = [_times(run)]
    while len(times) < repeats and sum(seconds for seconds, _ in times) < ENOUGH_S:
        times.append(_times(run))
    return Measured(
        seconds=min(seconds for seconds, _ in times),
        cpu_s=min(cpu_s for _, cpu_s in times),
        repeats=len(times),
        peak_bytes=peak_bytes(run),
        peak_of="call",
    )


def measured_once(run: Callable[[], Any]) -> Measured:
    """Time a single call; the peak is the process's."""
    seconds, cpu_s = _times(run)
    return Measured(
        seconds=seconds, cpu_s=cpu_s, repeats=1, peak_bytes=process_peak_bytes(), peak_of="process"
    )


def record(name: str, requests: int | None, best: Measured, **more: Any) -> Record:
    """What is kept of a measurement; `requests` is None where none are replayed."""
    return {
        "name": name,
        "requests": requests,
        "requests_per_s": None if requests is None else requests / best.seconds,
        "seconds": best.seconds,
        "cpu_s": best.cpu_s,
        "repeats": best.repeats,
        "peak_bytes": best.peak_bytes,
        "peak_of": best.peak_of,
        "python": platform.python_version(),
        **more,
    }


def machine() -> Record:
    """What a machine is like, without its name.

    ``python_loop_s`` is a yardstick: the least time of a million rounds of an empty loop.
    """
    pages = os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "memory_bytes": pages * os.sysconf("SC_PAGE_SIZE") if pages else None,
        "python_loop_s": min(_times(_empty_loop)[0] for _ in range(5)),
    }


def peak_bytes(run: Callable[[], Any]) -> int:
    """Most memory that a call has allocated at once, in bytes, without what was there before."""
    gc.collect()
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def process_peak_bytes() -> int:
    """Most memory that this process had in use at once, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # what getrusage says there may be the parent's
        (line,) = (line for line in status.read_text("ascii").splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _times(run: Callable[[], Any]) -> tuple[float, float]:
    with _no_collection():
        start_s, start_cpu_s = time.perf_counter(), time.process_time()
        run()
        return time.perf_counter() - start_s, time.process_time() - start_cpu_s


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep Python's cycle collector out of what is timed."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _empty_loop() -> None:
    for _ in range(1_000_000):
        pass
