"""What holds of every page: figures drawn, each control at work, links that lead somewhere, little weight."""

import gzip
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]
from_a_file = pytest.mark.parametrize("address", ["file"], indirect=True)  # other tests use http as well

CHECKOUT = Path(__file__).parents[2]
MOST_COMPRESSED_BYTES = 3_000_000
_CONTENTS = yaml.safe_load((CHECKOUT / "_toc.yml").read_text("utf-8"))
PAGES = [
    f"{name}.html"
    for name in (_CONTENTS["root"], *(c["file"] for part in _CONTENTS["parts"] for c in part["chapters"]))
]

# Every control in turn is moved to its ends or choices, the others as they were at first; what is drawn must
# follow. A control that rests then may matter only under another setting of one of the others.
DRIVE = """
async box => {
  const drawing = () => box.querySelector('.companion-live svg').outerHTML;
  const settled = () => new Promise(done => setTimeout(done, 60));
  const moved = (input, value) => { input.value = value; input.dispatchEvent(new Event('input')); };
  const chosen = (menu, i) => { menu.selectedIndex = i; menu.dispatchEvent(new Event('change')); };

  const controls = [...box.querySelectorAll('.vega-bind')].map(bind => {
    const name = bind.querySelector('.vega-bind-name')?.textContent.trim() ?? '?';
    const range = bind.querySelector('input[type=range]');
    if (range) {
      const first = range.value, middle = (Number(range.min) + Number(range.max)) / 2;
      const settings = [range.min, middle, range.max].map(value => () => moved(range, value));
      return { name, settings, reset: () => moved(range, first) };
    }
    const menu = bind.querySelector('select');
    if (menu) {
      const first = menu.selectedIndex;
      const settings = [...menu.options].map((_, i) => () => chosen(menu, i));
      return { name, settings, reset: () => chosen(menu, first) };
    }
    const buttons = [...bind.querySelectorAll('input')];
    const first = buttons.find(button => button.checked);
    const settings = buttons.map(button => () => button.click());
    return { name, settings, reset: () => first && first.click() };
  });

  async function works(control) {
    const seen = new Set([drawing()]);
    for (const set of control.settings) { set(); await settled(); seen.add(drawing()); }
    control.reset(); await settled();
    return seen.size > 1;
  }

  async function worksUnderAnother(control) {
    for (const other of controls) if (other !== control) for (const set of other.settings) {
      set(); await settled();
      const found = await works(control);
      other.reset(); await settled();
      if (found) return true;
    }
    return false;
  }

  const idle = [];
  for (const control of controls)
    if (!await works(control) && !await worksUnderAnother(control)) idle.push(control.name);
  return idle;
}
"""


@from_a_file
@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_all_figures_are_drawn_and_a_phone_never_scrolls_sideways(open_page, path, colours):
    page = open_page(path, width=360, colours=colours)
    for chart in page.locator(".companion-chart").all():
        expect(chart).to_have_attribute("data-state", "drawn", timeout=30_000)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


# Figures of a page that are wider than their place, without a box that scrolls, or whose text is tiny.
UNREADABLE = """
async () => {
  await new Promise(done => setTimeout(done, 250));
  const boxes = [...document.querySelectorAll('.companion-chart')];
  await Promise.all(boxes.map(box => box.figure.drawing));
  return boxes.filter(box => {
    const svg = box.querySelector('.companion-live svg');
    const scrolls = box.querySelector('.companion-scroll').tabIndex === 0;
    const sizes = [...svg.querySelectorAll('text')].map(text => parseFloat(getComputedStyle(text).fontSize));
    const wide = svg.getBoundingClientRect().width > box.clientWidth + 1;
    return Math.min(...sizes) < 9.5 || (wide && !scrolls);
  }).map(box => box.dataset.name);
}
"""


@from_a_file
@pytest.mark.parametrize("path", PAGES)
def test_a_tablet_and_a_wide_screen_show_the_page_in_its_width(open_page, path):
    page = open_page(path, width=768)
    for chart in page.locator(".companion-chart").all():
        expect(chart).to_have_attribute("data-state", "drawn", timeout=30_000)
    for width in (768, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        for _ in range(20):  # until side bars have moved and figures have followed
            if not (unreadable := page.evaluate(UNREADABLE)):
                break
        assert unreadable == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@from_a_file
@pytest.mark.parametrize("path", PAGES)
def test_every_control_changes_what_is_drawn(open_page, path):
    page = open_page(path)
    for chart in page.locator(".companion-chart").all():
        expect(chart).to_have_attribute("data-state", "drawn", timeout=30_000)
        idle = chart.evaluate(DRIVE)
        assert idle == [], f"figure {chart.get_attribute('data-name')}"


@from_a_file
@pytest.mark.parametrize("path", PAGES)
def test_every_control_can_be_reached_and_has_a_name(open_page, path):
    page = open_page(path)
    for chart in page.locator(".companion-chart").all():
        expect(chart).to_have_attribute("data-state", "drawn", timeout=30_000)
    for control in page.locator(".vega-bind input, .vega-bind select").all():
        assert control.evaluate("control => control.tabIndex") == 0
    unnamed = page.locator(".vega-bind :is(input[type=range], select):not([aria-label])")
    assert unnamed.count() == 0


@pytest.mark.parametrize("path", PAGES)
def test_no_page_is_heavy(html, path):
    assert len(gzip.compress((html / path).read_bytes())) < MOST_COMPRESSED_BYTES


def test_every_link_within_the_book_leads_somewhere(html):
    anchors = {}
    broken = []
    for path in PAGES:
        for link in parsed(html / path, anchors)[1]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (html / path).parent / unquote(parts.path) if parts.path else html / path
            known = parsed(target, anchors)[0] if target.suffix == ".html" and target.exists() else {""}
            if not target.exists() or (parts.fragment and unquote(parts.fragment) not in known):
                broken.append((path, link))
    assert broken == []


class _Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.ids, self.links = {"top"}, []

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        self.ids.update(value for key, value in attrs if key in ("id", "name") and value)
        link = named.get("href" if tag in ("a", "link") else "src")
        if link and link != "#" and not link.startswith(("javascript:", "data:", "mailto:")):
            self.links.append(link)


def parsed(path, known):
    path = path.resolve()
    if path not in known:
        page = _Page()
        page.feed(path.read_text("utf-8"))
        known[path] = (page.ids, page.links)
    return known[path]
