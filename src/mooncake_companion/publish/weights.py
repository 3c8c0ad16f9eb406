"""What a page of the built book weighs at a reader's first visit, and how soon it shows a figure.

Weights are computed by every build. Times come from a browser, so they are recorded by
``python -m benchmarks.pages``; a build only shows them, beside the weights of now.
"""

import csv
import gzip
import html
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

from mooncake_companion.datafiles import data_path, replacing
from mooncake_companion.publish import archive

RECORDED = ("recorded", "page_speed.json")
TABLE = "page-weight.csv"
LEAST_CHANGE = 0.1
"""A time is shown with the weight that it was measured at, if that has changed by such a share."""

_COMPRESSED_ALREADY = (".png", ".woff2")
_LOADED_LINKS = {"stylesheet", "icon", "preload"}
_ADDRESS_IN_STYLE = re.compile(r"""@import\s+["']([^"']+)["']|url\(["']?(?!data:)([^)"']+\.woff2)""")
_FONT = re.compile(r"fa-(solid|brands|regular)-")
_TABLE_IN_PAGE = re.compile(r"(<!-- page-weights -->).*?(<!-- end of page-weights -->)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """Compressed bytes that a browser fetches when it opens a page for the first time.

    Parameters
    ----------
    page : str
        Its name, such as ``control-plane``.
    title : str
    figures : int
        Figures that are drawn in it.
    page_bytes : int
        The page alone, its data included.
    image_bytes : int
        Static images, for print and readers without scripts.
    shared_bytes : int
        Scripts, styles, fonts and the index of the search, which the next page finds in the browser.
    """

    page: str
    title: str
    figures: int
    page_bytes: int
    image_bytes: int
    shared_bytes: int

    @property
    def first_visit_bytes(self) -> int:
        """All that is fetched when no page of the book was opened before."""
        return self.page_bytes + self.image_bytes + self.shared_bytes


def weigh(page: Path, folder: Path) -> Weight:
    """Weigh a page of the book that was built into `folder`."""
    text = _TABLE_IN_PAGE.sub(r"\1\2", archive.without_note(page.read_text("utf-8")))
    images: list[Path] = []
    shared: list[Path] = []
    for path in loaded(text, page, folder):
        (images if path.is_relative_to(folder / "figures") else shared).append(path)
    return Weight(
        page=page.stem,
        title=_Parsed(text).title,
        figures=text.count('class="companion-chart"'),
        page_bytes=len(_gzip(text.encode())),
        image_bytes=sum(map(compressed_bytes, images)),
        shared_bytes=sum(map(compressed_bytes, shared)),
    )


def loaded(text: str, page: Path, folder: Path) -> list[Path]:
    """List the files that a browser fetches with a page: what it names, and what its styles name.

    An icon font counts if the page uses it.
    """
    found: dict[Path, None] = {}
    waiting = [(page, address) for address in _Parsed(text).addresses]
    while waiting:
        source, address = waiting.pop(0)
        parts = urlsplit(address)
        path = (source.parent / parts.path).resolve()
        font = _FONT.match(path.name)
        if parts.scheme or parts.netloc or path in found or (font and not _uses_font(text, font[1])):
            continue
        found[path] = None
        if path.suffix == ".css" and path.is_relative_to(folder.resolve()):
            style = path.read_text("utf-8")
            waiting += [(path, one or other) for one, other in _ADDRESS_IN_STYLE.findall(style)]
    return list(found)


def compressed_bytes(path: Path) -> int:
    """Bytes of a file as a server sends it: compressed, unless its format is."""
    return _compressed_bytes(path, path.stat().st_mtime_ns)


@cache
def _compressed_bytes(path: Path, _changed: int) -> int:
    """What many pages load is compressed once."""
    content = path.read_bytes()
    return len(content) if path.suffix in _COMPRESSED_ALREADY else len(_gzip(content))


def _gzip(content: bytes) -> bytes:
    return gzip.compress(content, compresslevel=9, mtime=0)


def _uses_font(text: str, name: str) -> bool:
    return bool(re.search(rf'class="([^"]* )?(fa-{name}|fa{name[0]})[ "]', text))


class _Parsed(HTMLParser):
    """Title of a page, and the addresses that it makes a browser fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.title = ""
        self.addresses: list[str] = []
        self._in_title = False
        self.feed(text)
        self.title = self.title.partition(" — ")[0].strip()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self._in_title = tag == "title" and not self.title
        if tag == "link" and _LOADED_LINKS & set((named.get("rel") or "").split()):
            self.addresses.append(named["href"] or "")
        elif tag in ("script", "img") and named.get("src"):
            self.addresses.append(named["src"] or "")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data

    def handle_endtag(self, tag: str) -> None:
        self._in_title = self._in_title and tag != "title"


def write_weights(folder: Path, pages: list[str], table: Path) -> list[Weight]:
    """Weigh the pages of a built book, and write the table: as CSV, and into the page that asks for it.

    Parameters
    ----------
    folder : Path
        The built book.
    pages : list of str
        Names of the pages below it, without endings.
    table : Path
        The CSV file to write.
    """
    folder = folder.resolve()  # as what pages load is found
    weights = [weigh(folder / f"{page}.html", folder) for page in pages if (folder / f"{page}.html").exists()]
    times = recorded()
    with replacing(table) as part, part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        columns = ("page_bytes", "image_bytes", "shared_bytes", "first_visit_bytes")
        writer.writerow(["page", "figures", *columns, "first_figure_s"])
        for each in weights:
            row = [each.page, each.figures, *(getattr(each, column) for column in columns)]
            writer.writerow([*row, times["pages"].get(each.page, {}).get("first_figure_s", "")])
    shown = "".join(_shown([each for each in weights if each.figures], times))
    for path in folder.rglob("*.html"):
        archive.insert(path, _TABLE_IN_PAGE, shown)
    return weights


def recorded() -> dict[str, dict[str, dict[str, float]]]:
    """What ``python -m benchmarks.pages`` measured last."""
    found: dict[str, dict[str, dict[str, float]]] = json.loads(data_path(*RECORDED).read_text("utf-8"))
    return found


def _shown(weights: list[Weight], times: dict[str, dict[str, dict[str, float]]]) -> Iterator[str]:
    headings = (
        "Page",
        "Figures",
        "Page (kB)",
        "Images (kB)",
        "Shared (kB)",
        "First visit (kB)",
        "First figure",
    )
    yield '<div class="pst-scrollable-table-container"><table class="table"><thead><tr>'
    yield "".join(f'<th scope="col">{heading}</th>' for heading in headings)
    yield "</tr></thead><tbody>"
    for each in weights:
        sizes = (each.page_bytes, each.image_bytes, each.shared_bytes, each.first_visit_bytes)
        cells = [
            f'<a href="{each.page}.html">{html.escape(each.title)}</a>',
            str(each.figures),
            *(f"{size / 1000:,.0f}" for size in sizes),
            first_figure(each, times["pages"].get(each.page)),
        ]
        yield f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
    yield "</tbody></table></div>"
    told = ", ".join(f"{name} {value}" for name, value in times["measured"].items())
    if told:
        yield f"<p>First figure: {html.escape(told)}.</p>"


def first_figure(weight: Weight, time: dict[str, float] | None) -> str:
    """The time to a page's first figure, and what it was measured at if the page has changed since."""
    if time is None:
        return "not measured"
    then = time["first_visit_bytes"]
    changed = abs(weight.first_visit_bytes - then) > LEAST_CHANGE * then
    note = f" (when it weighed {then / 1000:,.0f} kB)" if changed else ""
    return f"{time['first_figure_s']:.2f} s{note}"
