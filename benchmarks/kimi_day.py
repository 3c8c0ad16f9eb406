"""A day of a large service: 8 million requests, about 100 billion tokens, 1,000 nodes.

`python -m benchmarks.record`, run at the top of the checkout, measures it in a process of its own and
writes ``data/recorded/kimi_day.json``. It takes some minutes and up to 8 GB.
"""

import hashlib
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from mooncake_companion.simulator import Cluster, Outcome, Result, simulate
from mooncake_companion.traces import Trace

from .bench_simulator import cluster_of
from .records import Record, machine, measured_once, record
from .tiling import conversation_like, tiled

RECORDED = Path("data/recorded/kimi_day.json")
COMMAND = "python -m benchmarks.record"

REQUESTS = 8_000_000
TILES = 80
NODES = 1_000
DAY_S = 86_400.0
SWING = 0.5
"""The load at midday is 1.5 times the mean. An assumption."""
SEED = 0

PARTS_THAT_MATTER = (
    "benchmarks/kimi_day.py",
    "benchmarks/tiling.py",
    "src/mooncake_companion/costs.py",
    "src/mooncake_companion/simulator/cluster.py",
    "src/mooncake_companion/simulator/serving_path.py",
    "src/mooncake_companion/simulator/transfer.py",
    "src/mooncake_companion/simulator/fast/caches.py",
    "src/mooncake_companion/simulator/fast/shelves.py",
    "src/mooncake_companion/simulator/fast/compiling.py",
    "src/mooncake_companion/simulator/fast/decoders.py",
    "src/mooncake_companion/simulator/fast/engine.py",
    "src/mooncake_companion/simulator/fast/events.py",
    "src/mooncake_companion/simulator/fast/flows.py",
)
"""Files whose change can move the recorded time, memory or results. The coupled engine is not among them."""


def sources_sha256(root: Path) -> str:
    """SHA-256 over the files that matter, in the order of their names."""
    digest = hashlib.sha256()
    for name in sorted(PARTS_THAT_MATTER):
        content = (root / name).read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def day_trace(requests: int = REQUESTS, tiles: int = TILES) -> Trace:
    """A day's requests: copies of a generated trace with the conversation trace's statistics."""
    base = conversation_like(max(requests // tiles, 2), seed=SEED)
    return tiled(base, tiles=tiles, duration_s=DAY_S, swing=SWING)


def kimi_day(
    *, repeats: int = 1, most_requests: int = REQUESTS, nodes: int = NODES, tiles: int = TILES
) -> list[Record]:
    """Replay the day once, whatever the repeats; making the trace is not timed.

    Returns
    -------
    list of dict
        One record. ``peak_bytes`` is the process's, trace and libraries included.
    """
    del repeats  # one run takes minutes
    cluster = cluster_of(nodes)
    simulate(conversation_like(100), cluster)  # compile
    trace = day_trace(most_requests, tiles)
    kept: list[Result] = []
    best = measured_once(lambda: kept.append(simulate(trace, cluster)))
    return [record("kimi-day", len(trace), best, **_facts(trace, cluster, kept[0]))]


def _facts(trace: Trace, cluster: Cluster, result: Result) -> dict[str, Any]:
    """What was replayed and what came out, for comparison when the engine changes."""
    return {
        "nodes": cluster.prefill_nodes + cluster.decode_nodes,
        "prefill_nodes": cluster.prefill_nodes,
        "decode_nodes": cluster.decode_nodes,
        "duration_s": trace.duration_s,
        "input_tokens": int(trace.input_tokens.sum()),
        "output_tokens": int(trace.output_tokens.sum()),
        "blocks": len(trace.block_ids),
        "finished": int((result.outcome == Outcome.FINISHED).sum()),
        "hit_ratio": result.hit_ratio,
        "ttft_mean_s": float(np.nanmean(result.ttft_s)),
        "tbt_mean_s": float(np.nanmean(result.tbt_s)),
        "counters": result.counters,
    }


def recording(root: Path, **sizes: int) -> dict[str, Any]:
    """What is written to `RECORDED`."""
    before = sources_sha256(root)
    (measurement,) = kimi_day(**sizes)
    if sources_sha256(root) != before:
        raise RuntimeError("the sources changed during the run; record again")
    return {
        "made_by": COMMAND,
        "sources_sha256": before,
        "sources": list(PARTS_THAT_MATTER),
        "machine": machine(),
        "packages": {name: metadata.version(name) for name in ("numba", "numpy")},
        "benchmarks": [measurement],
    }
