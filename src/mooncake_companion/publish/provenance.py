"""What made a rerun: enough to make it again, and the same from run to run but for the date."""

import datetime
import os
import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from mooncake_companion import __version__
from mooncake_companion.errors import InputError

PACKAGES = (
    "altair",
    "jupyter-book",
    "numba",
    "numpy",
    "pandas",
    "papermill",
    "scipy",
    "sphinx",
    "vl-convert-python",
)
"""Packages whose version can change a number or a drawing."""

_MADE_FROM = ("src", "data", "book", "_config.yml")


def record(
    root: Path | None, chapter: str, parameters: Mapping[str, Any], figure_origins: list[dict[str, Any]]
) -> dict[str, Any]:
    """Describe a rerun.

    Parameters
    ----------
    root : Path or None
        The checkout, if there is one.
    chapter : str
    parameters : mapping
        All of them, defaults included.
    figure_origins : list of dict
        What the run's figures say of themselves; the trace is taken from there, as that is
        what was replayed.

    Returns
    -------
    dict
        Only ``created`` differs between two equal runs, unless SOURCE_DATE_EPOCH sets it.
    """
    replayed = next((origin for origin in figure_origins if "trace" in origin), {})
    return {
        "companion_version": __version__,
        "commit": commit(root) if root else None,
        "chapter": chapter,
        "parameters": dict(parameters),
        "trace": replayed.get("trace"),
        "trace_sha256": replayed.get("trace_sha256"),
        "python": platform.python_version(),
        "packages": {package: _version(package) for package in PACKAGES},
        "created": _now().isoformat(timespec="seconds"),
    }


def _now() -> datetime.datetime:
    """The time, or what SOURCE_DATE_EPOCH says, by which equal runs are equal in all their bytes."""
    said = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not said:
        return datetime.datetime.now(datetime.UTC)
    try:
        return datetime.datetime.fromtimestamp(int(said), datetime.UTC)
    except (ValueError, OverflowError, OSError):
        raise InputError(f"SOURCE_DATE_EPOCH: {said!r} is not a number of seconds since 1970") from None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # what makes pages is not needed for a sweep
        return None


def commit(root: Path) -> str | None:
    """Name the commit of a checkout, with ``+dirty`` if it was changed; None outside git."""
    head = _git(root, "rev-parse", "HEAD")
    if head is None:
        return None
    return head + ("+dirty" if _git(root, "status", "--porcelain", "--", *_MADE_FROM) else "")


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False
        )
    except OSError:  # git is not installed
        return None
    return done.stdout.strip() if done.returncode == 0 else None
