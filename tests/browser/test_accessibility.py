"""WCAG 2.2 AA: axe finds nothing on any page, and what axe cannot see into, the figures, is measured."""

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import expect
from tests.browser.test_every_page import PAGES, from_a_file

pytestmark = [pytest.mark.browser, pytest.mark.slow]

TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
OF_COLOURS = ["color-contrast", "link-in-text-block"]
# What repeats is looked at a few times only, for colours alone: a table's rows, the entries of the reference.
ALIKE = [
    [".companion-sortable tbody tr:nth-child(n+8)"],
    ["section:nth-of-type(n+3) > dl.py"],
    ["dl.py:nth-of-type(n+4)"],
]
AXE = """
([tags, ofColours, alike, structure]) => {
  const told = results => results.violations.flatMap(rule =>
    rule.nodes.map(node => `${rule.id} (${rule.impact}): ${node.target.join(' ')}: ${node.html.slice(0, 99)}`));
  const off = Object.fromEntries(ofColours.map(rule => [rule, { enabled: false }]));
  const only = { resultTypes: ['violations'], preload: false }; // it would fetch the style sheets again
  const whole = () => axe.run(document, { ...only, runOnly: tags, rules: off });
  const colours = () => axe.run({ include: document, exclude: alike }, { ...only, runOnly: ofColours });
  return colours().then(async found => [...told(found), ...(structure ? told(await whole()) : [])]);
}
"""


def drawn(page):
    for chart in page.locator(".companion-chart").all():
        expect(chart).to_have_attribute("data-state", "drawn", timeout=30_000)


@from_a_file
@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_nothing_in_light_and_in_dark(open_page, path):
    page = open_page(path)
    drawn(page)
    for details in page.locator("details.companion-data").all()[:2]:
        details.evaluate("details => { details.open = true; }")
    page.evaluate(AXE_SCRIPT)
    assert page.evaluate(AXE, [TAGS, OF_COLOURS, ALIKE, True]) == []
    page.emulate_media(color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    drawn(page)
    page.wait_for_timeout(300)  # the theme fades from one to the other
    assert page.evaluate(AXE, [TAGS, OF_COLOURS, ALIKE, False]) == []
