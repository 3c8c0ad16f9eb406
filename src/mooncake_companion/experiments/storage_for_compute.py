"""FAST'25, section 2.2: when loading a cached prefix is faster than computing it (Equations 1 and 2)."""

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mooncake_companion import reported
from mooncake_companion.costs import break_even_bandwidth
from mooncake_companion.errors import InputError
from mooncake_companion.experiments import network_bandwidth
from mooncake_companion.hardware import load_node
from mooncake_companion.live.storage_for_compute import LENGTHS, NODES, PrefixParams, action_rows, prefix_rows
from mooncake_companion.llm import load_model
from mooncake_companion.parameters import check, parameter
from mooncake_companion.simulator import Action

BINARY = 1024
"""The papers count memory in powers of this: 320 KB are 327,680 bytes of KV cache a token."""

OTHER_NODE, OWN_SSD = "in another node's DRAM", "on the node's own SSD"
"""Where a prefix lies, in `actions`."""
FASTEST, ALGORITHM_1 = "the fastest", "Algorithm 1"
"""How `actions` are chosen: by their times alone, or as FAST'25 prints it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params(PrefixParams):
    """The section's setting: it is stated, in Table 1 and in the text behind Equation 2.

    The H800's peak is not: it is taken from its data sheet. Assumed are the two numbers that only
    `actions` looks at, `new_tokens` and `replicate_after_uses` (the paper copies whatever is fetched).
    The last three are those of `network_bandwidth`.
    """

    dram_bytes: float = parameter(1e12, unit="bytes", low=1, high=1e15, help="a node's DRAM for KV cache")
    pooled_tokens: int = parameter(
        50_000_000,
        unit="tokens",
        low=1,
        high=10**12,
        help="capacity that DRAM is pooled for",
    )
    replicate_after_uses: int = parameter(
        3, unit="requests", low=1, high=10**6, help="that ask for a prefix make it worth a second copy"
    )
    trace: str = parameter("synthetic", help="of Figure 13: registered trace, or the path of a JSONL file")
    nodes: int = parameter(16, unit="nodes", low=2, high=64, help="of Figure 13: the whole cluster")
    prefill_nodes: int = parameter(
        8, unit="nodes", low=1, high=63, help="of Figure 13: nodes that prefill; the others decode"
    )

    def __post_init__(self) -> None:
        check(self)
        self.network()  # refuses a split that leaves no node to decode

    def network(self) -> network_bandwidth.Params:
        """The setting of Figure 13."""
        return network_bandwidth.Params(
            model=self.model, trace=self.trace, nodes=self.nodes, prefill_nodes=self.prefill_nodes
        )


def run(params: Params) -> pd.DataFrame:
    """What a prefix costs to compute and to hold, and from which bandwidth on loading it is faster.

    Returns
    -------
    DataFrame
        A row for each of `NODES` and prefix length. Columns: ``origin``, ``node``,
        ``cached_tokens``, ``saved_flops`` (Equation 1), ``saved_s`` (with the fitted utilisations),
        ``kv_bytes``, ``break_even_bytes_per_s`` (Equation 2, at the GPUs' peak),
        ``fitted_break_even_bytes_per_s`` (at the speed that they reach), ``link_bytes_per_s`` (the
        slower of the next two), ``network_bytes_per_s``, ``dram_bytes_per_s`` (the host link) and
        ``ssd_bytes_per_s``, at their line rates. The paper's printed break-even bandwidths have
        ``origin`` "reported".
    """
    model = load_model(params.model)
    lengths = sorted({*LENGTHS, params.cached_tokens})
    rows = [row for name in NODES for row in prefix_rows(name, load_node(name), model, lengths)]
    rows += [
        {
            "origin": "reported",
            "node": name,
            "cached_tokens": 8192,
            "break_even_bytes_per_s": 1e9 * reported.claim(f"fast25.eq2.b_min_{name}"),
        }
        for name in NODES
    ]
    table = pd.DataFrame(rows)
    table.attrs["provenance"] = {"parameters": dataclasses.asdict(params)}
    return table


def actions(params: Params) -> pd.DataFrame:
    """Seconds to the first token along each way to a prompt's start, by its length and a bandwidth.

    Returns
    -------
    DataFrame
        A row for each of `NODES`, prefix length and bandwidth. Columns: ``node``,
        ``cached_tokens`` and ``bytes_per_s``, each with the edges of its cell (``_low``, ``_high``);
        ``break_even_bytes_per_s`` (Equation 2); and the TTFT of a prompt of so many cached and
        ``params.new_tokens`` new tokens on idle nodes: ``recompute_s`` (nothing is reused),
        ``fetch_s`` (from another node's DRAM over a network of that line rate), ``ssd_s`` (from the
        node's own SSD, which reads at that rate) and ``holder_s`` (on the node that has it in DRAM).

    Notes
    -----
    The terms that Conductor compares (`simulator.scheduler`), for one request on nodes that do
    nothing else, loads and stores layer by layer.
    """
    rows = action_rows(load_model(params.model), params.new_tokens)
    table = _with_cells(pd.DataFrame(rows))
    table.attrs["provenance"] = {"parameters": dataclasses.asdict(params)}
    return table


def shown_splits(params: Params) -> list[int]:
    """Prefill nodes for which Figure 13 is shown: the chosen number, and some around it."""
    return sorted({params.prefill_nodes, *range(6, 13)} & set(range(1, params.nodes)))


def chosen_actions(
    table: pd.DataFrame,
    params: Params,
    *,
    place: str = OTHER_NODE,
    rule: str = FASTEST,
    queue_s: float = 0.0,
    uses: int = 2,
) -> pd.DataFrame:
    """What is done in each row of `actions`, and its TTFT.

    Parameters
    ----------
    table : DataFrame
        As `actions` returns it.
    params : Params
    place : str
        Where the prefix lies: `OTHER_NODE`, or `OWN_SSD`, from where no other node can read.
    rule : str
        `FASTEST`, or `ALGORITHM_1`: a node that has nothing must fetch what another one has in
        memory. Neither matters to what lies on SSD, of which Algorithm 1 does not speak.
    queue_s : float
        Seconds of work in front of the node that holds the prefix; the other one is idle.
    uses : int
        Requests that asked for the prefix by now, this one included.

    Returns
    -------
    DataFrame
        ``action`` (a value of `simulator.Action`) and ``ttft_s``.

    Raises
    ------
    InputError
        If `place` or `rule` is none of the two.
    """
    if place not in (OTHER_NODE, OWN_SSD) or rule not in (FASTEST, ALGORITHM_1):
        raise InputError(f"no place {place!r} with rule {rule!r}")
    fetched = Action.REPLICATE if uses >= params.replicate_after_uses else Action.MIGRATE
    if place == OWN_SSD:
        ways = {Action.HYDRATE: table["ssd_s"], Action.RECOMPUTE: table["recompute_s"]}
    else:
        ways = {Action.HYDRATE: table["holder_s"] + queue_s, fetched: table["fetch_s"]}
        ways |= {Action.RECOMPUTE: table["recompute_s"]} if rule == FASTEST else {}
    seconds = pd.DataFrame(ways)
    return pd.DataFrame(
        {"action": seconds.idxmin(axis="columns").map(str), "ttft_s": seconds.min(axis="columns")}
    )


def longest_forced(table: pd.DataFrame, params: Params) -> float:
    """How much longer than necessary the first token takes, at worst, where Algorithm 1 must fetch.

    Of all cells of `actions`, with a holder that is too busy to be waited for.
    """
    forced, best = (
        chosen_actions(table, params, rule=rule, queue_s=np.inf)["ttft_s"] for rule in (ALGORITHM_1, FASTEST)
    )
    return float((forced / best).max())


def claims(params: Params = Params()) -> dict[str, float]:
    """Modelled values of the section's claims, in their rows' units."""
    model = load_model(params.model)
    token_bytes = model.kv_bytes_per_token
    break_even = {
        f"fast25.eq2.b_min_{name}": break_even_bandwidth(load_node(name), model, params.cached_tokens) / 1e9
        for name in NODES
    }
    return {
        **break_even,
        "fast25.store.kv_per_token": token_bytes / BINARY,
        "fast25.store.local_tokens": params.dram_bytes / token_bytes,
        "fast25.store.sat_nodes": math.ceil(params.pooled_tokens * token_bytes / params.dram_bytes),
        "fast25.fig12.kv_128k": 128 * BINARY * token_bytes / BINARY**3,
    }


def _with_cells(table: pd.DataFrame) -> pd.DataFrame:
    """Edges of the cells of a logarithmic grid, half-way to the neighbours."""
    for column in ("cached_tokens", "bytes_per_s"):
        values, cell = np.unique(table[column], return_inverse=True)
        between = np.sqrt(values[1:] * values[:-1])
        ends = values[0] ** 2 / between[0], values[-1] ** 2 / between[-1]
        edges = np.concatenate([ends[:1], between, ends[1:]])
        table[f"{column}_low"], table[f"{column}_high"] = edges[cell], edges[cell + 1]
    return table
