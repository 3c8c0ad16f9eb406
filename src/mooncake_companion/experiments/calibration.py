"""Fit the model's constants to the papers' measurements of single actions.

``python -m mooncake_companion.experiments.calibration`` writes ``data/calibration.toml`` anew.
Nothing that is called a prediction is used here. FAST'25, Figure 14 gives the constants of a prefill
and of the decode of a single request; Figure 15, replayed, gives the one of a batch. The network's
is not fitted: the paper prints it.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import optimize, stats

from mooncake_companion import reported, traces
from mooncake_companion.costs import Calibration, decode_step_time, prefill_time
from mooncake_companion.datafiles import data_path, replacing
from mooncake_companion.errors import CompanionError
from mooncake_companion.experiments import node_split
from mooncake_companion.hardware import load_node
from mooncake_companion.llm import load_model

THOUSAND_TOKENS = 1024
"""How the papers' "8k" is read, in tokens; the readings of Figure 14 agree with it."""


DECODED_TOKENS = 128
"""Tokens in the decode bars of Figure 14."""

NETWORK_CLAIM = "fast25.fig12.bw_4x200"
"""The paper's bandwidth of the transfer engine, in GB/s."""

_NODE, _MODEL = load_node("a800"), load_model("llama3-70b")
_UNFITTED = Calibration(
    prefill_overhead_s=1.0,
    linear_utilisation=1.0,
    attention_utilisation=1.0,
    network_utilisation=1.0,
    decode_overhead_s=1.0,
    hbm_utilisation=1.0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """One fitted constant with its 95 % confidence interval.

    Parameters
    ----------
    value, low, high : float
        In the constant's own unit.
    fitted_on : str
        The figure and rows that were used.
    """

    value: float
    low: float
    high: float
    fitted_on: str


def prefill_measurements() -> pd.DataFrame:
    """Prefill seconds of FAST'25, Figure 14: both parts, five prompt lengths each.

    Columns: ``input_tokens``, ``cached_tokens``, ``prefill_s``.
    """
    bars = reported.figure("fast25_fig14").query("component == 'prefill'")
    input_tokens = bars["prompt_length"].str.removesuffix("k").astype(int) * THOUSAND_TOKENS
    cached_tokens = (input_tokens * bars["prefix_cache_ratio_pct"] // 100).astype(int)
    return pd.DataFrame(
        {"input_tokens": input_tokens, "cached_tokens": cached_tokens, "prefill_s": bars["seconds"]}
    ).reset_index(drop=True)


def decode_measurements() -> pd.DataFrame:
    """Seconds of one decode step of a single request, FAST'25, Figure 14: both parts.

    The bars hold 128 steps; the context is that of the middle one.
    Columns: ``context_tokens``, ``step_s``.
    """
    bars = reported.figure("fast25_fig14").query("component == 'decode'")
    input_tokens = bars["prompt_length"].str.removesuffix("k").astype(int) * THOUSAND_TOKENS
    return pd.DataFrame(
        {"context_tokens": input_tokens + DECODED_TOKENS // 2, "step_s": bars["seconds"] / DECODED_TOKENS}
    ).reset_index(drop=True)


def fit() -> dict[str, Fitted]:
    """Fit all constants by least squares on the logarithm: relative errors weigh alike."""
    return fit_single_actions() | fit_batches()


def fit_single_actions() -> dict[str, Fitted]:
    """The constants of a prefill and of a lone request's decode: those that need no replay."""
    return _fit_prefill() | _fit_decode()


def network_utilisation() -> float:
    """Share of the NICs' line rate, as section 5.4.1 prints it: 87 GB/s over 4 × 200 Gbit/s."""
    return 1e9 * reported.claim(NETWORK_CLAIM) / _NODE.nic_bytes_per_s


def _fit_prefill() -> dict[str, Fitted]:
    measured = prefill_measurements()

    def modelled_s(constants: Calibration) -> np.ndarray:
        lengths = measured["input_tokens"].to_numpy(float), measured["cached_tokens"].to_numpy(float)
        return np.asarray(prefill_time(_NODE, _MODEL, *lengths, calibration=constants))

    start = {"prefill_overhead_s": 0.1, "linear_utilisation": 0.5, "attention_utilisation": 0.5}
    where = "FAST'25, Figure 14: the ten prefill bars"
    return _least_squares(start, modelled_s, measured["prefill_s"].to_numpy(), where)


def _fit_decode() -> dict[str, Fitted]:
    measured = decode_measurements()

    def modelled_s(constants: Calibration) -> np.ndarray:
        return np.array(
            [
                decode_step_time(_NODE, _MODEL, 1, tokens, calibration=constants)
                for tokens in measured["context_tokens"].tolist()
            ]
        )

    start = {"decode_overhead_s": 0.01, "hbm_utilisation": 0.5}
    where = "FAST'25, Figure 14: the ten decode bars"
    return _least_squares(start, modelled_s, measured["step_s"].to_numpy(), where)


def fit_batches() -> dict[str, Fitted]:
    """What each sequence costs the host: from the seven mean TBTs of FAST'25, Figure 15.

    The other constants must be there; a step of a single request does not depend on this one. The
    figure's trace is replayed at each of its splits.

    Raises
    ------
    CompanionError
        If the released synthetic trace is not to be had.

    Notes
    -----
    That the host's time has this form was decided on the same figure. Root mean square error of TBT
    with the best constant of each form tried: memory and arithmetic alone 44 %; with a stall for
    loading the KV cache at a join, as long as Figure 14 has it, 27 %; a time for each sequence on
    top of the GPUs' 10 %; every context paid as if it were as long as the longest 4 %, which
    saturates decode on the conversation trace; the host's time beside the GPUs' 10 % with requests
    going to the shortest step, 3 % to the
    smallest KV cache. The interval of the constant holds for the form, not between forms.
    """
    params = node_split.Params()
    trace = traces.load(params.trace)
    if trace.origin != "released":
        raise CompanionError(
            f"the calibration needs the released {params.trace} trace, not its stand-in; "
            "set MOONCAKE_TRACES to its folder"
        )
    single = {name: constant.value for name, constant in fit_single_actions().items()}
    others = dataclasses.replace(_UNFITTED, **single, network_utilisation=network_utilisation())

    def modelled_s(constants: Calibration) -> np.ndarray:
        varied = dataclasses.replace(others, host_sequence_s=constants.host_sequence_s)
        return node_split.mean_tbt_s(params, trace, varied)

    measured_s = reported.figure("fast25_fig15")["avg_tbt_ms"].to_numpy() / 1e3
    where = "FAST'25, Figure 15: the seven mean TBTs"
    # A replay answers a small change with a jump: steps of a few per cent see the slope behind it.
    return _least_squares(
        {"host_sequence_s": 0.005}, modelled_s, measured_s, where, step=0.04, tolerance=1e-4
    )


def _least_squares(
    start: dict[str, float],
    modelled_s: Callable[[Calibration], np.ndarray],
    measured_s: np.ndarray,
    fitted_on: str,
    *,
    step: float | None = None,
    tolerance: float = 1e-14,
) -> dict[str, Fitted]:
    def log_error(log_constants: np.ndarray) -> np.ndarray:
        constants = dict(zip(start, np.exp(log_constants).tolist(), strict=True))
        return np.asarray(np.log(modelled_s(dataclasses.replace(_UNFITTED, **constants)) / measured_s))

    names = tuple(start)
    found = optimize.least_squares(
        log_error,
        np.log(list(start.values())),
        diff_step=step,
        xtol=tolerance,
        ftol=tolerance,
        gtol=tolerance,
    )
    freedom = len(found.fun) - len(names)
    covariance = np.linalg.inv(found.jac.T @ found.jac) * (found.fun @ found.fun) / freedom
    half_widths = stats.t.ppf(0.975, freedom) * np.sqrt(np.diag(covariance))
    return {
        name: Fitted(
            value=float(np.exp(x)), low=float(np.exp(x - h)), high=float(np.exp(x + h)), fitted_on=fitted_on
        )
        for name, x, h in zip(names, found.x, half_widths, strict=True)
    }


def write() -> None:
    """Fit anew and replace ``data/calibration.toml``."""
    target = data_path("calibration.toml")
    lines = [
        "# The model's constants, written by `python -m mooncake_companion.experiments.calibration`.",
        "# low and high bound the 95 % confidence interval of those that are fitted.",
        "",
        "[network_utilisation]",
        f"value = {network_utilisation():.4g}",
        'stated_in = "FAST\'25, section 5.4.1: 87 GB/s over 4 × 200 Gbit/s"',
    ]
    for name, constant in fit().items():
        lines += [
            "",
            f"[{name}]",
            f"value = {constant.value:.4g}",
            f"low = {constant.low:.4g}",
            f"high = {constant.high:.4g}",
            f'fitted_on = "{constant.fitted_on}"',
        ]
    with replacing(target) as part:
        part.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    write()
