"""Killed at any write, the next one succeeds, and leaves what an undisturbed one leaves, byte for byte."""

import json
import subprocess
import sys

import pytest

import kill_points

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "step", "least"), [("exporting", 1, 30), ("rerunning", 3, 20), ("sweeping", 4, 10)]
)
def test_the_next_one_after_a_kill_and_two_at_once(work, step, least, tmp_path):
    if work == "sweeping":
        pytest.importorskip("pyarrow", reason="needs the extra `sweep`")
    command = [sys.executable, kill_points.__file__, work, str(tmp_path), str(step)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["alone"]["wrong"] == []
    assert found["alone"]["kills"] >= least
    assert found["two"]["wrong"] == []
    assert work == "exporting" or found["two"]["refused"] > 0
