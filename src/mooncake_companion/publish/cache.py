"""What is kept between builds, where it lies, and how to be rid of it."""

import shutil
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

from mooncake_companion.datafiles import cache_path
from mooncake_companion.publish.build import building


def cache_folders(root: Path | None) -> dict[str, Path]:
    """Name the folders that hold only what can be made or downloaded again.

    Parameters
    ----------
    root : Path or None
        The checkout, if there is one.
    """
    built = {"book": root / "_build"} if root else {}
    return {**built, **{name: cache_path(name) for name in ("traces", "compiled", "scoreboard")}}


def clear(folders: Mapping[str, Path]) -> list[Path]:
    """Remove folders, as `cache_folders` names them; returns those that were there.

    Raises
    ------
    CompanionError
        If a build is under way in the book's; nothing of it is removed then.
    """
    there = {name: folder for name, folder in folders.items() if folder.exists()}
    for name, folder in there.items():
        with building(folder.parent) if name == "book" else nullcontext():
            shutil.rmtree(folder)
    return list(there.values())
