"""The papers' workloads, as far as they can be had, and how a table says which it is from."""

import dataclasses
from typing import Any

import numpy as np

from mooncake_companion import traces
from mooncake_companion.errors import CompanionError
from mooncake_companion.traces import Trace
from mooncake_companion.traces.sources import STANDIN

FAST25 = ("conversation", "toolagent", "synthetic")
"""The three workloads of FAST'25, in its order."""


def available(names: tuple[str, ...] = FAST25) -> dict[str, Trace]:
    """Traces by workload, released or stand-ins; those that cannot be had at all are left out."""
    found = {}
    for name in names:
        try:
            found[name] = traces.load(name)
        except CompanionError:
            continue
    return found


def chosen(trace: str) -> dict[str, Trace]:
    """One trace by its workload, or if none is named, FAST'25's three as far as they can be had.

    Raises
    ------
    CompanionError
        If the named trace cannot be had.
    """
    if not trace:
        return available()
    loaded = traces.load(trace)
    return {loaded.name.removesuffix(STANDIN): loaded}


def without_decode(trace: Trace) -> Trace:
    """The same prompts with answers of one token, which the prefill makes."""
    return dataclasses.replace(trace, output_tokens=np.ones_like(trace.output_tokens))


def provenance(params: Any, replayed: dict[str, Trace]) -> dict[str, object]:
    """What made a table: traces and parameters, for its ``attrs["provenance"]``."""
    return {
        "trace": ", ".join(trace.name for trace in replayed.values()),
        "trace_sha256": ", ".join(trace.sha256 for trace in replayed.values()),
        "trace_source": "; ".join(trace.source for trace in replayed.values()),
        "parameters": dataclasses.asdict(params),
    }
