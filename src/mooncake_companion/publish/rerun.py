"""Run a chapter again with other parameters, and leave a page, a notebook and the figures.

The run is made in a folder beside its target and renamed at the end: a run that fails, is interrupted
or is killed leaves the earlier result whole.
"""

import copy
import csv
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jupytext  # type: ignore[import-untyped]
import nbformat
import papermill  # type: ignore[import-untyped]
import yaml
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from papermill.iorw import load_notebook_node  # type: ignore[import-untyped]
from papermill.parameterize import parameterize_notebook  # type: ignore[import-untyped]

from mooncake_companion import traces
from mooncake_companion.charts.theme import MIME
from mooncake_companion.datafiles import cache_path, replacing
from mooncake_companion.errors import CompanionError, InputError
from mooncake_companion.parameters import Value, describe
from mooncake_companion.publish import figures, provenance
from mooncake_companion.publish.build import run_jupyter_book
from mooncake_companion.publish.chapters import Chapter, literals
from mooncake_companion.publish.dependencies import content_hash, dependencies
from mooncake_companion.publish.folders import replacing_folder, require_replaceable
from mooncake_companion.publish.glued import numbers, published_numbers
from mooncake_companion.publish.kernel import KERNEL_NAME, use_this_interpreter

Notebook = nbformat.NotebookNode

_RECORD = "provenance.json"
_KIND = "a rerun"
_LINK_TO_CHAPTER = re.compile(r"\]\((?!references\.md)([a-z0-9-]+)\.md(#[^)]*)?\)")
_SHOWN_CHARACTERS = 240


class Change(NamedTuple):
    """A number of a chapter that is not the published one."""

    name: str
    published: float
    now: float

    @property
    def percent(self) -> float:
        """By how much it changed, in per cent of what is published; infinite from zero."""
        return 100 * (self.now - self.published) / abs(self.published) if self.published else float("inf")


_MAY_BE_FILES = ("trace", "node", "model")
"""Parameters whose value may be the path of a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """Where a finished rerun lies.

    Parameters
    ----------
    folder : Path
    page : Path or None
        Its page in the book's look; None if none was asked for.
    changes : tuple of Change
        Numbers of the chapter that are not the published ones, the largest change first.
    """

    folder: Path
    page: Path | None
    changes: tuple[Change, ...] = ()


def rerun(root: Path, chapter: Chapter, given: Mapping[str, Value], out: Path, *, html: bool = True) -> Rerun:
    """Run a chapter with some parameters changed.

    Parameters
    ----------
    root : Path
        The checkout.
    chapter : Chapter
    given : mapping
        Values by name, of the declared types, as `parameters.parse` returns them.
    out : Path
        The folder to make or, if it holds an earlier rerun, to replace.
    html : bool
        Whether to make the page as well.

    Raises
    ------
    InputError
        If the values do not go together, or `out` holds something else.
    CompanionError
        If a cell of the chapter fails, or another process works on `out`.
    """
    require_replaceable(out, _RECORD, _KIND)
    values = _checked(chapter, given)
    with replacing_folder(out, _RECORD, _KIND) as scratch:
        made = scratch / "made"
        (made / "figures").mkdir()
        everything = _with_defaults(chapter, values)
        notebook = _execute(root, chapter, values, scratch)
        _stamp(notebook, chapter, everything, provenance.commit(root))
        _write_notebook(notebook, made / "notebook.ipynb")
        specs = _specs(notebook)
        for spec in specs:
            figures.write_figure(spec, made / "figures")
        origins = [figures.provenance(spec) for spec in specs]
        recorded = provenance.record(root, chapter.name, everything, origins)
        made.joinpath(_RECORD).write_text(json.dumps(recorded, indent=1, ensure_ascii=False) + "\n", "utf-8")
        changes = _changes(root, chapter, everything, notebook)
        _write_changes(changes, made / "changes.csv")
        if html:
            told = _told(chapter, values, changes, notebook, _book_url(root))
            _write_page(root, chapter, told, scratch / "site", made / "html")
    page = out / "html" / f"{chapter.name}.html" if html else None
    return Rerun(folder=out, page=page, changes=changes)


def drawn_figures(root: Path, chapter: Chapter, given: Mapping[str, Value]) -> dict[str, figures.Spec]:
    """Run a chapter and return its figures by id, stamped with what made them; nothing is written.

    Raises
    ------
    InputError
        If the values do not go together.
    CompanionError
        If a cell of the chapter fails.
    """
    values = _checked(chapter, given)
    with tempfile.TemporaryDirectory() as scratch:
        notebook = _execute(root, chapter, values, Path(scratch))
    _stamp(notebook, chapter, _with_defaults(chapter, values), provenance.commit(root))
    return {spec["name"]: spec for spec in _specs(notebook)}


# --- values -----------------------------------------------------------------------------------


def _checked(chapter: Chapter, given: Mapping[str, Value]) -> dict[str, Value]:
    """See that the values go together, and have the trace at hand before anything runs."""
    values = dict(given)
    for name in _MAY_BE_FILES:
        value = values.get(name, "")
        if isinstance(value, str) and Path(value).is_file():
            values[name] = str(Path(value).resolve())  # the chapter runs in another folder
    params = chapter.params(**values)
    if hasattr(params, "trace"):
        traces.load(params.trace, block_tokens=getattr(params, "block_tokens", traces.BLOCK_TOKENS))
    return values


def _with_defaults(chapter: Chapter, values: Mapping[str, Value]) -> dict[str, Value]:
    return {
        declared.name: values.get(declared.name, declared.default) for declared in describe(chapter.params)
    }


# --- execution --------------------------------------------------------------------------------


def read_notebook(path: Path) -> Notebook:
    """Read a chapter's text notebook, the same each time."""
    notebook: Notebook = jupytext.read(path)
    notebook.metadata.pop("jupytext", None)
    notebook.metadata.kernelspec = {"name": KERNEL_NAME, "display_name": "Python 3", "language": "python"}
    return notebook


def _execute(root: Path, chapter: Chapter, values: Mapping[str, Value], scratch: Path) -> Notebook:
    notebook = with_values(read_notebook(chapter.notebook(root)), values)
    with _environment(COMPANION_BUILD="1", MOONCAKE_OFFLINE="1"):
        use_this_interpreter(scratch / "kernel")
        try:
            done = papermill.execute_notebook(
                notebook,
                None,
                kernel_name=KERNEL_NAME,
                cwd=str(root / "book"),
                progress_bar=sys.stderr.isatty(),
            )
        except papermill.PapermillExecutionError as error:
            raise CompanionError(_failure(chapter, error)) from None
        except (CellTimeoutError, DeadKernelError) as error:
            raise CompanionError(f"chapter {chapter.name}: {_first_line(str(error))}") from None
    return _without_run_metadata(done)


def with_values(notebook: Notebook, values: Mapping[str, Value]) -> Notebook:
    """Put a cell that sets the values below the one tagged ``parameters``.

    Papermill writes the values as source. Read back, without running it, the source must be these
    values and nothing else.

    Raises
    ------
    InputError
        If it is not.
    """
    if not values:
        return notebook
    prepared = load_notebook_node(notebook)
    done: Notebook = parameterize_notebook(prepared, dict(values), kernel_name=KERNEL_NAME, language="python")
    (source,) = (cell.source for cell in done.cells if "injected-parameters" in cell.metadata.get("tags", ()))
    try:
        exact = repr(literals(source)) == repr(dict(values))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        exact = False
    if not exact:
        raise InputError(f"parameter {', '.join(values)}: cannot be handed to a chapter exactly as given")
    return done


def _failure(chapter: Chapter, error: papermill.PapermillExecutionError) -> str:
    cell = f"cell [{error.exec_count}] `{_first_line(error.source)}`"
    return f"chapter {chapter.name}, {cell}: {error.ename}: {_first_line(error.evalue)}"


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    first = lines[0] if lines else ""
    return first if len(first) <= _SHOWN_CHARACTERS else first[:_SHOWN_CHARACTERS] + "…"


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Set variables for a while; what the block sets beside them is undone, too."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _without_run_metadata(notebook: Notebook) -> Notebook:
    """Drop clock times and random ids, so that equal runs leave equal notebooks."""
    notebook.metadata.pop("papermill", None)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        for key in ("papermill", "execution"):
            cell.metadata.pop(key, None)
    return notebook


def _write_notebook(notebook: Notebook, path: Path) -> None:
    nbformat.validate(notebook)
    path.write_text(nbformat.writes(notebook), "utf-8")  # type: ignore[no-untyped-call]


def _stamp(notebook: Notebook, chapter: Chapter, parameters: Mapping[str, Value], commit: str | None) -> None:
    """Have every figure of an executed notebook say what made it."""
    for output in _figure_outputs(notebook):
        output.data[MIME] = figures.stamped(
            output.data[MIME], chapter=chapter.name, parameters=parameters, commit=commit
        )


def _figure_outputs(notebook: Notebook) -> Iterator[Any]:
    yield from (output for output in _outputs(notebook) if MIME in output.get("data", {}))


def _specs(notebook: Notebook) -> list[figures.Spec]:
    return [output.data[MIME] for output in _figure_outputs(notebook)]


# --- numbers ----------------------------------------------------------------------------------


def _changes(
    root: Path, chapter: Chapter, parameters: Mapping[str, Value], notebook: Notebook
) -> tuple[Change, ...]:
    defaults = {declared.name: declared.default for declared in chapter.parameters}
    if parameters == defaults:
        return ()
    text = chapter.notebook(root).read_text("utf-8")
    published = published_numbers(root, text, chapter.name) or _run_with_own_values(root, chapter, text)
    changes = [
        Change(name, published[name], value)
        for name, value in numbers(_outputs(notebook)).items()
        if name in published and value != published[name]
    ]
    return tuple(sorted(changes, key=lambda change: (-abs(change.percent), change.name)))


def _run_with_own_values(root: Path, chapter: Chapter, text: str) -> dict[str, float]:
    """What the chapter says with its own values; run once, and kept until what it depends on changes."""
    stamp = content_hash(root, dependencies(text, root), f"{text}{traces.sources_fingerprint()}")
    kept = cache_path("published", f"{chapter.name}-{stamp}.json")
    if not kept.exists():
        with tempfile.TemporaryDirectory() as scratch:
            found = numbers(_outputs(_execute(root, chapter, {}, Path(scratch))))
        with replacing(kept) as part:
            part.write_text(json.dumps(found), "utf-8")
    read: dict[str, float] = json.loads(kept.read_text("utf-8"))
    return read


def _outputs(notebook: Notebook) -> Iterator[Any]:
    for cell in notebook.cells:
        yield from cell.get("outputs", [])


def _write_changes(changes: Iterable[Change], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("name", "published", "now", "change_percent"))
        writer.writerows((*change, change.percent) for change in changes)


# --- the page ---------------------------------------------------------------------------------


def _write_page(root: Path, chapter: Chapter, page: Notebook, site: Path, target: Path) -> None:
    """Build the run as a page in the book's look, with the book's configuration and nothing executed."""
    config = yaml.safe_load((root / "_config.yml").read_text("utf-8"))
    shutil.copytree(root / "book" / "_static", site / "book" / "_static")
    for file in config["bibtex_bibfiles"]:
        shutil.copy(root / file, site / file)
    shutil.copy(root / "book" / "references.md", site)
    _write_notebook(page, site / f"{chapter.name}.ipynb")
    contents = {"format": "jb-book", "root": chapter.name, "chapters": [{"file": "references"}]}
    site.joinpath("_config.yml").write_text(yaml.safe_dump(_page_config(config), sort_keys=False), "utf-8")
    site.joinpath("_toc.yml").write_text(yaml.safe_dump(contents), "utf-8")
    run_jupyter_book(site, quiet=True)
    shutil.move(site / "_build" / "html", target)


def _book_url(root: Path) -> str:
    config = yaml.safe_load((root / "_config.yml").read_text("utf-8"))
    return str(config["sphinx"]["config"]["html_baseurl"])


def _page_config(config: dict[str, Any]) -> dict[str, Any]:
    changed = copy.deepcopy(config)
    changed["execute"] = {"execute_notebooks": "off"}
    changed["exclude_patterns"] = ["_build"]
    changed["sphinx"]["config"] |= {
        "include_patterns": ["**"],
        "html_baseurl": "",
        "companion_traces": [],
        # What stands in other chapters is not in this one page.
        "suppress_warnings": ["myst.xref_missing", "ref.numref", "ref.ref"],
    }
    return changed


def _told(
    chapter: Chapter,
    values: Mapping[str, Value],
    changes: Sequence[Change],
    notebook: Notebook,
    book_url: str,
) -> Notebook:
    """Say below the title that this is a rerun, and lead links to other chapters to the published book."""
    page = copy.deepcopy(notebook)
    for cell in page.cells:
        if cell.cell_type == "markdown":
            cell.source = _LINK_TO_CHAPTER.sub(rf"]({book_url}book/\1.html\2)", cell.source)
    title, _, text = page.cells[0].source.partition("\n")
    page.cells[0].source = f"{title}\n\n{notice(chapter, values, changes)}\n{text}"
    return page


def notice(chapter: Chapter, values: Mapping[str, Value], changes: Sequence[Change] = ()) -> str:
    """Say, as MyST text, that a page is a rerun, with which changed parameters, and what they changed."""
    defaults = {declared.name: declared.default for declared in chapter.parameters}
    changed = {name: value for name, value in values.items() if value != defaults[name]}
    lines = [
        f"- {as_code(f'{name} = {value}')} (published: `{defaults[name]}`)" for name, value in changed.items()
    ]
    said = (
        "This page was made with changed parameters:"
        if lines
        else "This page was made with the published values."
    )
    return "\n".join(
        [
            ":::{admonition} A rerun, not the published chapter",
            ":class: important companion-rerun",
            said,
            "",
            *lines,
            "",
            "Sentences that state a finding were written for the published values.",
            ":::",
            *_table_of(changes),
        ]
    )


def as_code(text: str) -> str:
    r"""Any text as MyST's inline code, in which nothing has a meaning: no markup, no HTML, no role.

    >>> print(as_code("a = b"), as_code("`<b>`"), as_code("two" + chr(10) + "lines"))
    `a = b` `` `<b>` `` `two\nlines`
    """
    line = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    pad = " " if line[:1] == "`" or line[-1:] == "`" else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def _table_of(changes: Sequence[Change]) -> list[str]:
    if not changes:
        return []
    rows = [
        f"| {change.name} | {change.published:,.4g} | {change.now:,.4g} | {change.percent:+,.1f} % |"
        for change in changes
    ]
    several = f"{len(changes)} numbers are not the published ones"
    return [
        "",
        f":::{{dropdown}} {several if len(changes) > 1 else 'One number is not the published one'}",
        "| In the text | Published | Here | Change |",
        "|---|--:|--:|--:|",
        *rows,
        ":::",
    ]
