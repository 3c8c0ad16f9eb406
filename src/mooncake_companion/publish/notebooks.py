"""The chapters as notebooks that run anywhere: in Colab, or in a reader's own Jupyter.

Their first cell installs this version, unless the package is there. Their text is plain Markdown: what
only the book can resolve is resolved or made a link to it.
"""

import ast
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mooncake_companion import __version__
from mooncake_companion.publish import citations
from mooncake_companion.publish.chapters import any_chapter

FOLDER = "notebooks"

TAG = f"v{__version__}"
"""The tag of the repository that holds this version."""

PINNED = ("altair", "myst-nb", "vl-convert-python")
"""Installed at the locked version. Others are taken as they are found, where recent enough."""

_INSTALL = """\
# Installs this version of the companion where it is not there yet, as in Colab.
import importlib.util

if importlib.util.find_spec("mooncake_companion") is None:
    %pip install -q "mooncake-companion @ git+{repository}@{tag}" {pins}\
"""
_ROLE = re.compile(r"\{([a-z:]+)\}`([^`]+)`")
_LINK = re.compile(r"\]\((?!https?:|#)([a-z-]+)\.md(#[\w-]+)?\)")
_TITLED = re.compile(r"(.*?)\s*<([^>]+)>", re.DOTALL)
_DIRECTIVE = re.compile(r"^(?:`{3,}|:{3,})\{.*?^(?:`{3,}|:{3,})\s*$\n?", re.DOTALL | re.MULTILINE)
_LABEL = re.compile(r"^\$\$ \(([\w-]+)\)$", re.MULTILINE)
_WORK = re.compile(r"^@\w+\{([^,]+),(.*?)(?=^@|\Z)", re.DOTALL | re.MULTILINE)
_AUTHOR = re.compile(r"author\s*=\s*\{+([^,}]+)(,.* and )?")
_YEAR = re.compile(r"year\s*=\s*\{(\d+)")
_TARGET = re.compile(r"^\([\w-]+\)=\n", re.MULTILINE)


def write_notebooks(root: Path, html: Path, pages: list[str], repository: str) -> list[Path]:
    """Write a notebook of each page with code into a built book, and remove those of pages that are gone.

    Parameters
    ----------
    root : Path
        The checkout.
    html : Path
        The folder of the built book.
    pages : list of str
        Names of the pages with code, such as ``book/control-plane``.
    repository : str
        Address of the repository that the first cell installs from.
    """
    folder = html / FOLDER
    folder.mkdir(exist_ok=True)
    written = []
    for page in pages:
        target = folder / f"{page.rpartition('/')[2]}.ipynb"
        glued = root / "_build" / "jupyter_execute" / f"{page}.glue.json"
        values = json.loads(glued.read_text("utf-8")) if glued.exists() else {}
        text = notebook_text(root / f"{page}.md", values, repository, pins=pinned(root), works=works(root))
        if not target.exists() or target.read_text("utf-8") != text:
            target.write_text(text, "utf-8")
        written.append(target)
    for old in set(folder.glob("*.ipynb")) - set(written):
        old.unlink()
    return written


def notebook_text(
    source: Path,
    glued: Mapping[str, Any],
    repository: str,
    *,
    pins: Mapping[str, str],
    works: Mapping[str, str],
) -> str:
    """A chapter's notebook as text; the same whenever it is made.

    Parameters
    ----------
    source : Path
        The chapter's text notebook.
    glued : mapping
        Its computed numbers by name, as MyST-NB keeps them.
    repository : str
    pins : mapping
        Packages to install beside it, with their versions.
    works : mapping
        What is cited, as `works` gives it.
    """
    import jupytext  # type: ignore[import-untyped]
    import nbformat

    notebook = jupytext.read(source)
    chapter = any_chapter(source.stem).name
    pinned_packages = " ".join(f"{name}=={version}" for name, version in sorted(pins.items()))
    install = _INSTALL.format(repository=repository, tag=TAG, pins=pinned_packages).rstrip()
    notebook.cells.insert(0, nbformat.v4.new_code_cell(install))  # type: ignore[no-untyped-call]
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"{chapter}-{number}"  # drawn at random otherwise
        if cell.cell_type == "markdown":
            cell.source = plain(cell.source, glued, works)
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return str(nbformat.writes(notebook)) + "\n"  # type: ignore[no-untyped-call]


def plain(text: str, glued: Mapping[str, Any], works: Mapping[str, str]) -> str:
    """Markdown that a notebook shows without the book: computed numbers in words, references as links."""

    def resolved(found: re.Match[str]) -> str:
        role, content = found[1], found[2]
        if role == "glue:text":
            name, _, form = content.partition(":")
            return _number(glued.get(name, {}), form)
        if role.startswith("cite"):
            named = "; ".join(works.get(key, key) for key in content.split(","))
            return f"({named})" if role == "cite:p" else named
        if role == "doc":
            return f"[{content}]({_address(content)})"
        titled = _TITLED.fullmatch(content)
        return titled[1] if titled else f"({content})"

    text = _LABEL.sub(r"\\tag{\1}\n$$", _TARGET.sub("", _DIRECTIVE.sub("", text)))
    text = _LINK.sub(lambda found: f"]({_address(found[1], found[2] or '')})", text)
    return _ROLE.sub(resolved, text).strip()


def works(root: Path) -> dict[str, str]:
    """How a text names each work that the book cites, by its key, such as "Qin et al., 2025"."""
    named = {}
    for key, entry in _WORK.findall((root / "book" / "references.bib").read_text("utf-8")):
        author, year = _AUTHOR.search(entry), _YEAR.search(entry)
        name = f"{author[1]} et al." if author and author[2] else author[1] if author else key
        named[key] = f"{name}, {year[1]}" if year else name
    return named


def _number(output: Mapping[str, Any], form: str) -> str:
    shown = output.get("data", {}).get("text/plain", "…")
    try:
        return format(ast.literal_eval(shown), form)
    except (SyntaxError, ValueError):
        return str(shown)


def _address(page: str, anchor: str = "") -> str:
    return f"{citations.book_url()}book/{page}.html{anchor}"


def pinned(root: Path) -> dict[str, str]:
    """Versions that requirements.lock has for the packages that are pinned; none without a lock."""
    lock = root / "requirements.lock"
    text = lock.read_text("utf-8") if lock.exists() else ""
    return dict(re.findall(rf"^({'|'.join(PINNED)})==([^\s;]+)", text, re.MULTILINE))
