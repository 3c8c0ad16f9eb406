"""Kernels that chapters run in."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ASKS = """
import sys
from ipykernel.connect import get_connection_info
print(sys.executable, get_connection_info())
"""
SPOKEN_TO = """
import json, pathlib, sys
import nbformat
from nbclient import NotebookClient
from mooncake_companion.publish.kernel import KERNEL_NAME, use_this_interpreter

use_this_interpreter(pathlib.Path(sys.argv[1]))
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(sys.argv[2])])
NotebookClient(notebook, kernel_name=KERNEL_NAME, timeout=60).execute()
print(json.dumps(notebook.cells[0].outputs[0]["text"]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps TCP")
def test_kernels_take_no_ports_and_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Ports are found free, let go of and passed on: of kernels started at once, some would find them taken.
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    command = [sys.executable, "-c", SPOKEN_TO, str(tmp_path / "descriptions"), ASKS]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    told = [json.loads(process.communicate(timeout=120)[0]) for process in started]
    assert all(answer.startswith(sys.executable) for answer in told)
    assert all('"transport": "ipc"' in answer for answer in told)
    assert [path.name for path in tmp_path.iterdir()] == ["descriptions"]
