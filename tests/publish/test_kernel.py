"""Kernels that chapters run in."""

import json
import os
import subprocess
import sys
import tempfile
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


def spoken_to(temporary: Path, descriptions: Path, kernels: int) -> list[str]:
    """What so many kernels, started at once, say of the interpreter and of their connection."""
    command = [sys.executable, "-c", SPOKEN_TO, str(descriptions), ASKS]
    environment = os.environ | {"TMPDIR": str(temporary)}
    started = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(kernels)
    ]
    return [json.loads(process.communicate(timeout=120)[0]) for process in started]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows keeps TCP")
def test_kernels_take_no_ports_and_leave_nothing(tmp_path: Path) -> None:
    # Ports are found free, let go of and passed on: of kernels started at once, some would find them taken.
    with tempfile.TemporaryDirectory(prefix="k") as short:
        told = spoken_to(Path(short), tmp_path, 3)
        assert all(answer.startswith(sys.executable) for answer in told)
        assert all('"transport": "ipc"' in answer for answer in told)
        assert list(Path(short).iterdir()) == []


def test_where_a_sockets_path_would_be_too_long_it_is_a_port(tmp_path: Path) -> None:
    deep = tmp_path / ("deep" * 20)
    deep.mkdir()
    (told,) = spoken_to(deep, tmp_path / "descriptions", 1)
    assert '"transport": "tcp"' in told
