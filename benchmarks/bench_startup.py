"""What a reader waits for before anything is computed: imports, and the first compilation."""

import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

from mooncake_companion.datafiles import CACHE_VARIABLE

from .records import Measured, Record, record

_IMPORT = """
import time
start_s = time.perf_counter()
import mooncake_companion
print(time.perf_counter() - start_s)
"""

_FIRST_REPLAY = """
import time
from mooncake_companion.simulator import Cluster, simulate
from mooncake_companion.traces import Trace
trace = Trace.from_requests([(0.0, 600, 10, [0, 1]), (1.5, 700, 20, [0, 2])])
cluster = Cluster.from_presets("a800", "llama3-70b", prefill_nodes=2, decode_nodes=2)
start_s = time.perf_counter()
simulate(trace, cluster)
print(time.perf_counter() - start_s)
"""


def import_time(*, repeats: int = 7) -> list[Record]:
    """Start an interpreter, import the package, end.

    Returns
    -------
    list of dict
        One record: ``seconds`` from start to end, and of that ``import_s`` for the import.
    """
    runs = [_in_new_process(_IMPORT) for _ in range(repeats + 1)][1:]  # the first warms the disk cache
    return [record("import-time", None, _best(runs), import_s=min(run["said"] for run in runs))]


def compile_time(*, repeats: int = 1) -> list[Record]:
    """Replay two requests with an empty folder of compiled code, then again in a new process.

    Returns
    -------
    list of dict
        One record: ``seconds`` of the first call; ``next_process_s`` of the same call in a process
        that finds the code on disk; ``ratio`` of the two.
    """
    firsts, seconds = [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            firsts.append(_in_new_process(_FIRST_REPLAY, **{CACHE_VARIABLE: folder}))
            seconds.append(_in_new_process(_FIRST_REPLAY, **{CACHE_VARIABLE: folder}))
    compiling_s, reading_s = (min(run["said"] for run in runs) for runs in (firsts, seconds))
    best = _best(firsts)
    call = Measured(
        seconds=compiling_s,
        cpu_s=best.cpu_s,
        repeats=repeats,
        peak_bytes=best.peak_bytes,
        peak_of="process",
    )
    return [
        record(
            "compile-time",
            None,
            call,
            next_process_s=reading_s,
            ratio=compiling_s / reading_s,
            ratio_to="the next process",
        )
    ]


_ACCOUNT = """
import json, pathlib, resource, sys
status = pathlib.Path("/proc/self/status")
if status.exists():
    lines = status.read_text("ascii").splitlines()
    peak = int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) * 1024
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
print(peak)
print(time.process_time())
"""


def _in_new_process(code: str, **environment: str) -> dict[str, Any]:
    """Run code that prints one number; give that, and seconds, processor seconds and peak of the process."""
    start_s = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code + _ACCOUNT],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    seconds = time.perf_counter() - start_s
    said, peak, cpu_s = map(json.loads, done.stdout.split())
    return {"said": said, "peak_bytes": peak, "cpu_s": cpu_s, "seconds": seconds}


def _best(runs: list[dict[str, Any]]) -> Measured:
    return Measured(
        seconds=min(run["seconds"] for run in runs),
        cpu_s=min(run["cpu_s"] for run in runs),
        repeats=len(runs),
        peak_bytes=min(run["peak_bytes"] for run in runs),
        peak_of="process",
    )
