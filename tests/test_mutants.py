"""Small changes of the sources are noticed: the script that tries them, and what it recorded."""

import importlib
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooncake_companion.cli.bench import load_benchmarks

ROOT = Path(__file__).parents[1]
mutants = importlib.import_module(f"{load_benchmarks(ROOT).__name__}.mutants")
Edit = mutants.Edit


# Edits

texts = st.text(st.sampled_from("ab <=\n"), max_size=30)


@given(texts, texts)
def test_an_edit_makes_the_one_text_of_the_other(text, changed):
    edit = mutants.edit_between(text, changed)
    assert edit.applied(text) == changed
    assert text.count(edit.old) > 0


def test_an_edit_begins_with_the_word_that_it_changes():
    assert mutants.edit_between("x = [\n  node\n]", "x = [\n  None\n]") == Edit(2, 3, "nod", "Non")
    assert mutants.edit_between("a < b", "a <= b") == Edit(1, 4, "", "=")


def test_an_edit_of_another_source_is_refused():
    with pytest.raises(ValueError, match="line 2, column 3: no 'node' there"):
        Edit(2, 3, "node", "None").applied("x = [\n  edge\n]")


def test_mutants_are_those_that_compile_and_differ():
    pytest.importorskip("mutmut", reason="the extra mutants is not installed")
    text = '''class A:
    @property
    def least(self):
        """Of two: this is no code."""
        return min(self.one, 2) if self.one < 3 else self.one
'''
    found = {edit.applied(text).splitlines()[4].strip() for edit in mutants.mutants_of(text)}
    assert "return min(self.one, 2) if self.one <= 3 else self.one" in found
    assert "return min(self.one, 3) if self.one < 3 else self.one" in found
    assert "return min(self.one, None) if self.one < 3 else self.one" in found
    assert "return min(self.one, 2) if (self.one < 3) or True else self.one" in found
    assert all(edit.line == 5 and mutants.compiles(edit.applied(text)) for edit in mutants.mutants_of(text))
    assert len(found) == len(mutants.mutants_of(text))


# Targets


@pytest.mark.parametrize("target", mutants.TARGETS, ids=lambda target: target.source)
def test_every_target_names_files_that_there_are(target):
    assert (ROOT / target.source).is_file()
    for file in target.files:
        assert (ROOT / file).is_file()
    for name in target.without:
        assert any(f"def {name}" in (ROOT / file).read_text("utf-8") for file in target.files), name
    importlib.import_module(target.module)


def test_a_target_has_its_tests_and_no_others():
    target = mutants.Target(
        source="s", tests=("a.py", "b.py::test_one", "c.py[plain]"), without=("test_long",)
    )
    assert target.files == ["a.py", "b.py", "c.py"]
    mine = ["a.py::test", "a.py::test[x]", "b.py::test_one", "c.py::test[plain]", "c.py::test[3-plain]"]
    others = ["a.py::test_long", "b.py::test_two", "c.py::test", "c.py::test[fast]", "c.py::test[fast-3]"]
    assert [test for test in mine + others if target.has(test)] == mine


# Fates

SOURCE = """FACTOR = 2


class Doubler:
    @staticmethod
    def double(x, *, more=0):
        return FACTOR * x + more
"""
TEST = """import doubling

def test_it():
    assert doubling.Doubler.double(3) == 6
"""
FATES = {
    SOURCE.replace("FACTOR * x", "x + x"): "survived",
    SOURCE.replace("FACTOR * x", "3 * x"): "killed",
    SOURCE.replace("FACTOR * x", "y"): "killed",
    SOURCE.replace("more=0", "more=1"): "killed",
    SOURCE.replace("return", "while True:\n            x ="): "timeout",
    SOURCE.replace("FACTOR = 2", "FACTOR = 3"): "killed",
    SOURCE.replace("FACTOR = 2", "FACTOR = 2.0"): "survived",
    SOURCE.replace("FACTOR = 2", "raise ImportError"): "killed",
}
RUN = """
import json, sys
from pathlib import Path
from benchmarks import mutants

root, texts = Path(sys.argv[1]), json.loads(sys.argv[2])
sys.path.insert(0, str(root))
edits = [mutants.edit_between((root / "doubling.py").read_text("utf-8"), text) for text in texts]
mutants.CPU_LIMIT_S = 2
mutants.warm_up()
target = mutants.Target(source="doubling.py", tests=("test_it.py",))
print(json.dumps([fate.outcome for fate in mutants.fates(root, target, edits)]))
"""


@pytest.mark.slow
def test_fates_inside_of_functions_and_outside(tmp_path):
    """In a process of its own, as the one that runs mutants is."""
    (tmp_path / "doubling.py").write_text(SOURCE, "utf-8")
    (tmp_path / "test_it.py").write_text(TEST, "utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", "utf-8")
    command = [sys.executable, "-c", RUN, str(tmp_path), json.dumps([*FATES])]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == [*FATES.values()]
    assert (tmp_path / "doubling.py").read_text("utf-8") == SOURCE
    (tmp_path / "test_it.py").write_text(TEST.replace("6", "7"), "utf-8")
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert "its tests cannot be run, fail or take long" in run.stderr


def row(**more):
    survivor = {"line": 1, "column": 1, "old": "", "new": "", "was": "a < b", "is": "a <= b"}
    return {"source": "s.py", "mutants": 10, "survived": 2, "survivors": [survivor] * 2} | more


def test_an_argument_is_for_a_survivor_and_counts_once_a_mutant():
    argument = {"source": "s.py", "was": "a < b", "is": "a <= b", "why": "they never meet"}
    argued = mutants.argued(row(), [argument, argument | {"source": "t.py", "is": "c"}])
    assert [each["equivalent"] for each in argued["survivors"]] == ["they never meet"] * 2
    assert argued["equivalent"] == 2
    assert mutants.scores([argued, mutants.argued(row(survived=0, survivors=[]), [])]) == {
        "mutants": 20,
        "survived": 2,
        "equivalent": 2,
        "killed_share": 0.9,
        "killed_share_without_equivalent": 1.0,
    }
    with pytest.raises(RuntimeError, match=r"no survivor of s\.py is 'a > b'"):
        mutants.argued(row(), [argument | {"is": "a > b"}])


# The record


def record():
    return mutants.load(ROOT)


def test_more_than_85_percent_are_killed_of_every_source():
    """Of all mutants, those included that no test can kill."""
    assert record()["targets"]
    for each in record()["targets"]:
        assert each["survived"] <= 0.15 * each["mutants"], each["source"]


def test_the_record_adds_up_and_no_survivor_is_unexplained():
    for each in record()["targets"]:
        assert each["mutants"] == each["killed"] + each["timeout"] + each["survived"]
        assert (len(each["killed_edits"]), len(each["survivors"])) == (each["killed"], each["survived"])
        assert len({tuple(edit) for edit in each["killed_edits"]}) == each["killed"]
    assert record() == record() | mutants.scores(record()["targets"])


def test_every_argument_is_in_the_record():
    sources = {each["source"] for each in record()["targets"]}
    why = {each["why"] for each in mutants.arguments_of(ROOT) if each["source"] in sources}
    recorded = [survivor["equivalent"] for each in record()["targets"] for survivor in each["survivors"]]
    assert why == {argument for argument in recorded if argument is not None}


@pytest.mark.slow
def test_what_was_recorded_is_of_these_sources_and_tests():
    found = {each["source"]: each["sources_sha256"] for each in record()["targets"]}
    now = {target.source: mutants.sources_sha256(ROOT, target) for target in mutants.TARGETS}
    assert found == now, f"run: {mutants.COMMAND} (with --survivors if tests were only added)"


@pytest.mark.slow
def test_a_sample_of_those_that_were_killed_is_killed_again():
    command = [sys.executable, "-m", "benchmarks.mutants", "--sample", "21"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert run.returncode == 0, run.stderr
    again = json.loads(run.stdout)
    assert len(again) == 21
    assert Counter(each["source"] for each in again).keys() == {
        each["source"] for each in record()["targets"]
    }
    assert [each for each in again if each["outcome"] != "killed"] == []
