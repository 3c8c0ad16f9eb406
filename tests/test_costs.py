"""Costs against the papers' printed values and against arithmetic by hand."""

import tomllib

import numpy as np
import pytest

from mooncake_companion import reported
from mooncake_companion.costs import (
    break_even_bandwidth,
    load_calibration,
    prefill_time,
    transfer_time,
)
from mooncake_companion.datafiles import data_path
from mooncake_companion.errors import InputError
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
    line = calibration.transfer_measurements().query("transferred_bytes > 2e9")
    modelled_s = transfer_time(
        A800.nic_bytes_per_s, line["transferred_bytes"], calibration=load_calibration()
    )
    assert len(line) == 11
    assert np.abs(modelled_s / line["transfer_s"] - 1).max() < 0.12


def test_costs_take_numbers_and_arrays_alike():
    constants = load_calibration()
    lengths = [(8192, 0), (8192, 8191), (131072, 65536)]
    together = prefill_time(A800, LLAMA3_70B, *np.array(lengths).T, calibration=constants)
    alone = [prefill_time(A800, LLAMA3_70B, n, p, calibration=constants) for n, p in lengths]
    assert together.tolist() == alone
    assert (together > constants.prefill_overhead_s).all()


def test_calibration_file_is_what_the_fit_gives():
    stored = tomllib.loads(data_path("calibration.toml").read_text("utf-8"))
    fitted = calibration.fit()
    assert stored.keys() == fitted.keys()
    for name, constant in fitted.items():
        assert stored[name]["low"] < stored[name]["value"] < stored[name]["high"]
        for bound in ("value", "low", "high"):
            assert stored[name][bound] == pytest.approx(getattr(constant, bound), rel=1e-3), name
        assert stored[name]["fitted_on"] == constant.fitted_on


@pytest.mark.parametrize(("load", "known"), [(load_node, load_nodes), (load_model, load_models)])
def test_unknown_preset_names_the_known_ones(load, known):
    with pytest.raises(InputError, match=", ".join(known())):
        load("abacus")
