"""What a reader does with the figures of transfers, on the chapter's real page."""

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PAGE = "book/transfer.html"
FIGURES = ("transfer-latency", "latency-breakdown", "hot-holder-waits", "hot-holder-under-way")


@pytest.fixture
def open_figure(open_page):
    def opened(name, **options):
        page = open_page(PAGE, **options)
        figure = page.locator(f"#fig-{name}")
        expect(figure.locator(".companion-chart")).to_have_attribute("data-state", "drawn")
        return figure

    return opened


def test_all_figures_are_drawn(open_page):
    page = open_page(PAGE)
    for name in FIGURES:
        expect(page.locator(f"#fig-{name} .companion-chart")).to_have_attribute("data-state", "drawn")


def test_the_network_changes_line_and_marks(open_figure):
    figure = open_figure("transfer-latency")
    line = figure.locator("path[aria-roledescription='line mark']").first
    before = line.get_attribute("d")
    figure.get_by_role("radio", name="8 × 400 Gbit/s").check()
    expect(line).not_to_have_attribute("d", before)


def test_the_breakdown_drops_decode_and_takes_the_cached_prefix(open_figure):
    figure = open_figure("latency-breakdown")
    bars = figure.locator("path[aria-roledescription='bar']")
    expect(bars).to_have_count(5 * (4 + 5))
    before = bars.first.get_attribute("d")
    figure.get_by_role("radio", name="until decode begins").check()
    expect(bars).to_have_count(5 * (3 + 4))
    figure.get_by_role("radio", name="95 %").check()
    expect(bars).to_have_count(5 * (3 + 4))
    expect(bars.first).not_to_have_attribute("d", before)


def test_a_slower_network_has_more_under_way(open_figure):
    figure = open_figure("hot-holder-under-way")
    figure.get_by_role("radio", name="800", exact=True).check()
    expect(figure.locator("g.role-axis-label text", has_text="3,000")).to_have_count(0)
    figure.get_by_role("radio", name="200", exact=True).check()
    expect(figure.locator("g.role-axis-label text", has_text="3,000")).to_be_visible()
