"""Request traces: columns, reading and validation, where they come from, stand-ins for them."""

from mooncake_companion.traces.convert import FORMATS, Conversion, convert
from mooncake_companion.traces.generator import generate
from mooncake_companion.traces.read import Problem, read_jsonl, validate_jsonl, write_jsonl
from mooncake_companion.traces.sources import (
    STANDIN,
    STANDIN_SEED,
    RegisteredTrace,
    fetch,
    generated,
    has_standin,
    load,
    locate,
    registered,
    sources_fingerprint,
    standin,
)
from mooncake_companion.traces.trace import (
    BLOCK_TOKENS,
    Trace,
    describe,
    infinite_cache_hit_ratio,
    infinite_cache_leading_hits,
    make_trace,
    tick_s,
)
from mooncake_companion.traces.workload import Kind, Workload, load_workload

__all__ = [
    "BLOCK_TOKENS",
    "FORMATS",
    "STANDIN",
    "STANDIN_SEED",
    "Conversion",
    "Kind",
    "Problem",
    "RegisteredTrace",
    "Trace",
    "Workload",
    "convert",
    "describe",
    "fetch",
    "generate",
    "generated",
    "has_standin",
    "infinite_cache_hit_ratio",
    "infinite_cache_leading_hits",
    "load",
    "load_workload",
    "locate",
    "make_trace",
    "read_jsonl",
    "registered",
    "sources_fingerprint",
    "standin",
    "tick_s",
    "validate_jsonl",
    "write_jsonl",
]
