"""The chart of a sweep: its rows told apart, its drop-downs, its place and colour."""

import itertools
import re

import altair as alt
import pandas as pd
import pytest
import vl_convert

from mooncake_companion.charts import sweep
from mooncake_companion.charts.theme import HEAT, PALETTE
from mooncake_companion.publish.figures import VEGA_LITE_VERSION


def swept(*, policies=("Random", "Load balancing"), nodes=(1, 2, 3), sizes=(1, 2, 4), rates=(0.5, 2.0)):
    """A table as a sweep of an experiment with a row for each policy and number of nodes makes it."""
    rows = [
        {
            "point": point,
            "param_size": size,
            "param_rate": rate,
            "origin": "modelled",
            "policy": policy,
            "prefill_nodes": count,
            "mean_s": size * rate + count + len(policy),
            "capacity": float(count),  # happens not to move with the parameters
        }
        for point, (size, rate) in enumerate(itertools.product(sizes, rates))
        for policy in policies
        for count in nodes
    ]
    table = pd.DataFrame(rows)
    table.attrs["provenance"] = {"chapter": "little"}
    return table


TITLES = {"param_size": "size (tokens)", "param_rate": "rate"}


def draw(table, *, titles=TITLES, drawn=2, by=("policy", "prefill_nodes"), quantity="mean_s", lines=True):
    chart = sweep.over_parameters(
        table, parameters=titles, drawn=drawn, by=by, quantity=quantity, lines=lines
    )
    return chart.to_dict()


def controls(spec):
    return {param["name"]: param for param in spec["params"] if "bind" in param}


def points_of(spec):
    svg = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE_VERSION)
    return re.findall(r'aria-label="([^"]*)" role="graphics-symbol" aria-roledescription="point"', svg)


def test_rows_are_told_apart_by_words_first_and_no_column_too_many():
    table = swept()
    assert sweep.distinguishing(table, list(TITLES)) == ("policy", "prefill_nodes")
    assert sweep.distinguishing(swept(nodes=(1,)), list(TITLES)) == ("policy",)
    assert sweep.distinguishing(swept(nodes=(1,), policies=("Random",)), list(TITLES)) == ()


def test_rows_that_come_and_go_are_told_apart_by_whole_numbers():
    table = swept()
    fewer = table[(table["point"] > 0) | (table["prefill_nodes"] < 3)]
    assert sweep.distinguishing(fewer, list(TITLES)) == ("policy", "prefill_nodes")


def test_what_is_measured_is_all_other_numbers():
    assert sweep.measured(swept(), list(TITLES), ("policy", "prefill_nodes")) == ["mean_s", "capacity"]


def test_it_is_valid_has_one_table_and_carries_what_made_it():
    spec = draw(swept())
    assert alt.Chart.from_dict(spec).to_dict() == spec
    assert len(spec["datasets"]) == 1
    assert spec["usermeta"]["companion"] == {"chapter": "little"}
    assert "mean_s, goes from 7.5 to 25 over all rows" in spec["description"]


def test_each_drop_down_draws_another_chart_with_a_point_for_each_point_of_the_sweep():
    spec = draw(swept())
    found = controls(spec)
    assert found["quantity"]["bind"]["options"] == ["mean_s", "capacity"]
    assert found["pick_0"]["bind"]["options"] == ["Random", "Load balancing"]
    assert found["pick_1"]["bind"]["options"] == ["1", "2", "3"]
    drawn = {}
    for name, param in found.items():
        first = param["value"]
        for option in param["bind"]["options"]:
            param["value"] = option
            labels = points_of(spec)
            assert len(labels) == 6
            drawn[name, option] = tuple(labels)
        param["value"] = first
    assert len(set(drawn.values())) == 1 + 1 + 1 + 2  # the first options of all three are one chart


def test_the_rows_that_are_reported_are_not_shown_first():
    table = pd.concat([swept().assign(origin="reported"), swept()], ignore_index=True)
    spec = draw(table, by=("origin", "policy", "prefill_nodes"))
    assert controls(spec)["pick_0"]["value"] == "modelled"


def test_over_one_parameter_the_words_give_the_colours_of_their_meanings():
    spec = draw(swept(), drawn=1)
    (colour,) = {str(layer["encoding"]["color"]) for layer in spec["layer"]}
    assert PALETTE["random"] in colour
    assert PALETTE["load_balancing"] in colour
    assert controls(spec)["pick_1"]["bind"]["options"] == ["0.5", "2.0"]


def test_the_second_parameter_goes_from_cold_to_hot():
    spec = draw(swept(rates=(1.0, 2.0, 3.0)))
    scale = spec["layer"][0]["encoding"]["color"]["scale"]
    assert (scale["domain"], scale["range"]) == ([1.0, 2.0, 3.0], list(HEAT))


@pytest.mark.parametrize(
    ("sizes", "logarithmic"), [((1, 10, 100), True), ((1, 2, 3), False), ((0, 9), False)]
)
def test_a_parameter_over_magnitudes_has_a_logarithmic_axis(sizes, logarithmic):
    x = draw(swept(sizes=sizes))["layer"][0]["encoding"]["x"]
    assert (x["scale"].get("type") == "log") == logarithmic == x["title"].endswith("logarithmic")


def test_a_sample_is_drawn_as_points_and_words_as_places():
    sample = draw(swept(), lines=False)
    assert [layer["mark"]["type"] for layer in sample["layer"]] == ["point"]
    words = swept().rename(columns={"param_size": "param_node"})
    words["param_node"] = "node " + words["param_node"].astype(str)
    titles = {"param_node": "node", "param_rate": "rate"}
    spec = draw(words, titles=titles)
    assert spec["layer"][0]["encoding"]["x"]["type"] == "nominal"
    assert [layer["mark"]["type"] for layer in spec["layer"]] == ["point"]


def test_rows_that_nothing_tells_apart_are_shown_by_their_mean():
    spec = draw(swept(), by=("policy",))
    (rows,) = spec["datasets"].values()
    first = next(row for row in rows if row["point"] == 0 and row["policy"] == "Random")
    assert first["mean_s"] == pytest.approx(1 * 0.5 + 2 + 6)
