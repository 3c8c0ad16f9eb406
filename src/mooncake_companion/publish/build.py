"""Build the book, and say in a few lines why it could not be built."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from mooncake_companion.datafiles import writable_folder
from mooncake_companion.errors import CompanionError
from mooncake_companion.publish import archive, weights
from mooncake_companion.publish.project import pages

_JUPYTER_BOOK = """
import functools
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
    writable_folder(root / "_build")
    pages_read = root / "_build" / ".doctrees"
    if _is_newer(root / "_toc.yml", pages_read / "environment.pickle"):
        shutil.rmtree(pages_read)  # sphinx-external-toc stumbles over pages that moved to another part
    _notice_changed_scripts(root / "book" / "_static", root / "_build" / "html" / ".buildinfo")
    try:
        run_jupyter_book(root, "-W", "-n", "--keep-going", quiet=quiet)
    except CompanionError:
        shutil.rmtree(pages_read, ignore_errors=True)  # or Sphinx would not warn of them again
        raise
    html = root / "_build" / "html"
    weights.write_weights(html, pages(root), root / "_build" / weights.TABLE)
    archive.write_archive(html)
    return html / "index.html"


def run_jupyter_book(source: Path, *options: str, quiet: bool) -> None:
    """Run Jupyter Book on a folder with this interpreter.

    Raises
    ------
    CompanionError
        If it fails; the message holds the lines that say why.
    """
    jobs = min(_JOBS_PER_CPU * (os.cpu_count() or 1), _MOST_JOBS)
    script = _JUPYTER_BOOK.format(jobs=jobs)
    command = [sys.executable, "-c", script, "build", str(source.resolve()), *options]
    done = subprocess.run(
        command,
        cwd=source,  # what the builder leaves beside its output, it leaves there
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    if done.returncode:
        raise CompanionError(f"the book could not be built:\n{useful_lines(done.stderr)}")


def _notice_changed_scripts(static: Path, built: Path) -> None:
    """Have Sphinx write the pages again, without running them, when a script or a style changed.

    It looks at the pages' sources alone, and would neither copy such a file nor put its new checksum
    into the pages.
    """
    if built.exists() and any(_is_newer(file, built) for file in static.rglob("*")):
        built.write_text(re.sub(r"(?m)^config: .*$", "config: changed", built.read_text("utf-8")), "utf-8")


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
