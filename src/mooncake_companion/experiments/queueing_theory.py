"""The engine's waiting times beside queueing theory, where that has an exact answer."""

import dataclasses
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import special

from mooncake_companion import traces
from mooncake_companion.costs import Calibration, load_calibration, prefill_time
from mooncake_companion.hardware import load_node
from mooncake_companion.llm import load_model
from mooncake_companion.parameters import check, parameter
from mooncake_companion.simulator import Cluster, simulate
from mooncake_companion.traces import Trace

CONSTANT, EXPONENTIAL, FROM_TRACE = "Constant (M/D/1)", "Exponential (M/M/1)", "As in the trace (M/G/1)"
SERVICES = (CONSTANT, EXPONENTIAL, FROM_TRACE)
"""How long a prefill takes, from one request to the next."""

UTILISATIONS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Share of the time in which the node is to be busy."""

CURVE = tuple(round(0.02 * step, 2) for step in range(1, 46))
"""Utilisations at which the theory is drawn, those of the engine among them."""

_BATCHES = 20
_MEAN_TOKENS = 4096
_NODE, _MODEL = load_node("a800"), load_model("llama3-70b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """One prefill node without a cache, requests that come at random and want one token."""

    trace: str = parameter("conversation", choices=("conversation", "synthetic"), help="prompts of M/G/1")
    requests: int = parameter(20_000, unit="requests", low=1000, high=10**6, help="of each replay")
    seed: int = parameter(0, low=0, high=2**32 - 1, help="of arrivals and prompts")

    def __post_init__(self) -> None:
        check(self)


def run(params: Params) -> pd.DataFrame:
    """Mean wait in the queue by utilisation, in theory and in the engine.

    Returns
    -------
    DataFrame
        Columns: ``origin`` ("theory" or "engine"), ``service`` (of `SERVICES`), ``utilisation``,
        ``wait_services`` (mean wait in mean service times), ``low``, ``high`` (95 % confidence interval of
        the engine's, from batch means; the value itself in theory).

    Notes
    -----
    Pollaczek and Khinchine: the mean wait is λ E[S²] / 2 (1 - ρ). For constant service that is
    ρ / 2 (1 - ρ) service times, for exponential service ρ / (1 - ρ).
    """
    trace = traces.load(params.trace)
    rows = []
    generators = np.random.default_rng(params.seed).spawn(len(SERVICES) * len(UTILISATIONS))
    for service in SERVICES:
        rows += [_theory(service, utilisation, trace) for utilisation in CURVE]
        rows += [_engine(params, service, at, trace, generators.pop()) for at in UTILISATIONS]
    table = pd.DataFrame(rows)
    table.attrs["provenance"] = {
        "parameters": dataclasses.asdict(params),
        "trace": trace.name,
        "trace_sha256": trace.sha256,
    }
    return table


def agreement(table: pd.DataFrame) -> dict[str, float]:
    """In how many points the theory lies within the engine's interval.

    Returns
    -------
    dict
        ``points``, ``within``, ``requests`` (in all replays), ``largest_error`` (relative).
    """
    wide = table.pivot(index=["service", "utilisation"], columns="origin").dropna()
    theory = wide["wait_services", "theory"]
    inside = (wide["low", "engine"] <= theory) & (theory <= wide["high", "engine"])
    errors = (wide["wait_services", "engine"] / theory - 1).abs()
    return {
        "points": len(wide),
        "within": int(inside.sum()),
        "requests": len(wide) * int(table.attrs["provenance"]["parameters"]["requests"]),
        "largest_error": float(errors.max()),
    }


def _theory(service: str, utilisation: float, trace: Trace) -> dict[str, object]:
    second_moments = {CONSTANT: 1.0, EXPONENTIAL: 2.0}
    if service == FROM_TRACE:
        service_s = _service_s(service, trace.input_tokens)
        second_moments[FROM_TRACE] = float((service_s**2).mean() / service_s.mean() ** 2)
    wait = utilisation / (2 * (1 - utilisation)) * second_moments[service]
    at = {"service": service, "utilisation": utilisation}
    return {"origin": "theory", **at, "wait_services": wait, "low": wait, "high": wait}


def _engine(
    params: Params, service: str, utilisation: float, trace: Trace, rng: np.random.Generator
) -> dict[str, object]:
    tokens = _prompts(params, service, trace, rng)
    mean_s = _service_s(service, tokens).mean()
    arrival_s = np.cumsum(rng.exponential(mean_s / utilisation, len(tokens)))
    waits = _waits_s(arrival_s, tokens, _calibration(service)) / mean_s
    batches = np.array([batch.mean() for batch in np.array_split(waits, _BATCHES + 1)[1:]])  # warmed up
    half = special.stdtrit(_BATCHES - 1, 0.975) * batches.std(ddof=1) / np.sqrt(_BATCHES)
    mean = float(batches.mean())
    at = {"service": service, "utilisation": utilisation}
    return {"origin": "engine", **at, "wait_services": mean, "low": mean - half, "high": mean + half}


def _service_s(service: str, tokens: np.ndarray) -> np.ndarray:
    return np.asarray(prefill_time(_NODE, _MODEL, tokens.astype(float), calibration=_calibration(service)))


def _prompts(params: Params, service: str, trace: Trace, rng: np.random.Generator) -> np.ndarray:
    """Prompt lengths, in tokens, shape (requests,)."""
    if service == CONSTANT:
        return np.full(params.requests, _MEAN_TOKENS)
    if service == EXPONENTIAL:
        return np.maximum(1, rng.exponential(_MEAN_TOKENS, params.requests).astype(np.int64))
    return rng.choice(trace.input_tokens, params.requests)


def _calibration(service: str) -> Calibration:
    """The fitted constants; for exponential service those that make time proportional to tokens."""
    fitted = load_calibration()
    if service == FROM_TRACE:
        return fitted
    return dataclasses.replace(fitted, prefill_overhead_s=1e-12, attention_utilisation=1e12)


def _waits_s(arrival_s: np.ndarray, tokens: np.ndarray, calibration: Calibration) -> np.ndarray:
    blocks = -(-tokens // 512)
    ends = np.cumsum(blocks)
    replayed = Trace(
        name="poisson",
        origin="standin",
        source="Poisson arrivals",
        sha256="",
        arrival_s=arrival_s,
        input_tokens=tokens,
        output_tokens=np.ones(len(tokens), np.int64),
        block_ids=np.arange(ends[-1]),
        block_offsets=np.concatenate(([0], ends)),
    )
    cluster = Cluster(
        node=_NODE,
        model=_MODEL,
        calibration=calibration,
        prefill_nodes=1,
        decode_nodes=1,
        cache_tokens_per_node=0,
    )
    return simulate(replayed, cluster).wait_s
