"""How the command line ends: one line and an exit code, whatever went wrong."""

import click
import pytest

from mooncake_companion import cli
from mooncake_companion.errors import CompanionError, InputError


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (CompanionError("no such luck"), 1, "error: no such luck\n"),
        (InputError("field x: 3"), 2, "error: field x: 3\n"),
        (PermissionError(13, "Permission denied", "out.csv"), 1, "error: out.csv: Permission denied\n"),
        (OSError(28, "No space left on device"), 1, "error: No space left on device\n"),
        (KeyboardInterrupt(), 1, "interrupted; nothing half-written was left behind\n"),
    ],
)
def test_an_error_is_one_line(monkeypatch, capsys, error, code, told):
    @click.command()
    def fails():
        raise error

    monkeypatch.setattr(cli, "companion", fails)
    monkeypatch.setattr("sys.argv", ["companion"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == code
    assert capsys.readouterr().err.lstrip() == told
