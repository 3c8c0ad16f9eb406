"""The command line in this process: what it says, and the code that it ends with."""

import sys

import pytest

from mooncake_companion import cli


@pytest.fixture
def companion(monkeypatch, capsys):
    def run(*words):
        monkeypatch.setattr(sys, "argv", ["companion", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return ended.value.code or 0, said.out, said.err

    return run


@pytest.fixture
def refused(companion):
    """Run a command that must be refused: exit code 2, one line, and nothing of it left behind."""

    def run(*words, code=2):
        got, out, told = companion(*words)
        assert (got, out) == (code, ""), told
        assert told.startswith("error: "), told
        return told.removeprefix("error: ").rstrip("\n")

    return run
