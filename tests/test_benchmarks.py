"""Benchmarks measure what they say, in one form; what was recorded is of these sources."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from mooncake_companion.cli.bench import load_benchmarks
from mooncake_companion.traces import Trace, infinite_cache_leading_hits

ROOT = Path(__file__).parents[1]
KEYS = {
    "name",
    "requests",
    "requests_per_s",
    "seconds",
    "cpu_s",
    "repeats",
    "peak_bytes",
    "peak_of",
    "python",
}

benchmarks = load_benchmarks(ROOT)
bench_simulator, kimi_day, records, tiling = (
    getattr(benchmarks, name) for name in ("bench_simulator", "kimi_day", "records", "tiling")
)

TINY = {
    "conversation-mooncake": lambda: bench_simulator.conversation_mooncake(
        repeats=1, trace=tiling.conversation_like(60), reference_requests=20
    ),
    **{
        name: partial(
            bench_simulator.conversation_coupled,
            batching,
            repeats=1,
            trace=tiling.conversation_like(60),
            reference_requests=20,
        )
        for batching, name in bench_simulator.COUPLED.items()
    },
    "lru-curve": lambda: benchmarks.bench_caches.lru_curve(
        repeats=1, block_ids=tiling.conversation_like(60).block_ids
    ),
    "scaling-requests": lambda: bench_simulator.scaling_requests(
        repeats=1, most_requests=200, base_requests=20
    ),
    "scaling-nodes": lambda: bench_simulator.scaling_nodes(repeats=1, nodes=(16, 32), base_requests=20),
    "import-time": lambda: benchmarks.bench_startup.import_time(repeats=1),
    "kimi-day": lambda: kimi_day.kimi_day(most_requests=200, tiles=10, nodes=4),
}


def recorded() -> dict:
    return json.loads((ROOT / kimi_day.RECORDED).read_text("utf-8"))


def companion(*arguments, cwd=ROOT):
    return subprocess.run(
        [sys.executable, "-c", "from mooncake_companion.cli import main; main()", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
    )


def assert_is_a_record(record, name):
    assert record["name"] == name
    assert set(record) >= KEYS
    assert record["seconds"] > 0
    assert record["peak_bytes"] > 0
    assert record["repeats"] >= 1
    assert record["peak_of"] in ("call", "process")
    if record["requests"] is not None:
        assert record["requests_per_s"] == pytest.approx(record["requests"] / record["seconds"])
    assert json.loads(json.dumps(record)) == record


@pytest.mark.parametrize("name", TINY)
def test_a_benchmark_gives_records(name):
    found = TINY[name]()
    assert found
    for record in found:
        assert_is_a_record(record, name)


@pytest.mark.slow
def test_the_first_compilation_is_timed_apart_from_the_next_process():
    (record,) = benchmarks.run("compile-time")
    assert_is_a_record(record, "compile-time")
    assert record["next_process_s"] < record["seconds"]


def test_every_benchmark_has_a_tiny_form_here():
    assert set(TINY) == set(benchmarks.BENCHMARKS) - {"compile-time"}


def test_scaling_grows_tenfold_and_fits_one_exponent():
    small, large = TINY["scaling-requests"]()
    assert (small["requests"], large["requests"]) == (20, 200)
    slope = np.log(large["cpu_s"] / small["cpu_s"]) / np.log(10)
    assert small["time_exponent"] == large["time_exponent"] == pytest.approx(slope)


def test_the_peak_of_a_call_is_what_it_allocates_at_once():
    def call():
        first = np.ones(10_000_000, np.uint8)
        del first
        return np.ones(20_000_000, np.uint8)

    best = records.measured(call, repeats=2)
    assert best.repeats == 2
    assert 20_000_000 <= best.peak_bytes < 21_000_000


def test_repeats_end_when_enough_was_measured(monkeypatch):
    monkeypatch.setattr(records, "ENOUGH_S", 0.0)
    assert records.measured(lambda: sum(range(1000)), repeats=5).repeats == 1


def test_a_goal_says_whether_a_record_meets_it():
    goal = records.Goal(key="seconds", most=0.5)
    assert goal.judged({"seconds": 0.4}) == {"goal": "seconds <= 0.5", "met": True}
    assert goal.judged({"seconds": 0.6})["met"] is False
    assert goal.judged({}) == {}


@pytest.mark.parametrize("swing", [0.0, 0.5])
@pytest.mark.parametrize("tiles", [1, 2, 7])
def test_copies_of_a_trace_are_a_trace(tiles, swing):
    """Building it anew checks every rule of a trace; pieces of any size give the same."""
    base = tiling.conversation_like(200)
    trace = tiling.tiled(base, tiles=tiles, duration_s=1000.0, swing=swing)
    columns = ("arrival_s", "input_tokens", "output_tokens", "block_ids", "block_offsets")
    rebuilt = Trace(
        name="again",
        origin="standin",
        source="",
        sha256="",
        block_tokens=trace.block_tokens,
        **{name: getattr(trace, name) for name in columns},
    )
    assert len(rebuilt) == tiles * len(base)
    assert rebuilt.input_tokens.sum() == tiles * base.input_tokens.sum()
    assert rebuilt.duration_s < 1000.0
    own = len(np.unique(base.block_ids)) - 1
    assert len(np.unique(rebuilt.block_ids)) == 1 + tiles * own  # the system prompt is shared


def test_copies_one_after_the_other_reuse_what_one_does():
    base = tiling.conversation_like(200)
    trace = tiling.tiled(base, tiles=3, duration_s=3 * tiling.period_s(base))
    hits, of_one = infinite_cache_leading_hits(trace), infinite_cache_leading_hits(base)
    np.testing.assert_array_equal(hits[:200], of_one)
    np.testing.assert_array_equal(hits[200:400], np.maximum(of_one, 1))


def test_pieces_do_not_show(monkeypatch):
    base = tiling.conversation_like(50)
    whole = tiling.tiled(base, tiles=3, duration_s=100.0)
    monkeypatch.setattr(tiling, "_AT_ONCE", 7)
    np.testing.assert_array_equal(tiling.tiled(base, tiles=3, duration_s=100.0).block_ids, whole.block_ids)


def test_the_load_swings_with_the_daytime():
    base = tiling.conversation_like(200)
    trace = tiling.tiled(base, tiles=200, duration_s=86_400.0, swing=0.5)
    night, midday = (
        np.count_nonzero(np.abs(trace.arrival_s - hour * 3600) < 3600) * 12 / len(trace) for hour in (1, 12)
    )
    assert night == pytest.approx(1 - 0.5 * np.mean(np.cos(np.linspace(0, np.pi / 6, 100))), abs=0.05)
    assert midday == pytest.approx(1.5, abs=0.05)


def test_the_command_lists_names_and_goals():
    done = companion("bench", "--list", "--json")
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert set(rows) == set(benchmarks.BENCHMARKS)
    assert rows["conversation-mooncake"]["goal"] == "requests_per_s >= 100,000"
    assert not rows["kimi-day"]["by_default"]


def test_the_command_measures_what_is_named():
    done = companion("bench", "import-time", "--repeats", "1", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    (record,) = found["benchmarks"]
    assert_is_a_record(record, "import-time")
    assert record["goal"] == "seconds <= 0.5"
    assert found["machine"]["cores"] >= 1


def test_the_command_writes_a_table():
    done = companion("bench", "import-time", "--repeats", "1")
    assert done.returncode == 0, done.stderr
    head, row = done.stdout.splitlines()
    assert head.split()[:2] == ["name", "requests"]
    assert row.startswith("import-time")


def test_an_unknown_name_is_bad_usage():
    done = companion("bench", "lru-curvy")
    assert done.returncode == 2
    assert "known are conversation-mooncake" in done.stderr


def test_a_checkout_without_benchmarks_is_told_apart(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.startswith(benchmarks.__name__)]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(Exception, match="not of an installed package"):
        load_benchmarks(tmp_path)


def test_what_was_recorded_meets_the_goals():
    found = recorded()
    (record,) = found["benchmarks"]
    assert_is_a_record(record, "kimi-day")
    assert record["requests"] == record["finished"] == 8_000_000
    assert record["nodes"] == 1000
    assert record["input_tokens"] + record["output_tokens"] == pytest.approx(100e9, rel=0.05)
    assert 0.9 * 86_400 < record["duration_s"] <= 86_400
    assert record["seconds"] <= 600
    assert record["peak_bytes"] <= 8e9
    assert set(found["machine"]) == {"system", "architecture", "cores", "memory_bytes", "python_loop_s"}


@pytest.mark.slow
def test_the_recorded_day_is_of_these_sources():
    """Fails when a file that matters has changed since; the remedy takes minutes."""
    assert recorded()["sources_sha256"] == kimi_day.sources_sha256(ROOT), (
        f"{kimi_day.RECORDED} was measured on other sources; run: {kimi_day.COMMAND}"
    )


def test_the_hash_looks_at_the_files_that_matter(tmp_path):
    for name in kimi_day.PARTS_THAT_MATTER:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    before = kimi_day.sources_sha256(tmp_path)
    assert before == kimi_day.sources_sha256(ROOT)
    (tmp_path / "src/mooncake_companion/costs.py").write_text("", "utf-8")
    assert kimi_day.sources_sha256(tmp_path) != before


def test_no_file_of_the_fast_engine_is_forgotten():
    fast = {
        f"src/mooncake_companion/simulator/fast/{p.name}"
        for p in (ROOT / "src/mooncake_companion/simulator/fast").glob("*.py")
    }
    left_out = fast - set(kimi_day.PARTS_THAT_MATTER)
    assert {Path(name).name for name in left_out} == {"__init__.py", "coupled.py"}
