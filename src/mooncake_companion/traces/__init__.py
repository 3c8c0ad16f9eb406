"""Request traces: columns, reading and validation, where they come from, stand-ins for them."""

from mooncake_companion.traces.read import Problem, read_jsonl, validate_jsonl, write_jsonl
from mooncake_companion.traces.trace import (
    BLOCK_TOKENS,
    Trace,
    infinite_cache_hit_ratio,
    infinite_cache_leading_hits,
    make_trace,
)

__all__ = [
    "BLOCK_TOKENS",
    "Problem",
    "Trace",
    "infinite_cache_hit_ratio",
    "infinite_cache_leading_hits",
    "make_trace",
    "read_jsonl",
    "validate_jsonl",
    "write_jsonl",
]
