"""The event model of the serving path: the only place where time passes.

The names below are imported when first used, so that the reference engine can be had without
NumPy, as in a browser.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mooncake_companion.simulator.cluster import Cluster
    from mooncake_companion.simulator.coupled import Batching, CoupledCluster
    from mooncake_companion.simulator.overload import Admission
    from mooncake_companion.simulator.reference import Outcome
    from mooncake_companion.simulator.result import Result
    from mooncake_companion.simulator.scheduler import Action, Routing
    from mooncake_companion.simulator.series import load_series, pool_series
    from mooncake_companion.simulator.serving_path import decisions, simulate

__all__ = [
    "Action",
    "Admission",
    "Batching",
    "Cluster",
    "CoupledCluster",
    "Outcome",
    "Result",
    "Routing",
    "decisions",
    "load_series",
    "pool_series",
    "simulate",
]

_HOMES = {
    "Action": "scheduler",
    "Admission": "overload",
    "Batching": "coupled",
    "Cluster": "cluster",
    "CoupledCluster": "coupled",
    "Outcome": "reference",
    "Result": "result",
    "Routing": "scheduler",
    "decisions": "serving_path",
    "load_series": "series",
    "pool_series": "series",
    "simulate": "serving_path",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
