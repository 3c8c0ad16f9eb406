"""The engine waits as queueing theory says, within what chance allows."""

import pytest
import vl_convert

from mooncake_companion.charts import queueing_theory as charts
from mooncake_companion.experiments import queueing_theory
from mooncake_companion.publish.figures import VEGA_LITE_VERSION


@pytest.fixture(scope="module")
def table():
    return queueing_theory.run(queueing_theory.Params(requests=5000))


def test_theory_is_what_the_textbook_has(table):
    theory = table.query("origin == 'theory'").set_index(["service", "utilisation"])["wait_services"]
    assert theory[queueing_theory.CONSTANT, 0.5] == pytest.approx(0.5)
    assert theory[queueing_theory.EXPONENTIAL, 0.5] == pytest.approx(1.0)
    assert theory[queueing_theory.FROM_TRACE, 0.5] > theory[queueing_theory.EXPONENTIAL, 0.5]


def test_the_engine_agrees_as_often_as_a_95_percent_interval_should(table):
    found = queueing_theory.agreement(table)
    assert found["points"] == len(queueing_theory.SERVICES) * len(queueing_theory.UTILISATIONS)
    assert found["within"] >= 21, "fewer than 21 of 27 has a chance of 0.2 % if the theory holds"
    calm = table.query("utilisation <= 0.5")
    calm.attrs = table.attrs
    assert queueing_theory.agreement(calm)["largest_error"] < 0.2


def test_agreement_notices_an_engine_that_waits_too_long(table):
    wrong = table.copy()
    wrong.attrs = table.attrs
    wrong.loc[wrong["origin"] == "engine", ["wait_services", "low", "high"]] *= 2
    assert queueing_theory.agreement(wrong)["within"] < 5


def test_the_same_seed_gives_the_same_table():
    params = queueing_theory.Params(requests=1000, seed=7)
    assert queueing_theory.run(params).equals(queueing_theory.run(params))


def test_the_chart_draws_every_point_and_a_line_for_each_service(table):
    spec = charts.waits(table).to_dict()
    assert (spec["name"], len(spec["datasets"])) == ("queueing-theory-waits", 1)
    svg = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE_VERSION)
    assert svg.count('aria-roledescription="point"') == 3 * len(queueing_theory.UTILISATIONS)
    assert svg.count('aria-roledescription="line mark"') == 3
    assert all(service in spec["description"] for service in queueing_theory.SERVICES)
