"""FAST'25, sections 3.2 and 4.2, on a slice of the trace: what is done for the start of every prompt."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mooncake_companion.costs import load_calibration
from mooncake_companion.hardware import load_node
from mooncake_companion.live.outcome import Outcome, Progress, Row
from mooncake_companion.live.slices import Slice
from mooncake_companion.llm import load_model
from mooncake_companion.parameters import check, parameter
from mooncake_companion.settings import cache_parameter, model_parameter, node_parameter, threshold_parameter
from mooncake_companion.simulator import reference
from mooncake_companion.simulator.cluster import Cluster
from mooncake_companion.simulator.reference import Record, Request
from mooncake_companion.simulator.scheduler import Action, Routing
from mooncake_companion.statistics import mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """The trace and the cluster; the defaults are those of `prefill_scheduling`.

    Assumed beyond it: a block counts as hot from the third request that asks for it on, where only hot
    blocks are copied; the tiers of `byte_flows`.
    """

    trace: str = parameter("conversation", help="registered trace, or the path of a JSONL file")
    prefill_nodes: int = parameter(8, unit="nodes", low=1, high=64, help="nodes that prefill")
    decode_nodes: int = parameter(8, unit="nodes", low=1, high=64, help="nodes that decode")
    cache_tokens_per_node: int = cache_parameter()
    hot_from_uses: int = parameter(
        3, unit="requests", low=2, high=10**6, help="that ask for a block make it worth a copy"
    )
    window_s: float = parameter(120.0, unit="s", low=1, high=3600, help="in which choices are counted")
    kvcache_balancing_threshold: float = threshold_parameter()
    node: str = node_parameter()
    model: str = model_parameter()

    def __post_init__(self) -> None:
        check(self)

    def clusters(self) -> dict[str, Cluster]:
        """The settings that are compared, by name."""
        small = self.cache_tokens_per_node // 10
        return {
            "A fetched prefix is copied": self._cluster(),
            "Only hot blocks are copied": self._cluster(replicate_after_uses=self.hot_from_uses),
            "A tenth of the DRAM": self._cluster(cache_tokens_per_node=small),
            "A tenth of the DRAM, and SSD": self._cluster(
                cache_tokens_per_node=small, ssd_cache_tokens_per_node=10 * self.cache_tokens_per_node
            ),
            "Nothing is fetched": self._cluster(routing=Routing.LOCAL_CACHE_AWARE),
        }

    def _cluster(self, **settings: object) -> Cluster:
        given: dict[str, object] = {"cache_tokens_per_node": self.cache_tokens_per_node}
        chosen: dict[str, object] = given | settings
        return Cluster(
            node=load_node(self.node),
            model=load_model(self.model),
            calibration=load_calibration(),
            prefill_nodes=self.prefill_nodes,
            decode_nodes=self.decode_nodes,
            kvcache_balancing_threshold=self.kvcache_balancing_threshold,
            **chosen,  # type: ignore[arg-type]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowParams(Params):
    """The same, with windows short enough for the minutes of a slice."""

    count_every_s: float = parameter(
        10.0,
        unit="s",
        low=1,
        high=600,
        help="window in which choices are counted, in place of the book's 120",
    )


class Choice(NamedTuple):
    """What was done for the start of one prompt."""

    arrival_s: float
    action: str
    input_tokens: int
    reused_tokens: int
    ttft_s: float


def run(params: WindowParams, sliced: Slice, progress: Progress) -> Outcome:
    """Count the choices in windows of time; columns as of `experiments.prefix_choices.run`."""
    rows: list[Row] = []
    parts = []
    clusters = params.clusters()
    for done, (setting, cluster) in enumerate(clusters.items()):
        progress(done, len(clusters))
        records = reference.replay(
            sliced.requests, cluster, block_tokens=sliced.block_tokens, draws=sliced.draws
        ).records
        choices = [_choice(*each) for each in zip(sliced.requests, records, strict=True)]
        rows += [row | {"setting": setting} for row in window_rows(choices, params.count_every_s)]
        parts.append(f"{setting}: {_shares(choices)}")
    return Outcome(
        rows=rows,
        description=(
            "Requests by what was done for the start of their prompts, in windows of "
            f"{params.count_every_s:g} s, a setting at a time, computed in this browser from empty caches. "
            f"Of all requests: {'. '.join(parts)}."
        ),
        fixed={"window_s": params.count_every_s},
    )


def window_rows(choices: Sequence[Choice], window_s: float) -> list[Row]:
    """Count choices in windows of time; columns as of `experiments.prefix_choices.run`, without the setting.

    Parameters
    ----------
    choices : sequence of Choice
        In order of arrival.
    window_s : float
    """
    rows: list[Row] = []
    for start_s, group in itertools.groupby(choices, lambda each: window_s * (each.arrival_s // window_s)):
        within = list(group)
        for action in Action:
            alike = [each for each in within if each.action == action]
            rows.append(
                {
                    "time_s": start_s,
                    "action": action.value,
                    "mean_input_tokens": _mean(each.input_tokens for each in alike),
                    "mean_reused_tokens": _mean(each.reused_tokens for each in alike),
                    "mean_ttft_s": _mean(each.ttft_s for each in alike),
                    "requests": len(alike),
                    "reused_tokens": sum(each.reused_tokens for each in alike),
                    "share": len(alike) / len(within),
                }
            )
    return rows


def _choice(request: Request, record: Record) -> Choice:
    choice = record.choice
    assert choice is not None, "every request is let in"
    if record.migrated_blocks:
        action = Action.MIGRATE
    elif choice.fetched_tokens:
        action = Action.REPLICATE
    else:
        action = Action.HYDRATE if choice.local_tokens else Action.RECOMPUTE
    ttft_s = record.first_token_s - request.arrival_s
    return Choice(request.arrival_s, action, request.input_tokens, choice.reused_tokens, ttft_s)


def _mean(values: Iterable[float]) -> float:
    """Mean, or NaN of none."""
    listed = list(values)
    return mean(listed) if listed else float("nan")


def _shares(choices: Sequence[Choice]) -> str:
    counts = {action: sum(each.action == action for each in choices) for action in Action}
    return ", ".join(f"{action} {count / len(choices):.1%}" for action, count in counts.items() if count)
