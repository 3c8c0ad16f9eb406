"""Why a KV cache is moved inside one distributed pool, and not read where it lies: Mooncake issue 17.

Each step of decode reads the whole KV cache of its batch. Reading it from another node's DRAM, or from
the own node's, needs no transfer first, and passes the slower link at every token. The papers have no
such figure.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from mooncake_companion.costs import decode_step_time, load_calibration
from mooncake_companion.hardware import load_node, load_nodes
from mooncake_companion.llm import load_model, load_models
from mooncake_companion.parameters import check, parameter

MOVED, HOST, REMOTE = "moved once into VRAM", "read from own DRAM", "read from another node"
BATCHES = (1, 2, 4, 8, 16)
OUTPUT_TOKENS = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """One decode node and requests of one length.

    Assumed in favour of reading from afar: it is hidden behind the rest of the step as far as it can be,
    new tokens stay in VRAM, and the links carry nothing else.
    """

    input_tokens: int = parameter(
        16_384, unit="tokens", low=512, high=131_072, help="prompt of every request in the batch"
    )
    node: str = parameter("a800", choices=tuple(load_nodes()), help="what the node is")
    model: str = parameter("llama3-70b", choices=tuple(load_models()), help="what it serves")

    def __post_init__(self) -> None:
        check(self)


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
    rows = []
    for batch in BATCHES:
        for output_tokens in OUTPUT_TOKENS:
            step_s = _step_s(params, batch, output_tokens)
            size_bytes = batch * params.input_tokens * load_model(params.model).kv_bytes_per_token
            link_s = {way: size_bytes / rate for way, rate in bandwidths(params).items() if way != MOVED}
            for way in (MOVED, HOST, REMOTE):
                first_wait_s = link_s[REMOTE] + link_s[HOST] if way == MOVED else 0.0
                each_s = step_s if way == MOVED else max(step_s, link_s[way])
                rows.append(
                    {
                        "way": way,
                        "batch": batch,
                        "output_tokens": output_tokens,
                        "mean_token_s": each_s + first_wait_s / output_tokens,
                        "first_wait_s": first_wait_s,
                        "step_s": each_s,
                        "read_bytes": size_bytes * (1 if way == MOVED else output_tokens),
                    }
                )
    table = pd.DataFrame(rows)
    table.attrs["provenance"] = {"parameters": {name: getattr(params, name) for name in params.__slots__}}
    return table


def bandwidths(params: Params) -> dict[str, float]:
    """Bytes/s at which a node reads KV cache: from VRAM, from its own DRAM, from another node."""
    node, fitted = load_node(params.node), load_calibration()
    return {
        MOVED: fitted.hbm_utilisation * node.gpus * node.hbm_bytes_per_s,
        HOST: node.host_to_device_bytes_per_s,
        REMOTE: fitted.network_utilisation * node.nic_bytes_per_s,
    }


def break_even_tokens(table: pd.DataFrame, way: str = REMOTE) -> pd.Series:
    """The shortest answer, of those tried, from which moving once is no slower; by batch."""
    wide = table.pivot(index=["batch", "output_tokens"], columns="way", values="mean_token_s")
    pays = wide[wide[MOVED] <= wide[way]].reset_index()
    return pays.groupby("batch")["output_tokens"].min().reindex(BATCHES, fill_value=np.nan)


def _step_s(params: Params, batch: int, output_tokens: int) -> float:
    """A step with everything in VRAM, at the mean context of the answer."""
    context = batch * params.input_tokens + batch * (output_tokens - 1) // 2
    return decode_step_time(
        load_node(params.node), load_model(params.model), batch, context, calibration=load_calibration()
    )
