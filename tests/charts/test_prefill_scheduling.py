"""Charts from a saved table: no simulation is needed to draw or to test them."""

import altair as alt
import numpy as np
import pandas as pd
import pytest

from mooncake_companion.charts import prefill_scheduling, tables

POLICIES = ["Global cache aware", "Local cache aware", "Load balancing", "Random"]


def table():
    rows = []
    for origin, splits in (("modelled", (1, 2, 3)), ("reported", (2,))):
        for split in splits:
            for rank, policy in enumerate(POLICIES):
                # At one node the policies tie; elsewhere each is slower than the one before it.
                mean_s = 10.0 if split == 1 else (1.0 + rank) / split
                rows.append(
                    {
                        "origin": origin,
                        "policy": policy,
                        "prefill_nodes": split,
                        "whisker_low_s": mean_s / 8,
                        "q1_s": mean_s / 4,
                        "median_s": mean_s / 2,
                        "q3_s": mean_s * 2,
                        "whisker_high_s": np.nan if policy == "Random" else mean_s * 4,
                        "mean_s": mean_s,
                        "ratio_to_global": 1.0 if split == 1 else 1.0 + rank,
                    }
                )
    saved = pd.DataFrame(rows)
    saved.attrs["provenance"] = {"trace": "conversation", "parameters": {"prefill_nodes": 2}}
    return saved


def threshold_table():
    saved = pd.DataFrame(
        {"threshold": [1.0, 10.0], "mean_s": [1.5, 1.25], "hit_ratio": 0.3, "fetched_share": 0.5}
    )
    saved.attrs["provenance"] = {"trace": "conversation"}
    return saved


CHARTS = {
    "prefill-scheduling-ttft": lambda: prefill_scheduling.ttft(table(), prefill_nodes=2),
    "prefill-scheduling-splits": lambda: prefill_scheduling.splits(table()),
    "balancing-threshold-ttft": lambda: prefill_scheduling.threshold(threshold_table()),
}


@pytest.mark.parametrize("name", CHARTS)
def test_chart_is_valid_survives_json_and_carries_what_made_it(name):
    spec = CHARTS[name]().to_dict()
    assert alt.Chart.from_dict(spec).to_dict() == spec
    assert spec["name"] == name
    assert spec["usermeta"]["companion"]["trace"] == "conversation"
    assert len(spec["datasets"]) == 1, "one figure, one tidy table"


def test_slider_spans_the_splits_and_starts_at_the_chosen_one():
    (slider,) = [p for p in CHARTS["prefill-scheduling-ttft"]().to_dict()["params"] if "bind" in p]
    assert slider["value"] == 2
    assert (slider["bind"]["min"], slider["bind"]["max"], slider["bind"]["step"]) == (1, 3, 1)


def test_descriptions_say_what_the_figures_show():
    described = {name: chart().to_dict()["description"] for name, chart in CHARTS.items()}
    assert "Random 2.00" in described["prefill-scheduling-ttft"]
    assert "in the reported order at 2 of 3 splits" in described["prefill-scheduling-splits"]
    assert "from 1.25 s at a threshold of 10 to 1.50 s at 1" in described["balancing-threshold-ttft"]


def test_readable_picks_names_and_formats():
    shown = tables.readable(table().head(1), {"mean_s": ("Mean (s)", "{:.1f}")})
    assert shown.to_dict("list") == {"Mean (s)": ["10.0"]}


def test_a_column_can_head_the_rows_of_a_table():
    made = pd.DataFrame({"nodes": [2, 4], "mean_s": [1.0, 2.0]})
    shown = tables.readable(made, {"mean_s": ("Mean (s)", "{:.1f}")}, rows=("nodes", "Nodes"))
    assert shown.index.tolist() == [2, 4]
    assert shown["Mean (s)"].tolist() == ["1.0", "2.0"]
    assert "<th>Nodes</th>" in shown.to_html()
