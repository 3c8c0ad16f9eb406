"""What a reader does with a figure, on the chapter's real page."""

import re

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PAGE = "book/control-plane.html"
FIGURE = "#fig-prefill-scheduling-ttft"
BOXES = "g.mark-rect.role-mark path"
# Waits in the page: the page's policy lets no browser driver evaluate text there later.
CHANGED = """
async ([selector, old]) => {
  const changed = () =>
    [...document.querySelectorAll(selector)].some((mark, i) => mark.getAttribute('d') !== old[i]);
  for (const end = performance.now() + 5000; !changed(); await new Promise(requestAnimationFrame))
    if (performance.now() > end) throw new Error('nothing changed');
}
"""


@pytest.fixture
def open_figure(open_page):
    def opened(**options):
        page = open_page(PAGE, **options)
        expect(page.locator(f"{FIGURE} .companion-chart")).to_have_attribute("data-state", "drawn")
        return page, page.locator(FIGURE)

    return opened


def shapes(figure):
    return figure.locator(BOXES).evaluate_all("marks => marks.map(mark => mark.getAttribute('d'))")


def set_slider(figure, value):
    figure.locator("input[type=range]").evaluate(
        "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }", value
    )


def text_colour(figure):
    label = figure.locator("g.role-axis-label text").first
    return label.evaluate("text => getComputedStyle(text).fill")


def test_all_figures_and_formulas_are_drawn(open_page):
    page = open_page(PAGE)
    charts = page.locator(".companion-chart")
    assert charts.count() >= 1
    for number in range(charts.count()):
        expect(charts.nth(number)).to_have_attribute("data-state", "drawn")
        expect(charts.nth(number).locator(".companion-static")).to_be_hidden()
    expect(page.locator("mjx-container svg").first).to_be_visible()


def test_the_slider_changes_the_marks(open_figure):
    _, figure = open_figure()
    before = shapes(figure)
    assert len(before) >= 4
    set_slider(figure, 6)
    expect(figure.locator("input[type=range]")).to_have_value("6")
    figure.page.evaluate(CHANGED, [f"{FIGURE} {BOXES}", before])


def test_the_slider_has_a_name(open_figure):
    _, figure = open_figure()
    assert figure.get_by_role("slider", name=re.compile("prefill nodes", re.IGNORECASE)).count() == 1


def test_hovering_shows_the_numbers_on_the_screen(open_figure):
    for width in (1280, 360):
        page, figure = open_figure(width=width)
        figure.scroll_into_view_if_needed()
        figure.locator(BOXES).first.hover()
        tooltip = page.locator("#vg-tooltip-element.visible")
        expect(tooltip).to_contain_text("Policy")
        expect(tooltip).to_contain_text("TTFT")
        place = tooltip.bounding_box()
        assert place["x"] >= 0
        assert place["x"] + place["width"] <= width


def test_the_theme_switch_redraws_and_keeps_the_slider(open_figure):
    page, figure = open_figure()
    light = text_colour(figure)
    set_slider(figure, 6)
    changed = shapes(figure)
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    label = figure.locator("g.role-axis-label text").first
    expect(label).not_to_have_css("fill", light)
    expect(figure.locator("input[type=range]")).to_have_value("6")
    assert shapes(figure) == changed


def test_the_theme_button_is_heard(open_figure):
    page, figure = open_figure(colours="light")
    light = text_colour(figure)
    button = page.locator("button.theme-switch-button:visible").first
    for _ in range(3):  # auto, light and dark, in the theme's order
        button.click()
        if page.evaluate("document.documentElement.dataset.theme") == "dark":
            break
    expect(figure.locator("g.role-axis-label text").first).not_to_have_css("fill", light)


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_axes_can_be_read_on_the_page(open_figure, colours):
    page, figure = open_figure(colours=colours)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert contrast(text_colour(figure), ground) >= 4.5  # WCAG 2.2, 1.4.3


@pytest.mark.parametrize("path", [PAGE, "book/overview.html", "book/references.html"])
def test_a_phone_never_scrolls_sideways(open_page, path):
    page = open_page(path, width=360)
    for chart in page.locator(".companion-chart").all():
        expect(chart).to_have_attribute("data-state", "drawn")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    sizes = page.locator(".companion-live text").evaluate_all(
        "texts => texts.filter(t => t.textContent).map(t => t.getBoundingClientRect().height)"
    )
    assert all(height >= 9 for height in sizes)


def test_without_scripts_a_picture_is_there(chromium, address):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{address}/{PAGE}")
    picture = page.locator(f"{FIGURE} .companion-static")
    expect(picture).to_be_visible()
    assert picture.bounding_box()["width"] > 300
    assert len(picture.get_attribute("alt")) > 20
    context.close()


def test_on_paper_a_picture_on_white_is_there(open_figure):
    page, figure = open_figure(colours="dark")
    page.emulate_media(media="print")
    expect(figure.locator(".companion-static")).to_be_visible()
    expect(figure.locator(".companion-live")).to_be_hidden()


def test_every_download_is_there(open_figure, html):
    _, figure = open_figure()
    links = figure.locator(".companion-downloads a").evaluate_all(
        "links => links.filter(l => l.hasAttribute('download')).map(l => l.getAttribute('href'))"
    )
    assert len(links) == 4
    for link in links:
        assert (html / "book" / link).resolve().stat().st_size > 0


def test_a_figure_says_how_it_is_cited(open_figure):
    page, figure = open_figure()
    entry = figure.locator(".companion-cite pre")
    expect(entry).to_be_hidden()
    figure.locator(".companion-cite summary").click()
    expect(entry).to_contain_text("@inproceedings{qin2025mooncake")
    expect(entry).to_contain_text(f"control-plane.html{FIGURE}")
    figure.get_by_role("link", name="Permanent link").click()
    assert page.url.endswith(FIGURE)


def contrast(one, other):
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour):
    channels = [int(number) / 255 for number in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
