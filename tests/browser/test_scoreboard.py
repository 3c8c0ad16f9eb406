"""What a reader does with the long table, on the chapter's real page."""

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PAGE = "book/scoreboard.html"
BOX = '.companion-sortable[data-caption="Every number of the papers"]'


@pytest.fixture
def open_table(open_page):
    def opened(**options):
        page = open_page(PAGE, **options)
        expect(page.locator(f"{BOX} th button").first).to_be_visible()
        return page, page.locator(BOX)

    return opened


def column(table, number):
    return table.locator(f"tbody tr:not([hidden]) td:nth-child({number})").all_inner_texts()


def test_every_row_is_there_and_can_be_filtered(open_table):
    page, table = open_table()
    assert table.locator("tbody tr").count() == 869
    page.get_by_label("Filter").nth(1).fill('"figure 14b" "to decode" 64k')
    assert set(column(table, 1)) == {"FAST'25, Figure 14b"}
    expect(page.locator(".companion-filter output").nth(1)).to_have_text("1 of 869 rows")


def test_a_heading_sorts_by_size_both_ways_and_keeps_what_is_missing_last(open_table):
    page, table = open_table()
    page.get_by_label("Filter").nth(1).fill('"figure 13a"')
    heading = table.locator("th", has_text="Reported")
    reported = [float(text.split()[0]) for text in column(table, 3)]
    heading.get_by_role("button").click()
    assert [float(text.split()[0]) for text in column(table, 3)] == sorted(reported)
    expect(heading).to_have_attribute("aria-sort", "ascending")
    heading.get_by_role("button").click()
    assert [float(text.split()[0]) for text in column(table, 3)] == sorted(reported, reverse=True)
    page.get_by_label("Filter").nth(1).fill("")
    for _ in range(2):
        table.locator("th", has_text="Modelled").get_by_role("button").click()
        assert column(table, 4)[-1] == "–"
        assert column(table, 4)[0] != "–"


def test_both_figures_are_drawn(open_page):
    page = open_page(PAGE)
    for name in ("scoreboard-agreement", "scoreboard-ratios"):
        expect(page.locator(f"#fig-{name} .companion-chart")).to_have_attribute("data-state", "drawn")


def test_the_table_is_as_dark_as_the_page(open_table):
    _, table = open_table(colours="dark")
    ground = table.locator("xpath=..").evaluate("box => getComputedStyle(box).backgroundColor")
    assert ground == "rgba(0, 0, 0, 0)"


def test_a_phone_never_scrolls_sideways(open_table):
    page, _ = open_table(width=360)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
