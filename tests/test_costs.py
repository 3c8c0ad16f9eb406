"""Costs against the papers' printed values and against arithmetic by hand."""

import tomllib

import numpy as np
import pytest

from mooncake_companion import reported
from mooncake_companion.costs import (
    break_even_bandwidth,
    decode_step_time,
    load_calibration,
    prefill_time,
    transfer_time,
)
from mooncake_companion.datafiles import data_path
from mooncake_companion.errors import CompanionError, InputError
from mooncake_companion.experiments import calibration
from mooncake_companion.hardware import load_node, load_nodes
from mooncake_companion.llm import load_model, load_models

LLAMA3_70B = load_model("llama3-70b")
A800 = load_node("a800")


def test_kv_cache_of_a_token_is_the_papers_320_kb():
    assert LLAMA3_70B.kv_bytes_per_token == 320 * 1024


def test_equation_1_by_hand():
    n, p, layers, dim, a, b = 1000, 400, 80, 8192, 4, 22
    whole = layers * (a * n**2 * dim + b * n * dim**2)
    prefix = layers * (a * p**2 * dim + b * p * dim**2)
    assert LLAMA3_70B.prefill_flops(n) == whole
    assert LLAMA3_70B.prefill_flops(n, p) == whole - prefix


@pytest.mark.parametrize(
    ("node", "claim"), [("a800", "fast25.eq2.b_min_a800"), ("h800", "fast25.eq2.b_min_h800")]
)
def test_break_even_bandwidth_is_the_papers(node, claim):
    """FAST'25, Equation 2 at p = 8192, printed there to whole GB/s."""
    modelled = break_even_bandwidth(load_node(node), LLAMA3_70B, 8192)
    assert modelled == pytest.approx(reported.claim(claim) * 1e9, abs=0.5e9)


def test_prefill_time_is_near_every_bar_of_figure_14():
    """The fit's worst bar is 11 % off; a fit that gets worse than that has lost something."""
    bars = calibration.prefill_measurements()
    modelled_s = prefill_time(
        A800, LLAMA3_70B, bars["input_tokens"], bars["cached_tokens"], calibration=load_calibration()
    )
    assert len(bars) == 10
    assert np.abs(modelled_s / bars["prefill_s"] - 1).max() < 0.11


def test_transfer_is_near_figure_12_from_5_gb_on():
    line = reported.figure("fast25_fig12").query(
        "nics == '4x200Gbps' and method == 'transfer engine' and clipped == 0 and size_gb > 2"
    )
    modelled_s = transfer_time(A800.nic_bytes_per_s, 1e9 * line["size_gb"], calibration=load_calibration())
    assert len(line) == 11
    errors = np.abs(modelled_s / line["latency_s"] - 1)
    assert errors.median() < 0.03
    assert errors.max() < 0.13, "the reading at 80 GB lies above that at 90"


def test_costs_take_numbers_and_arrays_alike():
    constants = load_calibration()
    lengths = [(8192, 0), (8192, 8191), (131072, 65536)]
    together = prefill_time(A800, LLAMA3_70B, *np.array(lengths).T, calibration=constants)
    alone = [prefill_time(A800, LLAMA3_70B, n, p, calibration=constants) for n, p in lengths]
    assert together.tolist() == alone
    assert (together > constants.prefill_overhead_s).all()


def assert_stored(fitted):
    stored = tomllib.loads(data_path("calibration.toml").read_text("utf-8"))
    for name, constant in fitted.items():
        assert stored[name]["low"] < stored[name]["value"] < stored[name]["high"]
        for bound in ("value", "low", "high"):
            assert stored[name][bound] == pytest.approx(getattr(constant, bound), rel=1e-3), name
        assert stored[name]["fitted_on"] == constant.fitted_on


def test_calibration_file_is_what_the_fit_gives():
    assert_stored(calibration.fit_single_actions())


def test_six_constants_are_fitted_and_one_is_stated():
    stored = tomllib.loads(data_path("calibration.toml").read_text("utf-8"))
    assert sum("fitted_on" in constant for constant in stored.values()) == 6
    stated = [name for name, constant in stored.items() if "stated_in" in constant]
    assert stated == ["network_utilisation"]
    assert stored["network_utilisation"]["value"] == calibration.network_utilisation() == 0.87


@pytest.mark.slow
def test_calibration_file_is_what_the_replayed_fit_gives():
    try:
        fitted = calibration.fit_batches()
    except CompanionError as reason:
        pytest.skip(str(reason))
    assert list(fitted) == ["host_sequence_s"]
    assert_stored(fitted)


def test_the_host_sets_the_pace_of_a_batch_and_not_of_a_lone_request():
    """With overlap the longer of both counts, without it their sum; 3 sequences balance them."""
    constants = load_calibration()

    def step_s(sequences, **how):
        return decode_step_time(A800, LLAMA3_70B, sequences, 1000 * sequences, calibration=constants, **how)

    host_s = constants.host_sequence_s
    assert step_s(2) - step_s(1) == pytest.approx(1000 * 327_680 / (0.5815 * 8 * 2039e9), rel=1e-3)
    assert step_s(20) - step_s(19) == pytest.approx(host_s, rel=1e-9)
    assert step_s(1, overlapping=False) - step_s(1) == pytest.approx(host_s, rel=1e-9)
    assert step_s(20) == pytest.approx(constants.decode_overhead_s + 20 * host_s, rel=1e-9)


@pytest.mark.parametrize(("load", "known"), [(load_node, load_nodes), (load_model, load_models)])
def test_unknown_preset_names_the_known_ones(load, known):
    with pytest.raises(InputError, match=", ".join(known())):
        load("abacus")
