"""`tools/set-up` on machines that lack something: one sentence says what, and what to do."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NEEDED = ("tools/set-up", "requirements.lock", "pyproject.toml", "src/mooncake_companion/__init__.py")

# Stands for an interpreter: says its version, makes a folder that looks like an environment, and has a pip
# that does what FAKE_PIP says.
PYTHON = """\
#!/bin/sh
case "$*" in
  *"%d.%d.%d"*) echo {version} ;;
  *"%d.%d"*) echo {version} | cut -d. -f1-2 ;;
  *"ensurepip, venv"*) exit {lacks_venv} ;;
  *"(3, 11)"*) exit {old} ;;
  "-m venv --clear "*) mkdir -p "$4/bin"; touch "$4/pyvenv.cfg"; cp "$0" "$4/bin/python" ;;
  *"-m pip --version"*) echo pip ;;
  *"pip"*"install"*) eval "$FAKE_PIP" ;;
  *"pip"*"check"*) exit 0 ;;
  *) exit 1 ;;
esac
"""
NO_NETWORK = (
    "echo \"WARNING: Retrying after connection broken by 'NewConnectionError: Failed to establish a new "
    "connection: [Errno -3] Temporary failure in name resolution'\" >&2; "
    'echo "ERROR: No matching distribution found for altair==6.3.0" >&2; exit 1'
)


@pytest.fixture
def set_up(tmp_path):
    checkout, commands = tmp_path / "checkout", tmp_path / "bin"
    for name in NEEDED:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, checkout / name)
    commands.mkdir()
    tools = ("sh", "cat", "cksum", "cp", "cut", "dirname", "grep", "head", "ls", "mkdir", "tail", "touch")
    for name in tools:
        (commands / name).symlink_to(shutil.which(name))

    def run(*arguments, python=None, fake_pip="", **facts):
        if python:
            command = commands / "python3"
            facts = {"version": python, "lacks_venv": 0, "old": 0, **facts}
            command.write_text(PYTHON.format(**facts))
            command.chmod(command.stat().st_mode | stat.S_IXUSR)
        return subprocess.run(
            ["sh", "tools/set-up", *arguments],
            cwd=checkout,
            env={"PATH": str(commands), "FAKE_PIP": fake_pip},
            capture_output=True,
            text=True,
        )

    run.checkout = checkout
    return run


def test_an_old_python_is_named_with_what_is_needed(set_up):
    done = set_up(python="3.9.2", old=1)
    assert done.returncode == 1
    assert "Python 3.11 or newer is needed; found: python3=3.9.2" in done.stderr
    assert "sh tools/set-up .venv /path/to/python3.12" in done.stderr
    assert not (set_up.checkout / ".venv").exists()


def test_no_python_at_all_is_told(set_up):
    done = set_up()
    assert done.returncode == 1
    assert "found: none" in done.stderr


def test_a_python_without_venv_is_told_with_the_package_that_has_it(set_up):
    done = set_up(python="3.12.1", lacks_venv=1)
    assert done.returncode == 1
    assert "apt install python3.12-venv" in done.stderr


def test_without_a_network_one_sentence_says_so(set_up):
    done = set_up(python="3.12.1", fake_pip=NO_NETWORK)
    assert done.returncode == 1
    assert done.stderr.startswith("error: the packages could not be downloaded")
    assert "Connect to the network and run the same again" in done.stderr
    assert "Retrying" not in done.stderr
    assert "name resolution" in (set_up.checkout / ".venv" / "set-up.log").read_text()


def test_what_else_goes_wrong_is_told_as_pip_says_it(set_up):
    done = set_up(python="3.12.1", fake_pip='echo "ERROR: hashes do not match" >&2; exit 1')
    assert done.returncode == 1
    assert "could not be installed:\nERROR: hashes do not match" in done.stderr


def test_after_a_failure_the_same_command_goes_on(set_up):
    assert set_up(python="3.12.1", fake_pip=NO_NETWORK).returncode == 1
    done = set_up(fake_pip="exit 0")
    assert done.returncode == 0
    assert "Installing the locked packages" in done.stdout


def test_a_folder_that_cannot_be_written_is_told_before_anything_runs(set_up):
    (set_up.checkout / "file").touch()
    done = set_up("file/venv", python="3.12.1")
    assert done.returncode == 1
    assert "cannot write file/venv; choose another folder" in done.stderr


def test_a_folder_that_is_no_environment_is_left_alone(set_up):
    (set_up.checkout / "mine").mkdir()
    (set_up.checkout / "mine" / "thesis.txt").touch()
    done = set_up("mine", python="3.12.1")
    assert done.returncode == 1
    assert "is no virtual environment" in done.stderr
    assert (set_up.checkout / "mine" / "thesis.txt").exists()


def test_at_the_end_it_says_how_to_go_on_without_make(set_up):
    done = set_up(python="3.12.1", fake_pip="exit 0")
    assert done.stdout.splitlines()[-1].startswith("Ready: .venv/bin/companion build builds the book")
    assert done.returncode == 0
    assert set_up().stdout == ""  # nothing to do any more


@pytest.mark.skipif(sys.platform == "win32" or os.getuid() == 0, reason="root may write everywhere")
def test_a_checkout_that_is_read_only_is_told(set_up):
    set_up.checkout.chmod(0o555)
    try:
        done = set_up(python="3.12.1")
    finally:
        set_up.checkout.chmod(0o755)
    assert "cannot write .venv" in done.stderr
