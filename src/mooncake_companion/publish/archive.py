"""The built book as one file to take along: unpacked anywhere, it is read from disk with no network.

The same book gives the same bytes: entries are sorted and have one time and one mode.
"""

import hashlib
import re
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path

from mooncake_companion import __version__
from mooncake_companion.datafiles import replacing

FOLDER = "downloads"
NAME = f"mooncake-companion-{__version__}"
"""Name of the archive without its ending, and of the one folder that it holds."""

_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can state
_MODE = (stat.S_IFREG | 0o644) << 16
_UNIX = 3
_LEVEL = 6  # 9 takes three times as long for one part in a hundred
_LEFT_OUT = (FOLDER, ".buildinfo")
_NOTE = re.compile(r'(<span class="companion-archive">).*?(</span>)', re.DOTALL)
_COPY = "this copy"


def address(name: str = NAME) -> str:
    """Where the archive lies, below the book's first page."""
    return f"{FOLDER}/{name}.zip"


def write_archive(html: Path) -> Path:
    """Pack a built book into a file among its own, and say the file's size on the pages that link to it.

    The archive does not hold itself; in it, these pages say so. Does nothing when it is there and the
    book has not changed.

    Parameters
    ----------
    html : Path
        The folder of the built book.

    Returns
    -------
    Path
        The archive.
    """
    files = dict(_contents(html))
    digest = _digest(files)
    target = html / address()
    if not (target.exists() and _comment(target) == digest):
        for old in target.parent.glob("*.zip"):
            old.unlink()
        with replacing(target) as part, zipfile.ZipFile(part, "w") as archive:
            archive.comment = digest
            for name, content in files.items():
                archive.writestr(_entry(name), content, zipfile.ZIP_DEFLATED, _LEVEL)
    _tell_size(html, target.stat().st_size)
    return target


def without_note(page: str) -> str:
    """A page as it is in the archive, where no link leads to the archive."""
    return _NOTE.sub(rf"\1{_COPY}\2", page)


def _contents(html: Path) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the archive's entries, in their order."""
    for path in sorted(html.rglob("*")):
        name = path.relative_to(html)
        if not path.is_file() or name.parts[0] in _LEFT_OUT:
            continue
        content = path.read_bytes()
        if path.suffix == ".html":
            content = without_note(content.decode("utf-8")).encode("utf-8")
        yield f"{NAME}/{name.as_posix()}", content


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _TIME)
    entry.create_system, entry.external_attr = _UNIX, _MODE
    return entry


def _digest(files: dict[str, bytes]) -> bytes:
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest().encode()


def _comment(archive: Path) -> bytes:
    try:
        with zipfile.ZipFile(archive) as opened:
            return opened.comment
    except zipfile.BadZipFile:
        return b""


def _tell_size(html: Path, size_bytes: int) -> None:
    told = f"{NAME}.zip, {size_bytes / 1e6:.1f} MB"
    for path in html.rglob("*.html"):
        insert(path, _NOTE, _link(html, path, told))


def insert(path: Path, place: re.Pattern[str], content: str) -> None:
    """Put `content` into a written page between the first and the last group of `place`, if it has that."""
    page = path.read_text("utf-8")
    filled = place.sub(lambda found: f"{found[1]}{content}{found[found.re.groups]}", page)
    if filled != page:
        with replacing(path) as part:
            part.write_text(filled, "utf-8")


def _link(html: Path, page: Path, told: str) -> str:
    up = "../" * (len(page.relative_to(html).parts) - 1)
    return f'<a href="{up}{address()}" download>{told}</a>'
