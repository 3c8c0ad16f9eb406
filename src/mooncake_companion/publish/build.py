"""Build the book, and say in a few lines why it could not be built.

One build at a time works in a checkout. What a build that was killed had begun is not trusted by the
next one: it starts from the outputs of the chapters that ran to their end.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mooncake_companion.datafiles import writable_folder
from mooncake_companion.errors import CompanionError
from mooncake_companion.publish import archive, weights
from mooncake_companion.publish.folders import LOCK, locked
from mooncake_companion.publish.project import pages

_JUPYTER_BOOK = """
import functools, os, signal, threading
def end_with_starter():
    os.read({alive}, 1)  # returns when the process that started this one has ended
    os.killpg(os.getpgrp(), signal.SIGKILL)
if {alive}:
    threading.Thread(target=end_with_starter, daemon=True).start()
from jupyter_book import sphinx
sphinx.build_sphinx = functools.partial(sphinx.build_sphinx, jobs={jobs})
from jupyter_book.cli.main import main
main()
"""
"""Jupyter Book's own command; it has no option for reading pages in parallel, Sphinx has."""

_JOBS_PER_CPU = 3
_MOST_JOBS = 6  # each holds a kernel with its traces
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_COMPLAINT = re.compile(r"\b(WARNING|ERROR|CRITICAL)\b|^\S*(Error|Exception)\b.*:")
_NOISE = re.compile(
    r"IPKernelApp|There was an error in building|Look above for|Exception occurred:|RuntimeError:$"
    r"|An error occurred while executing|ExecutionError: /"
)
_MOST_LINES = 12


def build_book(root: Path, *, quiet: bool = False) -> Path:
    """Build the book with every warning an error.

    Parameters
    ----------
    root : Path
        As `project.find_root` returns it.
    quiet : bool
        Keep the progress of the build from the terminal.

    Returns
    -------
    Path
        The book's first page.

    Raises
    ------
    CompanionError
        If the build fails; the message holds the lines that say why.
    InputError
        If nothing can be written there.
    """
    built = root / "_build"
    pages_read = built / ".doctrees"
    with building(root) as handle:
        if _is_newer(root / "_toc.yml", pages_read / "environment.pickle"):
            shutil.rmtree(pages_read)  # sphinx-external-toc stumbles over pages that moved to another part
        try:
            run_jupyter_book(root, "-W", "-n", "--keep-going", quiet=quiet, lock=handle)
        except CompanionError:
            shutil.rmtree(pages_read, ignore_errors=True)  # or Sphinx would not warn of them again
            raise
        except BaseException:  # interrupted
            _forget_unfinished(built)
            raise
        html = built / "html"
        weights.write_weights(html, pages(root), built / weights.TABLE)
        archive.write_archive(html)
    return html / "index.html"


@contextlib.contextmanager
def building(root: Path) -> Iterator[int]:
    """Keep other builds out of a checkout's ``_build`` while the block runs.

    Yields
    ------
    int
        The lock, to be handed to what `run_jupyter_book` starts.

    Raises
    ------
    CompanionError
        If another build is under way there; the message names its process.
    """
    built = writable_folder(root / "_build")
    with locked(built / LOCK, f"another build is under way in {built}") as held:
        if held.abandoned:
            _forget_unfinished(built)
        yield held.handle


def _forget_unfinished(built: Path) -> None:
    """Remove what a killed build may have left half-written: Sphinx takes it for done by its time."""
    for folder in (built / ".doctrees", built / "html", built / "jupyter_execute"):
        if folder.exists():
            shutil.rmtree(folder)
    if (built / ".jupyter_cache").exists():
        _forget_half_kept(built / ".jupyter_cache")


def _forget_half_kept(outputs: Path) -> None:
    """Remove outputs of chapters that were noted and not, or not wholly, written: they end a build."""
    from jupyter_cache import get_cache  # type: ignore[import-untyped]
    from jupyter_cache.cache.db import NbCacheRecord  # type: ignore[import-untyped]
    from sqlalchemy.exc import SQLAlchemyError

    entries = list((outputs / "executed").glob("*"))
    whole = {entry.name for entry in entries if _is_json(entry / "base.ipynb")}
    try:
        cache = get_cache(outputs)
        for record in cache.list_cache_records():
            if record.hashkey not in whole:
                NbCacheRecord.remove_record(record.pk, cache.db)
        cache.db.dispose()
    except SQLAlchemyError:  # it is not even a database
        shutil.rmtree(outputs)
        return
    for entry in entries:
        if entry.name not in whole:
            shutil.rmtree(entry)


def _is_json(file: Path) -> bool:
    try:
        json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return True


def run_jupyter_book(source: Path, *options: str, quiet: bool, lock: int | None = None) -> None:
    """Run Jupyter Book on a folder with this interpreter; it ends with this process, however that ends.

    Parameters
    ----------
    source : Path
    *options : str
        Of ``jupyter-book build``.
    quiet : bool
        Keep its progress from the terminal.
    lock : int, optional
        A lock's handle, which it holds until it has ended.

    Raises
    ------
    CompanionError
        If it fails; the message holds the lines that say why.
    """
    jobs = min(_JOBS_PER_CPU * (os.cpu_count() or 1), _MOST_JOBS)
    with _alive(lock) as (alive, started_with):
        script = _JUPYTER_BOOK.format(jobs=jobs, alive=alive)
        process = subprocess.Popen(
            [sys.executable, "-c", script, "build", str(source.resolve()), *options],
            cwd=source,  # what the builder leaves beside its output, it leaves there
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if quiet else None,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, "PYTHONIOENCODING": "utf-8"},
            **started_with,
        )
        try:
            _, log = process.communicate()
        except BaseException:
            _end(process)
            raise
    if process.returncode:
        raise CompanionError(f"the book could not be built:\n{useful_lines(log)}")


@contextlib.contextmanager
def _alive(lock: int | None) -> Iterator[tuple[int, dict[str, Any]]]:
    """A pipe that closes with this process, by which what it starts knows when to end (not on Windows)."""
    if sys.platform == "win32":
        yield 0, {}
        return
    reading, writing = os.pipe()
    handed = (reading,) if lock is None else (reading, lock)
    try:
        yield reading, {"pass_fds": handed, "process_group": 0}
    finally:
        os.close(reading)
        os.close(writing)


def _end(process: subprocess.Popen[str]) -> None:
    """End a process and those of its group, which an interrupt from the keyboard does not reach."""
    if sys.platform == "win32":
        process.kill()
    else:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _is_newer(source: Path, made: Path) -> bool:
    return made.exists() and source.stat().st_mtime > made.stat().st_mtime


def useful_lines(log: str) -> str:
    r"""Pick the lines of a build's log that say what is wrong, each once.

    >>> useful_lines("reading sources\na.md:3: WARNING: unknown reference\ndone")
    'a.md:3: WARNING: unknown reference'
    """
    lines = [line.strip() for line in _COLOUR.sub("", log).splitlines() if line.strip()]
    told = [line for line in lines if _COMPLAINT.search(line) and not _NOISE.search(line)]
    kept = list(dict.fromkeys(told or lines[-_MOST_LINES:]))
    more = [f"… and {len(kept) - _MOST_LINES} more"] if len(kept) > _MOST_LINES else []
    return "\n".join([*kept[:_MOST_LINES], *more])
