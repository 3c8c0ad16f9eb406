"""The downloaded archive with networking off, what a page loads, and the links that lead elsewhere."""

import functools
import importlib
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect
from tests.browser.conftest import CHECKOUT, QuietHandler, QuietServer

from mooncake_companion.cli.bench import load_benchmarks
from mooncake_companion.publish import archive, launch, weights
from mooncake_companion.publish.project import pages

speed = importlib.import_module(f"{load_benchmarks(CHECKOUT).__name__}.pages")

pytestmark = [pytest.mark.browser, pytest.mark.slow]
over_http = pytest.mark.parametrize("address", ["http"], indirect=True)
from_a_file = pytest.mark.parametrize("address", ["file"], indirect=True)


@pytest.fixture(scope="session")
def unpacked(html, tmp_path_factory):
    folder = tmp_path_factory.mktemp("elsewhere")
    with zipfile.ZipFile(html / archive.address()) as opened:
        opened.extractall(folder)
    return folder / archive.NAME


@pytest.fixture
def offline(chromium):
    context = chromium.new_context(viewport={"width": 1000, "height": 800})
    context.set_offline(True)
    complaints = []
    page = context.new_page()
    page.on("requestfailed", lambda request: complaints.append(f"failed request: {request.url}"))
    page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
    page.on("console", lambda told: complaints.append(told.text) if told.type == "error" else None)
    yield page
    context.close()
    assert complaints == []


@pytest.mark.parametrize("served", [False, True], ids=["from disk", "python -m http.server"])
def test_the_unpacked_archive_shows_every_figure_with_networking_off(unpacked, offline, served):
    if not served:
        draws_all(offline, unpacked.as_uri())
        return
    offline.context.set_offline(False)  # for the machine itself, which is all that there is to reach
    handler = functools.partial(QuietHandler, directory=unpacked)
    with QuietServer(("127.0.0.1", 0), handler) as server:
        address = f"http://127.0.0.1:{server.server_port}"
        offline.route(lambda url: not url.startswith(address), lambda route: route.abort())
        threading.Thread(target=server.serve_forever, daemon=True).start()
        draws_all(offline, address, only=["book/overview", "book/tiered-cache"])
        server.shutdown()


def draws_all(page, address, *, only=None):
    drawn = 0
    for name in only or pages(CHECKOUT):
        page.goto(f"{address}/{name}.html")
        for chart in page.locator(".companion-chart").all():
            expect(chart).to_have_attribute("data-state", "drawn", timeout=20_000)
            drawn += 1
    assert drawn > 2


def test_the_unpacked_archive_is_searched_with_networking_off(unpacked, offline):
    offline.goto(f"{unpacked.as_uri()}/index.html")
    offline.wait_for_url("**/book/overview.html")
    expect(offline.locator(".companion-chart").first).to_have_attribute("data-state", "drawn")
    offline.keyboard.press("Control+k")
    offline.locator("input[name=q]:visible").fill("Table 3")
    offline.keyboard.press("Enter")
    first = offline.locator("#search-results ul.search > li > a").first
    expect(first).to_have_text("arXiv, Table 3: Requests rejected by admission policy")
    first.click()
    expect(offline.locator("#fig-overload-rejected")).to_be_in_viewport()


def test_no_link_of_the_archive_leads_to_the_archive(unpacked):
    assert not (unpacked / archive.FOLDER).exists()
    for path in unpacked.rglob("*.html"):
        assert archive.address() not in path.read_text("utf-8"), path


@from_a_file
def test_the_book_links_to_its_archive_with_the_size(open_page, html):
    size = f"{(html / archive.address()).stat().st_size / 1e6:.1f} MB"
    for name in ("overview", "citing", "offline"):
        page = open_page(f"book/{name}.html")
        link = page.get_by_role("link", name=f"{archive.NAME}.zip, {size}")
        expect(link).to_have_attribute("href", f"../{archive.address()}")


@over_http
@pytest.mark.parametrize("name", ["control-plane", "scoreboard", "paper-map"])
def test_a_page_weighs_what_a_browser_loads(open_page, html, name, address):
    asked = set()
    page = open_page("book/changes.html")  # to have a page whose requests can be listened to
    page.context.clear_cookies()
    page.on("request", lambda request: asked.add(urlsplit(request.url).path.removeprefix("/")))
    page.goto(f"{address}/book/{name}.html", wait_until="networkidle")
    for chart in page.locator(".companion-chart").all():
        expect(chart).to_have_attribute("data-state", "drawn", timeout=20_000)
    source = html / "book" / f"{name}.html"
    listed = weights.loaded(source.read_text("utf-8"), source, html)
    expected = {path.relative_to(html.resolve()).as_posix() for path in listed}
    assert asked - {f"book/{name}.html", "_static/favicon.svg"} == expected - {"_static/favicon.svg"}


@from_a_file
def test_each_page_with_figures_is_in_the_table_of_weights(open_page, html):
    page = open_page("book/offline.html")
    shown = page.locator(".companion-wide table tbody tr td:first-child a")
    names = [link.get_attribute("href").removesuffix(".html") for link in shown.all()]
    every = [page.rpartition("/")[2] for page in pages(CHECKOUT)]
    assert names == [name for name in every if has_figures(html, name)]


def has_figures(html, name):
    return 'class="companion-chart"' in (html / "book" / f"{name}.html").read_text("utf-8")


def test_the_time_to_a_figure_is_measured_in_a_browser(html, chromium):
    assert chromium
    with ThreadPoolExecutor(1) as apart:  # from the event loop of this session's browser
        record = apart.submit(speed.recording, CHECKOUT, names=["book/your-cluster"], visits=1).result()
    (time,) = record["pages"].values()
    assert 0.05 < time["first_figure_s"] <= time["all_figures_s"] < 60
    weight = weights.weigh(html / "book" / "your-cluster.html", html)
    assert time["first_visit_bytes"] == weight.first_visit_bytes
    kept = weights.recorded()
    assert record.keys() == kept.keys()
    assert set(kept["pages"]) <= {page.rpartition("/")[2] for page in pages(CHECKOUT)}


@from_a_file
def test_a_chapter_can_be_run_elsewhere_by_plain_links(open_page):
    page = open_page("book/control-plane.html")  # anything asked of another host fails
    page.get_by_role("button", name="Run this chapter elsewhere").click()
    repository = page.locator(".dropdown-source-buttons a").first.get_attribute("href")
    for name, address in {
        "Binder": launch.binder_link(repository, "book/control-plane"),
        "Colab": launch.colab_link(repository, "book/control-plane"),
        "Notebook": "../notebooks/control-plane.ipynb",
    }.items():
        link = page.get_by_role("link", name=name, exact=True)
        expect(link).to_be_visible()
        expect(link).to_have_attribute("href", address)


@from_a_file
def test_a_page_without_code_offers_nothing_to_run(open_page):
    page = open_page("book/glossary.html")
    expect(page.get_by_role("button", name="Run this chapter elsewhere")).to_have_count(0)
