"""Charts of readers' questions from saved tables."""

import altair as alt
import pandas as pd
import pytest

from mooncake_companion.charts import questions
from mooncake_companion.publish.figures import tables, to_svg


def saved(rows):
    table = pd.DataFrame(rows)
    table.attrs["provenance"] = {"trace": "conversation"}
    return table


def counts_table():
    return saved(
        {
            "origin": "modelled" if name else "reported",
            "workload": workload,
            "trace": f"{workload}-standin" if workload == "arxiv" else workload,
            "definition": name or "what would be needed",
            "capacity_blocks": blocks,
            "hit_ratio": 0.5,
            "points": points,
        }
        for workload, names in (
            ("arxiv", ("blocks", "tokens", "requests with any hit", "")),
            ("conversation", ("blocks", "tokens", "requests with any hit")),
        )
        for name, points in zip(names, (0.0, 1.5, 63.0, -4.3), strict=False)
        for blocks in (1000.0, float("inf"))
    )


def explanations_table():
    return saved(
        {
            "origin": "modelled" if explanation else "reported",
            "workload": workload,
            "explanation": explanation,
            "cache": cache,
            "hit_rate_pct": rate,
            "prefill_gpu_time_s": 1.0,
        }
        for workload in ("conversation", "synthetic")
        for explanation in ("Algorithm 1", "Two queues", "")
        for cache, rate in (("local", 17.0), ("global", 37.0))
    )


def thresholds_table():
    return saved(
        {
            "threshold": threshold,
            "nic_bytes_per_s": rate,
            "mean_ttft_s": 1.4 + threshold / rate,
            "fetched_bytes": rate / threshold,
            "fetched_share": 0.2,
            "hit_ratio": 0.35,
        }
        for rate in (3e9, 100e9)
        for threshold in (1.0, 10.0, 1000.0)
    )


def reads_table():
    return saved(
        {
            "way": way,
            "batch": batch,
            "output_tokens": tokens,
            "mean_token_s": 0.03 * batch * rank,
            "first_wait_s": 0.1,
            "step_s": 0.03,
            "read_bytes": 5e9,
        }
        for rank, way in enumerate(questions._WAYS, 1)
        for batch in (1, 16)
        for tokens in (1, 100)
    )


CHARTS = {
    "hit-rate-counts": lambda: questions.counts(counts_table()),
    "local-cache-explanations": lambda: questions.explanations(explanations_table()),
    "balancing-threshold-bytes": lambda: questions.thresholds(thresholds_table()),
    "remote-kv-reads": lambda: questions.remote_reads(reads_table()),
}


@pytest.mark.parametrize("name", CHARTS)
def test_each_has_one_table_a_control_and_survives_json(name):
    chart = CHARTS[name]()
    spec = chart.to_dict()
    assert spec["name"] == name
    assert len(tables(spec)) == 1
    assert any("bind" in parameter for parameter in spec["params"])
    assert type(chart).from_dict(spec).to_dict() == spec
    assert isinstance(chart, alt.TopLevelMixin)


@pytest.mark.parametrize("name", CHARTS)
def test_its_control_changes_the_drawing(name):
    spec = CHARTS[name]().to_dict()
    parameter = next(each for each in spec["params"] if "bind" in each)
    before = to_svg(spec)
    parameter["value"] = next(o for o in parameter["bind"]["options"] if o != parameter["value"])
    assert to_svg(spec) != before


def test_a_stand_in_is_called_one_and_what_is_needed_is_written_out():
    svg = to_svg(questions.counts(counts_table()).to_dict())
    assert "arXiv report (stand-in)" in svg
    assert "Conversation (stand-in)" not in svg
    assert "needed −4.3" in svg


def test_a_workload_without_bars_says_that_it_was_not_replayed():
    whole = explanations_table()
    replayed = (whole["origin"] == "reported") | (whole["workload"] == "conversation")
    assert to_svg(questions.explanations(whole[replayed]).to_dict()).count("not replayed") == 1
    assert "not replayed" not in to_svg(questions.explanations(whole).to_dict())
