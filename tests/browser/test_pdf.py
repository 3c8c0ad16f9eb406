"""The book on paper."""

import io
from concurrent.futures import ThreadPoolExecutor

import pypdf
import pytest
from playwright.sync_api import expect
from tests.browser.conftest import CHECKOUT
from tests.browser.test_every_page import from_a_file

from mooncake_companion.publish import pdf
from mooncake_companion.publish.citations import book_url

BELOW_MARGINS_PX = (297 - 2 * 18) / 25.4 * 96  # of an A4 page
ON_PAPER = """
[...document.querySelectorAll('.companion-chart')].map(box => {
  const image = box.querySelector('.companion-static');
  return { name: box.dataset.name, drawn: image.naturalWidth > 0, height: image.clientHeight,
           whole: getComputedStyle(box.closest('figure')).breakInside,
           live: box.querySelector('.companion-live').checkVisibility(),
           controls: box.querySelector('.companion-controls').checkVisibility() };
})
"""

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


@from_a_file
def test_a_printed_page_has_light_static_figures_without_controls(open_page):
    page = open_page("book/control-plane.html", width=658, colours="dark")
    for chart in page.locator(".companion-chart").all():
        expect(chart).to_have_attribute("data-state", "drawn", timeout=30_000)
    dark = printed(page)
    page.emulate_media(color_scheme="light")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    light = printed(page)
    assert [each.get_contents().get_data() for each in dark] == [
        each.get_contents().get_data() for each in light
    ]

    text = "\n".join(each.extract_text() for each in light)
    assert "token (s, logarithmic)" in text  # of an axis: the figures are drawings, not pixels
    assert [image for each in light for image in images(each)] == []
    for control in ("Download:", "Data table", "Permanent link", "Filter"):
        assert control not in text

    page.emulate_media(media="print", color_scheme="dark")
    figures = page.evaluate(ON_PAPER)
    assert len(figures) == 5
    for figure in figures:
        assert figure["drawn"], figure
        assert not figure["live"], figure
        assert not figure["controls"], figure
        assert figure["whole"] == "avoid", figure
        assert figure["height"] < BELOW_MARGINS_PX, figure


def printed(page):
    content = page.pdf(format="A4", margin=dict.fromkeys(("top", "bottom", "left", "right"), "18mm"))
    return pypdf.PdfReader(io.BytesIO(content)).pages


def images(page):
    objects = page.get("/Resources", {}).get("/XObject", {})
    return [each for name in objects if (each := objects[name].get_object()).get("/Subtype") == "/Image"]
