"""The live figures of the workloads against the experiment."""

import dataclasses

import numpy as np
import pytest
from tests.live.small import alike

from mooncake_companion import reported, traces
from mooncake_companion.errors import InputError
from mooncake_companion.experiments import workloads
from mooncake_companion.live.answers import compute
from mooncake_companion.live.workloads import KNOWN, ArrivalParams, HistogramParams
from mooncake_companion.publish import live
from mooncake_companion.traces.finer_blocks import with_block_tokens

ALL = {"requests": "400"}


def count(trace, monkeypatch):
    """Have the experiment count one trace in place of those of its services."""
    monkeypatch.setattr(workloads, "_online", lambda params: {"conversation": trace})


@pytest.mark.parametrize(("window_s", "short_window_s", "beginning_s"), [(7.5, 3.0, 30.0), (60, 0.7, 600)])
def test_windows_have_the_requests_of_the_experiment(
    busy_hour, monkeypatch, window_s, short_window_s, beginning_s
):
    count(busy_hour, monkeypatch)
    given = {"window_s": window_s, "short_window_s": short_window_s, "beginning_s": beginning_s}
    outcome, _ = compute(
        "workload-arrivals",
        ALL | {name: str(value) for name, value in given.items()},
        live.slice_of(busy_hour),
    )
    monkeypatch.setattr(workloads, "_WINDOWS", ArrivalParams(**given))
    table = workloads.arrivals(workloads.Params())
    views = dict(zip(table["view"].unique(), outcome.offered["view"], strict=True))
    alike(outcome.rows, table.assign(view=table["view"].map(views)))
    inside = busy_hour.arrival_s < window_s * max(busy_hour.arrival_s[-1] // window_s, 1)
    whole = [row["requests"] for row in outcome.rows if row["view"] == "Whole slice"]
    assert sum(whole) == inside.sum() > 0


@pytest.mark.parametrize("block_tokens", [512, 64])
def test_quantiles_are_those_of_the_experiment(busy_hour, monkeypatch, block_tokens):
    fine = with_block_tokens(busy_hour, block_tokens)
    count(dataclasses.replace(fine, name=busy_hour.name), monkeypatch)
    given = {"block_tokens": str(block_tokens), "common_tokens": str(block_tokens)}
    outcome, _ = compute("workload-distributions", ALL | given, live.slice_of(busy_hour))
    table = workloads.distributions(workloads.Params())
    alike(outcome.rows, table[table["quantity"] != KNOWN])
    assert outcome.offered["quantity"] == list(dict.fromkeys(row["quantity"] for row in outcome.rows))


def test_ages_are_of_prefixes_beyond_what_is_common(busy_hour):
    sliced = live.slice_of(busy_hour)
    rows, _ = compute("workload-distributions", ALL | {"common_tokens": "131072"}, sliced)
    assert {row["quantity"] for row in rows.rows} == {"Prompt (tokens)", "Answer (tokens)"}
    assert "Requests that reuse a prefix: 0" in rows.description
    every, _ = compute("workload-distributions", ALL | {"common_tokens": "0"}, sliced)
    assert "Requests that reuse a prefix: 399" in every.description, "all but the first know one block"


def test_bins_have_the_requests_of_the_experiment(busy_hour, monkeypatch):
    given = {
        "bins": "7",
        "least_prompt_tokens": "2000",
        "most_prompt_tokens": "9001",
        "most_answer_tokens": "99",
    }
    outcome, _ = compute("workload-length-histograms", ALL | given, live.slice_of(busy_hour))
    drawn = reported.figure("arxiv_fig05").groupby("quantity").head(7).reset_index(drop=True)
    edges = [np.linspace(2000, 9001, 8), np.linspace(1, 99, 8)]
    drawn["bin_low_tokens"] = np.concatenate([each[:-1] for each in edges])
    drawn["bin_high_tokens"] = np.concatenate([each[1:] for each in edges])
    monkeypatch.setattr(workloads.reported, "figure", lambda name: drawn)
    monkeypatch.setattr(traces, "load", lambda name, **options: busy_hour)
    table = workloads.length_histograms(workloads.Params())
    alike(outcome.rows, table[table["origin"] == "modelled"])
    assert sum(row["requests"] for row in outcome.rows) == 2 * 400


def test_a_page_begins_with_the_bins_of_the_report():
    drawn, params = reported.figure("arxiv_fig05"), HistogramParams()
    prompts = params.least_prompt_tokens, params.most_prompt_tokens
    answers = params.least_answer_tokens, params.most_answer_tokens
    for quantity, ends in (("input_length", prompts), ("output_length", answers)):
        low = drawn.loc[drawn["quantity"] == quantity, "bin_low_tokens"]
        assert params.edges(*ends)[:-1] == pytest.approx(low.to_list(), abs=0.5)


@pytest.mark.parametrize(
    ("figure", "given", "told"),
    [
        ("workload-distributions", {"block_tokens": "17"}, "parameter block_tokens: 17 does not divide"),
        (
            "workload-length-histograms",
            {"most_answer_tokens": "1"},
            r"parameter most_answer_tokens: 1 must be more than least_answer_tokens \(1\)",
        ),
        (
            "workload-arrivals",
            {"window_s": "200"},
            r"parameter window_s: two windows of 200 s are longer than the \d+ s",
        ),
        ("workload-arrivals", {"beginning_s": "1"}, "parameter short_window_s: two windows of 1 s"),
        ("workload-arrivals", {"short_window_s": "0"}, "parameter short_window_s: 0.0 is out of range"),
    ],
)
def test_what_cannot_be_counted_is_refused_beside_its_field(busy_hour, figure, given, told):
    with pytest.raises(InputError, match=told):
        compute(figure, given, live.slice_of(busy_hour))
