"""Equal runs leave equal bytes: with another hash seed, time zone, language, folder, umask and workers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import little_sweep

TESTS = Path(little_sweep.__file__).parent
SETTINGS = (
    {"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C", "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    {"PYTHONHASHSEED": "random", "TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8", "NUMBA_NUM_THREADS": "2"},
)
WORKERS = ("1", "2")
SPEC = {
    "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
    "name": "line",
    "description": "A line.",
    "data": {"values": [{"x": 0, "y": 1, "c": "a"}, {"x": 1, "y": 3, "c": "b"}]},
    "mark": {"type": "point", "clip": True},
    "encoding": {
        "x": {"field": "x", "type": "quantitative"},
        "y": {"field": "y", "type": "quantitative"},
        "color": {"field": "c", "type": "nominal"},
    },
    "usermeta": {"companion": {"trace": "made-up", "parameters": {"b": 1, "a": 2}}},
}
EXPORT = """
import json, sys
from pathlib import Path
from mooncake_companion.publish.figures import WRITERS, to_html, write_figure
spec = json.loads(sys.argv[2])
write_figure(spec, Path(sys.argv[1]), tuple(WRITERS))
Path(sys.argv[1], "line.html").write_text(to_html(spec), "utf-8")
"""
COMPANION = "import little_sweep; little_sweep.main()"
TRACE = '{{"timestamp": {}, "input_length": {}, "output_length": {}, "hash_ids": {}}}\n'


def both(tmp_path, code, arguments):
    """Run the code under each setting in a folder of its own; the files that it leaves."""
    found = []
    for number, setting in enumerate(SETTINGS):
        folder = tmp_path / ("one" if number == 0 else "a folder/of another name")
        folder.mkdir(parents=True)
        paths = [str(TESTS.parent / "src"), str(TESTS), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "SOURCE_DATE_EPOCH": "0",
            **setting,
        }
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments(folder, number)],
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            umask=(0o022, 0o077)[number],
        )
        assert done.returncode == 0, done.stderr
        found.append({str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()})
    return found


@pytest.mark.slow
def test_every_kind_of_figure(tmp_path):
    one, other = both(tmp_path, EXPORT, lambda folder, _: [str(folder), json.dumps(SPEC)])
    assert {Path(name).suffix for name in one} == {".svg", ".png", ".pdf", ".csv", ".json", ".html"}
    assert [name for name in {**one, **other} if one.get(name) != other.get(name)] == []


@pytest.mark.slow
def test_a_sweep_by_one_worker_and_by_two(tmp_path):
    pytest.importorskip("pyarrow", reason="needs the extra `sweep`")
    asked = ("sweep", "little", "-p", "size=1:4:1", "-p", "rate=1,2", "--out", "out", "--workers")
    one, other = both(tmp_path, COMPANION, lambda _, number: [*asked, WORKERS[number]])
    assert "out/results.parquet" in one
    assert [name for name in {**one, **other} if one.get(name) != other.get(name)] == []


@pytest.mark.slow
def test_a_simulation(tmp_path):
    trace = tmp_path / "mine.jsonl"
    lines = [TRACE.format(100 * n, 600 + n, 5 + n, [0, 1 + n % 3]) for n in range(40)]
    trace.write_text("".join(lines))
    asked = ("simulate", "--trace", str(trace), "--systems", "--out", "out")
    one, other = both(tmp_path, COMPANION, lambda *_: asked)
    assert "out/requests.csv" in one
    assert [name for name in {**one, **other} if one.get(name) != other.get(name)] == []
