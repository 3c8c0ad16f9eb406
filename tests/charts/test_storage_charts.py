"""Charts of section 2.2 and Figure 13, and the map's expressions held to what the experiment says."""

import itertools
import re

import altair as alt
import pandas as pd
import pytest
import vl_convert

from mooncake_companion.charts import network_bandwidth, storage_for_compute
from mooncake_companion.charts.theme import PALETTE
from mooncake_companion.experiments import storage_for_compute as experiment
from mooncake_companion.publish.figures import VEGA_LITE_VERSION

PARAMS = experiment.Params()


def bandwidth_table():
    rows = [
        {"origin": origin, "bandwidth_gbit_per_s": rate, "series": series, "seconds": 100.0 / rate, **split}
        for origin, split in (
            ("modelled", {"prefill_nodes": 8.0}),
            ("modelled", {"prefill_nodes": 9.0}),
            ("reported", {"prefill_nodes": float("nan")}),
        )
        for rate in (24.0, 400.0)
        for series in ("avg_ttft", "transfer_time_real", "transfer_time_theoretical")
    ]
    rows.append({**rows[0], "series": "ttft_recompute", "bandwidth_gbit_per_s": float("nan")})
    table = pd.DataFrame(rows)
    table.attrs["provenance"] = {"trace": "synthetic"}
    return table


CHARTS = {
    "prefix-break-even": lambda: storage_for_compute.break_even(experiment.run(PARAMS)),
    "prefix-actions": lambda: storage_for_compute.actions(experiment.actions(PARAMS), replicate_after_uses=3),
    "network-bandwidth": lambda: network_bandwidth.by_bandwidth(bandwidth_table(), prefill_nodes=8),
}


@pytest.mark.parametrize("name", CHARTS)
def test_chart_is_valid_survives_json_and_carries_what_made_it(name):
    spec = CHARTS[name]().to_dict()
    assert alt.Chart.from_dict(spec).to_dict() == spec
    assert spec["name"] == name
    assert spec["usermeta"]["companion"]
    assert len(spec["datasets"]) == 1, "one figure, one tidy table"


def test_descriptions_say_what_the_figures_show():
    described = {name: chart().to_dict()["description"] for name, chart in CHARTS.items()}
    assert "8 × A800: 6.8 GB/s at 1,024 tokens, 1.8 GB/s at 131,072" in described["prefix-break-even"]
    assert "24 Gbit/s 4.17 s (reported 4.17 s)" in described["network-bandwidth"]


def drawn_actions(spec, **values):
    """How many cells of the map have each action's colour, with controls set to some values."""
    for param in spec["params"]:
        param["value"] = values.get(param["name"], param["value"])
    svg = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE_VERSION)
    cells = re.findall(r'aria-roledescription="rect mark"[^>]*?fill="(#\w+)"', svg)
    names = {colour.lower(): name for name, colour in PALETTE.items()}
    found = [names[colour.lower()] for colour in cells]
    return {name: found.count(name) for name in set(found)}


@pytest.mark.parametrize(
    ("place", "rule", "queue_s", "uses"),
    [
        (experiment.OTHER_NODE, experiment.FASTEST, 1.0, 2),
        (experiment.OTHER_NODE, experiment.FASTEST, 4.0, 3),
        (experiment.OTHER_NODE, experiment.ALGORITHM_1, 4.0, 2),
        (experiment.OTHER_NODE, experiment.FASTEST, 0.0, 9),
        (experiment.OWN_SSD, experiment.ALGORITHM_1, 4.0, 2),
    ],
)
def test_the_map_draws_what_the_experiment_says(place, rule, queue_s, uses):
    table = experiment.actions(PARAMS)
    spec = CHARTS["prefix-actions"]().to_dict()
    said = experiment.chosen_actions(table, PARAMS, place=place, rule=rule, queue_s=queue_s, uses=uses)
    for node in ("a800", "h800"):
        drawn = drawn_actions(spec, map_node=node, place=place, rule=rule, queue=queue_s, uses=uses)
        assert drawn == said["action"][table["node"] == node].value_counts().to_dict()
    assert len(drawn) > 1 or queue_s == 0, "a map of one colour would test nothing"


def test_break_even_draws_all_lines_for_either_node():
    spec = CHARTS["prefix-break-even"]().to_dict()
    svgs = []
    for node in ("a800", "h800"):
        for param in spec["params"]:
            param["value"] = node
        svgs.append(vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE_VERSION))
    assert all(one != other for one, other in itertools.pairwise(svgs))
    for word in ("Host link", "Network", "SSD"):
        assert all(word in svg for svg in svgs)
