"""Charts of the sensitivity from saved tables: no simulation is needed to draw or to test them."""

import altair as alt
import pandas as pd
import pytest

from mooncake_companion.charts import sensitivity

HEADLINES = {
    "fig01": {"title": "Gain", "unit": "%", "where": "FAST'25, Figure 1", "reported": 498.0},
    "fig05": {"title": "TTFT ratio", "unit": "×", "where": "FAST'25, Figure 5", "reported": 1.17},
}
ASSUMPTIONS = {
    "split": {"unit": "nodes", "nominal": 8.0, "low": 6.0, "high": 10.0},
    "cache": {"unit": "tokens", "nominal": 3e6, "low": 1e6, "high": 1e7},
    "nothing": {"unit": "", "nominal": 0.5, "low": 0.25, "high": 0.75},
}
EFFECT = {"split": 10.0, "cache": 40.0, "nothing": 0.01}


def _saved(rows):
    table = pd.DataFrame(rows)
    table.attrs["provenance"] = {"trace": "conversation"}
    return table


def _assumed(name):
    return {f"assumption_{key}": value for key, value in ASSUMPTIONS[name].items()} | {
        "assumption_title": name.capitalize(),
        "low": ASSUMPTIONS[name]["low"],
        "high": ASSUMPTIONS[name]["high"],
        "why": "a test",
    }


def levels_table():
    return _saved(
        {
            "headline": headline,
            **fields,
            "nominal": 100.0,
            "assumption": assumption,
            **_assumed(assumption),
            "value": ASSUMPTIONS[assumption][end],
            "result": 100.0 + sign * EFFECT[assumption],
        }
        for headline, fields in HEADLINES.items()
        for assumption in ASSUMPTIONS
        for end, sign in (("low", -1), ("high", 2))
    )


def shares_table():
    return _saved(
        {
            "headline": headline,
            **fields,
            "assumption": assumption,
            **_assumed(assumption),
            "first": EFFECT[assumption] / 80,
            "first_low": EFFECT[assumption] / 100,
            "first_high": EFFECT[assumption] / 60,
            "total": EFFECT[assumption] / 50,
            "total_low": EFFECT[assumption] / 60,
            "total_high": EFFECT[assumption] / 40,
        }
        for headline, fields in HEADLINES.items()
        for assumption in ASSUMPTIONS
    )


def seeds_table():
    return _saved(
        {"headline": headline, **fields, "replicate": k, "result": 90.0 + 10 * k, "nominal": 100.0}
        for headline, fields in HEADLINES.items()
        for k in range(3)
    )


CHARTS = {
    "sensitivity-one-at-a-time": lambda: sensitivity.tornado(levels_table()),
    "sensitivity-variance": lambda: sensitivity.indices(shares_table()),
    "sensitivity-seeds": lambda: sensitivity.seeds(seeds_table()),
}


def rows_of(spec):
    (rows,) = spec["datasets"].values()
    return rows


@pytest.mark.parametrize("name", CHARTS)
def test_chart_is_valid_survives_json_and_carries_what_made_it(name):
    spec = CHARTS[name]().to_dict()
    assert alt.Chart.from_dict(spec).to_dict() == spec
    assert spec["name"] == name
    assert spec["usermeta"]["companion"]["trace"] == "conversation"
    assert len(spec["datasets"]) == 1, "one figure, one tidy table"


@pytest.mark.parametrize("name", ["sensitivity-one-at-a-time", "sensitivity-variance"])
def test_a_drop_down_has_every_headline_and_shows_one(name):
    spec = CHARTS[name]().to_dict()
    (param,) = spec["params"]
    assert param["bind"]["options"] == list(HEADLINES)
    assert param["bind"]["labels"] == ["Figure 1: Gain (%)", "Figure 5: TTFT ratio (×)"]
    assert param["value"] == "fig01"
    assert spec["transform"] == [{"filter": "datum.headline == headline"}]


def test_a_bar_goes_from_the_least_to_the_greatest_and_says_with_what():
    rows = {
        (row["headline"], row["assumption_title"]): row
        for row in rows_of(CHARTS["sensitivity-one-at-a-time"]().to_dict())
    }
    cache = rows["fig01", "Cache"]
    assert (cache["least"], cache["most"], cache["nominal"]) == (60, 180, 100)
    assert (cache["at_least"], cache["at_most"]) == ("1M", "10M")
    assert cache["range"] == "1M to 10M tokens, else 3M"
    assert ("fig01", "Nothing") not in rows


def test_a_bar_includes_nothing_varied():
    table = levels_table()
    table["result"] = 100 + (table["result"] - 100).abs()
    rows = rows_of(sensitivity.tornado(table).to_dict())
    assert all(row["least"] == 100 for row in rows)
    assert rows[0]["at_least"] == "8"


def test_each_assumption_has_its_two_indices():
    rows = rows_of(CHARTS["sensitivity-variance"]().to_dict())
    assert len(rows) == len(HEADLINES) * 2 * 2
    cache = {row["kind"]: row["share"] for row in rows if row["assumption_title"] == "Cache"}
    assert cache == {"alone": 0.5, "with interactions": 0.8}


def test_descriptions_say_what_the_figures_show():
    described = {name: chart().to_dict()["description"] for name, chart in CHARTS.items()}
    said = "Gain: reported 498, modelled 100, widest by Cache from 60 to 180"
    assert said in described["sensitivity-one-at-a-time"]
    assert "TTFT ratio: most by Cache, 80%" in described["sensitivity-variance"]
    assert "on 3 generated traces" in described["sensitivity-seeds"]
    assert "10.0% to 10.0% of the mean" in described["sensitivity-seeds"]
