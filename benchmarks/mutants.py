"""Change the sources a little and see whether a test notices: `python -m benchmarks.mutants`.

Mutation testing of what the model's numbers hang on. Every mutant is one of the changes that mutmut
makes (extra ``mutants``): ``<`` for ``<=``, ``-`` for ``+``, a number plus one, None for an argument or a
value, an argument left out, the other branch. It is killed if a test that speaks about its file fails.

``data/recorded/mutants.json`` keeps every mutant and its fate. Targets whose sources or tests have changed
since are run again, all of them with ``--all``; that takes about a quarter of an hour and needs Linux. With
``--sample 20`` as many of those recorded as killed are tried again, for which mutmut is not needed.

Nothing is written to the sources: each mutant lives in a process of its own, which imports it in place of
the file. Survivors that no test can kill are argued one by one in ``benchmarks/equivalent_mutants.toml``.
"""

import argparse
import gc
import hashlib
import importlib
import importlib.abc
import importlib.util
import json
import os
import platform
import random
import re
import resource
import signal
import sys
import tomllib
import warnings
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import metadata
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

RECORDED = Path("data/recorded/mutants.json")
ARGUED = Path("benchmarks/equivalent_mutants.toml")
COMMAND = "python -m benchmarks.mutants"
PROFILE = "mutants"
"""Hypothesis profile, registered here: few examples, the same every time, and no shrinking."""
EXAMPLES = 40
CPU_LIMIT_S = 10
"""After so many seconds of the processor a mutant is taken to run for ever."""
MEMORY_LIMIT_BYTES = 8 * 2**30


@dataclass(frozen=True, kw_only=True)
class Target:
    """A source file, and the tests that speak about it.

    Parameters
    ----------
    source : str
        Relative to the checkout.
    tests : tuple of str
        Files or tests, those that are quick to notice first; "file[word]" has those tests of a file that
        have this parameter. None may use the compiled engine, which compiles anew for every mutant.
    without : tuple of str
        Tests left out: they need a released trace, or take long.
    """

    source: str
    tests: tuple[str, ...]
    without: tuple[str, ...] = ()

    @property
    def files(self) -> list[str]:
        """Files of its tests, in their order."""
        return list(dict.fromkeys(re.split(r"::|\[", test)[0] for test in self.tests))

    def has(self, test: str) -> bool:
        """Whether a test of these files, by its id, is one of the target's."""
        path, name = test.partition("::")[::2]
        words = name.partition("[")[2].rstrip("]").split("-")
        chosen = any(
            test.startswith(each) or (each.endswith("]") and each == f"{path}[{word}]")
            for each in self.tests
            for word in words
        )
        return chosen and not name.startswith(self.without)

    @property
    def module(self) -> str:
        """Name under which the file is imported."""
        return self.source.removeprefix("src/").removesuffix(".py").replace("/", ".")


_SOURCES, _TESTS = "src/mooncake_companion", "tests/simulator"

_ENGINE = tuple(
    f"{_TESTS}/{file}[reference]"
    for file in ("test_serving_path.py", "test_overload.py", "test_returned_answers.py")
)
"""Tests that send requests through the reference engine."""

TARGETS = (
    Target(
        source=f"{_SOURCES}/costs.py",
        tests=("tests/test_cost_formulas.py", "tests/test_costs.py"),
        without=("test_calibration_file_is_what_the_",),
    ),
    Target(
        source=f"{_SOURCES}/simulator/scheduler.py",
        tests=(f"{_TESTS}/test_scheduler.py", f"{_TESTS}/test_decisions_at_limits.py"),
    ),
    Target(
        source=f"{_SOURCES}/simulator/cache_tiers.py",
        tests=(f"{_TESTS}/test_cache_tiers.py", f"{_TESTS}/test_caches_at_limits.py"),
    ),
    Target(
        source=f"{_SOURCES}/simulator/eviction.py",
        tests=(f"{_TESTS}/test_caches_at_limits.py", f"{_TESTS}/test_eviction.py"),
        without=(
            "test_batch_eviction_hits_as_the_released_store_did",
            "test_the_smallest_store_evicts_as_often_as_the_released_one",
        ),
    ),
    Target(
        source=f"{_SOURCES}/simulator/transfer.py",
        tests=(f"{_TESTS}/test_transfer.py", f"{_TESTS}/test_links_and_stages.py"),
    ),
    Target(
        source=f"{_SOURCES}/simulator/overload.py",
        tests=(f"{_TESTS}/test_decisions_at_limits.py",),
    ),
    Target(
        source=f"{_SOURCES}/simulator/pipeline.py",
        tests=(f"{_TESTS}/test_links_and_stages.py",),
    ),
)
SHARED = ("tests/conftest.py", "tests/simulator/small.py", "benchmarks/mutants.py")
"""Files whose change can move every target's outcome."""


class Edit(NamedTuple):
    """A mutant: at a place of the source, some text in place of other text.

    Parameters
    ----------
    line, column : int
        Where, both counted from 1.
    old, new : str
        What stands there, and what the mutant has instead.
    """

    line: int
    column: int
    old: str
    new: str

    def applied(self, text: str) -> str:
        """The mutant's source.

        Raises
        ------
        ValueError
            If the old text is not there: the mutant is of another source.
        """
        lines = text.splitlines(keepends=True)
        start = sum(map(len, lines[: self.line - 1])) + self.column - 1
        if text[start : start + len(self.old)] != self.old:
            raise ValueError(f"line {self.line}, column {self.column}: no {self.old!r} there")
        return text[:start] + self.new + text[start + len(self.old) :]


def edit_between(text: str, changed: str) -> Edit:
    """The least change that makes one text of another, begun at a word's start."""
    start = len(os.path.commonprefix((text, changed)))
    while start and f"{text[start - 1]}{text[start : start + 1]}".isidentifier():
        start -= 1
    end = len(os.path.commonprefix((text[start:][::-1], changed[start:][::-1])))
    line, column = text.count("\n", 0, start) + 1, start - (text.rfind("\n", 0, start) + 1) + 1
    return Edit(line, column, text[start : len(text) - end], changed[start : len(changed) - end])


def mutants_of(text: str) -> list[Edit]:
    """All mutants of a source that mutmut makes and Python compiles, each once, in the order of their places.

    Properties are mutated too, which mutmut leaves out as it does all that is decorated.
    """
    from mutmut.mutation.file_mutation import create_mutations

    module, mutations, _, _ = create_mutations("", text.replace("@property", "#property"))
    found = set()
    for mutation in mutations:
        changed = module.deep_replace(mutation.original_node, mutation.mutated_node).code
        changed = changed.replace("#property", "@property")
        if compiles(changed):
            found.add(edit_between(text, changed))
    return sorted(found)


def compiles(text: str) -> bool:
    """Whether a text is Python, with whatever warnings."""
    try:
        with warnings.catch_warnings(action="ignore"):
            compile(text, "mutant", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


# One mutant


class _Mutant(SourceFileLoader, importlib.abc.MetaPathFinder):
    """Imports a text in place of a module's file."""

    def __init__(self, module: str, path: Path, text: str) -> None:
        super().__init__(module, str(path))
        self._text = text
        self.imported = False

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Answer for the one module."""
        del path, target
        return importlib.util.spec_from_loader(fullname, self) if fullname == self.name else None

    def get_code(self, fullname: str) -> CodeType:
        """Compile the text; nothing is cached."""
        del fullname
        self.imported = True
        with warnings.catch_warnings(action="ignore"):
            return compile(self._text, self.path, "exec", dont_inherit=True)


class _Chosen:
    """Plugin of pytest that leaves out all tests but a target's."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if self._target.has(item.nodeid)]


class _NotCompiled(importlib.abc.MetaPathFinder):
    """Refuses to import the compiled engine."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        """Fail for its modules, and leave all others to others."""
        del path, target
        if fullname.startswith("mooncake_companion.simulator.fast"):
            raise ImportError(f"{fullname} compiles for every mutant: choose other tests")


def warm_up() -> None:
    """Load what mutants have in common: the process of each begins with it."""
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "HYPOTHESIS_PROFILE": PROFILE}
    for name in ("_pytest.assertion.rewrite", "hypothesis.strategies", "numba", "pandas", "scipy.optimize"):
        importlib.import_module(name)
    from hypothesis import HealthCheck, Phase, settings

    settings.register_profile(
        PROFILE,
        deadline=None,
        derandomize=True,
        database=None,
        max_examples=EXAMPLES,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    gc.freeze()


_BROKEN = 99


class Fate(NamedTuple):
    """What became of a mutant: "killed", "timeout" or "survived", after so many seconds of the processor."""

    outcome: str
    cpu_s: float


def fate(root: Path, target: Target, text: str, *, show: bool = False) -> Fate:
    """Run a target's tests on a text in place of its source, in a process of its own.

    Raises
    ------
    RuntimeError
        If the tests could not be run at all.
    """
    sys.stdout.flush()
    process = os.fork()
    if not process:
        code = _BROKEN
        try:
            code = _run_tests(root, target, text, show)
        finally:
            os._exit(code)
    _, status, used = os.wait4(process, 0)
    cpu_s = used.ru_utime + used.ru_stime
    if os.WIFSIGNALED(status):
        timeout = os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)
        return Fate("timeout" if timeout else "killed", cpu_s)
    code = os.WEXITSTATUS(status)
    if code not in (0, 1, 2):  # of pytest: passed, failed, interrupted by an error on import
        raise RuntimeError(f"pytest ended with {code} on a mutant of {target.source}")
    return Fate("killed" if code else "survived", cpu_s)


_WARM = ("-W", "ignore:Module already imported")
"""What `warm_up` has imported, Hypothesis for one, pytest cannot rewrite, and need not."""


def _run_tests(root: Path, target: Target, text: str, show: bool) -> int:
    import pytest

    resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    os.chdir(root)
    for name in list(sys.modules):  # all of the model is imported anew, with the mutant in it
        if name.partition(".")[0] in ("mooncake_companion", "benchmarks"):
            del sys.modules[name]
    mutant = _Mutant(target.module, root / target.source, text)
    sys.meta_path[:0] = [mutant, _NotCompiled()]
    if not show:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
    style = ["--tb=short"] if show else ["--tb=no", "--no-header", "--no-summary"]
    code = pytest.main(
        [*target.files, "-x", "-q", *style, "-p", "no:cacheprovider", f"--rootdir={root}", *_WARM],
        plugins=[_Chosen(target)],
    )
    return int(code) if mutant.imported else _BROKEN


# The record


def sources_sha256(root: Path, target: Target) -> str:
    """SHA-256 over the source, its tests, and what all targets share."""
    digest = hashlib.sha256()
    for name in sorted({target.source, *target.files, *SHARED}):
        content = (root / name).read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def line_of(text: str, number: int) -> str:
    """One line of a text, counted from 1, without the blanks around it."""
    return text.splitlines()[number - 1].strip()


def shown(text: str, edit: Edit) -> dict[str, Any]:
    """A survivor as it is recorded: its edit, and the line as it was and as it is."""
    return {**edit._asdict(), "was": line_of(text, edit.line), "is": line_of(edit.applied(text), edit.line)}


def tried(root: Path, target: Target) -> dict[str, Any]:
    """Row of one target: all its mutants and their fates."""
    digest = sources_sha256(root, target)
    text = (root / target.source).read_text("utf-8")
    if fate(root, target, text).outcome != "survived":
        fate(root, target, text, show=True)
        raise RuntimeError(f"the tests of {target.source} fail without a mutant")
    fates = {}
    for edit in mutants_of(text):
        fates[edit] = fate(root, target, edit.applied(text))
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{target.source}: {len(fates)} mutants")
    if sources_sha256(root, target) != digest:
        raise RuntimeError(f"{target.source} or its tests changed during the run; record again")
    by_outcome = {
        outcome: [edit for edit, each in fates.items() if each.outcome == outcome]
        for outcome in ("killed", "timeout", "survived")
    }
    return {
        "source": target.source,
        "sources_sha256": digest,
        "tests": list(target.tests),
        "cpu_s": round(sum(each.cpu_s for each in fates.values())),
        "mutants": len(fates),
        **{outcome: len(edits) for outcome, edits in by_outcome.items()},
        "survivors": [shown(text, edit) for edit in by_outcome["survived"]],
        "killed_edits": [list(edit) for edit in by_outcome["killed"]],
    }


def argued(row: dict[str, Any], arguments: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """A row with the argument why a survivor is equivalent to the source, where there is one.

    Raises
    ------
    RuntimeError
        If an argument is about no survivor of this target.
    """
    mine = [each for each in arguments if each["source"] == row["source"]]
    survivors = []
    for survivor in row["survivors"]:
        why = [each["why"] for each in mine if (each["was"], each["is"]) == (survivor["was"], survivor["is"])]
        survivors.append({**survivor, "equivalent": why[0] if why else None})
    known = {(each["was"], each["is"]) for each in survivors}
    for each in mine:
        if (each["was"], each["is"]) not in known:
            raise RuntimeError(f"{ARGUED}: no survivor of {row['source']} is {each['is']!r}")
    return {
        **row,
        "equivalent": sum(each["equivalent"] is not None for each in survivors),
        "survivors": survivors,
    }


def scores(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Mutants of all rows together, and the share of them that was killed: of all, and of those that can be."""
    mutants, survived, equivalent = (
        sum(row[key] for row in rows) for key in ("mutants", "survived", "equivalent")
    )
    return {
        "mutants": mutants,
        "survived": survived,
        "equivalent": equivalent,
        "killed_share": round((mutants - survived) / mutants, 4),
        "killed_share_without_equivalent": round((mutants - survived) / (mutants - equivalent), 4),
    }


def arguments_of(root: Path) -> list[dict[str, Any]]:
    """What `ARGUED` has."""
    return tomllib.loads((root / ARGUED).read_text("utf-8")).get("mutant", [])


def load(root: Path) -> dict[str, Any]:
    """The record, empty if there is none."""
    path = root / RECORDED
    return json.loads(path.read_text("utf-8")) if path.exists() else {"targets": []}


def recording(root: Path, targets: Sequence[Target] = TARGETS, *, anew: bool = False) -> dict[str, Any]:
    """What is written to `RECORDED`.

    Parameters
    ----------
    root : Path
    targets : sequence of Target
    anew : bool
        Whether those too are run whose sources and tests are as they were.
    """
    before = {row["source"]: row for row in load(root)["targets"]}
    rows = []
    for target in targets:
        row = before.get(target.source)
        if anew or row is None or row["sources_sha256"] != sources_sha256(root, target):
            row = tried(root, target)
        rows.append(argued(row, arguments_of(root)))
    return {
        "made_by": COMMAND,
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in ("hypothesis", "mutmut", "pytest")},
        **scores(rows),
        "targets": rows,
    }


def sample(root: Path, count: int, seed: int) -> list[dict[str, Any]]:
    """Try some of the mutants again that were killed, about as many of each target; each with its outcome."""
    rows, rng = load(root)["targets"], random.Random(seed)
    by_source = {target.source: target for target in TARGETS}
    again = []
    for number in range(count):
        row = rows[number % len(rows)]
        target, edit = by_source[row["source"]], Edit(*rng.choice(row["killed_edits"]))
        text = (root / target.source).read_text("utf-8")
        outcome = fate(root, target, edit.applied(text)).outcome
        again.append({"source": target.source, **shown(text, edit), "outcome": outcome})
    return again


def main(arguments: Sequence[str], root: Path) -> None:
    """Run and record; or try a sample again, and write how it went."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--all", action="store_true", help="run all targets, changed or not")
    parser.add_argument("--sample", type=int, metavar="N", help="only try N recorded mutants again")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    given = parser.parse_args(arguments)
    warm_up()
    if given.sample is not None:
        with redirect_stdout(sys.stderr):
            again = sample(root, given.sample, given.seed)
        sys.stdout.write(json.dumps(again, indent=1, ensure_ascii=False) + "\n")
        return
    record = recording(root, anew=given.all)
    from mooncake_companion.datafiles import replacing

    with replacing(root / RECORDED) as part:
        part.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", "utf-8")
    for row in record["targets"]:
        killed = 1 - row["survived"] / row["mutants"]
        sys.stdout.write(f"{row['source']}: {row['mutants']} mutants, {killed:.1%} killed\n")
    sys.stdout.write(f"together {record['killed_share']:.1%}\n")


if __name__ == "__main__":
    main(sys.argv[1:], Path(__file__).parents[1])
