"""Sweeps: kept point by point, resumed, refused, joined and drawn, whatever happens to the processes."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

import little_sweep
from mooncake_companion.cli import companion
from mooncake_companion.errors import CompanionError, InputError
from mooncake_companion.experiments import hot_holder
from mooncake_companion.publish import sweep_workers
from mooncake_companion.publish.chapters import CHAPTERS
from mooncake_companion.publish.sweep import Drawn, sweep
from mooncake_companion.publish.sweep_plan import plan

LITTLE = little_sweep.chapter()
TESTS = Path(little_sweep.__file__).parent
SOURCES = TESTS.parent / "src"


@pytest.fixture(autouse=True)
def _needs_parquet(request):
    if "without_pyarrow" not in request.node.name:
        pytest.importorskip("pyarrow", reason="needs the extra `sweep`")


def serial(todo):
    for number, call in todo.items():
        yield number, call()


def stopping_after(count):
    """Workers of which Ctrl-C is pressed after so many points."""

    def work(todo):
        for done, (number, call) in enumerate(todo.items()):
            if done == count:
                raise KeyboardInterrupt
            yield number, call()

    return work


def grid(*given):
    return plan(LITTLE, list(given))


SMALL = (("size", "1:4:1"), ("rate", "1,2"))


def files(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "provenance.json"
    }


def test_a_trace_of_ones_own_is_told_by_name(tmp_path):
    mine, out = tmp_path / "nobodys-business" / "mine.jsonl", tmp_path / "out"
    mine.parent.mkdir()
    mine.write_text('{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [0]}\n')
    done = sweep(grid(("size", "1,2"), ("trace", str(mine))), out, serial)
    assert set(pd.read_parquet(done.results)["param_trace"]) == {"mine.jsonl"}
    for path in out.rglob("*"):
        if path.is_file() and path.name != "sweep.json":  # by which the same command knows it again
            assert b"nobodys-business" not in path.read_bytes(), path


def test_the_table_has_every_row_of_every_point(tmp_path):
    done = sweep(grid(*SMALL), tmp_path / "out", serial)
    table = pd.read_parquet(done.results)
    assert (done.points, done.kept, done.failures) == (8, 0, ())
    assert list(table.columns) == ["point", "param_size", "param_rate", "system", "nodes", "seconds", "share"]
    assert len(table) == 8 * 4
    first = table.drop_duplicates("point")
    assert (first["seconds"] == first["param_size"] * first["param_rate"]).all()
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "out" / "results.csv"), table)
    half = pd.read_parquet(tmp_path / "out" / "points")  # as one may look at it while it runs
    assert len(half) == len(table)


def test_an_interrupted_sweep_goes_on_and_ends_as_an_undisturbed_one(tmp_path):
    out, whole = tmp_path / "out", tmp_path / "whole"
    with pytest.raises(CompanionError, match=rf"3 of 8 points are kept in {re.escape(str(out))}; the same"):
        sweep(grid(*SMALL), out, stopping_after(3))
    assert not (out / "results.parquet").exists()
    done = sweep(grid(*SMALL), out, serial)
    assert done.kept == 3
    sweep(grid(*SMALL), whole, serial)
    assert files(out) == files(whole)


def test_a_finished_sweep_runs_nothing_and_can_be_drawn_anew(tmp_path):
    sweep(grid(*SMALL), tmp_path, serial)
    drawn = Drawn(quantity="share", over=("rate",))
    done = sweep(grid(*SMALL), tmp_path, stopping_after(0), drawn=drawn)
    assert done.kept == 8
    spec = json.loads(done.figure.with_suffix(".json").read_text())
    told = "[quantity, 'nodes: ' + pick_0 + ', ' + 'size (tokens): ' + pick_1]"
    assert spec["title"]["text"] == {"expr": told}
    assert [p["value"] for p in spec["params"] if p["name"] == "quantity"] == ["share"]


@pytest.mark.parametrize(
    ("drawn", "told"),
    [
        (Drawn(quantity="second"), "--show second: no such column; there are seconds, share"),
        (Drawn(over=("kind",)), "--over kind: not varied in this sweep; size, rate"),
        (Drawn(over=("size", "size")), "two different ones"),
        (Drawn(by=("sistem",)), "--by sistem: no such column; there are system"),
    ],
)
def test_a_chart_of_what_is_not_there_is_refused(tmp_path, drawn, told):
    with pytest.raises(InputError, match=told):
        sweep(grid(*SMALL), tmp_path, serial, drawn=drawn)


def test_failed_points_are_kept_with_their_message_and_tried_again(tmp_path, monkeypatch):
    failing = grid(("size", "1:3:1"), ("rate", "1,2"), ("kind", "failing"))
    done = sweep(failing, tmp_path, serial)
    assert [(f.point, f.parameters["size"], f.error) for f in done.failures] == [
        (2, 2, "ValueError: two is too few"),
        (3, 2, "ValueError: two is too few"),
    ]
    details = json.loads((tmp_path / "failed" / "000002.json").read_text())["details"]
    assert "little_sweep.py" in details
    assert sorted(pd.read_parquet(done.results)["point"].unique()) == [0, 1, 4, 5]
    healed = sweep_workers.Result(table=pd.DataFrame({"system": ["one"], "seconds": [1.0]}))
    again = sweep(failing, tmp_path, lambda todo: ((number, healed) for number in todo))
    assert (again.kept, again.failures) == (4, ())
    assert list((tmp_path / "failed").iterdir()) == []


def test_a_table_that_parquet_cannot_hold_is_that_points_failure(tmp_path):
    done = sweep(grid(("size", "1,2"), ("kind", "odd,usual")), tmp_path, serial)
    assert [failure.point for failure in done.failures] == [0, 2]
    assert "cannot be written as Parquet" in done.failures[0].error
    assert not [path for path in tmp_path.rglob("*") if path.suffix == ".part"]


def test_all_points_may_fail(tmp_path):
    done = sweep(grid(("size", "1,2"), ("kind", "odd")), tmp_path, serial)
    assert (len(done.failures), done.results, done.figure) == (2, None, None)


def test_another_sweep_in_the_folder_is_refused_and_harms_nothing(tmp_path):
    sweep(grid(*SMALL), tmp_path, serial)
    before = files(tmp_path)
    with pytest.raises(InputError, match="size is 1, 2, 3, 4 there and 1, 2 here; name another folder"):
        sweep(grid(("size", "1,2"), ("rate", "1,2")), tmp_path, serial)
    assert files(tmp_path) == before


@pytest.mark.parametrize("strange", ["folder", "file"])
def test_a_folder_of_something_else_is_left_alone(tmp_path, strange):
    out = tmp_path / "out"
    if strange == "folder":
        out.mkdir()
        (out / "thesis.tex").write_text("mine")
    else:
        out.write_text("mine")
    before = files(tmp_path)
    with pytest.raises(InputError, match="something other than a sweep"):
        sweep(grid(*SMALL), out, serial)
    assert files(tmp_path) == before


def test_two_at_once_in_one_folder_do_not_meet(tmp_path):
    refused = []

    def work(todo):
        for number, result in serial(todo):
            with pytest.raises(CompanionError, match="another process is at work") as error:
                sweep(grid(*SMALL), tmp_path / "out", serial)
            refused.append(error)
            yield number, result

    done = sweep(grid(*SMALL), tmp_path / "out", work)
    assert len(refused) == 8
    sweep(grid(*SMALL), tmp_path / "alone", serial)
    assert files(done.folder) == files(tmp_path / "alone")


def test_what_made_it_is_written_as_for_a_rerun(tmp_path):
    sweep(grid(("size", "1,2"), ("rate", "7")), tmp_path, serial)
    made = json.loads((tmp_path / "provenance.json").read_text())
    assert made["chapter"] == "little"
    assert made["parameters"] == {"rate": 7.0, "kind": "usual", "trace": "", "pause_s": 0.0}
    assert made["sweep"]["parameters"] == {"size": [1, 2], "rate": [7.0]}
    assert {"companion_version", "commit", "python", "packages", "created"} <= set(made)


def test_the_need_for_parquet_is_told_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(CompanionError, match=re.escape("pip install 'mooncake-companion[sweep]'")):
        sweep(grid(*SMALL), tmp_path / "out", serial)
    assert not (tmp_path / "out").exists()


def test_a_worker_with_another_model_or_trace_is_refused(monkeypatch):
    sweep_workers.require_same.cache_clear()
    with pytest.raises(CompanionError, match="another version of the model"):
        sweep_workers.require_same("0" * 64, ())
    planned = plan(LITTLE, [("size", "1,2"), ("trace", "l-eval")])
    calls = sweep_workers.calls(planned, [0, 1])
    assert calls[0]().error == ""
    planned.traces["l-eval"] = "0" * 64
    assert "another trace for 'l-eval'" in sweep_workers.calls(planned, [0])[0]().error


# --- the command line -------------------------------------------------------------------------


@pytest.fixture
def command(monkeypatch):
    monkeypatch.setitem(CHAPTERS, "little", LITTLE)
    monkeypatch.setattr(sweep_workers, "local", lambda workers: serial)
    return lambda *arguments: CliRunner().invoke(companion, ["sweep", "little", *arguments])


def test_the_command_tells_people_and_programs_what_was_made(command, tmp_path):
    asked = ["-p", "size=1:3:1", "--out", str(tmp_path)]
    told = command(*asked)
    assert told.exit_code == 0
    assert told.output.splitlines()[0] == "3 of 3 points done"
    made = json.loads(command(*asked, "--json").output)
    assert made == {
        "folder": str(tmp_path),
        "points": 3,
        "kept": 3,
        "failures": [],
        "results": str(tmp_path / "results.parquet"),
        "figure": str(tmp_path / "figures" / "sweep.html"),
    }
    for kind in ("html", "svg", "png", "json", "csv"):
        assert (tmp_path / "figures" / f"sweep.{kind}").stat().st_size > 100


def test_the_command_fails_if_a_point_did(command, tmp_path):
    failed = command("-p", "size=1:3:1", "-p", "kind=failing", "--out", str(tmp_path))
    assert isinstance(failed.exception, CompanionError)
    assert failed.exception.exit_code == 1
    assert "2 of 3 points done" in failed.output
    assert "point 1 (size=2, kind=failing): ValueError: two is too few" in str(failed.exception)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["-p", "size"], "expected NAME=VALUES"),
        (["-p", "size=1,2", "--dask", "tcp://x:1", "--workers", "2"], "--workers is for this machine"),
        (["-p", "size=0,1"], "out of range"),
        ([], "nothing to vary"),
    ],
)
def test_bad_usage_is_told(command, tmp_path, arguments, told):
    result = command(*arguments, "--out", str(tmp_path))
    assert isinstance(result.exception, InputError)
    assert told in str(result.exception)


# --- processes that die -----------------------------------------------------------------------

MANY = ("-p", "size=1:20:1", "-p", "rate=1:10:1", "-p", "pause_s=0.02")


def start(tmp_path, *arguments, chapter="little"):
    code = "import little_sweep; little_sweep.main()"
    paths = [str(SOURCES), str(TESTS), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "LITTLE_LOG": str(tmp_path / "log")}
    return subprocess.Popen(
        [sys.executable, "-c", code, "sweep", chapter, *arguments, "--out", str(tmp_path / "out")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finished(process):
    output, _ = process.communicate(timeout=180)
    return process.returncode, output


def parts(folder):
    return {path.name for path in (folder / "points").glob("*.parquet")}


def wait_until(condition, what, limit_s=120.0):
    until = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until, f"timed out waiting until {what}"
        time.sleep(0.01)


@pytest.fixture
def undisturbed(tmp_path):
    asked = [("size", "1:20:1"), ("rate", "1:10:1"), ("pause_s", "0.02")]
    done = sweep(plan(LITTLE, asked), tmp_path / "undisturbed", serial)
    return files(done.folder)


def logged(tmp_path):
    return [tuple(map(float, line.split())) for line in (tmp_path / "log").read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_200_points_interrupted_and_resumed_are_those_of_an_undisturbed_sweep(tmp_path, undisturbed, how):
    out = tmp_path / "out"
    process = start(tmp_path, *MANY, "--workers", "2")
    wait_until(lambda: len(parts(out)) >= 30, "30 points are done")
    process.send_signal(how)
    code, told = finished(process)
    kept = parts(out)
    assert 30 <= len(kept) < 200
    if how == signal.SIGINT:
        assert (code, told.count("Traceback")) == (1, 0)
        assert f"interrupted: {len(kept)} of 200 points are kept in {out}; the same command" in told
    before = len(logged(tmp_path))
    time.sleep(0.5)
    assert len(logged(tmp_path)) == before, "a worker outlived the sweep"
    code, told = finished(start(tmp_path, *MANY, "--workers", "2"))
    assert code == 0, told
    assert told.startswith(f"200 of 200 points done, {len(kept)} of them kept")
    again = logged(tmp_path)[before:]
    assert len(again) == len(set(again)) == 200 - len(kept)
    assert files(out) == undisturbed


@pytest.mark.slow
def test_a_chapters_points_are_what_its_experiment_gives(tmp_path):
    asked = ["-p", "prefill_nodes=4,8", "-p", "requests=50", "--workers", "2"]
    code, told = finished(start(tmp_path, *asked, chapter="transfer"))
    assert code == 0, told
    table = pd.read_parquet(tmp_path / "out" / "results.parquet")
    for nodes, rows in table.groupby("param_prefill_nodes"):
        expected = hot_holder.run(hot_holder.Params(prefill_nodes=nodes, requests=50))
        pd.testing.assert_frame_equal(rows[expected.columns].reset_index(drop=True), expected)


@pytest.mark.slow
def test_a_point_that_kills_its_process_fails_alone(tmp_path):
    asked = ["-p", "size=1:5:1", "-p", "kind=deadly"]
    code, told = finished(start(tmp_path, *asked, "--workers", "2"))
    assert code == 1
    assert "1 of 5 points failed" in told
    assert "point 1 (size=2, kind=deadly): its process died" in told
    assert len(parts(tmp_path / "out")) == 4


@pytest.fixture
def cluster(tmp_path):
    """A scheduler and two workers, real processes: its address and they."""
    pytest.importorskip("distributed", reason="needs the extra `dask`")
    address = tmp_path / "scheduler.json"
    paths = [str(SOURCES), str(TESTS), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}

    def begin(module, *arguments):
        with (tmp_path / f"{module}.txt").open("a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.{module}", *arguments],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    local = ("--host", "127.0.0.1", "--no-dashboard")
    begun = [begin("dask_scheduler", *local, "--port", "0", "--scheduler-file", str(address))]
    try:
        wait_until(lambda: address.exists() and address.stat().st_size > 2, "the scheduler listens")
        where = json.loads(address.read_text())["address"]
        options = ("--no-nanny", "--nthreads", "1", "--local-directory", str(tmp_path))
        begun += [begin("dask_worker", where, *local, *options) for _ in range(2)]
        yield where, begun
    finally:
        for each in begun:
            each.kill()
            each.wait()


@pytest.mark.slow
def test_a_dask_worker_killed_midway_loses_nothing(tmp_path, undisturbed, cluster):
    address, (_, worker, _) = cluster
    process = start(tmp_path, *MANY, "--dask", address)
    wait_until(lambda: process.poll() or len(parts(tmp_path / "out")) >= 20, "20 points are done")
    worker.kill()
    kept = len(parts(tmp_path / "out"))
    code, told = finished(process)
    assert code == 0, told
    assert 20 <= kept < 200
    assert "200 of 200 points done" in told.splitlines()
    assert files(tmp_path / "out") == undisturbed


@pytest.mark.slow
def test_a_dask_scheduler_killed_midway_leaves_what_was_done(tmp_path, undisturbed, cluster):
    address, (scheduler, *_) = cluster
    process = start(tmp_path, *MANY, "--dask", address)
    wait_until(lambda: process.poll() or len(parts(tmp_path / "out")) >= 20, "20 points are done")
    scheduler.kill()
    code, told = finished(process)
    assert code == 1
    assert "error: the Dask scheduler is gone; what was done is kept" in told, told
    assert len(parts(tmp_path / "out")) >= 20
    assert finished(start(tmp_path, *MANY))[0] == 0
    assert files(tmp_path / "out") == undisturbed


@pytest.mark.slow
def test_a_scheduler_that_does_not_answer_is_told(tmp_path, monkeypatch):
    pytest.importorskip("distributed", reason="needs the extra `dask`")
    monkeypatch.setattr(sweep_workers, "_CONNECT_S", 1)
    with pytest.raises(CompanionError, match=r"--dask tcp://127\.0\.0\.1:9: no scheduler answers there"):
        sweep_workers.dask("tcp://127.0.0.1:9", grid(*SMALL))
