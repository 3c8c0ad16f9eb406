"""Files of one figure: SVG, PNG, its specification (JSON) and its table (CSV).

The same specification always gives the same bytes.
"""

import csv
import html
import io
import json
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import vl_convert

Spec = dict[str, Any]
Rows = list[dict[str, Any]]

VEGA_LITE_VERSION = "6.4"
"""The version that draws both the exported files and the figures in the page."""

KINDS = {"svg": "SVG", "png": "PNG", "csv": "data (CSV)", "json": "specification (JSON)"}
"""File endings of a figure's downloads, and how a reader is told of them."""

_PNG_SCALE = 2
_GENERATED_ID = re.compile(r"\b(clip|gradient_|pattern_)(\d+)\b")
_PNG_SIGNATURE_AND_HEADER_BYTES = 8 + 25


def write_figure(spec: Spec, folder: Path) -> None:
    """Write all files of a figure, named after its id, into an existing folder."""
    target = folder / spec["name"]
    target.with_suffix(".svg").write_text(to_svg(spec), "utf-8")
    target.with_suffix(".png").write_bytes(to_png(spec))
    target.with_suffix(".json").write_text(to_json(spec), "utf-8")
    target.with_suffix(".csv").write_text(to_csv(spec), "utf-8", newline="")


def to_svg(spec: Spec) -> str:
    """Draw the figure as SVG, with its provenance in ``<metadata>``."""
    drawn = vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE_VERSION)
    opening, end, rest = _renumbered(drawn).partition(">")
    escaped = provenance_text(spec).replace("&", "&amp;").replace("<", "&lt;")
    return f"{opening}{end}<metadata>{escaped}</metadata>{rest}"


def to_png(spec: Spec) -> bytes:
    """Draw the figure as PNG, with its provenance in a text chunk."""
    drawn = vl_convert.vegalite_to_png(spec, vl_version=VEGA_LITE_VERSION, scale=_PNG_SCALE)
    chunk = b"iTXtprovenance\0\0\0\0\0" + provenance_text(spec).encode()
    framed = struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    split = _PNG_SIGNATURE_AND_HEADER_BYTES
    return drawn[:split] + framed + drawn[split:]


def to_html(spec: Spec) -> str:
    """Draw the figure as a page of its own, with its controls, that needs no network."""
    page = vl_convert.vegalite_to_html(spec, vl_version=VEGA_LITE_VERSION, bundle=True, renderer="svg")
    head = '<meta name="viewport" content="width=device-width">'
    titled = f"<head>{head}<title>{html.escape(spec['name'])}</title>"
    return page.replace("<html>", '<html lang="en">', 1).replace("<head>", titled, 1)


def to_json(spec: Spec) -> str:
    """Write the figure's Vega-Lite specification, its provenance in ``usermeta``."""
    return json.dumps(spec, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def to_csv(spec: Spec) -> str:
    """Write the figure's table; empty for a figure without one."""
    rows = next(iter(tables(spec)), [])
    columns = list(dict.fromkeys(column for row in rows for column in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue() if rows else ""


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
