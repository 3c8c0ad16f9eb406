"""What the chapter of readers' questions lets a reader change, and the experiments that it sets."""

import dataclasses
from dataclasses import dataclass
from typing import Any, TypeVar

import pandas as pd

from mooncake_companion.experiments import (
    balancing_threshold,
    hit_rate_counts,
    local_caches,
    remote_kv,
)
from mooncake_companion.parameters import check, parameter
from mooncake_companion.settings import model_parameter, node_parameter, threshold_parameter

P = TypeVar("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Parameters of several experiments at once; what each states and assumes stands with it."""

    trace: str = parameter("conversation", help="on which the threshold is varied")
    nodes: int = parameter(16, unit="nodes", low=2, high=64, help="nodes of its cluster")
    prefill_nodes: int = parameter(8, unit="nodes", low=1, high=63, help="of them prefill")
    kvcache_balancing_threshold: float = threshold_parameter(
        "of the worked example: fetch when the best exceeds the own by this factor"
    )
    warmup_s: float = parameter(
        600.0, unit="s", low=0, high=3600, help="that one way of counting hits leaves out"
    )
    input_tokens: int = parameter(
        16_384, unit="tokens", low=512, high=131_072, help="prompt whose KV cache is read from afar"
    )
    node: str = node_parameter()
    model: str = model_parameter()

    def __post_init__(self) -> None:
        check(self)

    @property
    def counts(self) -> hit_rate_counts.Params:
        """Of the ways to count hits."""
        return self._part(hit_rate_counts.Params)

    @property
    def local_caches(self) -> local_caches.Params:
        """Of the explanations for local caches."""
        return self._part(local_caches.Params)

    @property
    def threshold(self) -> balancing_threshold.Params:
        """Of Algorithm 1 and its threshold."""
        return self._part(balancing_threshold.Params)

    @property
    def remote(self) -> remote_kv.Params:
        """Of reading a KV cache from afar."""
        return self._part(remote_kv.Params)

    def _part(self, params: type[P]) -> P:
        """Another experiment's parameters, those of the same name with the values here."""
        mine: dict[str, Any] = dataclasses.asdict(self)
        shared = {f.name: mine[f.name] for f in dataclasses.fields(params) if f.name in mine}  # type: ignore[arg-type]
        return params(**shared)


def run(params: Params) -> pd.DataFrame:
    """The table of Algorithm 1's threshold, the question that most parameters are about."""
    return balancing_threshold.run(params.threshold)
