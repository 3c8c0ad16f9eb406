"""FAST'25, sections 2.1 and 5.4: what moving a KV cache takes, beside the prefill that it spares."""

import dataclasses

import pandas as pd

from mooncake_companion import reported
from mooncake_companion.experiments.calibration import THOUSAND_TOKENS
from mooncake_companion.hardware import load_node
from mooncake_companion.live.transfer_tax import MOVE, PREFILL, Params, rows_of, tax_rows
from mooncake_companion.llm import load_model

__all__ = ["MOVE", "PREFILL", "Params", "run"]

_BANDWIDTHS_GBIT_PER_S = (25, 50, 100, 200, 400, 800)
_FIGURE_GBIT_PER_S = 800


def run(params: Params) -> pd.DataFrame:
    """Seconds of a prefill and of moving what it computed, by prompt length and network.

    Returns
    -------
    DataFrame
        Columns: ``origin`` ("modelled", "reported"), ``quantity`` (`PREFILL`, or `MOVE`: transfer and
        load), ``bandwidth_gbit_per_s``, ``input_tokens``, ``seconds``, ``transfer_s`` and ``load_s``
        (parts of `MOVE`), ``share`` (of the prefill's seconds). Reported are the bars of Figure 14.
    """
    rows = tax_rows(load_node(params.node), load_model(params.model), _BANDWIDTHS_GBIT_PER_S)
    drawn = reported.figure("fast25_fig14").query("prefix_cache_ratio_pct == 0")
    bars = drawn.pivot(index="prompt_length", columns="component", values="seconds")
    for length, bar in bars.iterrows():
        tokens = int(str(length).removesuffix("k")) * THOUSAND_TOKENS
        read = bar["prefill"], bar["transfer"], bar["load_cache"]
        rows += rows_of("reported", _FIGURE_GBIT_PER_S, tokens, *map(float, read))
    table = pd.DataFrame(rows).sort_values(["origin", "quantity", "bandwidth_gbit_per_s", "input_tokens"])
    table = table.reset_index(drop=True)
    table.attrs["provenance"] = {"parameters": dataclasses.asdict(params)}
    return table
