"""The cost model beside measurements: none of them was fitted to, and none is left out unsaid."""

import tomllib

import pytest
import vl_convert

from mooncake_companion.charts import measured_costs as charts
from mooncake_companion.costs import load_calibration, prefill_time
from mooncake_companion.datafiles import data_path
from mooncake_companion.errors import InputError
from mooncake_companion.experiments import measured_costs
from mooncake_companion.hardware import load_node
from mooncake_companion.live.measured_costs import ENGINE, KERNELS, MODELLED, MODELLED_WITH_HOST
from mooncake_companion.llm import load_model
from mooncake_companion.publish.figures import VEGA_LITE_VERSION

PARAMS = measured_costs.Params()


@pytest.fixture(scope="module")
def table():
    return measured_costs.run(PARAMS)


def test_no_constant_was_fitted_to_what_is_shown():
    constants = tomllib.loads(data_path("calibration.toml").read_text("utf-8"))
    for constant in constants.values():
        source = constant.get("fitted_on", constant.get("stated_in"))
        assert source.startswith("FAST'25, ")


def test_each_measurement_has_the_models_value(table):
    row = table.query(
        "phase == 'prefill' and measured_as == @KERNELS and gpu == 'A100' and tokens == 8192"
    ).squeeze()
    expected_s = prefill_time(
        load_node("a800"), load_model("llama3-70b"), 8192, calibration=load_calibration()
    )
    assert row["modelled_s"] == pytest.approx(expected_s, rel=1e-12)
    assert row["ratio"] == row["modelled_s"] / row["measured_s"]
    assert set(table["measured_as"]) == {KERNELS, ENGINE}
    assert (table.query("phase == 'decode'").groupby("modelled").size().nunique()) == 1


def test_long_prefills_on_a100_agree_with_kernels_nobody_fitted(table):
    long = table.query("phase == 'prefill' and measured_as == @KERNELS and gpu == 'A100' and tokens >= 8192")
    assert long["ratio"].between(0.95, 1.1).all()


def test_the_gpus_step_lies_between_kernels_and_the_engine(table):
    """At batches that fit both tables; the host's time, of the papers' own software, is far outside."""
    alone = table.query(f"phase == 'decode' and modelled == {MODELLED!r} and 1 < sequences <= 64")
    assert (alone.query("measured_as == @KERNELS")["ratio"] > 1).all()
    assert (alone.query("measured_as == @ENGINE")["ratio"] < 1).all()
    host = table.query(f"phase == 'decode' and modelled == {MODELLED_WITH_HOST!r} and sequences == 64")
    assert (host["ratio"] > 3).all()


def test_errors_count_every_row_once(table):
    errors = measured_costs.errors(table)
    assert errors["compared"].sum() == len(table)
    assert (errors["least_ratio"] <= errors["median_ratio"]).all()
    assert (errors["median_ratio"] <= errors["greatest_ratio"]).all()


def test_batches_that_fit_no_memory_are_left_out():
    most = {gpus: measured_costs.run(measured_costs.Params(gpus=gpus)) for gpus in (4, 8)}
    held = {gpus: (table["sequences"] * table["tokens"]).max() for gpus, table in most.items()}
    assert held[4] < held[8] <= 0.9 * 8 * 80e9 / 327_680


def test_what_was_not_measured_is_refused():
    with pytest.raises(InputError, match="nothing was measured with 6 GPUs; 4 and 8 are"):
        measured_costs.run(measured_costs.Params(gpus=6))


CHARTS = {
    "measured-prefill": lambda: charts.prefills(measured_costs.prefills(PARAMS)),
    "measured-decode": lambda: charts.steps(measured_costs.steps(PARAMS)),
}


def marks(spec, **values):
    for param in spec["params"]:
        param["value"] = values.get(param["name"], param["value"])
    return vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE_VERSION).count(
        'aria-roledescription="point"'
    )


@pytest.mark.parametrize("name", CHARTS)
def test_charts_carry_their_name_data_and_origin(name):
    spec = CHARTS[name]().to_dict()
    assert spec["name"] == name
    assert spec["usermeta"]["companion"]["parameters"] == {"gpus": 8}
    assert len(spec["datasets"]) == 1


def test_charts_draw_what_is_chosen():
    spec = CHARTS["measured-prefill"]().to_dict()
    assert marks(spec, measured_prefill_gpu="A100") > marks(spec, measured_prefill_gpu="H100") > 10
    spec = CHARTS["measured-decode"]().to_dict()
    assert marks(spec, measured_step_context=512) > marks(spec, measured_step_context=32_768) >= 5


def test_charts_and_experiment_use_the_same_words():
    mine = (MODELLED, MODELLED_WITH_HOST, KERNELS, ENGINE)
    assert mine == (charts.MODELLED, charts.MODELLED_WITH_HOST, charts.KERNELS, charts.ENGINE)


def test_headlines_are_rows_of_the_table(table):
    found = measured_costs.headlines(table)
    assert all(value > 0 for value in found.values())
    batch = table.query(f"measured_as == @ENGINE and modelled == {MODELLED_WITH_HOST!r} and sequences == 64")
    assert found["host batch"] == batch.query("gpu == 'A100'")["ratio"].item()
    assert found["host least"] <= found["host batch"] <= found["host greatest"]
    assert 0.5 < found["alone engine"] < 1 < found["alone kernels"] < 2
