"""Change the sources a little and see whether a test notices: `python -m benchmarks.mutants`.

Mutation testing of what the model's numbers hang on. Every mutant is one of the changes that mutmut
makes (extra ``mutants``): ``<`` for ``<=``, ``-`` for ``+``, a number plus one, None for an argument or a
value, an argument left out, the other branch. It is killed if a test that speaks about its file fails.

``data/recorded/mutants.json`` keeps every mutant and its fate. Targets whose sources or tests have changed
since are run again, all of them with ``--all``: a few minutes of one core, on Linux. With ``--survivors``
only those of an unchanged source are run again that survived: enough where tests were only added. With
``--sample 20`` as many of those recorded as killed are tried again, for which mutmut is not needed.

Nothing is written to the sources. Tests are collected once for each target; then each mutant lives in a
forked process of its own, where its functions get the mutant's code. A change outside of functions is
imported in place of the file. Survivors that no test can kill are argued one by one in
``benchmarks/equivalent_mutants.toml``.
"""

import argparse
import ast
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
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from importlib.machinery import ModuleSpec, SourceFileLoader
from itertools import accumulate, pairwise
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

RECORDED = Path("data/recorded/mutants.json")
ARGUED = Path("benchmarks/equivalent_mutants.toml")
COMMAND = "python -m benchmarks.mutants"
PROFILE = "mutants"
"""Hypothesis profile, registered here: few examples, the same every time, and no shrinking."""
EXAMPLES = 25
CPU_LIMIT_S = 4
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
    start = _alike(text, changed)
    while start and f"{text[start - 1]}{text[start : start + 1]}".isidentifier():
        start -= 1
    end = _alike(text[start:][::-1], changed[start:][::-1])
    line, column = text.count("\n", 0, start) + 1, start - (text.rfind("\n", 0, start) + 1) + 1
    return Edit(line, column, text[start : len(text) - end], changed[start : len(changed) - end])


def _alike(one: str, other: str) -> int:
    """How many characters at the beginning are the same."""
    return next(
        (k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def mutants_of(text: str) -> list[Edit]:
    """All mutants of a source that mutmut makes and Python compiles, each once, in the order of their places.

    Properties are mutated too, which mutmut leaves out as it does all that is decorated.
    """
    from libcst.metadata import MetadataWrapper, WhitespaceInclusivePositionProvider
    from mutmut.mutation.file_mutation import create_mutations

    module, mutations, _, _ = create_mutations("", text.replace("@property", "#property"))
    places = MetadataWrapper(module, unsafe_skip_copy=True).resolve(WhitespaceInclusivePositionProvider)
    starts = list(accumulate(map(len, text.splitlines(keepends=True)), initial=0))
    found = set()
    for mutation in mutations:
        place = places[mutation.original_node]
        first, last = (starts[at.line - 1] + at.column for at in (place.start, place.end))
        changed = text[:first] + module.code_for_node(mutation.mutated_node) + text[last:]
        if changed != text and compiles(changed):
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


# Mutants in processes of their own


class Fate(NamedTuple):
    """What became of a mutant: "killed", "timeout" or "survived", after so many seconds of the processor."""

    outcome: str
    cpu_s: float


def warm_up() -> None:
    """Load what mutants have in common: the process of each begins with it."""
    os.environ |= {
        "HYPOTHESIS_PROFILE": PROFILE,
        "OPENBLAS_NUM_THREADS": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    for name in ("hypothesis.strategies", "pandas", "platformdirs", "pytest", "scipy.optimize"):
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


def fates(root: Path, target: Target, edits: Sequence[Edit]) -> list[Fate]:
    """What becomes of each mutant.

    Raises
    ------
    RuntimeError
        If the tests fail without a mutant, or cannot be run at all.
    """
    text = (root / target.source).read_text("utf-8")
    inside = [edit for edit in edits if is_in_a_function(text, edit)]
    found = dict(zip(inside, _grafted(root, target, [each.applied(text) for each in inside]), strict=True))
    for edit in edits:
        if edit not in found:
            found[edit] = _in_place_of_the_file(root, target, edit.applied(text))
    return [found[edit] for edit in edits]


def is_in_a_function(text: str, edit: Edit) -> bool:
    """Whether a mutant differs only in a function of the module or in a method of one of its classes."""
    last = edit.line + edit.old.count("\n")
    body = ast.parse(text).body
    methods = [each for outer in body if isinstance(outer, ast.ClassDef) for each in outer.body]
    functions = [each for each in [*body, *methods] if isinstance(each, ast.FunctionDef)]
    return any(each.lineno <= edit.line and last <= (each.end_lineno or 0) for each in functions)


def graft(old: Any, new: Any) -> None:
    """Give a function, or all functions of a class or module, the code of another one of the same name."""
    match old:
        case FunctionType():
            old.__code__, old.__defaults__ = new.__code__, new.__defaults__
            old.__kwdefaults__ = new.__kwdefaults__
        case staticmethod() | classmethod():
            graft(old.__func__, new.__func__)
        case property():
            graft(old.fget, new.fget)
        case type() | ModuleType():
            for name, member in vars(old).items():
                mine = isinstance(member, type | FunctionType) and member.__module__ == new.__name__
                if isinstance(old, type) or mine:
                    graft(member, vars(new).get(name, member))


def forked(run: Callable[[], int]) -> tuple[int, float]:
    """Exit code of a call in a forked process, or minus the signal that ended it; seconds of processor."""
    sys.stdout.flush()
    process = os.fork()
    if not process:
        code = _BROKEN
        try:
            code = run()
        finally:
            os._exit(code)
    _, status, used = os.wait4(process, 0)
    return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime


_BROKEN = 99


def _fate(run: Callable[[], int]) -> Fate:
    """What becomes of a mutant whose tests a call runs; it returns pytest's exit code."""

    def bounded() -> int:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S + 5))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
        return run()

    code, cpu_s = forked(bounded)
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return Fate("timeout", cpu_s)
    if code == 0:
        return Fate("survived", cpu_s)
    if code in (1, 2) or code < 0:  # a test failed; nothing could be imported; the interpreter crashed
        return Fate("killed", cpu_s)
    raise RuntimeError(f"the tests of a mutant could not be run: exit code {code}")


class _NotCompiled(importlib.abc.MetaPathFinder):
    """Refuses to import the compiled engine."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        """Fail for its modules, and leave all others to others."""
        del path, target
        if fullname.startswith("mooncake_companion.simulator.fast"):
            raise ImportError(f"{fullname} compiles for every mutant: choose other tests")


class _InPlace(SourceFileLoader, importlib.abc.MetaPathFinder):
    """Imports a text in place of a module's file."""

    def __init__(self, module: str, path: Path, text: str) -> None:
        super().__init__(module, str(path))
        self._text = text

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Answer for the one module."""
        del path, target
        return importlib.util.spec_from_loader(fullname, self) if fullname == self.name else None

    def get_code(self, fullname: str) -> CodeType:
        """Compile the text; nothing is cached."""
        del fullname
        with warnings.catch_warnings(action="ignore"):
            return compile(self._text, self.path, "exec", dont_inherit=True)


class _Chosen:
    """Plugin of pytest that leaves out all tests but a target's, and has the quick ones run first."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        mine = [item for item in items if self._target.has(item.nodeid)]
        items[:] = sorted(
            mine, key=lambda item: hasattr(item.obj, "hypothesis")
        )  # those last: they take longer


class _Grafting:
    """Plugin of pytest that runs the tests once for every text, in a forked process with its code."""

    def __init__(self, module: str, texts: Sequence[str], tell: Callable[[Fate], None]) -> None:
        self._module, self._texts, self._tell = module, texts, tell
        self._failed = False

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._failed |= report.failed

    def pytest_runtestloop(self, session: Any) -> bool:
        if session.testsfailed:
            raise RuntimeError("some tests could not be collected")
        gc.freeze()
        for text in self._texts:
            self._tell(_fate(partial(self._run, session.items, text)))
        return True

    def _run(self, items: Sequence[Any], text: str) -> int:
        old, new = importlib.import_module(self._module), ModuleType(self._module)
        vars(new).update(__file__=old.__file__, __package__=old.__package__)
        with warnings.catch_warnings(action="ignore"):
            code = compile(text, str(old.__file__), "exec", dont_inherit=True)
        try:
            exec(code, vars(new))
        except Exception:  # so would the import
            return 2
        graft(old, new)
        for item, following in pairwise([*items, None]):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self._failed:
                return 1
        return 0


def _pytest(root: Path, target: Target, *plugins: Any, show: bool = False) -> int:
    """Run a target's tests on the model, imported anew; to be called in a process of its own."""
    import pytest

    os.chdir(root)
    for name in list(sys.modules):
        if name.partition(".")[0] in ("mooncake_companion", "benchmarks"):
            del sys.modules[name]
    sys.meta_path.insert(0, _NotCompiled())
    if not show:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
    plain = ["-o", "addopts=--import-mode=importlib", "--assert=plain", "-p", "no:cacheprovider"]
    style = ["--tb=short"] if show else ["--tb=no", "--no-header", "--no-summary"]
    return int(
        pytest.main(
            [*target.files, "-x", "-q", *plain, *style, f"--rootdir={root}"],
            plugins=[_Chosen(target), *plugins],
        )
    )


def _grafted(root: Path, target: Target, texts: Sequence[str]) -> list[Fate]:
    """Fates of texts that differ from the source in functions only; the source itself is tried first."""
    text = (root / target.source).read_text("utf-8")
    reading, writing = os.pipe()

    def tell(fate: Fate) -> None:
        os.write(writing, (json.dumps(fate) + "\n").encode())

    process = os.fork()
    if not process:
        code = _BROKEN
        try:
            os.close(reading)
            code = _pytest(root, target, _Grafting(target.module, [text, *texts], tell))
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, encoding="ascii") as lines:
        found = []
        for line in lines:
            found.append(Fate(*json.loads(line)))
            if sys.stderr.isatty():
                sys.stderr.write(f"\r{target.source}: {len(found) - 1} of {len(texts)} mutants ")
    os.waitpid(process, 0)
    if len(found) != 1 + len(texts) or found[0].outcome != "survived" or found[0].cpu_s > CPU_LIMIT_S / 2:
        forked(lambda: _pytest(root, target, show=True))
        raise RuntimeError(f"{target.source} itself: its tests cannot be run, fail or take long: {found[:1]}")
    return found[1:]


def _in_place_of_the_file(root: Path, target: Target, text: str) -> Fate:
    """Fate of any text."""

    def run() -> int:
        mutant = _InPlace(target.module, root / target.source, text)
        sys.meta_path.insert(0, mutant)
        return _pytest(root, target)

    return _fate(run)


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


def tried(root: Path, target: Target, known: Container[Edit] = ()) -> dict[str, Any]:
    """Row of one target: all its mutants and their fates; those in `known` are taken to be killed."""
    digest = sources_sha256(root, target)
    text = (root / target.source).read_text("utf-8")
    edits = mutants_of(text)
    outcomes = dict.fromkeys(edits, "killed")
    unknown = [edit for edit in edits if edit not in known]
    for edit, each in zip(unknown, fates(root, target, unknown), strict=True):
        outcomes[edit] = each.outcome
    if sources_sha256(root, target) != digest:
        raise RuntimeError(f"{target.source} or its tests changed during the run; record again")
    return row_of(target, digest, text, outcomes)


def row_of(target: Target, digest: str, text: str, outcomes: dict[Edit, str]) -> dict[str, Any]:
    """Row of the record from the outcome of every mutant."""
    edits = {
        outcome: [edit for edit, each in outcomes.items() if each == outcome]
        for outcome in ("killed", "timeout", "survived")
    }
    return {
        "source": target.source,
        "source_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "sources_sha256": digest,
        "tests": list(target.tests),
        "mutants": len(outcomes),
        **{outcome: len(each) for outcome, each in edits.items()},
        "survivors": [shown(text, edit) for edit in edits["survived"]],
        "timeouts": [shown(text, edit) for edit in edits["timeout"]],
        "killed_edits": [list(edit) for edit in edits["killed"]],
    }


def killed_before(root: Path, target: Target, row: dict[str, Any] | None) -> set[Edit]:
    """Mutants of a source that is as it was which a row has as killed."""
    digest = hashlib.sha256((root / target.source).read_bytes()).hexdigest()
    if row is None or row["source_sha256"] != digest:
        return set()
    return {Edit(*edit) for edit in row["killed_edits"]}


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
    """Mutants of all rows together, and the share that was killed: of all, and of those that can be."""
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


def recording(
    root: Path, targets: Sequence[Target] = TARGETS, *, anew: bool = False, survivors: bool = False
) -> dict[str, Any]:
    """What is written to `RECORDED`.

    Parameters
    ----------
    root : Path
    targets : sequence of Target
    anew : bool
        Whether those too are run whose sources and tests are as they were.
    survivors : bool
        Whether mutants that were killed before, of a source as it is now, are taken to be so still.
    """
    before = {row["source"]: row for row in load(root)["targets"]}
    rows = []
    for target in targets:
        row = before.get(target.source)
        if anew or row is None or row["sources_sha256"] != sources_sha256(root, target):
            row = tried(root, target, killed_before(root, target, row) if survivors else ())
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
    rng, again = random.Random(seed), []
    by_source = {target.source: target for target in TARGETS}
    rows = load(root)["targets"]
    for number, row in enumerate(rows):
        target = by_source[row["source"]]
        text = (root / target.source).read_text("utf-8")
        edits = [
            Edit(*edit) for edit in rng.sample(row["killed_edits"], len(range(number, count, len(rows))))
        ]
        for edit, each in zip(edits, fates(root, target, edits), strict=True):
            again.append({"source": target.source, **shown(text, edit), "outcome": each.outcome})
    return again


def main(arguments: Sequence[str], root: Path) -> None:
    """Run and record; or try a sample again, and write how it went."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--all", action="store_true", help="run all targets, changed or not")
    parser.add_argument("--survivors", action="store_true", help="leave out what was killed before")
    parser.add_argument("--sample", type=int, metavar="N", help="only try N recorded mutants again")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    given = parser.parse_args(arguments)
    warm_up()
    if given.sample is not None:
        with redirect_stdout(sys.stderr):
            again = sample(root, given.sample, given.seed)
        sys.stdout.write(json.dumps(again, indent=1, ensure_ascii=False) + "\n")
        return
    record = recording(root, anew=given.all, survivors=given.survivors)
    from mooncake_companion.datafiles import replacing

    with replacing(root / RECORDED) as part:
        part.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", "utf-8")
    for row in record["targets"]:
        killed = 1 - row["survived"] / row["mutants"]
        sys.stdout.write(f"{row['source']}: {row['mutants']} mutants, {killed:.1%} killed\n")
    sys.stdout.write(f"together {record['killed_share']:.1%}\n")


if __name__ == "__main__":
    main(sys.argv[1:], Path(__file__).parents[1])
