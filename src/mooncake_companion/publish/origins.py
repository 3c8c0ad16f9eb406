"""What a figure's file says of what made it, read from a file that may be anybody's."""

import io
import json
import logging
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mooncake_companion.datafiles import read_bytes
from mooncake_companion.errors import InputError, shown

KEYWORD = "provenance"
"""Under which a PNG and a PDF say what made them; in an SVG it is ``<metadata>``."""

_SVG_ORIGIN = re.compile(r"<metadata>(.*?)</metadata>", re.DOTALL)
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def origin(file: Path) -> dict[str, Any]:
    """Read what made a figure's file: its id under ``figure``, and its provenance.

    Raises
    ------
    InputError
        If the file is of no known kind, or says nothing; the message says what was looked for.
    """
    kind = file.suffix[1:]
    if kind not in READERS:
        kinds = ", ".join(f".{known}" for known in READERS)
        raise InputError(f"{file}: no figure of this book; expected a file ending in {kinds}")
    if kind == "csv":
        file = Path(f"{file}.json")
        if not file.exists():
            raise InputError(f"{file} is not there: it says what made the CSV; keep the two together")
    return read(file, read_bytes(file), kind)


def read(file: Path, content: bytes, kind: str) -> dict[str, Any]:
    """What the content of a file says of itself.

    Parameters
    ----------
    file : Path
        For the message alone.
    content : bytes
    kind : str
        A name in `READERS`.

    Raises
    ------
    InputError
        As `origin`.
    """
    try:
        found = READERS[kind](content)
        json.dumps(found, ensure_ascii=False).encode()  # half a character could not be written again
    except (ValueError, KeyError, TypeError, RecursionError, struct.error) as error:
        told = shown(str(error), 120)
        raise InputError(f"{file}: holds no provenance that can be read ({told})") from None
    if not isinstance(found, dict) or not isinstance(found.get("figure"), str):
        raise InputError(f"{file}: its provenance names no figure; it was not exported from this book")
    return found


def _of_svg(content: bytes) -> Any:
    found = _SVG_ORIGIN.search(content.decode("utf-8"))
    if found is None:
        raise ValueError("no <metadata>")
    return json.loads(found[1].replace("&lt;", "<").replace("&amp;", "&"))


def _of_png(content: bytes) -> Any:
    for kind, body in _png_chunks(content):
        keyword, _, text = body.partition(b"\0")
        if kind == b"iTXt" and keyword == KEYWORD.encode():
            return json.loads(text[4:].decode("utf-8"))
    raise ValueError(f"no text chunk {KEYWORD!r}")


def _png_chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    if not content.startswith(_PNG_SIGNATURE):
        raise ValueError("not a PNG")
    at = len(_PNG_SIGNATURE)
    while at < len(content):
        (size,) = struct.unpack_from(">I", content, at)
        if at + 12 + size > len(content):
            raise ValueError(f"the PNG is cut off at byte {len(content):,}")
        yield content[at + 4 : at + 8], content[at + 8 : at + 8 + size]
        at += 12 + size


def _of_pdf(content: bytes) -> Any:
    import pypdf

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # one line of ours says what is wrong
    try:
        said = pypdf.PdfReader(io.BytesIO(content), strict=True).metadata
        text = str(said[f"/{KEYWORD}"] if said else "")
    except KeyError:
        raise ValueError(f"no {KEYWORD!r} in the document information") from None
    except Exception as error:  # a damaged PDF leads its reader anywhere
        raise ValueError(f"not a whole PDF: {error}") from None
    return json.loads(text)


def _of_json(content: bytes) -> Any:
    found = json.loads(content.decode("utf-8"))
    said = found.get("usermeta") if isinstance(found, dict) else None
    if not isinstance(said, dict) or not isinstance(said.get("companion"), dict):
        raise ValueError("no usermeta.companion")
    return {"figure": found["name"], **said["companion"]}


def _beside_csv(content: bytes) -> Any:
    return json.loads(content.decode("utf-8"))


READERS: dict[str, Callable[[bytes], Any]] = {
    "svg": _of_svg,
    "png": _of_png,
    "pdf": _of_pdf,
    "json": _of_json,
    "csv": _beside_csv,
}
"""What reads each kind of file; what made a CSV stands in a JSON file beside it."""
