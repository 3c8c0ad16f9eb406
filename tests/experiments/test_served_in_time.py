import pandas as pd
import pytest

from mooncake_companion import charts
from mooncake_companion.experiments import end_to_end, served_in_time

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def table():
    return served_in_time.run(end_to_end.Params())


def test_a_wider_limit_never_serves_fewer(table):
    for _, curve in table.groupby(["workload", "origin", "system"]):
        assert list(curve["limit_ms"]) == list(served_in_time.LIMITS_MS)
        assert curve["share"].is_monotonic_increasing
        assert curve["share"].between(0, 1).all()


def test_it_says_what_the_end_to_end_experiment_says(table):
    rows = table.set_index(["workload", "origin", "system", "limit_ms"])["share"]
    for workload in served_in_time.WORKLOADS:
        whole = end_to_end.run(end_to_end.Params(trace=workload)).set_index(["origin", "system"])
        for (origin, system), row in whole.iterrows():
            for limit_ms in (100, 200, 300):
                share = rows[(workload, origin, system, limit_ms)]
                assert share == pytest.approx(row[f"capacity_{limit_ms}ms"], abs=0.01)


def test_the_gain_is_over_the_best_other_system():
    made = pd.DataFrame(
        {
            "workload": "conversation",
            "origin": "modelled",
            "system": ["Mooncake", "vLLM", "vLLM Prefix Caching"],
            "limit_ms": 100,
            "share": [0.9, 0.2, 0.3],
        }
    )
    assert served_in_time.gain_percent(made, workload="conversation", limit_ms=100) == pytest.approx(200)


def test_the_chart_says_the_same_in_words(table):
    chart = charts.served_in_time.within_limit(table)
    share = table.query(
        "workload == 'conversation' and origin == 'modelled' and system == 'vLLM' and limit_ms == 100"
    )["share"].item()
    assert f"vLLM {share:.0%} modelled" in chart.description
