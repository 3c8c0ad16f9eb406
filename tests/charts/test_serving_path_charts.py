"""Charts of the serving path, from a short replay, and what their controls draw."""

import html
import json
import re

import altair as alt
import pytest
import vl_convert

from mooncake_companion.charts import deployment_timeline, transfer_tax, two_phases
from mooncake_companion.experiments import deployment_timeline as experiment
from mooncake_companion.experiments import transfer_tax as tax_experiment
from mooncake_companion.experiments import two_phases as phases_experiment
from mooncake_companion.live.deployment_timeline import scales
from mooncake_companion.live.transfer_tax import ends_s
from mooncake_companion.publish.figures import VEGA_LITE_VERSION

PARAMS = experiment.Params(replayed_s=120, window_start_s=60, window_s=10)


@pytest.fixture(scope="module")
def tables():
    found = experiment.replays(PARAMS)
    return {
        "deployment-timeline": experiment.window(PARAMS, found),
        "latency-budget": experiment.budget(PARAMS, found),
        "two-phases": phases_experiment.run(phases_experiment.Params()),
        "transfer-tax": tax_experiment.run(tax_experiment.Params()),
    }


CHARTS = {
    "deployment-timeline": lambda table: deployment_timeline.timeline(table, tbt_limit_s=0.1),
    "latency-budget": deployment_timeline.budget,
    "two-phases": two_phases.phases,
    "transfer-tax": lambda table: transfer_tax.tax(table, bandwidth_gbit_per_s=800),
}


def drawn(chart, **chosen):
    spec = chart.to_dict()
    for param in spec["params"]:
        if "name" in param and param["name"] in chosen:
            param["value"] = chosen.pop(param["name"])
    assert not chosen
    return html.unescape(vl_convert.vegalite_to_svg(json.dumps(spec), vl_version=VEGA_LITE_VERSION))


def count(svg, role):
    return len(re.findall(f'aria-roledescription="{role}"', svg))


@pytest.mark.parametrize("name", CHARTS)
def test_chart_is_valid_survives_json_and_carries_what_made_it(name, tables):
    spec = CHARTS[name](tables[name]).to_dict()
    assert alt.Chart.from_dict(spec).to_dict() == spec
    assert spec["name"] == name
    assert spec["usermeta"]["companion"]["parameters"]
    assert len(spec["datasets"]) == 1, "one figure, one tidy table"


@pytest.mark.parametrize("mode", experiment.MODES)
def test_the_timeline_draws_all_work_of_the_mode_that_is_chosen(mode, tables):
    table = tables["deployment-timeline"]
    svg = drawn(CHARTS["deployment-timeline"](table), mode=mode)
    rows = table[table["mode"] == mode]
    work = rows[rows["kind"] == "work"]
    assert count(svg, "bar") == len(work) + (work["holds"] == experiment.BESIDE).sum()
    intervals = rows[rows["kind"] == "interval"]
    assert count(svg, "rule mark") == 1 + (intervals["holds"] != experiment.FIRST).sum()
    assert count(svg, "point") == (intervals["holds"] == experiment.FIRST).sum()
    for node in work["node"].unique():
        assert f">{node}<" in svg


def heights(svg):
    """Of the bars of each row, in the order in which they are drawn."""
    bars = re.findall(
        r'aria-label="([^"]*)" role="graphics-symbol" aria-roledescription="bar" d="([^"]*)"', svg
    )
    found = {}
    for label, path in bars:
        row = re.search(r"Row: ([^;]*)", label)[1]
        found.setdefault(row, set()).add(round(float(re.search(r"v(-?[\d.]+)", path)[1]), 1))
    return {row: max(map(abs, values)) for row, values in found.items()}


def test_the_row_in_focus_is_the_larger_and_told_in_numbers(tables):
    table = tables["latency-budget"]
    chart = CHARTS["latency-budget"](table)
    both, first, rhythm = (drawn(chart, focus_row=focus) for focus in ("both", "first token", "rhythm"))
    row = table.query("prompts == 'all' and mode == 'Coupled' and part == 'own prefill'").iloc[0]
    told = f"own prefill {row['seconds']:.2f} s"
    assert told in first
    assert told not in both
    assert told not in rhythm
    upper, lower = experiment.FIRST_TOKEN, experiment.RHYTHM
    assert heights(both)[upper] == pytest.approx(heights(both)[lower], abs=0.2)
    assert heights(first)[upper] > 3 * heights(first)[lower]
    assert heights(rhythm)[lower] > 3 * heights(rhythm)[upper]


def test_the_budget_tells_the_totals_of_the_prompts_chosen(tables):
    table = tables["latency-budget"]
    for prompts in experiment.CLASSES:
        svg = drawn(CHARTS["latency-budget"](table), budget_prompts=prompts)
        rows = table[(table["prompts"] == prompts) & (table["row"] == experiment.FIRST_TOKEN)]
        for mode, total_s in rows.groupby("mode")["total_s"].first().items():
            assert f"{mode}: {total_s:.2f} s" in svg


def test_figure_2_has_a_mark_for_every_reported_value(tables):
    table = tables["two-phases"]
    chart = CHARTS["two-phases"](table)
    throughput, latency = (
        drawn(chart, phase_quantity=f"normalized_{quantity}") for quantity in ("throughput", "latency")
    )
    for svg in (throughput, latency):
        assert count(svg, "point") == (table["origin"] == "reported").sum()
        assert count(svg, "line mark") == 2
    assert throughput != latency


def test_descriptions_say_what_the_figures_show(tables):
    described = CHARTS["deployment-timeline"](tables["deployment-timeline"]).to_dict()["description"]
    assert "Disaggregated: longest interval 0.0" in described
    table = tables["latency-budget"]
    total_s = table.query("prompts == 'all' and mode == 'Coupled'")["total_s"].iloc[0]
    assert f"Coupled: {total_s:.2f} s" in CHARTS["latency-budget"](table).to_dict()["description"]


def test_reported_moves_are_shown_only_on_the_papers_network(tables):
    table = tables["transfer-tax"]
    chart = CHARTS["transfer-tax"](table)
    bars = (table["origin"] == "reported").sum()
    assert count(drawn(chart), "point") == bars
    assert count(drawn(chart, tax_bandwidth=100), "point") == bars / 2
    share = table.query("quantity == 'move' and bandwidth_gbit_per_s == 100 and input_tokens == 131072")[
        "share"
    ]
    assert f"moving takes {share.iloc[0]:.1%} of the prefill" in drawn(chart, tax_bandwidth=100)


def test_the_axes_of_the_timeline_end_where_the_page_would_set_them(tables):
    table = tables["deployment-timeline"]
    spec = CHARTS["deployment-timeline"](table).to_dict()
    ends = {param["name"]: param["value"] for param in spec["params"] if "bind" not in param}
    intervals = table[table["kind"] == "interval"].to_dict("records")
    assert ends == pytest.approx(scales(PARAMS, intervals))
    assert sorted(
        re.findall(r'{"expr": "(\w+)"}', json.dumps(spec["vconcat"][1]["layer"][0]["encoding"]))
    ) == (sorted(ends))


def test_the_axis_of_the_tax_ends_where_the_page_would_set_it(tables):
    table = tables["transfer-tax"]
    spec = CHARTS["transfer-tax"](table).to_dict()
    ends = {param["name"]: param["value"] for param in spec["params"] if "bind" not in param}
    assert ends == pytest.approx(ends_s(table.to_dict("records")))
    assert spec["layer"][0]["encoding"]["y"]["scale"]["domain"] == [{"expr": name} for name in ends]
