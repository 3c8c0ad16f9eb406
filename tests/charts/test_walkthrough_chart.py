"""The stepper of the walkthrough from a saved table."""

import json

import altair as alt
import pandas as pd
import pytest

from mooncake_companion.charts import walkthrough
from mooncake_companion.publish.figures import tables, to_svg


@pytest.fixture
def table():
    facts = {"input_tokens": 4096, "request": 7, "pool_share": 0.5}
    rows = []
    for scenario, rejected in (("Fetched prefix", False), ("The same, no decode headroom", True)):
        for node in range(2):
            rows.append(
                facts
                | {
                    "scenario": scenario,
                    "rejected": rejected,
                    "pool": "prefill",
                    "node": node,
                    "wins": node == 1,
                    "local_tokens": 0,
                    "fetched_tokens": 2048 * node,
                    "source_node": 0,
                    "computed_tokens": 4096 - 2048 * node,
                    "queue_s": 9.0 * (1 - node),
                    "transfer_s": 0.1 * node,
                    "prefill_s": 1.0,
                    "ttft_s": 10.0 - 8.9 * node,
                }
            )
            rows.append(
                facts
                | {
                    "scenario": scenario,
                    "rejected": rejected,
                    "pool": "decode",
                    "node": node,
                    "wins": node == 0,
                    "sequences": 3,
                    "tokens": 9000 + node,
                    "step_s": 0.03,
                    "running_share": 0.4,
                    "headroom": 0.6,
                }
            )
    saved = pd.DataFrame(rows)
    saved.attrs["provenance"] = {"trace": "conversation"}
    return saved


def drawn(table, **chosen):
    spec = json.loads(walkthrough.steps(table).to_json())
    for parameter in spec["params"]:
        parameter["value"] = chosen.get(parameter["name"], parameter.get("value"))
    return to_svg(spec)


def test_it_has_one_table_and_survives_json(table):
    spec = walkthrough.steps(table).to_dict()
    assert len(tables(spec)) == 1
    assert spec["name"] == "request-walkthrough"
    assert alt.VConcatChart.from_dict(spec).to_dict() == spec


@pytest.mark.slow
def test_each_step_adds_something(table):
    svgs = [drawn(table, walk_step=step) for step in range(1, 7)]
    assert len(set(svgs)) == 6


def test_the_winner_is_told_in_words_from_the_sum_on(table):
    assert "★" not in drawn(table, walk_step=4)
    assert "★ 1.10 s" in drawn(table, walk_step=5)
    assert "★ headroom 60%" in drawn(table, walk_step=6)
    assert "✗ pool full" in drawn(table, walk_scenario="The same, no decode headroom")


def test_a_bar_that_is_cut_off_says_so(table):
    assert "… 10.00 s" in drawn(table)


def test_the_description_tells_the_decisions(table):
    text = walkthrough.steps(table).to_dict()["description"]
    assert "prefill on node 1" in text
    assert "2,048 fetched" in text
    assert "turned away" in text
