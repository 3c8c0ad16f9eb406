"""WCAG 2.2 AA: axe finds nothing on any page, and what axe cannot see into, the figures, is measured."""

import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import expect
from tests.browser.test_every_page import CHECKOUT, PAGES, from_a_file
from tests.publish.conftest import little, little_root  # noqa: F401 (fixtures)

from mooncake_companion.publish.rerun import rerun

pytestmark = [pytest.mark.browser, pytest.mark.slow]

TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
OF_COLOURS = ["color-contrast", "link-in-text-block"]
# What repeats is looked at a few times only, for colours alone: a table's rows, the entries of the reference.
ALIKE = [
    [":is(.companion-sortable, .companion-rows) tbody tr:nth-child(n+8)"],
    ["section:nth-of-type(n+3) > dl.py"],
    ["dl.py:nth-of-type(n+4)"],
]
AXE = """
([tags, ofColours, alike, structure]) => {
  const told = results => results.violations.flatMap(rule =>
    rule.nodes.map(node => `${rule.id}: ${node.target.join(' ')}: ${node.html.slice(0, 200)}`));
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
    for folded in ("details.companion-data", "details.companion-run"):
        for details in page.locator(folded).all()[:1]:
            details.evaluate("details => { details.open = true; }")
    page.evaluate(AXE_SCRIPT)
    assert page.evaluate(AXE, [TAGS, OF_COLOURS, ALIKE, True]) == []
    page.emulate_media(color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    drawn(page)
    page.wait_for_timeout(300)  # the theme fades from one to the other
    assert page.evaluate(AXE, [TAGS, OF_COLOURS, ALIKE, False]) == []


def test_axe_finds_nothing_on_the_page_of_a_rerun(chromium, little_root, little, tmp_path):  # noqa: F811
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as apart:  # this one has an event loop
        done = apart.submit(rerun, little_root, little, {"points": 5}, tmp_path / "run").result()
    page = chromium.new_page(color_scheme="light")
    page.goto(done.page.as_uri())
    drawn(page)
    page.locator("details.companion-data summary").click()
    expect(page.locator("details.companion-data tbody tr")).to_have_count(5)
    page.evaluate(AXE_SCRIPT)
    assert page.evaluate(AXE, [TAGS, OF_COLOURS, ALIKE, True]) == []
    page.close()


# --- what axe cannot see into: the figures ---------------------------------------------------------

# What stands beside its colour where it is the only encoding of a field, and why that is enough.
BESIDE_COLOUR = {
    "cache-block-heat": "a quantity; the table has the number of each block",
    "cache-byte-flows": "the axes name the node and the tier that a line leaves",
    "deployment-timeline": "bars are tall or low, lines thick or thin, as the legend says",
    "latency-budget": "drawn in the order of the legend, with edges between; named when amplified",
    "request-walkthrough": "parts are drawn in the order of the legend, with edges between them",
}
SAYS_IT_TOO = {
    "column", "facet", "row", "shape", "size", "strokeDash", "strokeWidth", "text",
    "x", "xOffset", "y", "yOffset",
}  # fmt: skip


def views(spec, above=None):
    """Every view with a mark, with the encodings that it inherits."""
    encoding = {**(above or {}), **spec.get("encoding", {})}
    facet = spec.get("facet", {})
    encoding |= {"facet": facet} if "field" in facet else facet
    inner = [part for key in ("layer", "hconcat", "vconcat", "concat") for part in spec.get(key, [])]
    inner += [spec["spec"]] if "spec" in spec else []
    for part in inner:
        yield from views(part, encoding)
    if not inner:
        yield spec["mark"], encoding


def told_by_colour_alone(spec):
    """Fields that only a colour tells, in any view of a figure."""
    coloured, told = set(), set()
    for mark, encoding in views(spec):
        stacked = "order" in encoding and (mark if isinstance(mark, str) else mark["type"]) in ("area", "bar")
        for channel, meaning in encoding.items():
            field = meaning.get("field") if isinstance(meaning, dict) else None
            if channel in ("color", "fill", "stroke") and field:
                coloured.add(field)
                told |= {field} if stacked else set()  # in the order of its legend
            elif channel in SAYS_IT_TOO and field:
                told.add(field)
    return coloured - told


def specs(html):
    files = [file for file in sorted((html / "figures").glob("*.json")) if not file.stem.endswith(".csv")]
    assert len(files) > 50
    return {file.stem: json.loads(file.read_text("utf-8")) for file in files}


def test_colour_is_never_all_that_tells_things_apart(html):
    alone = {name: fields for name, spec in specs(html).items() if (fields := told_by_colour_alone(spec))}
    assert {name: fields for name, fields in alone.items() if name not in BESIDE_COLOUR} == {}
    assert alone.keys() == BESIDE_COLOUR.keys()  # no excuse outlives its figure


def test_a_field_that_only_a_colour_tells_is_found():
    colour = {"field": "system", "type": "nominal"}
    spec = {"layer": [{"mark": "line", "encoding": {"color": colour, "x": {"field": "t"}}}]}
    assert told_by_colour_alone(spec) == {"system"}
    spec["layer"].append({"mark": "point", "encoding": {"shape": colour}})
    assert told_by_colour_alone(spec) == set()


MEASURE = (CHECKOUT / "tests" / "browser" / "contrast.js").read_text("utf-8")


@from_a_file
@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_text_and_marks_of_every_figure_stand_out(open_page, path, colours):
    page = open_page(path, colours=colours)
    drawn(page)
    for chart in page.locator(".companion-chart").all():
        measured = chart.evaluate(MEASURE)
        name = chart.get_attribute("data-name")
        assert measured["texts"], name
        assert [text for text in measured["texts"] if text["contrast"] < 4.5] == [], name  # WCAG 1.4.3
        assert [mark for mark in measured["marks"] if mark["contrast"] < 3] == [], name  # WCAG 1.4.11


@from_a_file
@pytest.mark.parametrize("path", ["book/control-plane.html"])
def test_contrast_is_measured_against_what_lies_below(open_page, path):
    page = open_page(path)
    drawn(page)
    chart = page.locator(".companion-chart").first
    chart.evaluate("box => { box.querySelector('.companion-live svg text').style.fill = '#999999'; }")
    assert min(text["contrast"] for text in chart.evaluate(MEASURE)["texts"]) < 3


@from_a_file
def test_the_data_table_holds_the_rows_of_its_figure_and_finds_among_them(open_page, html):
    page = open_page("book/tiered-cache.html")
    drawn(page)
    for name in ("cache-sharing", "cache-block-heat"):
        rows = next(iter(specs(html)[name]["datasets"].values()))
        details = page.locator(f"details.companion-data[data-figure={name}]")
        assert details.locator("table").count() == 0  # made when it is opened
        details.locator("summary").focus()
        page.keyboard.press("Enter")
        expect(details.locator("tbody tr")).to_have_count(min(len(rows), 200))
        headings = details.locator("th").all_inner_texts()
        assert len(set(headings)) == len(headings)
        assert f"{len(rows)} rows" in details.locator("output").inner_text()
    headings = page.locator("details.companion-data[data-figure=cache-sharing] th").all_inner_texts()
    assert {"Workload", "Cache", "Origin", "Hit rate (%)", "Prefill (s)"} <= set(headings)
    heat = page.locator("details.companion-data[data-figure=cache-block-heat]")
    heat.get_by_label("Filter").fill("SSD")
    expect(heat.locator("output")).to_contain_text(f"of {len(rows)} rows")
    tiers = heat.locator("tbody tr td:nth-child(2)").all_inner_texts()
    assert tiers
    assert set(tiers) == {"SSD"}


@from_a_file
@pytest.mark.parametrize("path", PAGES)
def test_every_figure_is_one_image_that_says_what_it_shows(open_page, path):
    page = open_page(path)
    drawn(page)
    for chart in page.locator(".companion-chart").all():
        image = chart.get_by_role("img")
        expect(image).to_have_count(1)
        assert len(image.get_attribute("aria-label")) > 40
    for figure in page.locator("figure:has(.companion-chart)").all():
        expect(figure.locator("figcaption .caption-number")).to_have_count(1)
        expect(figure.locator("details.companion-data summary")).to_have_count(1)


FOCUS = """
() => {
  const element = document.activeElement;
  const { outlineStyle, outlineWidth, boxShadow } = getComputedStyle(element);
  const visible = (outlineStyle !== 'none' && parseFloat(outlineWidth) >= 1) || boxShadow !== 'none';
  return { is: element.closest('.companion-controls') ? 'control' : element.tagName, visible };
}
"""
MOVING = """
[...document.querySelectorAll('*')].filter(element => {
  const { transitionDuration, animationName } = getComputedStyle(element);
  const fades = transitionDuration.split(',').some(time => parseFloat(time) > 0);
  return animationName !== 'none' || fades;
}).map(element => element.outerHTML.slice(0, 80))
"""


@from_a_file
def test_the_keyboard_goes_from_skip_link_to_controls_to_notes_and_shows_where_it_is(open_page):
    page = open_page("book/storage-for-compute.html")
    drawn(page)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent.trim()") == "Skip to main content"
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#main-content"
    page.locator(".companion-controls input").first.focus()
    seen = [page.evaluate(FOCUS)]
    while seen[-1]["is"] != "SUMMARY" and len(seen) < 30:
        page.keyboard.press("Tab")
        seen.append(page.evaluate(FOCUS))
    assert seen[0]["is"] == "control"
    assert seen[-1]["is"] == "SUMMARY"
    assert [stop for stop in seen[1:] if not stop["visible"]] == []


@from_a_file
def test_who_wants_no_movement_gets_none(open_page):
    page = open_page("book/overview.html")
    page.emulate_media(reduced_motion="no-preference")
    assert page.evaluate(MOVING) != []
    page.emulate_media(reduced_motion="reduce")
    assert page.evaluate(MOVING) == []
