"""Do a piece of work again and again, killed at its first, second, … write, and look at what comes of it.

For another process: ``python kill_points.py WORK FOLDER STEP`` kills at every STEP-th write and prints
JSON. Drawing and running chapters are replaced by what takes no time; folders, locks and files are real.
"""

import contextlib
import copy
import functools
import json
import os
import random
import shutil
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import nbformat

import little_sweep
from mooncake_companion.charts.theme import MIME
from mooncake_companion.errors import CompanionError
from mooncake_companion.parameters import check, parameter
from mooncake_companion.publish import figures, rerun, sweep, sweep_plan, sweep_workers
from mooncake_companion.publish.chapters import Chapter
from mooncake_companion.publish.sweep_plan import plan

BUSY = 3
_EVENTS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")
_SPEC = {"name": "line", "description": "A line.", "data": {"values": [{"x": 0, "y": 1}]}, "mark": "line"}


# --- the pieces of work -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    size: int = parameter(3, help="a number")

    def __post_init__(self):
        check(self)


@functools.cache
def asked():
    return plan(little_sweep.chapter(), [("size", "1,2")])


def sweeping(folder):
    done = sweep.sweep(
        asked(), folder / "out", lambda todo: ((number, call()) for number, call in todo.items())
    )
    assert done.results


def rerunning(folder):
    """The page, too; over an earlier result where there is one."""
    rerun.rerun(folder, Chapter(name="little", params=Params), {"size": 4}, folder / "runs" / "little")


def exporting(folder):
    figures.write_figure(_SPEC, folder, ("svg", "csv", "json"))


def _executed(_root, _chapter, values, _scratch):
    said = {"data": {"text/plain": str(values.get("size", 3))}, "metadata": {"scrapbook": {"name": "size"}}}
    outputs = [
        nbformat.v4.new_output("display_data", {MIME: copy.deepcopy(_SPEC)}),
        nbformat.v4.new_output("display_data", **said),
    ]
    cell = nbformat.v4.new_code_cell("size = 3", outputs=outputs, id="cell-1")
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# Little", id="cell-0"), cell])


def _built(site, **_options):
    page = site / "_build" / "html" / "little.html"
    page.parent.mkdir(parents=True)
    page.write_text("made")


def _little_root(root):
    for folder in ("book/_static", "data", "src/mooncake_companion"):
        (root / folder).mkdir(parents=True)
    (root / "_config.yml").write_text("bibtex_bibfiles: []\nsphinx: {config: {html_baseurl: here}}\n")
    (root / "book" / "references.md").write_text("# References\n")
    (root / "book" / "little.md").write_text("# Little\n")


def _quickly():
    rerun._execute = _executed
    rerun.run_jupyter_book = _built
    for kind in ("svg", "png"):
        figures.WRITERS[kind] = lambda spec: json.dumps(spec)
    figures.to_html = json.dumps
    asked()
    model = sweep_plan.model_sha256()
    for module in (sweep_plan, sweep_workers):
        module.model_sha256 = lambda: model


WORKS = {"sweeping": sweeping, "rerunning": rerunning, "exporting": exporting}


# --- killing ----------------------------------------------------------------------------------


def kill_at(number, after_opening):
    """Have this process killed at its write of this number; a file that was to be opened may be emptied."""
    seen = 0

    def hook(event, arguments):
        nonlocal seen
        opens = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if not opens and event not in _EVENTS:
            return
        seen += 1
        if seen == number:
            if opens and after_opening and isinstance(arguments[0], (str, bytes)):
                with contextlib.suppress(OSError):
                    os.open(arguments[0], arguments[2], 0o666)
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def forked(work, folder, *, number=0, after_opening=False, delay_s=0.0):
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        os.environ["MOONCAKE_CACHE"] = str(folder / "cache")
        time.sleep(delay_s)
        if number:
            kill_at(number, after_opening)
        work(folder)
        code = 0
    except CompanionError as error:
        code = BUSY if "another process is at work" in str(error) else 1
        if code == 1:
            sys.stderr.write(f"{error}\n")
    finally:
        os._exit(code)


def ended(process):
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def contents(work, folder):
    return {
        str(file.relative_to(folder)): file.read_bytes() if file.is_file() else b"a folder"
        for file in sorted(folder.rglob("*"))
        # In a folder that is not the work's own, only the system's cleaning can take away what was begun.
        if work is not exporting or not file.name.endswith(".part")
    }


def _prepared(work, folder, earlier):
    if earlier:
        shutil.copytree(earlier, folder)
    elif work is rerunning:
        _little_root(folder)
    else:
        folder.mkdir()
    return folder


def _whole(work, folder, *allowed):
    """Whether what a reader finds after the kill is one of the results, or nothing."""
    if work is not rerunning:
        return True
    there = folder / "runs" / "little"
    results = [contents(work, each / "runs" / "little") for each in allowed]
    return not there.exists() or contents(work, there) in results


def at_writes(work, top, step):
    """Kill once at each such write, do the work again, and compare with work that nobody disturbed."""
    earlier = _prepared(work, top / "earlier", None)
    if work is rerunning:
        assert ended(forked(work, earlier)) == 0
        (earlier / "runs" / "little" / "notebook.ipynb").write_text("an earlier one")
    undisturbed = _prepared(work, top / "undisturbed", earlier if work is rerunning else None)
    assert ended(forked(work, undisturbed)) == 0
    expected, wrong, number, kills = contents(work, undisturbed), [], 0, 0
    while True:
        number += step
        for after_opening in (False, True) if work is exporting else (True,):
            folder = _prepared(work, top / f"{number}{after_opening}", earlier if work is rerunning else None)
            code = ended(forked(work, folder, number=number, after_opening=after_opening))
            if code == 0:
                return {"kills": kills, "wrong": wrong}
            assert code == -signal.SIGKILL, code
            kills += 1
            if not _whole(work, folder, earlier, undisturbed):
                wrong.append(f"{number}, {after_opening}: half a result is there")
            if again := ended(forked(work, folder)):
                wrong.append(f"{number}, {after_opening}: the next one failed with {again}")
            elif (found := contents(work, folder)) != expected:
                differs = [name for name in {**found, **expected} if found.get(name) != expected.get(name)]
                wrong.append(f"{number}, {after_opening}: differs in {differs}")
            shutil.rmtree(folder)


def two_at_once(work, top, times=12):
    """Start two at almost the same moment, many times."""
    rng = random.Random(7)
    undisturbed = _prepared(work, top / "undisturbed", None)
    assert ended(forked(work, undisturbed)) == 0
    expected, outcomes, wrong = contents(work, undisturbed), [], []
    for number in range(times):
        folder = _prepared(work, top / str(number), None)
        both = [forked(work, folder, delay_s=rng.random() * 0.05) for _ in range(2)]
        codes = sorted(map(ended, both))
        outcomes.append(codes)
        if codes not in ([0, 0], [0, BUSY]) or contents(work, folder) != expected:
            wrong.append(f"{number}: {codes}")
    return {"refused": sum(codes[1] == BUSY for codes in outcomes), "times": times, "wrong": wrong}


def main():
    os.environ["SOURCE_DATE_EPOCH"] = "0"
    _quickly()
    work, top, step = WORKS[sys.argv[1]], Path(sys.argv[2]), int(sys.argv[3])
    (top / "kills").mkdir()
    (top / "twos").mkdir()
    found = {"alone": at_writes(work, top / "kills", step), "two": two_at_once(work, top / "twos")}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
