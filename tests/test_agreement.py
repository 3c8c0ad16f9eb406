"""What is counted is what ran: the script behind the table of the validation chapter."""

import ast
import importlib
import json
from pathlib import Path

import pytest

from mooncake_companion.cli.bench import load_benchmarks

ROOT = Path(__file__).parents[1]
agreement = importlib.import_module(f"{load_benchmarks(ROOT).__name__}.agreement")


def named_in(file: str) -> list[str]:
    found = []
    for node in ast.parse((ROOT / file).read_text("utf-8")).body:
        match node:
            case ast.FunctionDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]):
                found.append(f"{file}::{name}")
    return found


@pytest.mark.parametrize("comparison", agreement.COMPARISONS, ids=lambda each: each.what)
def test_every_comparison_names_tests_that_there_are(comparison):
    for beginning in comparison.tests:
        assert any(test.startswith(beginning) for test in named_in(beginning.partition("::")[0])), beginning


def test_examples_that_cannot_be_counted_are_an_error():
    with pytest.raises(ValueError, match="no number of cases"):
        agreement.examples("Hypothesis has new words for it")


FILE = """
import pytest
from hypothesis import given, settings, strategies as st

@given(st.integers())
@settings(max_examples=30, database=None)
def test_many(number):
    assert number == number

@pytest.mark.parametrize("number", range(4))
def test_some(number):
    assert number != 2

def test_not_asked_for():
    raise AssertionError

def test_skipped():
    pytest.skip("no such program")
"""


@pytest.mark.filterwarnings("ignore")
def test_cases_and_failures_are_counted(tmp_path, capsys):
    (tmp_path / "test_it.py").write_text(FILE, "utf-8")

    def comparison(*names):
        tests = tuple(f"test_it.py::{name}" for name in names)
        return agreement.Comparison(what="w", against="a", kind="law", unit="u", tests=tests)

    both = [comparison("test_many"), comparison("test_some")]
    counter = agreement.counted([test for each in both for test in each.tests], tmp_path)
    many, some = agreement.rows(counter, both)
    assert (many["tests"], many["cases"], many["failed"]) == (1, 30, 0)
    assert (some["tests"], some["cases"], some["failed"]) == (4, 4, 1)
    skipped = comparison("test_skipped")
    with pytest.raises(RuntimeError, match="nothing ran, or not all"):
        agreement.rows(agreement.counted(skipped.tests, tmp_path), [skipped])
    capsys.readouterr()


def record():
    return json.loads((ROOT / agreement.RECORDED).read_text("utf-8"))


def test_nothing_disagreed_when_it_was_recorded():
    assert [row["what"] for row in record()["rows"]] == [each.what for each in agreement.COMPARISONS]
    assert [row for row in record()["rows"] if row["failed"]] == []


@pytest.mark.slow
def test_what_was_recorded_is_of_these_sources():
    assert record()["sources_sha256"] == agreement.sources_sha256(ROOT), f"run: {agreement.COMMAND}"
