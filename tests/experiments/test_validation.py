"""The table of what was tried: its numbers come from what ran."""

import json

import pytest

from mooncake_companion.datafiles import data_path
from mooncake_companion.experiments import measured_costs, queueing_theory, real_store, validation

PARAMS = validation.Params(requests=1000)


@pytest.fixture(scope="module")
def table():
    return validation.run(PARAMS)


def test_a_row_for_every_comparison_with_its_number_of_cases(table):
    recorded = json.loads(data_path("recorded", "agreement.json").read_text("utf-8"))["rows"]
    assert len(table) == len(recorded) + 1 + 1 + 6 + 1 + 1
    cases = table.set_index(["what", "against"])["cases"]
    for row in recorded:
        assert cases[row["what"], row["against"]] == row["cases"] > 0
    assert set(table["kind"]) == set(validation.KINDS.values())
    costs = measured_costs.run(PARAMS.costs)
    assert table.query("kind == 'Measurements'")["cases"].sum() == len(costs)


def test_what_disagrees_is_told():
    row = {"kind": "law", "what": "a", "against": "b", "unit": "clusters", "tests": 3, "cases": 1200}
    told = [validation._counted(row | {"failed": failed}) for failed in (0, 2)]
    assert [each["found"] for each in told] == ["all agree", "2 of 3 tests disagree"]
    assert told[0]["tried"] == "1,200 clusters"


def test_parameters_reach_the_comparisons():
    params = validation.Params(trace="synthetic", requests=2000, gpus=4, seed=3)
    assert params.queueing == queueing_theory.Params(trace="synthetic", requests=2000, seed=3)
    assert params.costs == measured_costs.Params(gpus=4)


def test_the_store_row_tells_of_requests_that_differ(table, monkeypatch):
    assert table.query("what == 'Model of the store\\'s eviction'")["found"].item() == "0 requests differ"
    other = real_store.agreement() | {"requests_alike": 11_990}
    monkeypatch.setattr(real_store, "agreement", lambda: other)
    assert validation._store()["found"] == "10 requests differ"
