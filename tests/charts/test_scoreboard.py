"""Charts and tables of the scoreboard, from a saved table."""

import altair as alt
import pandas as pd
import pytest

from mooncake_companion.charts import scoreboard, tables

ROWS = [
    ("a", "Figure 1", 2.0, 3.0, "prediction"),
    ("b", "Figure 1", 1e6, 1.1e6, "blind"),
    ("c", "Figure 2", 5.0, 5.0, "calibration"),
    ("zero", "Figure 2", 0.0, 1.0, "prediction"),
    ("negative", "Figure 2", -0.5, -0.4, "prediction"),
    ("word", "Figure 3", "LRU", float("nan"), "setup"),
    ("open", "Figure 3", 7.0, float("nan"), "open"),
]


@pytest.fixture
def table():
    saved = pd.DataFrame(ROWS, columns=["id", "where", "reported", "modelled", "role"])
    saved = saved.assign(quantity="q", trace="", unit="s", error_shown="+1.0 %", reason="")
    saved.attrs["provenance"] = {"trace_source": "made up"}
    return saved


@pytest.mark.parametrize(
    ("draw", "name"),
    [
        (scoreboard.reported_against_modelled, "scoreboard-agreement"),
        (scoreboard.ratios, "scoreboard-ratios"),
    ],
)
def test_charts_hold_what_can_be_drawn_on_logarithms_and_survive_json(table, draw, name):
    spec = draw(table).to_dict()
    assert alt.Chart.from_dict(spec).to_dict() == spec
    assert spec["name"] == name
    assert spec["usermeta"]["companion"] == {"trace_source": "made up"}
    (rows,) = spec["datasets"].values()
    assert [row["id"] for row in rows] == ["a", "b", "c"]
    assert [row["ratio"] for row in rows] == pytest.approx([1.5, 1.1, 1.0])


def test_descriptions_say_how_well_it_agrees_and_where_it_does_worst(table):
    agreement = scoreboard.reported_against_modelled(table).to_dict()["description"]
    assert "3 modelled values" in agreement
    assert "67% lie within a factor of 1.25" in agreement
    assert "Farthest off by its median is Figure 1." in scoreboard.ratios(table).to_dict()["description"]


def test_hover_tells_all(table):
    layers = scoreboard.reported_against_modelled(table).to_dict()["layer"]
    (dots,) = [layer for layer in layers if "tooltip" in layer["encoding"]]
    told = {each["field"] for each in dots["encoding"]["tooltip"]}
    assert {"id", "where", "quantity", "reported", "modelled", "unit", "error_shown", "role", "trace"} <= told


def test_a_sortable_table_shows_formats_and_keeps_what_it_is_sorted_by():
    table = pd.DataFrame({"name": ["<b>", "x"], "error": [-0.118, None], "size": [0.118, None]})
    columns = {"name": ("Name", ""), "error": ("Error", "{:+.0%}")}
    shown = tables.Sortable(table, columns, caption='All "rows"', sort_by={"error": "size"})._repr_html_()
    assert 'data-caption="All &quot;rows&quot;"' in shown
    assert '<th scope="col">Name</th><th scope="col">Error</th>' in shown
    assert '<tr><td data-value="&lt;b&gt;">&lt;b&gt;</td><td data-value="0.118">-12%</td></tr>' in shown
    assert '<tr><td data-value="x">x</td><td data-value="">–</td></tr>' in shown
