"""Small clusters and traces for the laws that every replay must keep."""

import dataclasses

from hypothesis import strategies as st

from mooncake_companion.costs import Calibration
from mooncake_companion.hardware import load_node
from mooncake_companion.llm import load_model
from mooncake_companion.simulator import Admission, Batching, Cluster, CoupledCluster, Routing
from mooncake_companion.simulator.eviction import POLICIES, STORE
from mooncake_companion.traces import Trace

NODE, MODEL = load_node("a800"), load_model("llama3-70b")
CALIBRATION = Calibration(
    prefill_overhead_s=1.0,
    linear_utilisation=0.5,
    attention_utilisation=0.5,
    network_utilisation=1.0,
    decode_overhead_s=0.015625,
    hbm_utilisation=0.5,
    host_sequence_s=0.0078125,
)


def cluster(**changes):
    setting = {
        "node": NODE,
        "model": MODEL,
        "calibration": CALIBRATION,
        "prefill_nodes": 3,
        "decode_nodes": 2,
        "cache_tokens_per_node": 20 * 512,
        "routing": Routing.GLOBAL_CACHE_AWARE,
        "kvcache_balancing_threshold": 2.0,
    }
    return Cluster(**(setting | changes))


def coupled(**changes):
    setting = {"node": NODE, "model": MODEL, "calibration": CALIBRATION, "nodes": 2}
    return CoupledCluster(**(setting | changes))


def replace_node(**changes):
    """The node of `cluster` with other links or memory."""
    return dataclasses.replace(NODE, **changes)


@st.composite
def small_traces(draw, max_requests=30, max_output_tokens=40):
    """Requests whose prompts are paths in a small forest of blocks."""
    requests, now_s = [], 0.0
    for _ in range(draw(st.integers(1, max_requests))):
        now_s += draw(st.sampled_from([0.0, 0.25, 1.0, 8.0]))
        root, depth = draw(st.integers(0, 3)), draw(st.integers(1, 8))
        shared = draw(st.integers(0, depth))  # behind it, one of two branches
        branch = 1000 * draw(st.integers(0, 1)) + 10_000 * shared
        blocks = [100 * root + level + (branch if level >= shared else 0) for level in range(depth)]
        tokens = 512 * depth - draw(st.integers(0, 511))
        output_tokens = draw(st.integers(1, max_output_tokens))
        requests.append((now_s, tokens, output_tokens, blocks))
    return Trace.from_requests(requests)


@st.composite
def small_conversations(draw, max_turns=25, max_output_tokens=40):
    """Sessions whose prompts go on with what was said, so that answers complete blocks of theirs.

    A turn may be sent again, or come before its answer can be there.
    """
    sessions, requests, now_s, ids = [(0, [])], [], 0.0, 0
    for _ in range(draw(st.integers(1, max_turns))):
        now_s += draw(st.sampled_from([0.0, 1.0, 8.0, 16.0]))
        said_tokens, said = draw(st.sampled_from([s for s in sessions if s[0] < 4800]))  # fits any node
        tokens = said_tokens + draw(st.sampled_from([3, 490, 500, 900]))
        output_tokens = draw(st.integers(1, max_output_tokens))
        prompt = said + list(range(ids, ids - (-tokens // 512) - len(said)))
        ids += len(prompt) - len(said)
        requests.append((now_s, tokens, output_tokens, prompt))
        sessions.append((tokens + output_tokens, prompt[: tokens // 512]))
    return Trace.from_requests(requests)


# Memory for KV cache on a decode node from about 6,000 tokens (one or two requests) to plenty.
_NODES = [
    NODE,
    replace_node(nic_bytes_per_s=1e9, host_to_device_bytes_per_s=1e9, ssd_read_bytes_per_s=5e8),
    replace_node(hbm_bytes=19_870_000_000),
    replace_node(hbm_bytes=20_000_000_000, nic_bytes_per_s=4e9, host_to_device_bytes_per_s=3e9),
]

_NO_TIERS = {"vram_cache_tokens_per_node": 0, "ssd_cache_tokens_per_node": 0}
_TIERS = [
    _NO_TIERS,
    {"vram_cache_tokens_per_node": 2 * 512, "ssd_cache_tokens_per_node": 0},
    {"vram_cache_tokens_per_node": 0, "ssd_cache_tokens_per_node": 12 * 512},
    {"vram_cache_tokens_per_node": 3 * 512, "ssd_cache_tokens_per_node": 10**6},
]


def _whole(setting):
    """Pools of whole pipelines; tiers as plain settings."""
    instances, tiers = setting.pop("instances"), setting.pop("tiers")
    returns = setting.pop("return_answers") and setting["eviction"] != "belady"
    pools = {"prefill_nodes": instances * setting["pipeline_nodes"], "return_answers": returns}
    return setting | tiers | pools


small_settings = st.fixed_dictionaries(
    {
        "node": st.sampled_from(_NODES),
        "instances": st.integers(1, 4),
        "decode_nodes": st.integers(1, 3),
        "pipeline_nodes": st.sampled_from([1, 1, 1, 2, 3]),
        "pipeline_chunk_tokens": st.sampled_from([300, 1024]),
        "cache_tokens_per_node": st.sampled_from([0, 512, 5 * 512, 12 * 512, 10**6]),
        "tiers": st.sampled_from([_NO_TIERS, *_TIERS]),
        "eviction": st.sampled_from(["lru", "lru", *POLICIES, STORE]),
        "lease_ttl_s": st.sampled_from([0.0, 4.0]),
        "replicate_after_uses": st.sampled_from([1, 1, 3, 10**6]),
        "routing": st.sampled_from(Routing),
        "kvcache_balancing_threshold": st.sampled_from([1.0, 1.5, 4.0]),
        "shared_recency": st.booleans(),
        "shortlist_nodes": st.sampled_from([0, 0, 1, 2]),
        "transfer_startup_s": st.sampled_from([0.0, 0.125]),
        "kv_streaming": st.booleans(),
        "layerwise": st.booleans(),
        "return_answers": st.booleans(),
        "admission": st.sampled_from(Admission),
        "ttft_limit_s": st.sampled_from([2.0, 30.0]),
        "tbt_limit_s": st.sampled_from([0.045, 0.1]),
        "predicted_decode_s": st.sampled_from([0.5, 4.0]),
        "first_interval_counts": st.booleans(),
    }
).map(_whole)

coupled_settings = st.fixed_dictionaries(
    {
        "node": st.sampled_from(_NODES),
        "nodes": st.integers(1, 3),
        "batching": st.sampled_from(Batching),
        "chunk_tokens": st.sampled_from([1, 3, 700, 2048]),
        "max_batched_tokens": st.sampled_from([1, 3000, 131_072]),
        "max_sequences": st.sampled_from([1, 2, 256]),
        "host_overlaps": st.booleans(),
        "first_interval_counts": st.booleans(),
    }
)
