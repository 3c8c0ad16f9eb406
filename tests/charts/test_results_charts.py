"""Charts of the chapter on results, from the experiments' own tables, and what their controls draw."""

import re

import altair as alt
import pandas as pd
import pytest
import vl_convert

from mooncake_companion import charts
from mooncake_companion.experiments import (
    end_to_end,
    goodput,
    node_split,
    real_requests,
    request_rate,
)
from mooncake_companion.publish.figures import VEGA_LITE_VERSION

STANDIN = end_to_end.Params(trace="synthetic-standin")


def on_two_workloads(measure):
    table = measure(STANDIN)
    parts = [table.assign(workload=name) for name in ("conversation", "synthetic")]
    parts[1]["origin"] = "reported"
    together = pd.concat(parts, ignore_index=True)
    together.attrs = table.attrs
    return together


@pytest.fixture(scope="module")
def loads():
    return goodput.run(goodput.Params(), workloads=("synthetic-standin",), speedups=(0.5, 3.0))


@pytest.fixture(scope="module")
def drawn(loads):
    rates = request_rate.run(request_rate.Params(dataset="simulated-128k")).assign(dataset="simulated-128k")
    rates.attrs["provenance"] = {"parameters": {"nodes": 4}}
    return {
        "tbt-distribution": charts.end_to_end.tbt(on_two_workloads(end_to_end.curves)),
        "effective-capacity": charts.end_to_end.capacity(on_two_workloads(end_to_end.run)),
        "prefill-gpu-time": charts.end_to_end.prefill_time(on_two_workloads(end_to_end.run)),
        "goodput": charts.goodput.under_load(loads),
        "node-split": charts.node_split.by_split(
            node_split.run(
                node_split.Params(trace="synthetic-standin", least_prefill_nodes=8, most_prefill_nodes=9)
            )
        ),
        "request-rate": charts.request_rate.over_limits(rates, dataset="simulated-128k"),
        "real-requests": charts.real_requests.distributions(
            real_requests.run(real_requests.Params(trace="synthetic-standin")),
            ttft_limit_s=30,
            tbt_limit_s=0.1,
        ),
        "gain-profile": charts.gain_profile.profile(gains()),
    }


def gains():
    rows = [
        {"workload": "Here, 1", "origin": origin, "variant": variant, "gain": gain, "at_least": gain > 1}
        for origin in ("modelled", "reported")
        for variant, gain in (("100 ms", 5.0), ("200 ms", 0.5), ("300 ms", float("nan")))
    ]
    table = pd.DataFrame(rows).assign(family="f", where="w", measure="m", baseline="b")
    table.attrs["provenance"] = {"parameters": {"nodes": 16}}
    return table


NAMES = (
    "tbt-distribution",
    "effective-capacity",
    "prefill-gpu-time",
    "goodput",
    "node-split",
    "request-rate",
    "real-requests",
    "gain-profile",
)


@pytest.mark.parametrize("name", NAMES)
def test_chart_is_valid_survives_json_and_carries_what_made_it(drawn, name):
    spec = drawn[name].to_dict()
    assert alt.Chart.from_dict(spec).to_dict() == spec
    assert spec["name"] == name
    assert spec["usermeta"]["companion"]["parameters"]
    assert len(spec["datasets"]) == 1, "one figure, one tidy table"
    assert "nan" not in spec["description"]


def svg(spec, **values):
    for param in spec["params"]:
        param["value"] = values.get(param["name"], param.get("value"))
    spec["params"] = [
        {key: value for key, value in param.items() if value is not None} for param in spec["params"]
    ]
    return vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE_VERSION)


def marks(spec, kind, **values):
    return len(re.findall(f'aria-roledescription="{kind}"', svg(spec, **values)))


def test_the_workload_that_is_chosen_is_drawn(drawn):
    spec = drawn["effective-capacity"].to_dict()
    assert marks(spec, "bar", capacity_workload="conversation") == 4 * 3
    assert marks(spec, "bar", capacity_workload="synthetic") == 0, "all its rows are reported here"


def areas(spec, **values):
    return re.findall(r'<path[^>]*aria-roledescription="area mark"[^>]* d="([^"]*)"', svg(spec, **values))


def test_fates_are_those_of_the_chosen_system(drawn):
    ours, theirs = (areas(drawn["goodput"].to_dict(), goodput_system=name) for name in ("Mooncake", "vLLM"))
    assert len(ours) == len(theirs) == len(charts.goodput.FATES)
    assert ours != theirs


def test_another_limit_draws_other_goodput(drawn):
    tight, loose = (svg(drawn["goodput"].to_dict(), goodput_limit=limit) for limit in (0.1, 0.3))
    assert tight != loose


def test_systems_and_fates_are_those_of_the_experiment(loads):
    assert set(charts.goodput.SYSTEMS) == set(goodput.SYSTEMS)
    assert set(charts.goodput.FATES) <= set(loads.columns)
    assert set(charts.end_to_end.SYSTEMS) == set(end_to_end.SYSTEMS)
    assert set(charts.request_rate.SYSTEMS) == set(request_rate.SYSTEMS)
    assert set(charts.request_rate.DATASETS) == set(request_rate.DATASETS)
    assert set(charts.real_requests.SYSTEMS) == set(real_requests.SYSTEMS)


def test_a_missing_gain_has_no_mark_and_a_bound_is_a_triangle(drawn):
    picture = svg(drawn["gain-profile"].to_dict() | {"params": []})
    points = re.findall(r'aria-roledescription="point"', picture)
    assert len(points) == 4
