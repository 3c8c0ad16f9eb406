"""What a replay leaves: columns with a row a request, and counters that must balance."""

import dataclasses
from dataclasses import dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Result:
    """The fate of every request of a trace; all arrays have the shape (requests,).

    Parameters
    ----------
    arrival_s : array of float64
        Seconds from the trace's start.
    queue_s, transfer_s, prefill_s : array of float64
        Wait for the requests before it, duration of its prefix fetch, and computation, in
        seconds. The fetch goes on during the wait: only what exceeds it delays the request.
    ttft_s : array of float64
        Time to first token, in seconds: arrival to end of prefill.
    input_tokens, local_tokens, fetched_tokens : array of int64
        Prompt; reused from the node's own cache; reused after a fetch from another node.
    prefill_node, source_node : array of int64
        Where it ran, and which node it fetched from (-1: none).
    evictions : int
        Blocks that had to leave a cache, over all nodes.
    """

    arrival_s: np.ndarray
    queue_s: np.ndarray
    transfer_s: np.ndarray
    prefill_s: np.ndarray
    ttft_s: np.ndarray
    input_tokens: np.ndarray
    local_tokens: np.ndarray
    fetched_tokens: np.ndarray
    prefill_node: np.ndarray
    source_node: np.ndarray
    evictions: int

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def cached_tokens(self) -> np.ndarray:
        """Prefix that was not computed again, in tokens, shape (requests,)."""
        return self.local_tokens + self.fetched_tokens

    @property
    def hit_ratio(self) -> float:
        """Share of all prompt tokens that was reused."""
        return float(self.cached_tokens.sum() / self.input_tokens.sum())

    def frame(self) -> pd.DataFrame:
        """All columns as a table with a row a request."""
        columns = [f.name for f in dataclasses.fields(self) if f.name != "evictions"]
        return pd.DataFrame({name: getattr(self, name) for name in columns})
