"""Find the files of `data/`, read what a user gives, and write so that nothing is left half-written.

The one place in the package that knows where its data lie.
"""

import csv
import errno
import io
import json
import os
import stat
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mooncake_companion.errors import CompanionError, InputError

CACHE_VARIABLE = "MOONCAKE_CACHE"

MOST_BYTES = 64 << 20
"""No file that is read as a whole may be longer."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
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


def read_toml(*parts: str) -> dict[str, Any]:
    """Read a TOML file of `data/`.

    Raises
    ------
    CompanionError
        If it is not there or is not TOML, as after an edit that went wrong; says where.
    """
    try:
        return tomllib.loads(_shipped_text(*parts))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise _broken(error, *parts) from None


def read_json(*parts: str) -> Any:
    """Read a JSON file of `data/`.

    Raises
    ------
    CompanionError
        If it is not there or is not JSON; says where.
    """
    try:
        return json.loads(_shipped_text(*parts))
    except (json.JSONDecodeError, RecursionError) as error:
        raise _broken(error, *parts) from None


def read_csv(*parts: str) -> Any:
    """Read a CSV file of `data/`, as a table of pandas.

    Raises
    ------
    CompanionError
        If it is not there or is no table; says where.
    """
    import pandas as pd

    try:
        return pd.read_csv(io.StringIO(_shipped_text(*parts)))
    except ValueError as error:  # as pandas' own are
        raise _broken(error, *parts) from None


def read_rows(*parts: str) -> list[dict[str, str]]:
    """Read a CSV file of `data/` as texts by column, where pandas is not at hand, as in a page.

    Raises
    ------
    CompanionError
        If it is not there; says where.
    """
    return list(csv.DictReader(io.StringIO(_shipped_text(*parts))))


def _shipped_text(*parts: str) -> str:
    try:
        return data_path(*parts).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _broken(error, *parts) from None


def _broken(error: Exception, *parts: str) -> CompanionError:
    return CompanionError(f"{'/'.join(('data', *parts))} cannot be read: {error}; restore the file")


def cache_path(*parts: str) -> Path:
    """Path in the project's cache: the folder MOONCAKE_CACHE, or one in the user's own cache.

    Raises
    ------
    InputError
        If MOONCAKE_CACHE names something else than a folder.
    """
    import platformdirs  # here, as what needs no cache gets by with the standard library

    named = os.environ.get(CACHE_VARIABLE)
    if not named:
        return platformdirs.user_cache_path("mooncake-companion").joinpath(*parts)
    top = expanded(named)
    if top.exists() and not top.is_dir():
        raise InputError(f"{CACHE_VARIABLE} names {top}, which is not a folder; name one, or unset it")
    return top.joinpath(*parts)


def is_there(path: Path) -> bool:
    """Whether a path leads to something; one that no system has does not."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def expanded(path: str | Path) -> Path:
    """A path whose ``~`` is replaced by the home folder.

    Raises
    ------
    InputError
        If the user that it names has none.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise InputError(f"cannot read {path}: there is no such user's home folder") from None


def read_bytes(path: Path, *, most_bytes: int = MOST_BYTES) -> bytes:
    """Content of a file that a user gives.

    Raises
    ------
    InputError
        If it cannot be read, is no plain file (a pipe or a device may never end), or is longer.
    """
    try:
        require_plain_file(path)
        with path.open("rb") as file:
            content = file.read(most_bytes + 1)
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if len(content) > most_bytes:
        raise InputError(f"{path} is longer than {most_bytes:,} bytes, which no such file is")
    return content


def read_text(path: Path, *, most_bytes: int = MOST_BYTES) -> str:
    """Text of a file that a user gives, without a byte order mark.

    Raises
    ------
    InputError
        As `read_bytes`; or if it is not UTF-8 text, with what it looks like instead.
    """
    content = read_bytes(path, most_bytes=most_bytes)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        looks = looks_like(content) or f"byte {error.start + 1:,}, in line {line:,}, is none"
        raise InputError(f"{path} is not UTF-8 text: {looks}") from None


def require_plain_file(path: Path) -> None:
    """See that a path leads to a file that has an end.

    Raises
    ------
    InputError
        If it is a folder, a pipe or a device.
    OSError
        If there is nothing.
    """
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise InputError(f"{path} is a folder; name a file in it")
    if not stat.S_ISREG(mode):
        raise InputError(
            f"{path} is not a plain file (a pipe or a device?); write its content to a file first"
        )


def unreadable(path: Path, error: Exception) -> InputError:
    """An error of the system as one of ours; one of ours stays what it is."""
    if isinstance(error, InputError):
        return error
    return InputError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}")


_STARTS = {
    b"\x1f\x8b": "gzip-compressed; unpack it first: gunzip",
    b"PK\x03\x04": "a ZIP archive; unpack it first: unzip",
    b"\x28\xb5\x2f\xfd": "zstd-compressed; unpack it first: unzstd",
    b"\xfd7zXZ\0": "xz-compressed; unpack it first: unxz",
    b"BZh": "bzip2-compressed; unpack it first: bunzip2",
    b"\xff\xfe": "UTF-16; save it as UTF-8",
    b"\xfe\xff": "UTF-16; save it as UTF-8",
    b"PAR1": "a Parquet file; write it as text first",
}


def looks_like(start: bytes) -> str:
    """What a file is by its first bytes, and what to do with it, if it is none of ours; else empty."""
    return next((words for magic, words in _STARTS.items() if start.startswith(magic)), "")


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
def writing(target: Path) -> Iterator[None]:
    """Turn a full disk into an error of ours that names what could not be written.

    Raises
    ------
    CompanionError
        If the disk, a quota or the largest size of a file is exhausted.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        why = os.strerror(error.errno)
        raise CompanionError(f"cannot write {target}: {why}; what was there before is whole") from error


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Give a temporary path beside `target`; rename it to `target` when the block ends well.

    A reader never sees half a file, and a failed or interrupted block leaves the old one whole.

    Raises
    ------
    InputError
        If nothing can be written there, or a folder, a pipe or a device is in the way.
    CompanionError
        If the disk is full.
    """
    with writing(target):
        try:
            if target.exists() and not target.is_file():
                kind = "a folder" if target.is_dir() else "not a plain file (a pipe or a device?)"
                raise InputError(f"cannot write {target}: it is {kind}; name a file")
            target.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
        except (OSError, ValueError) as error:
            if isinstance(error, InputError) or getattr(error, "errno", None) in _FULL:
                raise
            raise InputError(f"cannot write {target}: {getattr(error, 'strerror', None) or error}") from error
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
