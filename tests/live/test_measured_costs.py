"""Measurements in the page, beside a model with a reader's constants."""

import math

import pytest
from tests.live.small import alike

from mooncake_companion.costs import load_calibration
from mooncake_companion.errors import InputError
from mooncake_companion.experiments import measured_costs as experiment
from mooncake_companion.live.answers import compute
from mooncake_companion.live.figures import LIVE
from mooncake_companion.live.measured_costs import ENGINE, KERNELS, MODELLED, MODELLED_WITH_HOST


@pytest.mark.parametrize("gpus", [4, 8])
@pytest.mark.parametrize(
    ("name", "table"), [("measured-prefill", experiment.prefills), ("measured-decode", experiment.steps)]
)
def test_with_the_fitted_constants_it_is_the_books_figure(name, table, gpus):
    outcome, told = compute(name, {"gpus": str(gpus)}, None)
    alike(outcome.rows, table(experiment.Params(gpus=gpus)))
    assert told.startswith("Modelled here, in your browser, with")


def test_a_constant_moves_the_curve_and_the_ratio_and_no_measurement():
    book, _ = compute("measured-prefill", {}, None)
    later, _ = compute("measured-prefill", {"prefill_overhead_s": "1.5"}, None)
    more_s = 1.5 - load_calibration().prefill_overhead_s
    for old, new in zip(book.rows, later.rows, strict=True):
        if old["source"] == MODELLED:
            assert new["seconds"] == pytest.approx(old["seconds"] + more_s, rel=1e-12)
        else:
            assert new["seconds"] == old["seconds"]
            assert new["ratio"] == pytest.approx(old["ratio"] + more_s / old["seconds"], rel=1e-12)


def test_without_a_host_both_curves_of_decode_are_one():
    outcome, _ = compute("measured-decode", {"host_sequence_s": "0"}, None)
    sources = (MODELLED, MODELLED_WITH_HOST, KERNELS, ENGINE)
    of = {name: [row["seconds"] for row in outcome.rows if row["source"] == name] for name in sources}
    assert of[MODELLED] == of[MODELLED_WITH_HOST]
    assert min(len(seconds) for seconds in of.values()) > 10


@pytest.mark.parametrize("name", ["measured-prefill", "measured-decode"])
@pytest.mark.parametrize("end", ["low", "high"])
def test_every_constant_at_its_end_draws_something_finite(name, end):
    fields = LIVE[name].fields()
    outcome, _ = compute(name, {each.name: str(getattr(each, end)) for each in fields}, None)
    assert all(math.isfinite(row["seconds"]) and row["seconds"] > 0 for row in outcome.rows)


def test_gpus_that_nobody_measured_are_refused():
    with pytest.raises(InputError, match="parameter gpus: nothing was measured with 6 GPUs; 4 and 8 are"):
        compute("measured-decode", {"gpus": "6"}, None)
