"""Same inputs, same results: on every Python, in every setting, with no generator but the one passed in."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import reference_values

SOURCES = Path(__file__).parents[1] / "src"
TOLERANCE = 1e-9
"""Relative, between Python 3.11, 3.12 and 3.13 with the NumPy of each; on one machine there is none."""

_NUMPY_RANDOM = {"Generator", "SeedSequence", "default_rng"}
_CLOCKS = {
    "time.time",
    "time.time_ns",
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "date.today",
    "uuid.uuid1",
    "uuid.uuid4",
    "os.urandom",
    "hash",
}
_ALLOWED = {
    ("publish/provenance.py", "datetime.datetime.now(datetime.UTC)"),  # SOURCE_DATE_EPOCH sets it
    ("traces/trace.py", "hash((self.sha256, self.block_tokens))"),  # for dictionaries alone
}


def chance(tree):
    """Calls and imports whose result is not determined by what is passed in."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                aliased = {each.name for each in names if each.name == "secrets" or each.asname}
                yield from (ast.unparse(node) for name in sorted(aliased & {"random", "secrets"}))
            case (
                ast.ImportFrom(module="random" | "secrets" | "numpy.random")
                | ast.Call(
                    func=ast.Attribute(value=ast.Name("random"), attr="Random"),
                    args=[] | [ast.Constant(value=None)],
                )
            ):
                yield ast.unparse(node)
            case ast.Attribute(value=ast.Name("random"), attr=name) if name != "Random":
                yield ast.unparse(node)
            case ast.Attribute(value=ast.Attribute(value=ast.Name("np" | "numpy"), attr="random"), attr=name):
                if name not in _NUMPY_RANDOM:
                    yield ast.unparse(node)
            case ast.Call(func=ast.Attribute(attr="default_rng") | ast.Name("default_rng")):
                unseeded = not node.args or ast.unparse(node.args[0]) == "None"
                if unseeded:
                    yield ast.unparse(node)
            case ast.Call(func=function) if any(
                ast.unparse(function) == clock or ast.unparse(function).endswith(f".{clock}")
                for clock in _CLOCKS
            ):
                yield ast.unparse(node)


def test_nothing_draws_from_a_generator_or_a_clock_of_its_own():
    files = list(SOURCES.rglob("*.py"))
    assert len(files) > 100
    found = {
        (file.relative_to(SOURCES / "mooncake_companion").as_posix(), each)
        for file in files
        for each in chance(ast.parse(file.read_text("utf-8")))
    }
    assert found == _ALLOWED


@pytest.mark.parametrize(
    "source",
    [
        "random.random()",
        "random.Random()",
        "random.Random(None)",
        "import random as chance",
        "from random import Random",
        "import secrets",
        "from numpy.random import rand",
        "np.random.shuffle(x)",
        "np.random.default_rng()",
        "default_rng(None)",
        "time.time()",
        "datetime.datetime.now()",
        "hash('a')",
    ],
)
def test_such_a_call_would_be_found(source):
    assert list(chance(ast.parse(source)))
    assert not list(chance(ast.parse("np.random.default_rng(params.seed).random(3); time.monotonic()")))


def test_every_python_gives_the_reference_values():
    """Recorded on Python 3.11 with NumPy 2.4."""
    recorded = json.loads(reference_values.FILE.read_text("utf-8"))
    made = reference_values.values()
    assert made.keys() == recorded.keys()
    assert made == pytest.approx(recorded, rel=TOLERANCE, nan_ok=True)


@pytest.mark.slow
def test_no_setting_of_the_process_moves_a_bit(tmp_path):
    code = "import json, reference_values; print(json.dumps(reference_values.values()))"
    paths = [str(SOURCES), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    settings = (
        {"PYTHONHASHSEED": "0", "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "TZ": "UTC"},
        {"PYTHONHASHSEED": "1", "NUMBA_NUM_THREADS": "2", "OMP_NUM_THREADS": "2", "TZ": "Asia/Tokyo"}
        | {"LC_ALL": "C", "OPENBLAS_NUM_THREADS": "2"},
    )
    made = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **setting},
            cwd=folder,
            capture_output=True,
            check=True,
        ).stdout
        for setting, folder in zip(settings, (tmp_path, Path(__file__).parent), strict=True)
    ]
    assert made[0] == made[1]
    assert len(json.loads(made[0])) > 80
