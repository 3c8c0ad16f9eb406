"""What is kept between builds, where it lies, and how to be rid of it."""

import shutil
from pathlib import Path

from mooncake_companion.datafiles import cache_path


def cache_folders(root: Path | None) -> dict[str, Path]:
    """Name the folders that hold only what can be made or downloaded again.

    Parameters
    ----------
    root : Path or None
        The checkout, if there is one.
    """
    built = {"book": root / "_build"} if root else {}
    return {**built, **{name: cache_path(name) for name in ("traces", "compiled", "scoreboard")}}


def clear(folders: list[Path]) -> list[Path]:
    """Remove folders; returns those that were there."""
    there = [folder for folder in folders if folder.exists()]
    for folder in there:
        shutil.rmtree(folder)
    return there
