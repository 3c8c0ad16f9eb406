"""What a replay leaves: columns with a row a request, and counters that must balance."""

import dataclasses
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mooncake_companion.simulator.reference import Outcome
from mooncake_companion.simulator.scheduler import Action


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Result:
    """The fate of every request of a trace; arrays have the shape (requests,).

    Times are NaN and nodes -1 where a request never came that far.

    Parameters
    ----------
    arrival_s : array of float64
        Seconds from the trace's start, as all times here.
    fetched_s : array of float64
        When a prefix from another node was there; NaN where none was fetched.
    start_s, first_token_s : array of float64
        When the prefill began, and ended with the first token.
    streamed_s, loaded_s : array of float64
        When the KV cache was in the decode node's DRAM, and in its GPU memory.
    join_s, finish_s : array of float64
        When the request joined a decode batch, and had its last token.
    tbt_s : array of float64
        Mean of the longest tenth of the intervals between tokens, in seconds; NaN without any that
        counts (`Deployment.first_interval_counts`).
    prefill_s : array of float64
        Computation of the prefill, in seconds, as Conductor estimated and the node took it.
    input_tokens, output_tokens, local_tokens, fetched_tokens : array of int
        Prompt; answer; reused from the node's own cache; reused after a fetch from another node.
    vram_tokens, ssd_tokens : array of int
        Parts of ``local_tokens`` that lay in GPU memory and on SSD.
    migrated_blocks : array of int
        Fetched blocks that their source was to let go of.
    prefill_node, source_node, decode_node : array of int
        Where it ran, which node it fetched from, and where it decoded.
    outcome : array of int
        Values of `Outcome`.
    counters : dict of int
        Blocks: ``evictions`` (for want of room, off the node), ``demoted_to_dram``,
        ``demoted_to_ssd``, ``promoted_from_dram``, ``promoted_from_ssd``. ``decode_steps``. Bytes by
        link: ``fetched_bytes``, ``streamed_bytes`` (prefill to decode node), ``loaded_bytes`` (DRAM
        to GPU memory there), ``returned_bytes`` (of answers, to prefill nodes). Coupled nodes have no
        tiers and no links.
    """

    arrival_s: np.ndarray
    fetched_s: np.ndarray
    start_s: np.ndarray
    first_token_s: np.ndarray
    streamed_s: np.ndarray
    loaded_s: np.ndarray
    join_s: np.ndarray
    finish_s: np.ndarray
    tbt_s: np.ndarray
    prefill_s: np.ndarray
    input_tokens: np.ndarray
    output_tokens: np.ndarray
    local_tokens: np.ndarray
    vram_tokens: np.ndarray
    ssd_tokens: np.ndarray
    fetched_tokens: np.ndarray
    migrated_blocks: np.ndarray
    prefill_node: np.ndarray
    source_node: np.ndarray
    decode_node: np.ndarray
    outcome: np.ndarray
    counters: dict[str, int]

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def ttft_s(self) -> np.ndarray:
        """Time to first token, in seconds."""
        return self.first_token_s - self.arrival_s

    @property
    def wait_s(self) -> np.ndarray:
        """Seconds between arrival and start of the prefill: queue, or a fetch that outlasts it."""
        return self.start_s - self.arrival_s

    @property
    def cached_tokens(self) -> np.ndarray:
        """Prefix that was not computed again, in tokens."""
        return self.local_tokens + self.fetched_tokens

    @property
    def action(self) -> np.ndarray:
        """Values of `Action`: what was done for each prompt's start; empty where none was prefilled."""
        actions = np.where(self.cached_tokens > 0, Action.HYDRATE.value, Action.RECOMPUTE.value)
        actions = np.where(self.fetched_tokens > 0, Action.REPLICATE.value, actions)
        actions = np.where(self.migrated_blocks > 0, Action.MIGRATE.value, actions)
        return np.where(self.outcome == Outcome.REJECTED_AT_ARRIVAL, "", actions)

    @property
    def hit_ratio(self) -> float:
        """Share of the prompt tokens of all prefilled requests that was reused."""
        prefilled = self.outcome != Outcome.REJECTED_AT_ARRIVAL
        total = int(self.input_tokens[prefilled].sum())
        return float(self.cached_tokens[prefilled].sum() / total) if total else 0.0

    def meets(self, *, ttft_s: float, tbt_s: float) -> np.ndarray:
        """Which requests finished within both limits; one without a TBT meets any."""
        finished = self.outcome == Outcome.FINISHED
        in_rhythm = ~(self.tbt_s > tbt_s)
        return finished & (self.ttft_s <= ttft_s) & in_rhythm

    def frame(self) -> pd.DataFrame:
        """All columns, and the times derived from them, as a table with a row a request."""
        columns = [f.name for f in dataclasses.fields(self) if f.name != "counters"]
        derived = ["ttft_s", "wait_s", "cached_tokens", "action"]
        return pd.DataFrame({name: getattr(self, name) for name in columns + derived})
