import json

import pytest
from click.testing import CliRunner

from mooncake_companion.cli import companion
from mooncake_companion.errors import InputError
from mooncake_companion.publish.build import building
from mooncake_companion.publish.chapters import find_chapter


def run(*arguments, **options):
    return CliRunner().invoke(companion, arguments, **options)


def test_parameters_are_listed_for_people_and_for_programs():
    declared = find_chapter("control-plane").parameters
    lines = run("params", "control-plane").output.splitlines()
    assert len(lines) == 1 + len(declared)
    column = lines[0].index("type")
    assert all(line[column - 1] == " " != line[column] for line in lines)
    rows = json.loads(run("params", "control-plane", "--json").output)
    assert [row["name"] for row in rows] == [parameter.name for parameter in declared]
    assert set(rows[0]) == {"name", "type", "default", "unit", "range", "help"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["params", "overviev"], "control-plane"),
        (["run", "control-plane", "-p", "prefil_nodes", "6"], "prefill_nodes"),
        (["run", "control-plane", "-p", "prefill_nodes", "six"], "whole number"),
        (["run", "control-plane", "-p", "prefill_nodes", "16"], "decode"),
        (["run", "control-plane", "-p", "trace", "no-such-trace"], "no-such-trace"),
        (["build", "--root", "tests"], "no book there"),
        (["serve", "--root", "tests"], "no book there"),
    ],
)
def test_bad_input_is_told_before_anything_runs(arguments, told):
    result = run(*arguments)
    assert isinstance(result.exception, InputError)
    assert result.exception.exit_code == 2
    assert told in str(result.exception)


@pytest.mark.parametrize("command", ["build", "serve", "params", "run", "cache", "cache clear"])
def test_every_command_explains_itself(command):
    assert run(*command.split(), "--help").exit_code == 0


def test_caches_are_shown_and_removed_only_when_wanted(little_root, tmp_path, monkeypatch):
    monkeypatch.setenv("MOONCAKE_CACHE", str(tmp_path / "cache"))
    built, traces = little_root / "_build", tmp_path / "cache" / "traces"
    compiled, scored = tmp_path / "cache" / "compiled", tmp_path / "cache" / "scoreboard"
    for folder in (built, traces):
        folder.mkdir(parents=True)
    root = ["--root", str(little_root)]
    shown = run("cache", "path", *root).output.splitlines()
    assert shown == [
        f"book\t{built}",
        f"traces\t{traces}",
        f"compiled\t{compiled}",
        f"scoreboard\t{scored}",
    ]
    assert run("cache", "clear", *root, input="n\n").exit_code == 1
    assert built.exists()
    with building(little_root):  # the lock is this very process's, and held all the same
        refused = run("cache", "clear", "book", "--yes", *root)
        assert refused.exit_code == 1
        assert "another build is under way" in str(refused.exception)
        assert built.exists()
    assert run("cache", "clear", "book", "--yes", *root).exit_code == 0
    assert (built.exists(), traces.exists()) == (False, True)
