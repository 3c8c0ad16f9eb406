"""The real build, killed while it writes what the next one would trust, and two at once."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mooncake_companion.errors import CompanionError
from mooncake_companion.publish.build import building

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="kills process groups")]

SOURCES = Path(__file__).parents[2] / "src"
KILLER = """
import os, re, signal, sys
os.environ.setdefault("KILL_TOP", str(os.getpid()))
wanted, busy = os.environ.get("KILL_WHEN"), False

def hook(event, arguments):
    global busy
    if event != "open" or busy or not isinstance(arguments[0], str):
        return
    if arguments[2] & (os.O_WRONLY | os.O_RDWR) and re.search(wanted, arguments[0]):
        busy = True
        os.open(arguments[0], arguments[2], 0o666)  # emptied, as when its writer has just begun
        os.kill(int(os.environ["KILL_TOP"]), signal.SIGKILL)
        os.killpg(0, signal.SIGKILL)

if wanted:
    sys.addaudithook(hook)
"""
POINTS = (
    r"executed/.*/base\.ipynb$",
    r"\.doctrees/environment\.pickle$",
    r"html/book/little\.html$",
    r"html/searchindex\.js",
)


def start(root, tmp_path, kill_when=""):
    (tmp_path / "killer").mkdir(exist_ok=True)
    (tmp_path / "killer" / "sitecustomize.py").write_text(KILLER)
    paths = [str(tmp_path / "killer"), str(SOURCES), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "KILL_WHEN": kill_when}
    command = "from mooncake_companion.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", command, "build", "-q", "--root", str(root)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def snapshot(folder):
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_after_kills_a_build_is_that_of_an_undisturbed_one(little_root, tmp_path):
    other = tmp_path / "another place" / "checkout"
    shutil.copytree(little_root, other)
    first = start(other, tmp_path)
    lock = other / "_build" / ".lock"
    while not lock.exists() or not lock.read_text().strip():
        assert first.poll() is None
        time.sleep(0.01)
    with pytest.raises(CompanionError, match=rf"another build .*\(process {first.pid}\)"), building(other):
        pass
    output, _ = first.communicate()
    assert first.returncode == 0, output
    assert not lock.exists()
    for point in POINTS:
        killed = start(little_root, tmp_path, point)
        output, _ = killed.communicate()
        assert killed.returncode == -signal.SIGKILL, f"{point}: {output}"
    last = start(little_root, tmp_path)
    output, _ = last.communicate()
    assert last.returncode == 0, output
    expected, found = snapshot(other / "_build" / "html"), snapshot(little_root / "_build" / "html")
    assert [name for name in {**expected, **found} if expected.get(name) != found.get(name)] == []
    left = {path.name for path in (little_root / "_build").iterdir()}
    assert left == {path.name for path in (other / "_build").iterdir()}
