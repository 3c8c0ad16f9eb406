"""The chart of returned answers: valid, from one table, and redrawn by its control."""

import re

import altair as alt
import pandas as pd
import pytest
import vl_convert

from mooncake_companion.charts import returned_answers
from mooncake_companion.experiments import returned_answers as experiment
from mooncake_companion.publish.figures import VEGA_LITE_VERSION

SIZES, RATES = (500_000, 3_000_000), (80.0, 800.0)


@pytest.fixture
def spec():
    """A table as the experiment makes it, of round numbers."""
    settings = [("capacity", size, 800.0) for size in SIZES] + [("bandwidth", 3_000_000, r) for r in RATES]
    rows = [
        {
            "workload": workload,
            "varied": varied,
            "cache_tokens_per_node": size,
            "bandwidth_gbit_per_s": rate,
            "gain": gain,
            "mean": base + place,
            "low": base + place - 0.25,
            "high": base + place + 0.25,
        }
        for workload, base in (("conversation", 1.0), ("mine", -2.0))
        for varied, size, rate in settings
        for place, gain in enumerate(experiment.GAINS)
    ]
    table = pd.DataFrame(rows)
    table.attrs["provenance"] = {"parameters": {"nodes": 16}}
    return returned_answers.gains(table).to_dict()


def test_it_is_valid_and_carries_what_made_it(spec):
    assert alt.Chart.from_dict(spec).to_dict() == spec
    assert spec["name"] == "returned-answers"
    assert spec["usermeta"]["companion"] == {"parameters": {"nodes": 16}}
    assert len(spec["datasets"]) == 1, "one figure, one tidy table"


def test_it_says_what_it_shows(spec):
    assert "Conversation +2.0 to +2.0 %; mine -1.0 to -1.0 %" in spec["description"]


def test_every_gain_can_be_chosen_and_is_drawn(spec):
    (control,) = (param for param in spec["params"] if "bind" in param)
    assert set(returned_answers.GAINS) == set(experiment.GAINS)
    drawn = []
    for option in control["bind"]["options"]:
        control["value"] = option
        svg = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE_VERSION)
        assert len(re.findall(r'aria-roledescription="point"', svg)) == 2 * len(SIZES) + 2 * len(RATES)
        drawn.append(svg)
    assert len(set(drawn)) == len(experiment.GAINS)
