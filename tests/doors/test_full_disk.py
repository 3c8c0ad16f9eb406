"""A disk that is full: a clear error, nothing half-written, and what was there before is whole."""

import contextlib
import errno
import os
import re
import subprocess
import sys

import altair as alt
import pandas as pd
import pytest

from little_sweep import chapter
from mooncake_companion.charts import theme
from mooncake_companion.errors import CompanionError, InputError
from mooncake_companion.publish import figures
from mooncake_companion.publish.sweep import sweep
from mooncake_companion.publish.sweep_plan import plan
from mooncake_companion.traces import Trace, write_jsonl

resource = pytest.importorskip("resource", reason="limits of this kind are Unix's")

SMALL = Trace.from_requests([(0.0, 600, 3, [0, 1])])
LARGE = Trace.from_requests([(float(n), 600, 3, [2 * n, 2 * n + 1]) for n in range(3000)])
TOLD = "File too large; what was there before is whole"


@contextlib.contextmanager
def files_of_at_most(size):
    """No file can grow beyond so many bytes: the system refuses as it does when a quota is used up."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def serial(todo):
    for number, call in todo.items():
        yield number, call()


def test_a_trace(tmp_path):
    target = tmp_path / "t.jsonl"
    write_jsonl(SMALL, target)
    before = contents(tmp_path)
    with files_of_at_most(20_000), pytest.raises(CompanionError, match=TOLD) as caught:
        write_jsonl(LARGE, target)
    assert (caught.value.exit_code, str(target) in str(caught.value)) == (1, True)
    assert contents(tmp_path) == before


def test_a_converted_trace_on_the_command_line(refused, tmp_path):
    source, target = tmp_path / "in.csv", tmp_path / "out.jsonl"
    rows = "".join(f"2023-11-16 18:15:{n % 60:02d},600,3\n" for n in range(2000))
    source.write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}")
    target.write_text("earlier")
    with files_of_at_most(20_000):
        told = refused("traces", "convert", "azure", source, target, code=1)
    assert told == f"cannot write {target}: {TOLD}"
    assert set(contents(tmp_path)) == {"in.csv", "out.jsonl"}
    assert target.read_text() == "earlier"


@pytest.fixture(scope="module")
def spec():
    table = pd.DataFrame({"x": range(300), "y": range(300)})
    table.attrs["provenance"] = {"trace": "made-up"}
    chart = alt.Chart(table).mark_line().encode(x="x:Q", y="y:Q")
    return theme.finish(chart, name="some-line", description="A line.", table=table).to_dict()


@pytest.mark.parametrize("kind", figures.WRITERS)
def test_an_exported_figure(spec, tmp_path, kind):
    (target,) = figures.write_figure(spec, tmp_path, [kind])
    before = contents(tmp_path)
    spec = {**spec, "description": "Another line."}
    with files_of_at_most(200), pytest.raises(CompanionError, match=TOLD) as caught:
        figures.write_figure(spec, tmp_path, [kind])
    assert str(target) in str(caught.value)
    assert contents(tmp_path) == before


def test_a_sweep_keeps_its_points_and_goes_on_when_there_is_room(tmp_path):
    pytest.importorskip("pyarrow", reason="needs the extra `sweep`")
    asked = plan(chapter(), [("size", "1:4:1"), ("rate", "1,2")])
    whole = sweep(asked, tmp_path / "whole", serial)
    with files_of_at_most(9000), pytest.raises(CompanionError, match=TOLD):
        sweep(asked, tmp_path / "out", serial)  # the chart's page is larger
    names = set(contents(tmp_path / "out"))
    assert not [name for name in names if name.endswith(".part")]
    assert {f"points/{number:06d}.parquet" for number in range(8)} <= names
    again = sweep(asked, tmp_path / "out", serial)
    assert (again.kept, again.failures) == (8, ())
    assert again.results.read_bytes() == whole.results.read_bytes()


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, check=False)
    except OSError as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_no_space_left(small_disk, spec):
    target = small_disk / "t.jsonl"
    write_jsonl(SMALL, target)
    no_space = re.escape(os.strerror(errno.ENOSPC)) + "; what was there before is whole"
    with pytest.raises(CompanionError, match=f"cannot write {target}: {no_space}"):
        write_jsonl(LARGE, target)
    (small_disk / "filler").write_bytes(b"0" * 50_000)
    with pytest.raises(CompanionError, match=no_space):
        figures.write_figure(spec, small_disk, ["pdf", "json"])
    assert set(contents(small_disk)) <= {"t.jsonl", "filler", "some-line.pdf"}
    assert target.stat().st_size == 78


def test_no_space_left_for_a_sweep(small_disk):
    pytest.importorskip("pyarrow", reason="needs the extra `sweep`")
    asked = plan(chapter(), [("size", "1:9:1"), ("rate", "1,2")])
    with pytest.raises(CompanionError, match="No space left on device"):
        sweep(asked, small_disk / "out", serial)
    left = contents(small_disk)
    assert "out/sweep.json" in left
    assert not [name for name in left if name.endswith(".part")]
    for name in left:
        if name.startswith("out/points/"):
            assert len(pd.read_parquet(small_disk / name)) == 4


@pytest.mark.parametrize("taken", ["folder", "pipe", "device"])
def test_what_is_no_file_is_not_replaced(tmp_path, taken):
    target = tmp_path / taken
    match taken:
        case "folder":
            target.mkdir()
        case "pipe":
            os.mkfifo(target)
        case "device":
            target.symlink_to("/dev/null")
    before = target.lstat()
    with pytest.raises(InputError, match=f"cannot write {target}: it is .*; name a file"):
        write_jsonl(SMALL, target)
    assert target.lstat().st_ino == before.st_ino
    assert [path.name for path in tmp_path.iterdir()] == [taken]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has /dev/full")
def test_what_a_command_says_must_arrive():
    command = [sys.executable, "-c", "from mooncake_companion.cli import main; main()", "params", "transfer"]
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "error: No space left on device\n")
