"""Files of one figure: SVG, PNG, PDF, its specification (JSON) and its table (CSV).

The same specification always gives the same bytes. Each file carries what made it, or, as a CSV has
no place for that, has it beside it; `origins` reads it back.
"""

import copy
import csv
import hashlib
import html
import io
import json
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import vl_convert

from mooncake_companion import __version__
from mooncake_companion.datafiles import replacing
from mooncake_companion.publish.origins import KEYWORD

Spec = dict[str, Any]
Rows = list[dict[str, Any]]

VEGA_LITE_VERSION = "6.4"
"""The version that draws both the exported files and the figures in the page."""

KINDS = {"svg": "SVG", "png": "PNG", "csv": "data (CSV)", "json": "specification (JSON)"}
"""File endings of a figure's downloads in the page, and how a reader is told of them."""

_PNG_SCALE = 2
_SPEC_IN_PAGE = "\n    const spec = "
_GENERATED_ID = re.compile(r"\b(clip|gradient_|pattern_)(\d+)\b")
_PNG_SIGNATURE_AND_HEADER_BYTES = 8 + 25


def stamped(
    spec: Spec,
    *,
    chapter: str,
    parameters: Mapping[str, Any],
    commit: str | None = None,
    files: Mapping[str, str] | None = None,
) -> Spec:
    """A copy of a figure that says all that is needed to make it again.

    Parameters
    ----------
    spec : dict
        As `charts.theme.finish` made it.
    chapter : str
        The chapter that draws it.
    parameters : mapping
        All parameters of the chapter, defaults included.
    commit : str, optional
        Of the checkout.
    files : mapping, optional
        SHA-256 of the files of one's own among the parameters, which are there by name alone.
    """
    result = copy.deepcopy(spec)
    said = result.setdefault("usermeta", {}).setdefault("companion", {})
    said |= {
        "chapter": chapter,
        "chapter_parameters": dict(parameters),
        "companion_version": __version__,
        "values_sha256": values_sha256(spec),
    }
    if commit is not None:
        said["commit"] = commit
    if files:
        said["files_sha256"] = dict(files)
    return result


def values_sha256(spec: Spec) -> str:
    """Checksum of the values that a figure draws."""
    return hashlib.sha256(json.dumps(tables(spec), sort_keys=True).encode()).hexdigest()


def write_figure(spec: Spec, folder: Path, kinds: Iterable[str] = tuple(KINDS)) -> list[Path]:
    """Write files of a figure, named after its id, into an existing folder.

    Parameters
    ----------
    spec : dict
    folder : Path
    kinds : iterable of str
        Of `WRITERS`.

    Returns
    -------
    list of Path
        One a kind. What made a CSV stands beside it, in ``NAME.csv.json``.
    """
    targets = []
    for kind in kinds:
        target = folder / f"{spec['name']}.{kind}"
        made = WRITERS[kind](spec)
        with replacing(target) as part:
            part.write_bytes(made if isinstance(made, bytes) else made.encode())
        if kind == "csv":
            with replacing(Path(f"{target}.json")) as part:
                part.write_text(provenance_text(spec) + "\n", "utf-8")
        targets.append(target)
    return targets


def to_svg(spec: Spec) -> str:
    """Draw the figure as SVG, with its provenance in ``<metadata>``."""
    drawn = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE_VERSION)
    opening, end, rest = _renumbered(drawn).partition(">")
    escaped = provenance_text(spec).replace("&", "&amp;").replace("<", "&lt;")
    return f"{opening}{end}<metadata>{escaped}</metadata>{rest}"


def to_png(spec: Spec) -> bytes:
    """Draw the figure as PNG, with its provenance in a text chunk."""
    drawn = vl_convert.vegalite_to_png(spec, vl_version=VEGA_LITE_VERSION, scale=_PNG_SCALE)
    chunk = f"iTXt{KEYWORD}\0\0\0\0\0{provenance_text(spec)}".encode()
    framed = struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    split = _PNG_SIGNATURE_AND_HEADER_BYTES
    return drawn[:split] + framed + drawn[split:]


def to_pdf(spec: Spec) -> bytes:
    """Draw the figure as PDF, with its provenance in the document information and no time stamp."""
    import pypdf

    drawn = pypdf.PdfReader(io.BytesIO(vl_convert.vegalite_to_pdf(spec, vl_version=VEGA_LITE_VERSION)))
    page = drawn.pages[0]
    _sort_keys(page, set())  # the exporter leaves them in another order each time
    writer = pypdf.PdfWriter()
    writer.add_page(page)
    writer.add_metadata({"/Title": spec["name"], f"/{KEYWORD}": provenance_text(spec)})
    written = io.BytesIO()
    writer.write(written)
    return written.getvalue()


def to_html(spec: Spec) -> str:
    """Draw the figure as a page of its own, with its controls, that needs no network."""
    page = vl_convert.vegalite_to_html(spec, vl_version=VEGA_LITE_VERSION, bundle=True, renderer="svg")
    before, mark, after = page.partition(_SPEC_IN_PAGE)
    _, end = json.JSONDecoder().raw_decode(after)
    page = before + mark + after[:end].replace("<", "\\u003c") + after[end:]  # a value could end the script
    head = '<meta name="viewport" content="width=device-width">'
    titled = f"<head>{head}<title>{html.escape(spec['name'])}</title>"
    return page.replace("<html>", '<html lang="en">', 1).replace("<head>", titled, 1)


def to_json(spec: Spec) -> str:
    """Write the figure's Vega-Lite specification, its provenance in ``usermeta``."""
    return json.dumps(spec, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def to_csv(spec: Spec) -> str:
    """Write the figure's table; empty for a figure without one. No cell is a formula to a spreadsheet.

    Columns stand in the order of their names: a specification that was kept as JSON has no other.
    """
    rows = next(iter(tables(spec)), [])
    columns = sorted({column for row in rows for column in row})
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({column: without_formula(value) for column, value in row.items()} for row in rows)
    return text.getvalue() if rows else ""


def without_formula(value: Any) -> Any:
    """A table's cell; a word that a spreadsheet would run, such as a file's name, gets a ' before it.

    >>> without_formula("=1+1"), without_formula("-2.5"), without_formula(-2.5), without_formula("-")
    ("'=1+1", '-2.5', -2.5, '-')
    """
    if not isinstance(value, str) or len(value) < 2 or value[0] not in "=+-@\t\r":
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def tables(spec: Spec) -> list[Rows]:
    """List the tables inside a specification; a figure of ours has exactly one."""
    return [*spec.get("datasets", {}).values(), *_inline_tables(spec)]


def provenance(spec: Spec) -> dict[str, Any]:
    """Say what the figure was made from, as `charts.theme.finish` put it there."""
    found: dict[str, Any] = spec.get("usermeta", {}).get("companion", {})
    return found


def provenance_text(spec: Spec) -> str:
    """The figure's id and provenance, as JSON in one line."""
    return json.dumps({"figure": spec["name"], **provenance(spec)}, sort_keys=True, ensure_ascii=False)


def _sort_keys(item: Any, seen: set[int]) -> None:
    """Put the keys of a PDF object's dictionaries, and of those it leads to, into order."""
    item = item.get_object() if hasattr(item, "get_object") else item
    if id(item) in seen:
        return
    seen.add(id(item))
    if isinstance(item, dict):
        pairs = sorted(dict.items(item))
        item.clear()
        for key, value in pairs:
            dict.__setitem__(item, key, value)
            _sort_keys(value, seen)
    elif isinstance(item, list):
        for value in list.__iter__(item):
            _sort_keys(value, seen)


WRITERS: dict[str, Callable[[Spec], str | bytes]] = {
    "svg": to_svg,
    "png": to_png,
    "pdf": to_pdf,
    "json": to_json,
    "csv": to_csv,
}
"""What makes each kind of file."""


def _inline_tables(view: Spec) -> Iterator[Rows]:
    values = (view.get("data") or {}).get("values")
    if isinstance(values, list):
        yield values
    inner = [view["spec"]] if "spec" in view else []
    for key in ("layer", "hconcat", "vconcat", "concat"):
        inner += view.get(key, [])
    for child in inner:
        yield from _inline_tables(child)


def _renumbered(svg: str) -> str:
    """Number generated ids from 0: the exporter counts on from one figure to the next."""
    seen: dict[str, str] = {}
    return _GENERATED_ID.sub(lambda m: seen.setdefault(m[0], f"{m[1]}{len(seen)}"), svg)
