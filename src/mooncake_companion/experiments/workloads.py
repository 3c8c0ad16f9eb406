"""The papers' workloads, as far as they can be had."""

from mooncake_companion import traces
from mooncake_companion.errors import CompanionError
from mooncake_companion.traces import Trace

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
