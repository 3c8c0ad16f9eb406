"""Charts of transfers from the experiments' own tables, and what their controls draw."""

import re

import altair as alt
import pytest
import vl_convert

from mooncake_companion.charts import transfer
from mooncake_companion.experiments import hot_holder, latency_breakdown, transfer_latency
from mooncake_companion.publish.figures import VEGA_LITE_VERSION

PARAMS = hot_holder.Params(requests=60)
CHARTS = {
    "transfer-latency": lambda: transfer.latency(transfer_latency.run(transfer_latency.Params())),
    "latency-breakdown": lambda: transfer.breakdown(latency_breakdown.run(latency_breakdown.Params())),
    "hot-holder-under-way": lambda: transfer.under_way(
        hot_holder.under_way(PARAMS), bandwidth_gbit_per_s=400
    ),
    "hot-holder-waits": lambda: transfer.waits(hot_holder.fetches(PARAMS)),
}


@pytest.mark.parametrize("name", CHARTS)
def test_chart_is_valid_survives_json_and_carries_what_made_it(name):
    spec = CHARTS[name]().to_dict()
    assert alt.Chart.from_dict(spec).to_dict() == spec
    assert spec["name"] == name
    assert spec["usermeta"]["companion"]["parameters"]
    assert len(spec["datasets"]) == 1, "one figure, one tidy table"


def test_descriptions_say_what_the_figures_show():
    described = {name: chart().to_dict()["description"] for name, chart in CHARTS.items()}
    assert "4x200Gbps, reported: 0.451 s" in described["transfer-latency"]
    assert "0 % cached, reported: 32.4 s" in described["latency-breakdown"]


def bars(spec, **values):
    for param in spec["params"]:
        param["value"] = values.get(param["name"], param["value"])
    svg = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE_VERSION)
    return len(re.findall(r'aria-roledescription="bar"', svg))


@pytest.mark.parametrize("cached", [0, 95])
def test_the_breakdown_draws_every_component_of_what_is_chosen(cached):
    spec = CHARTS["latency-breakdown"]().to_dict()
    assert bars(spec, breakdown_cached=cached) == 5 * (4 + 5)
    assert bars(spec, breakdown_cached=cached, breakdown_part="until decode begins") == 5 * (3 + 4)


def test_every_component_of_the_experiment_has_a_title():
    assert set(latency_breakdown.COMPONENTS) < set(transfer.COMPONENTS)
