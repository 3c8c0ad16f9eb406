"""The numbers that a chapter puts into its sentences: of a run, and as the book of this checkout has them."""

import ast
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jupytext  # type: ignore[import-untyped]

from mooncake_companion import traces
from mooncake_companion.publish.dependencies import STAMP, machine_fingerprint, split, stamp
from mooncake_companion.publish.folders import LOCK

_RECORD = "application/papermill.record/"


def numbers(outputs: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Numbers among the outputs of an executed chapter, by the name that they were glued under."""
    found = {}
    for output in outputs:
        name = output.get("metadata", {}).get("scrapbook", {}).get("name")
        data = output.get("data", {})
        text = data.get(f"{_RECORD}text/plain", data.get("text/plain"))
        if text is None or name is None:
            continue
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            continue
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found[str(name)] = float(value)
    return found


def published_numbers(root: Path, chapter: str, name: str) -> dict[str, float] | None:
    """Numbers of a chapter as the built book has them.

    Parameters
    ----------
    root : Path
        The checkout.
    chapter : str
        The chapter's text notebook.
    name : str
        Its name.

    Returns
    -------
    dict or None
        None if the book was not built, is being built or its build was killed, or anything that the
        chapter depends on has changed since.
    """
    if (root / "_build" / LOCK).exists():
        return None
    built = root / "_build" / "jupyter_execute" / "book"
    try:
        executed = json.loads((built / f"{name}.ipynb").read_text("utf-8"))
        glued = json.loads((built / f"{name}.glue.json").read_text("utf-8"))
        its_stamp = executed["metadata"]["kernelspec"][STAMP]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    parts = split(chapter)
    if parts is None or _code(executed["cells"]) != _code(jupytext.reads(chapter, "md:myst").cells):
        return None
    front_matter, body = parts
    named = front_matter.get("depends_on", [])
    if its_stamp != stamp(root, body, named, machine_fingerprint(traces.sources_fingerprint())):
        return None
    return numbers(glued.values())


def _code(cells: Iterable[Mapping[str, Any]]) -> list[str]:
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
