"""What a reader does with the figures of the validation chapter, on its real page."""

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PAGE = "book/validation.html"
FIGURES = ("real-store-hits", "measured-prefill", "measured-decode", "queueing-theory-waits")
POINTS = "path[aria-roledescription='point']"
LINES = "path[aria-roledescription='line mark']"


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


def test_the_gpu_changes_line_and_marks(open_figure):
    figure = open_figure("measured-prefill")
    line, marks = figure.locator(LINES).first, figure.locator(POINTS)
    before, many = line.get_attribute("d"), marks.count()
    figure.get_by_role("radio", name="H100").check()
    expect(line).not_to_have_attribute("d", before)
    assert 0 < marks.count() < many


def test_a_long_context_leaves_the_kernels_alone(open_figure):
    figure = open_figure("measured-decode")
    marks = figure.locator(POINTS)
    many = marks.count()
    figure.get_by_role("combobox").select_option(label="32,768")
    expect(figure.locator(LINES)).to_have_count(2)
    expect(marks).not_to_have_count(many)


def test_a_mark_tells_its_interval(open_figure):
    figure = open_figure("queueing-theory-waits")
    expect(figure.locator(LINES)).to_have_count(3)
    expect(figure.locator(POINTS)).to_have_count(27)
    figure.locator(POINTS).first.hover(force=True)
    expect(figure.page.locator("#vg-tooltip-element, .vg-tooltip").first).to_contain_text(
        "95 % interval from"
    )


def test_the_table_tells_what_was_tried(open_page):
    page = open_page(PAGE)
    table = page.locator(".companion-sortable").first
    expect(table).to_contain_text("libCacheSim")
    expect(table).to_contain_text("12,000 requests in 6 replays")
