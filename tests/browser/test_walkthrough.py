"""A reader goes through the steps of one request, on the chapter's real page."""

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FIGURE = "#fig-request-walkthrough"


@pytest.fixture
def open_figure(open_page):
    def opened(**options):
        page = open_page("book/control-plane.html", **options)
        expect(page.locator(f"{FIGURE} .companion-chart")).to_have_attribute("data-state", "drawn")
        return page, page.locator(FIGURE)

    return opened


def marks(figure):
    return figure.locator(".companion-live g.mark-rect, .companion-live g.mark-text").evaluate_all(
        'groups => groups.map(group => group.innerHTML.replace(/aria-label="[^"]*"/g, \'\')).join()'
    )


def texts(figure):
    return figure.locator(".companion-live g.mark-text.role-mark text").all_text_contents()


def bars(figure):
    return figure.locator(".companion-live g.mark-rect.role-mark path")


def go_to(page, figure, step):
    figure.get_by_label("Step", exact=True).get_by_label(step).check()
    page.wait_for_timeout(200)


def test_every_step_changes_what_is_drawn(open_figure):
    page, figure = open_figure()
    seen = []
    titles = (
        "1 Prefix match",
        "2 Queue",
        "3 Transfer",
        "4 Prefill",
        "5 Sum and winner",
        "6 Decode candidates",
    )
    for step in titles:
        go_to(page, figure, step)
        seen.append(marks(figure))
    assert len(set(seen)) == 6
    assert len(seen[0]) < len(seen[-1])


def test_the_winner_is_starred_when_the_sum_is_there(open_figure):
    page, figure = open_figure()
    go_to(page, figure, "4 Prefill")
    assert not any("★" in text for text in texts(figure))
    go_to(page, figure, "5 Sum and winner")
    starred = [text for text in texts(figure) if "★" in text]
    assert len(starred) == 1
    seconds = [float(text.split()[-2]) for text in texts(figure) if text.endswith(" s")]
    assert float(starred[0].split()[-2]) == min(seconds)


def test_each_scenario_can_be_chosen_and_ends_as_it_says(open_figure):
    page, figure = open_figure()
    menu = figure.get_by_label("Request", exact=True)
    seen = []
    for scenario in menu.locator("option").all_inner_texts():
        menu.select_option(label=scenario)
        page.wait_for_timeout(200)
        seen.append(marks(figure))
        turned_away = any("pool full" in text for text in texts(figure))
        assert turned_away == (scenario == "The same, no decode headroom")
    assert len(set(seen)) == 4


def test_hovering_shows_all_terms(open_figure):
    page, figure = open_figure()
    bars(figure).first.hover()
    tooltip = page.locator("#vg-tooltip-element.visible")
    for told in ("Own prefix", "Fetched", "Queue", "Transfer", "Prefill", "Sum"):
        expect(tooltip).to_contain_text(told)
