import os
import subprocess
import sys
import time

import pytest

from mooncake_companion.errors import CompanionError, InputError
from mooncake_companion.publish.folders import locked, replacing_folder


def names(folder):
    return [path.name for path in folder.iterdir()]


def replace(out, text, fail=None):
    with replacing_folder(out, "record", "a result") as scratch:
        (scratch / "made" / "record").write_text(text)
        if fail:
            raise fail


def test_a_folder_is_replaced_whole_and_nothing_else_is_left(tmp_path):
    out = tmp_path / "out"
    replace(out, "first")
    replace(out, "second")
    assert (out / "record").read_text() == "second"
    for interruption in (KeyboardInterrupt(), OSError("disk full")):
        with pytest.raises(type(interruption)):
            replace(out, "third", interruption)
    assert (out / "record").read_text() == "second"
    assert names(tmp_path) == ["out"]
    assert names(out) == ["record"]


def test_what_was_moved_aside_by_a_killed_process_comes_back(tmp_path):
    (tmp_path / ".out.earlier").mkdir()
    (tmp_path / ".out.earlier" / "record").write_text("earlier")
    (tmp_path / ".out.making" / "made").mkdir(parents=True)
    with pytest.raises(ZeroDivisionError):
        replace(tmp_path / "out", "new", ZeroDivisionError())
    assert (tmp_path / "out" / "record").read_text() == "earlier"
    assert names(tmp_path) == ["out"]


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_a_link_to_a_folder_stays_a_link_and_one_to_a_file_is_not_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "out").symlink_to("real")
    replace(tmp_path / "out", "through")
    assert (tmp_path / "real" / "record").read_text() == "through"
    assert (tmp_path / "out").is_symlink()
    (tmp_path / "thesis").write_text("years of work")
    (tmp_path / ".other.lock").symlink_to("thesis")
    with pytest.raises(InputError, match="cannot write"):
        replace(tmp_path / "other", "new")
    assert (tmp_path / "thesis").read_text() == "years of work"


def test_a_second_one_is_told_who_works_there(tmp_path):
    with (
        locked(tmp_path / "lock", "busy") as held,
        pytest.raises(CompanionError, match=rf"^busy \(process {os.getpid()}\); wait for it to end$"),
        locked(tmp_path / "lock", "busy"),
    ):
        pass
    assert not held.abandoned
    with locked(tmp_path / "lock", "busy") as held:
        assert not held.abandoned
    assert names(tmp_path) == []


_HOLD = """
import sys, time
from pathlib import Path
from mooncake_companion.publish.folders import locked
with locked(Path(sys.argv[1]), "busy"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, tmp_path / "lock"], stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(CompanionError, match=f"process {holder.pid}"), locked(tmp_path / "lock", "busy"):
            pass
        holder.kill()
    with locked(tmp_path / "lock", "busy") as held:
        assert held.abandoned


@pytest.mark.skipif(sys.platform == "win32", reason="no such inheritance")
def test_what_a_killed_process_started_holds_its_lock_and_is_waited_for(tmp_path):
    script = _HOLD.replace(
        'print("held", flush=True)',
        'import subprocess; subprocess.Popen(["sleep", "1"], pass_fds=(3,)); print("held", flush=True)',
    ).replace('"busy"):', '"busy") as held:\n    import os; os.dup2(held.handle, 3)')
    holder = subprocess.Popen(
        [sys.executable, "-c", script, tmp_path / "lock"], stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout.readline() == "held\n"
        holder.kill()
        holder.wait()
        begin_s = time.monotonic()
        with locked(tmp_path / "lock", "busy") as held:
            assert held.abandoned
            assert time.monotonic() - begin_s > 0.1
