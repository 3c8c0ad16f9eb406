"""What a reader does with the figures of the chapter of questions, on its real page."""

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PAGE = "book/questions.html"
CONTROLS = {
    "hit-rate-counts": ("Cache (blocks)", "10k"),
    "local-cache-explanations": ("Show", "Prefill time (s)"),
    "balancing-threshold-bytes": ("Network of a node", "24 Gbit/s"),
    "remote-kv-reads": ("Requests decoding together", "16"),
}


def marks(figure):
    return figure.locator(
        ".companion-live g.mark-rect, .companion-live g.mark-line, .companion-live g.mark-symbol"
    ).evaluate_all(
        'groups => groups.map(group => group.innerHTML.replace(/aria-label="[^"]*"/g, \'\')).join()'
    )


@pytest.mark.parametrize("name", CONTROLS)
def test_a_choice_changes_what_is_drawn(open_page, name):
    page = open_page(PAGE)
    figure = page.locator(f"#fig-{name}")
    expect(figure.locator(".companion-chart")).to_have_attribute("data-state", "drawn")
    before = marks(figure)
    assert before
    control, choice = CONTROLS[name]
    figure.get_by_label(control, exact=True).get_by_label(choice, exact=True).check()
    page.wait_for_timeout(300)
    assert marks(figure) != before


def test_every_question_links_to_where_it_was_asked(open_page):
    page = open_page(PAGE)
    links = page.locator("a[href*='kvcache-ai/Mooncake/issues/']").evaluate_all("all => all.map(a => a.href)")
    asked = {int(link.rsplit("/", 1)[1]) for link in links}
    assert {4020, 452, 381, 510, 977, 17} <= asked
