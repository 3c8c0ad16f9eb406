"""The book on paper: every page printed by a browser, joined into one PDF with an outline.

Figures are static there, as on any printed page. Links between pages lead to the published book.
"""

import io
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mooncake_companion.datafiles import replacing
from mooncake_companion.errors import CompanionError
from mooncake_companion.publish.citations import book_url
from mooncake_companion.publish.project import pages

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
)
_PATIENCE_MS = 60_000
_MARGIN = "18mm"


def write_pdf(root: Path, html: Path, target: Path) -> Path:
    """Print a built book.

    Parameters
    ----------
    root : Path
        The checkout, for the order of the pages.
    html : Path
        The folder of the built book.
    target : Path
        The file to write; replaced when all is done.

    Raises
    ------
    CompanionError
        If no browser or a package for it is there; the message says what to install.
    """
    import pypdf

    writer = pypdf.PdfWriter()
    for title, content in _printed(html, pages(root)):
        first = len(writer.pages)
        for page in pypdf.PdfReader(io.BytesIO(content)).pages:
            writer.add_page(page)
        writer.add_outline_item(title=title, page_number=first)
    for page in writer.pages:
        _lead_outside(page, html)
    writer.metadata = {"/Title": "The Mooncake companion"}  # without it, the date of printing
    writer.compress_identical_objects()
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as part:
        writer.write(part)
    return target


def _printed(html: Path, names: list[str]) -> Iterator[tuple[str, bytes]]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise CompanionError("printing needs the package playwright: pip install playwright") from None
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=browser(), args=list(OPTIONS))
        try:
            page = running.new_page(color_scheme="light")
            for name in names:
                page.goto((html / f"{name}.html").resolve().as_uri(), timeout=_PATIENCE_MS)
                page.evaluate("window.MathJax?.startup?.promise")
                page.emulate_media(media="print")
                title = page.title().partition(" — ")[0]
                margin: Any = dict.fromkeys(("top", "bottom", "left", "right"), _MARGIN)
                yield title, page.pdf(format="A4", margin=margin, print_background=True)
        finally:
            running.close()


def browser() -> str:
    """The browser's command.

    Raises
    ------
    CompanionError
        If there is none.
    """
    named = os.environ.get("CHROMIUM")
    found = named or next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        known = ", ".join(BROWSERS)
        raise CompanionError(
            f"printing needs one of {known}; install one or name it by the variable CHROMIUM"
        )
    return found


def _lead_outside(page: Any, html: Path) -> None:
    """Have links to the built files lead to the published book."""
    here = html.resolve().as_uri() + "/"
    for reference in page.get("/Annots") or ():
        action = reference.get_object().get("/A")
        address = str(action.get("/URI", "")) if action else ""
        if address.startswith(here):
            import pypdf

            action[pypdf.generic.NameObject("/URI")] = pypdf.generic.TextStringObject(
                book_url() + address.removeprefix(here)
            )
