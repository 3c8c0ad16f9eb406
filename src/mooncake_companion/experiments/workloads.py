"""FAST'25, Table 2; arXiv, section 4, Figures 5 and 6, Table 2: what the workloads are like."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mooncake_companion import reported, traces
from mooncake_companion.live.workloads import LEVELS, ArrivalParams, binned, of_requests, windows
from mooncake_companion.parameters import check, parameter
from mooncake_companion.simulator.serving_path import requests_of
from mooncake_companion.traces import Trace

HIT_COUNTS = (1, 2, 3, 4, 5, 10)
"""Hit counts at which the shares of blocks are compared (arXiv, Figure 6)."""

_MEASURES: dict[str, tuple[str, Callable[[Trace], float]]] = {
    "requests": ("requests", len),
    "duration": ("h", lambda trace: trace.duration_s / 3600),
    "last timestamp": ("ms", lambda trace: 1000 * float(trace.arrival_s[-1])),
    "mean input length": ("tokens", lambda trace: float(trace.input_tokens.mean())),
    "largest input length": ("tokens", lambda trace: int(trace.input_tokens.max())),
    "mean output length": ("tokens", lambda trace: float(trace.output_tokens.mean())),
    "mean ratio of input to output length": (
        "",
        lambda trace: float((trace.input_tokens / trace.output_tokens).mean()),
    ),
    "cache ratio": ("%", lambda trace: 100 * traces.infinite_cache_hit_ratio(trace)),
    "blocks never reused": ("%", lambda trace: 100 * float((block_hit_counts(trace) == 1).mean())),
    "largest block hit count": ("hits", lambda trace: int(block_hit_counts(trace).max())),
    "variation of gaps between instants": ("", lambda trace: _gap_variation(trace)),
    "requests per instant": ("requests", lambda trace: len(trace) / len(np.unique(trace.arrival_s))),
}

_TABLES: dict[str, dict[str, str]] = {
    "conversation": {
        "fast25.table2.conversation.requests": "requests",
        "fast25.table2.conversation.input": "mean input length",
        "fast25.table2.conversation.output": "mean output length",
        "fast25.table2.conversation.cache_ratio": "cache ratio",
        "fast25.workload.max_context": "largest input length",
        "fast25.workload.trace_hours": "duration",
        "fast25.trace.ts_max": "last timestamp",
    },
    "toolagent": {
        "fast25.table2.toolagent.requests": "requests",
        "fast25.table2.toolagent.input": "mean input length",
        "fast25.table2.toolagent.output": "mean output length",
        "fast25.table2.toolagent.cache_ratio": "cache ratio",
    },
    "synthetic": {
        "fast25.table2.synthetic.requests": "requests",
        "fast25.table2.synthetic.input": "mean input length",
        "fast25.table2.synthetic.output": "mean output length",
        "fast25.table2.synthetic.cache_ratio": "cache ratio",
    },
    "arxiv": {
        "arxiv.trace.requests": "requests",
        "arxiv.trace.hours": "duration",
        "arxiv.trace.ts_max": "last timestamp",
        "arxiv.trace.input": "mean input length",
        "arxiv.trace.output": "mean output length",
        "arxiv.trace.in_out_ratio": "mean ratio of input to output length",
        "arxiv.trace.unused_blocks": "blocks never reused",
        "arxiv.trace.hot_accesses": "largest block hit count",
        "arxiv.fig06.max": "largest block hit count",
        "arxiv.setup.real_requests": "requests",
        "arxiv.table2.real_trace.input": "mean input length",
        "arxiv.table2.real_trace.output": "mean output length",
        "arxiv.table2.real_trace.cache_ratio": "cache ratio",
    },
    "arxiv-summarization": {
        "arxiv.table2.arxiv_summarization.input": "mean input length",
        "arxiv.table2.arxiv_summarization.output": "mean output length",
        "arxiv.table2.arxiv_summarization.cache_ratio": "cache ratio",
    },
    "l-eval": {
        "arxiv.table2.l_eval.input": "mean input length",
        "arxiv.table2.l_eval.output": "mean output length",
        "arxiv.table2.l_eval.cache_ratio": "cache ratio",
    },
    "simulated-16k": {
        "arxiv.table2.simulated.output": "mean output length",
        "arxiv.table2.simulated.cache_ratio": "cache ratio",
    },
}
"""For each workload: which claim its measures speak to."""

_WINDOWS = ArrivalParams()
"""In which arrivals are counted."""

_PRINTED = ("mean input length", "mean output length", "cache ratio")
_GIVEN = {
    "toolagent": ("requests", *_PRINTED),
    "arxiv": (
        *("requests", "duration", "last timestamp", "mean output length", "cache ratio"),
        "largest block hit count",
    ),
    "arxiv-summarization": _PRINTED,
    "l-eval": _PRINTED,
    "simulated-16k": _PRINTED,
}
"""What a stand-in that was made from the papers was made to have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Which traces are measured.

    All is stated by the papers. Where a released trace is not on this machine and cannot be
    downloaded, its stand-in is measured; `setup_claims` says for which claims that is circular.
    """

    conversation: str = parameter("conversation", help="trace of FAST'25's conversations")
    toolagent: str = parameter("toolagent", help="trace of FAST'25's tools and agents")
    synthetic: str = parameter("synthetic", help="FAST'25's synthetic trace")
    arxiv: str = parameter("arxiv", help="trace of the arXiv report")
    download: bool = parameter(True, help="whether released traces may be downloaded")

    def __post_init__(self) -> None:
        check(self)

    def load(self) -> dict[str, Trace]:
        """Load the traces of all workloads, by the workload's name."""
        named = {name: str(getattr(self, name)) for name in traces.registered()}
        generated = {name: name for name in traces.generated()}
        return {
            name: traces.load(trace, download=self.download) for name, trace in (named | generated).items()
        }


def run(params: Params) -> pd.DataFrame:
    """Measure each workload, beside what the papers print.

    Returns
    -------
    DataFrame
        Columns: ``origin`` ("modelled", "reported"), ``workload``, ``trace``, ``quantity``,
        ``value``, ``unit``, ``claim`` (of reported values). The cache ratio is the share of
        input tokens that an infinite cache of the trace's blocks saves; the papers count finer
        blocks.
    """
    loaded = params.load()
    modelled = [
        {
            "origin": "modelled",
            "workload": name,
            "trace": trace.name,
            "quantity": quantity,
            "value": float(measure(trace)),
            "unit": unit,
            "claim": "",
        }
        for name, trace in loaded.items()
        for quantity, (unit, measure) in _MEASURES.items()
    ]
    table = pd.DataFrame([*modelled, *_reported()])
    table.attrs["provenance"] = _provenance(params, loaded)
    return table


def _reported() -> list[dict[str, object]]:
    values = reported.claims().set_index("id")
    return [
        {
            "origin": "reported",
            "workload": name,
            "trace": "",
            "quantity": quantity,
            "value": number,
            "unit": _MEASURES[quantity][0],
            "claim": claim,
        }
        for name, claims_of in _TABLES.items()
        for claim, quantity in claims_of.items()
        if np.isfinite(number := _number(str(values["value"][claim])))
    ]


def _number(text: str) -> float:
    """The number that a claim's value is, with or without "about" and "more than"."""
    return float(pd.to_numeric(text.lstrip("~>"), errors="coerce"))


def comparison(table: pd.DataFrame) -> pd.DataFrame:
    """What the papers print of each workload, beside what was measured.

    Parameters
    ----------
    table : DataFrame
        As `run` returns it.

    Returns
    -------
    DataFrame
        ``workload``, ``trace``, ``quantity``, ``unit``, ``reported``, ``modelled``, ``error``
        (relative). Where both papers or a text and a figure print a number, it has a row each.
    """
    keys = ["workload", "quantity", "unit"]
    measured = table[table["origin"] == "modelled"].rename(columns={"value": "modelled"})
    printed = table[table["origin"] == "reported"].rename(columns={"value": "reported"})
    both = printed[[*keys, "reported"]].merge(measured[[*keys, "trace", "modelled"]], on=keys)
    both["error"] = (both["modelled"] / both["reported"] - 1).where(both["reported"] != 0)
    return both[["workload", "trace", "quantity", "unit", "reported", "modelled", "error"]]


def distributions(params: Params) -> pd.DataFrame:
    """Quantiles of the prompts, the answers, and of what prompts find in a cache that never forgets.

    Returns
    -------
    DataFrame
        ``workload``, ``trace``, ``quantity``, ``level`` (of `LEVELS`: the share of requests with at most
        ``value``), ``value``. Quantities: "Prompt (tokens)"; "Answer (tokens)"; "Age of the reused
        prefix (s)", since the last request that asked for its last block, of requests that reuse
        more than the first one, which all may have in common; and "Share of the prompt known".
    """
    loaded = _online(params)
    rows = [
        {"workload": name, "trace": trace.name, "quantity": quantity, "level": level, "value": float(value)}
        for name, trace in loaded.items()
        for quantity, values in _of_requests(trace).items()
        for level, value in zip(LEVELS, np.quantile(values, LEVELS), strict=True)
    ]
    table = pd.DataFrame(rows)
    table.attrs["provenance"] = _provenance(params, loaded)
    return table


def arrivals(params: Params) -> pd.DataFrame:
    """Count requests over time: in whole minutes, and by the second in the first two of them.

    Returns
    -------
    DataFrame
        ``workload``, ``trace``, ``view`` ("By the minute", "First two minutes"), ``time_s`` (start of
        the window), ``window_s``, ``requests``.
    """
    loaded = _online(params)
    table = pd.DataFrame(
        row | {"workload": name, "trace": trace.name, "view": view, "window_s": window_s}
        for name, trace in loaded.items()
        for view, window_s, until_s in (
            ("By the minute", _WINDOWS.window_s, np.inf),
            ("First two minutes", _WINDOWS.short_window_s, _WINDOWS.beginning_s),
        )
        for row in windows(trace.arrival_s.tolist(), window_s, until_s)
    )
    table.attrs["provenance"] = _provenance(params, loaded)
    return table


def _online(params: Params) -> dict[str, Trace]:
    """The traces of services, without the workloads that are benchmarks."""
    return {name: trace for name, trace in params.load().items() if name in traces.registered()}


def _of_requests(trace: Trace) -> Mapping[str, list[float]]:
    """A value for each request, or for each that reuses more than its first block."""
    return of_requests(requests_of(trace), trace.block_tokens, common_tokens=trace.block_tokens)


def length_histograms(params: Params) -> pd.DataFrame:
    """Count requests by length in the bins of arXiv, Figure 5, beside the figure's counts.

    Returns
    -------
    DataFrame
        Columns: ``origin``, ``trace``, ``quantity`` ("input_length", "output_length"),
        ``bin_low_tokens``, ``bin_high_tokens``, ``requests``. The last bin includes its upper
        edge, and the first and last what lies beyond.
    """
    drawn = reported.figure("arxiv_fig05")
    trace = traces.load(params.arxiv, download=params.download)
    counted = drawn.copy()
    for quantity, column in (("input_length", trace.input_tokens), ("output_length", trace.output_tokens)):
        here = counted["quantity"] == quantity
        inner = counted.loc[here, "bin_low_tokens"].to_list()[1:]
        counted.loc[here, "requests"] = binned(column.tolist(), inner)
    both = [counted.assign(origin="modelled", trace=trace.name), drawn.assign(origin="reported", trace="")]
    table = pd.concat(both, ignore_index=True)
    table.attrs["provenance"] = _provenance(params, {"arxiv": trace})
    return table


def block_hits(params: Params) -> pd.DataFrame:
    """Give the share of blocks by how often they are asked for (arXiv, Figure 6), beside the figure's.

    Returns
    -------
    DataFrame
        Columns: ``origin``, ``workload``, ``trace``, ``block_hit_count``, ``cdf`` (share of the
        distinct blocks with at most so many). The first use of a block counts.
    """
    loaded = {name: trace for name, trace in params.load().items() if name in traces.registered()}
    rows = []
    for name, trace in loaded.items():
        counts, blocks = np.unique(block_hit_counts(trace), return_counts=True)
        rows.append(
            pd.DataFrame({"block_hit_count": counts, "cdf": np.cumsum(blocks) / blocks.sum()}).assign(
                origin="modelled", workload=name, trace=trace.name
            )
        )
    drawn = reported.figure("arxiv_fig06").assign(origin="reported", workload="arxiv", trace="")
    table = pd.concat([*rows, drawn], ignore_index=True)
    table.attrs["provenance"] = _provenance(params, loaded)
    return table


def block_hit_counts(trace: Trace) -> np.ndarray:
    """How often each distinct block of a trace is asked for, its first use included; int, shape (blocks,)."""
    return np.unique(trace.block_ids, return_counts=True)[1]


def claims(params: Params = Params()) -> dict[str, float]:
    """Modelled values of the claims on workloads, by claim id.

    Those for which a stand-in stood in that was made from the same number are in `setup_claims`.
    """
    loaded = params.load()
    values = {
        claim: float(_MEASURES[quantity][1](loaded[name]))
        for name, claims_of in _TABLES.items()
        for claim, quantity in claims_of.items()
    }
    return values | _histogram_claims(params) | _hit_count_claims(loaded["arxiv"])


def setup_claims(params: Params = Params()) -> frozenset[str]:
    """Claims whose value was put into the stand-in that is measured: setup, not predictions."""
    loaded = params.load()
    given = {
        claim
        for name, claims_of in _TABLES.items()
        for claim, quantity in claims_of.items()
        if loaded[name].origin == "standin" and quantity in _GIVEN.get(name, ())
    }
    drawn = _histogram_claims(params) if loaded["arxiv"].origin == "standin" else {}
    return frozenset(given | set(drawn))


def _histogram_claims(params: Params) -> dict[str, float]:
    trace = traces.load(params.arxiv, download=params.download)
    histograms = length_histograms(params).query("origin == 'modelled'")
    values: dict[str, float] = {}
    for quantity, column in (("input_length", trace.input_tokens), ("output_length", trace.output_tokens)):
        counts = histograms.loc[histograms["quantity"] == quantity, "requests"]
        values |= {
            f"arxiv.fig05.{quantity}.min": float(column.min()),
            f"arxiv.fig05.{quantity}.max": float(column.max()),
            f"arxiv.fig05.{quantity}.first_bin": float(counts.iloc[0]),
        }
    return values


def _hit_count_claims(trace: Trace) -> dict[str, float]:
    hits = block_hit_counts(trace)
    return {f"arxiv.fig06.cdf.{count}": float((hits <= count).mean()) for count in HIT_COUNTS}


def _gap_variation(trace: Trace) -> float:
    """Coefficient of variation of the gaps between instants: 1 for Poisson, about 0 for ticks."""
    gaps_s = np.diff(np.unique(trace.arrival_s))
    return float(gaps_s.std() / gaps_s.mean()) if len(gaps_s) else 0.0


def _provenance(params: Params, loaded: Mapping[str, Trace]) -> dict[str, object]:
    return {
        "trace": ", ".join(trace.name for trace in loaded.values()),
        "trace_sha256": ", ".join(trace.sha256 for trace in loaded.values()),
        "trace_source": "; ".join(trace.source for trace in loaded.values()),
        "parameters": dataclasses.asdict(params),
    }
