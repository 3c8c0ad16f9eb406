"""Why a KV cache is moved inside one distributed pool, and not read where it lies: Mooncake issue 17.

Each step of decode reads the whole KV cache of its batch. Reading it from another node's DRAM, or from
the own node's, needs no transfer first, and passes the slower link at every token. The papers have no
such figure.
"""

import dataclasses

import numpy as np
import pandas as pd

from mooncake_companion.live.remote_kv import BATCHES, HOST, MOVED, REMOTE, Params, bandwidths, read_rows

__all__ = ["BATCHES", "HOST", "MOVED", "REMOTE", "Params", "bandwidths", "break_even_tokens", "run"]


def run(params: Params) -> pd.DataFrame:
    """Seconds per token by where the KV cache of the prompts is read.

    Returns
    -------
    DataFrame
        Columns: ``way`` (`MOVED`, `HOST`, `REMOTE`), ``batch`` (requests), ``output_tokens``,
        ``mean_token_s`` (over the answer, the transfer before it included), ``first_wait_s`` (that
        transfer), ``step_s`` (a step of the answer's mean context), ``read_bytes`` (of the prompts' KV
        cache over the link, for the whole answer).
    """
    table = pd.DataFrame(read_rows(params))
    table.attrs["provenance"] = {"parameters": dataclasses.asdict(params)}
    return table


def break_even_tokens(table: pd.DataFrame, way: str = REMOTE) -> pd.Series:
    """The shortest answer, of those tried, from which moving once is no slower; by batch."""
    wide = table.pivot(index=["batch", "output_tokens"], columns="way", values="mean_token_s")
    pays = wide[wide[MOVED] <= wide[way]].reset_index()
    return pays.groupby("batch")["output_tokens"].min().reindex(BATCHES, fill_value=np.nan)
