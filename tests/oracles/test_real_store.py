"""The cache model against the real Mooncake Store, where it is installed (extra ``real-store``).

The store's clients listen on all addresses, so it gets a network of its own where that is allowed.
"""

import importlib
import json
import tomllib
from pathlib import Path

import pytest

from mooncake_companion import traces
from mooncake_companion.charts import real_store as charts
from mooncake_companion.cli.bench import load_benchmarks
from mooncake_companion.errors import CompanionError
from mooncake_companion.experiments import real_store as experiment
from mooncake_companion.simulator.eviction import BatchEviction, replay_store

ROOT = Path(__file__).parents[2]
real_store = importlib.import_module(f"{load_benchmarks(ROOT).__name__}.real_store")


def record():
    return json.loads((ROOT / real_store.RECORDED).read_text("utf-8"))


@pytest.mark.slow
def test_a_start_of_the_trace_finds_the_same_blocks_request_for_request():
    if reason := real_store.why_not():
        pytest.skip(reason)
    found = real_store.compare_apart(1024, 200, ROOT)
    assert found["requests_alike"] == found["requests"] == 200
    assert found["real_hits"] == found["store_rule_hits"] > 0
    assert found["real_evictions"] > 2000


@pytest.mark.parametrize("row", [0, 2, 4])
def test_the_model_still_finds_what_was_recorded(row):
    try:
        trace = traces.load(real_store.TRACE, download=False)
    except CompanionError as reason:
        pytest.skip(str(reason))
    if trace.sha256 != record()["traces"][trace.name]:
        pytest.skip("recorded with the released trace, which is not here")
    recorded = record()["rows"][row]
    used = real_store.requests_of(trace.head(recorded["requests"]))
    capacity = recorded["capacity_blocks"]
    assert sum(len(blocks) for _, blocks in used) == recorded["blocks"]
    assert sum(real_store.replay_model(capacity, used)) == recorded["store_rule_hits"]
    assert real_store.replay_lru(capacity, used) == recorded["lru_hits"]


@pytest.mark.slow
def test_what_was_recorded_is_of_these_sources():
    assert record()["sources_sha256"] == real_store.sources_sha256(ROOT), f"run: {real_store.COMMAND}"
    assert record()["made_by"] == real_store.COMMAND


def test_recorded_numbers_hang_together():
    for row in record()["rows"]:
        assert row["real_hits"] <= record()["infinite_hits"] <= row["blocks"]
        assert row["requests_alike"] == row["requests"], "the chapter says so"
    assert [row["capacity_blocks"] for row in record()["rows"]] == list(real_store.CAPACITIES)


def test_requests_one_by_one_are_requests_together():
    requests = [(float(k), [k % 7, 100 + k % 5, 200 + k]) for k in range(200)]
    together = replay_store(BatchEviction(16, lease_ttl_s=0.0), requests)
    assert sum(real_store.replay_model(16, requests)) == together


def test_a_failure_to_load_says_why(monkeypatch):
    monkeypatch.setattr(real_store.importlib.util, "find_spec", lambda name: None)
    assert "real-store" in real_store.why_not() or "Linux" in real_store.why_not()


def test_the_table_and_chart_show_every_cache():
    table = experiment.recorded()
    assert (table.loc[table["cache"] == experiment.REAL, "points"] == 0).all()
    agreement = experiment.agreement()
    assert agreement["requests_alike"] <= agreement["requests_compared"] == 2000 * agreement["replays"]
    spec = charts.hit_ratios(table).to_dict()
    assert spec["name"] == "real-store-hits"
    assert len(spec["datasets"]) == 1
    assert (charts.REAL, charts.STORE_RULE) == (experiment.REAL, experiment.STORE_RULE)
    assert set(table["cache"]) == {charts.REAL, *charts._DASHES}


def test_one_version_is_asked_for_installed_and_recorded():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (extra,) = project["optional-dependencies"]["real-store"]
    wanted = extra.partition(";")[0].strip()
    assert wanted in (ROOT / ".ci" / "run").read_text("utf-8")
    assert record()["packages"] == dict([wanted.split("==")])
