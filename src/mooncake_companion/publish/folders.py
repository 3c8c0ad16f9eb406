"""Folders of results: one process at work in each, and each whole or not there at all.

What a killed process leaves behind, the next one in the same place finds and clears away.
"""

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mooncake_companion.datafiles import writable_folder
from mooncake_companion.errors import CompanionError, InputError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOCK = ".lock"
"""The file by which the folder of the built book, or of a sweep, is locked."""

_NOTE_BYTES = 20
_PATIENCE_S = 10.0
"""How long to wait for what a killed process had started to end, too."""
_OPEN = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A lock that is held.

    Parameters
    ----------
    handle : int
        Of the open file; a process started with it holds the lock, too, until it ends.
    abandoned : bool
        Whether the process that held it before was killed at its work.
    """

    handle: int
    abandoned: bool


@contextlib.contextmanager
def locked(lock: Path, busy: str) -> Iterator[Held]:
    """Keep other processes out while the block runs.

    Parameters
    ----------
    lock : Path
        A file of its own, in a folder that is there. It is gone when the block ends. The system undoes
        the lock of a process that is killed; the file that stays behind tells of it.
    busy : str
        What to say if another process holds the lock.

    Raises
    ------
    CompanionError
        If another process does; the message names it.
    """
    handle = _acquired(lock, busy)
    try:
        abandoned = bool(_note(handle))
        os.lseek(handle, 0, os.SEEK_SET)
        os.write(handle, f"{os.getpid():<{_NOTE_BYTES}}".encode())  # in one piece, over an earlier one
        yield Held(handle=handle, abandoned=abandoned)
    finally:
        os.ftruncate(handle, 0)
        with contextlib.suppress(OSError):  # Windows keeps what is open
            lock.unlink()
        os.close(handle)


def _acquired(lock: Path, busy: str) -> int:
    give_up_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            handle = os.open(lock, _OPEN, 0o666)
        except OSError as error:
            raise InputError(f"cannot write {lock}: {error.strerror or error}") from error
        if not _try_lock(handle):
            holder = _note(handle)
            os.close(handle)
            if _runs(holder) or time.monotonic() > give_up_s:
                who = f" (process {holder})" if holder else ""
                raise CompanionError(f"{busy}{who}; wait for it to end")
            time.sleep(0.05)
        elif _is_at(lock, handle):
            return handle
        else:  # its holder took it away just now
            os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        if sys.platform == "win32":
            os.lseek(handle, 1 << 20, os.SEEK_SET)  # others cannot read what is locked
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _is_at(lock: Path, handle: int) -> bool:
    try:
        return os.path.samestat(lock.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def _note(handle: int) -> str:
    os.lseek(handle, 0, os.SEEK_SET)
    return os.read(handle, _NOTE_BYTES).decode("ascii", "replace").strip()


def _runs(process: str) -> bool:
    """Whether the process that took the lock is there; yes where it cannot be told."""
    if not process.isdigit() or sys.platform == "win32":
        return True
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


@contextlib.contextmanager
def replacing_folder(out: Path, record: str, kind: str) -> Iterator[Path]:
    """Give a scratch folder beside `out`; its folder ``made`` becomes `out` when the block ends well.

    A block that fails or is interrupted leaves an earlier `out` whole; of one that is killed, the next
    one clears the traces.

    Parameters
    ----------
    out : Path
    record : str
        A file that every result of this kind has, by which it is known again.
    kind : str
        As in "a rerun".

    Raises
    ------
    InputError
        If `out` holds something else, or cannot be written.
    CompanionError
        If another process works on it.
    """
    given, out = out, out.resolve()
    require_replaceable(given, record, kind)
    writable_folder(out.parent)
    scratch, earlier = (out.with_name(f".{out.name}.{each}") for each in ("making", "earlier"))
    with locked(out.with_name(f".{out.name}.lock"), f"--out {given}: another process is at work there"):
        _clear(out, scratch, earlier)
        require_replaceable(given, record, kind)
        try:
            scratch.mkdir(mode=0o700)
            (scratch / "made").mkdir()
            yield scratch
            if out.exists():
                out.rename(earlier)
            (scratch / "made").rename(out)
        finally:
            _clear(out, scratch, earlier)


def _clear(out: Path, scratch: Path, earlier: Path) -> None:
    if earlier.exists() and not out.exists():
        earlier.rename(out)
    for folder in (scratch, earlier):
        if folder.exists():
            shutil.rmtree(folder)


def require_replaceable(out: Path, record: str, kind: str) -> None:
    """See that nothing is lost when `out` is replaced.

    Raises
    ------
    InputError
        If it holds something else than an earlier result with its `record`.
    """
    if out.exists() and not (out / record).exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(
            f"--out {out}: holds something other than {kind}; name another folder or empty this one"
        )
