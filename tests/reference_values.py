"""Some outputs of every part of the model, as numbers by name: equal on every Python to a stated tolerance.

``python tests/reference_values.py`` writes them anew, after a change that was meant to move them.
"""

import json
import sys
from pathlib import Path

import numpy as np

from mooncake_companion.costs import (
    break_even_bandwidth,
    decode_step_time,
    load_calibration,
    prefill_time,
    transfer_time,
)
from mooncake_companion.hardware import load_node
from mooncake_companion.llm import load_model
from mooncake_companion.simulator import Batching, Cluster, CoupledCluster, Routing, simulate
from mooncake_companion.traces import generate, load_workload

FILE = Path(__file__).with_name("reference_values.json")
REQUESTS = 400


def values():
    """The numbers; none of them a count, which other tests hold to the last digit."""
    return {**_costs(), **_replays()}


def _costs():
    node, model, calibration = load_node("a800"), load_model("llama3-70b"), load_calibration()
    made = {}
    for tokens, cached in ((1, 0), (8192, 0), (8192, 8191), (131072, 65536)):
        seconds = prefill_time(node, model, tokens, cached, calibration=calibration)
        made[f"prefill {tokens} {cached}"] = float(seconds)
    for sequences, context in ((1, 1), (8, 65536), (64, 1_000_000)):
        seconds = decode_step_time(node, model, sequences, context, calibration=calibration)
        made[f"decode {sequences} {context}"] = float(seconds)
    made["transfer"] = float(transfer_time(node.nic_bytes_per_s, 10**9, calibration=calibration))
    made["break even"] = float(break_even_bandwidth(node, model, 8192))
    return made


def _replays():
    trace = generate(load_workload("conversation"), np.random.default_rng(0), requests=REQUESTS)
    made = {"arrivals": float(np.mean(trace.arrival_s)), "prompts": float(np.mean(trace.input_tokens))}
    pools = {
        routing.value: Cluster.from_presets(
            "a800", "llama3-70b", prefill_nodes=4, decode_nodes=4, routing=routing
        )
        for routing in Routing
    }
    coupled = {
        batching.value: CoupledCluster.from_presets("a800", "llama3-70b", nodes=4, batching=batching)
        for batching in Batching
    }
    for name, cluster in {**pools, **coupled}.items():
        result = simulate(trace, cluster, rng=np.random.default_rng(1))
        for column in ("ttft_s", "tbt_s", "finish_s", "local_tokens"):
            found = np.asarray(getattr(result, column), dtype=float)
            for quantile in (0.5, 0.9, 1.0):
                made[f"{name} {column} {quantile}"] = float(np.nanquantile(found, quantile))
    return made


def write():
    FILE.write_text(json.dumps(values(), indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(write())
