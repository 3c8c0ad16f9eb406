"""The book on paper."""

from concurrent.futures import ThreadPoolExecutor

import pypdf
import pytest
from tests.browser.conftest import CHECKOUT

from mooncake_companion.publish import pdf
from mooncake_companion.publish.citations import book_url

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_pages_are_joined_with_an_outline_and_links_that_lead_outside(html, chromium, tmp_path, monkeypatch):
    assert chromium
    shown = pdf.pages(CHECKOUT)
    assert shown[0] == "book/overview"
    assert "book/control-plane" in shown
    monkeypatch.setattr(pdf, "pages", lambda _root: ["book/overview", "book/storage-for-compute"])
    with ThreadPoolExecutor(1) as apart:  # from the event loop of this session's browser
        first, second = (
            apart.submit(pdf.write_pdf, CHECKOUT, html, tmp_path / name).result()
            for name in ("first.pdf", "second.pdf")
        )
    read = pypdf.PdfReader(first)
    assert [item.title for item in read.outline] == [
        "The Mooncake companion",
        "2. More storage for less computation",
    ]
    links = [
        action["/URI"]
        for page in read.pages
        for reference in page.get("/Annots", [])
        if "/URI" in (action := reference.get_object().get("/A", {}))
    ]
    assert f"{book_url()}book/control-plane.html" in links
    assert not [link for link in links if link.startswith("file:")]
    text = "\n".join(page.extract_text() for page in read.pages)
    assert "Move the limit" in text
    assert "Show code cell source" not in text
    assert first.read_bytes() == second.read_bytes()
