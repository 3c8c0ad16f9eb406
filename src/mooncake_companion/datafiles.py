"""Find the files of `data/`: the one place in the package that knows where they lie."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mooncake_companion.errors import CompanionError, InputError

CACHE_VARIABLE = "MOONCAKE_CACHE"
_PACKAGE = Path(__file__).parent


def data_path(*parts: str) -> Path:
    """Path of a file shipped with the project, such as ``data_path("presets", "nodes.toml")``.

    An installed wheel carries `data/` inside the package; a checkout has it at its top.

    Raises
    ------
    CompanionError
        If the file is in neither place: the installation is incomplete.
    """
    for top in (_PACKAGE / "data", _PACKAGE.parents[1] / "data"):
        if (found := top.joinpath(*parts)).exists():
            return found
    raise CompanionError(
        f"{'/'.join(('data', *parts))} is missing from this installation; reinstall the package"
    )


def cache_path(*parts: str) -> Path:
    """Path in the project's cache: the folder MOONCAKE_CACHE, or one in the user's own cache."""
    import platformdirs  # here, as what needs no cache gets by with the standard library

    named = os.environ.get(CACHE_VARIABLE)
    top = Path(named).expanduser() if named else platformdirs.user_cache_path("mooncake-companion")
    return top.joinpath(*parts)


def writable_folder(folder: Path) -> Path:
    """Make a folder if it is not there, and see that files can be left in it.

    Raises
    ------
    InputError
        If they cannot: before the work is done, not after it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror or error}") from error
    if not os.access(folder, os.W_OK):
        raise InputError(f"cannot write {folder}: Permission denied")
    return folder


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Give a temporary path beside `target`; rename it to `target` when the block ends well.

    A reader never sees half a file, and a failed or interrupted block leaves the old one whole.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
