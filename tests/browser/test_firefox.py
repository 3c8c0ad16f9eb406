"""Every page in Firefox: figures drawn in light and dark, controls at work by the keyboard, no error."""

import json
import os
import shutil

import pytest
from tests.browser.firefox import started
from tests.browser.test_every_page import PAGES

from mooncake_companion import traces
from mooncake_companion.live.answers import compute
from mooncake_companion.publish.live import slice_of

pytestmark = [pytest.mark.browser, pytest.mark.slow]

DRAWN = """
new Promise((done, failed) => {
  const until = Date.now() + 60000;
  const look = () => {
    const states = [...document.querySelectorAll('.companion-chart')].map(box => box.dataset.state);
    if (states.includes('failed')) failed(new Error('a figure failed'));
    else if (states.every(state => state === 'drawn')) done(states.length);
    else if (Date.now() > until) failed(new Error('figures are not drawn: ' + states));
    else setTimeout(look, 30);
  };
  look();
})
"""
# What can be seen of every figure: its size, and the colours of its texts.
LOOKS = """
[...document.querySelectorAll('.companion-chart')].map(box => {
  const { width, height } = box.querySelector('.companion-live svg').getBoundingClientRect();
  const inks = [...box.querySelectorAll('.companion-live svg text')].map(text => getComputedStyle(text).fill);
  return { name: box.dataset.name, width, height, ink: [...new Set(inks)].sort().join() };
})
"""
# The first control of the page gets the focus; a key moves it, as it would for a reader.
FOCUS = """
(() => {
  const first = document.querySelector('.vega-bind :is(input, select)');
  if (!first) return null;
  const radios = [...first.closest('.vega-bind').querySelectorAll('input[type=radio]')];
  const control = radios.find(radio => radio.checked) || first;
  control.focus();
  const atEnd = control.type === 'range' ? control.value === control.max
    : radios.length ? radios.indexOf(control) === radios.length - 1
    : control.selectedIndex === control.options.length - 1;
  return { atEnd, kind: control.type };
})()
"""
DRAWING = "document.activeElement.closest('.companion-chart').querySelector('.companion-live svg').outerHTML"
DARK = """
(async () => {
  const button = document.querySelector('.theme-switch-button');
  for (let i = 0; i < 4 && document.documentElement.dataset.theme !== 'dark'; i++) button.click();
  await new Promise(done => setTimeout(done, 500)); // until the figures have noticed, on a busy machine too
  await Promise.all([...document.querySelectorAll('.companion-chart')].map(box => box.figure.drawing));
  return document.documentElement.dataset.theme;
})()
"""
# A live figure is run with a value that is on no grid; the promise ends when its control is idle again.
RUN = """
new Promise((done, failed) => {
  const control = document.querySelector('.companion-run[data-figure=prefill-scheduling-ttft]');
  const chart = document.querySelector('#fig-prefill-scheduling-ttft .companion-chart');
  const rows = () => Object.values(chart.figure.spec.datasets)[0].filter(row => row.origin !== 'reported');
  const published = JSON.stringify(rows());
  for (const [name, value] of Object.entries(GIVEN)) control.querySelector(`[name=${name}]`).value = value;
  control.open = true;
  control.querySelector('button[type=submit]').click();
  const until = Date.now() + 90000;
  const look = () => {
    if (control.dataset.state === 'idle') done({
      error: control.querySelector('.companion-run-error').textContent,
      status: control.querySelector('.companion-run-status').textContent,
      from: chart.dataset.from,
      changed: JSON.stringify(rows()) !== published,
      rows: rows(),
    });
    else if (Date.now() > until) failed(new Error(control.textContent));
    else setTimeout(look, 100);
  };
  look();
})
"""
DOWN, UP = "\ue015", "\ue013"  # as WebDriver names the arrow keys


@pytest.fixture(scope="module")
def firefox(tmp_path_factory):
    path = os.environ.get("FIREFOX") or shutil.which("firefox-esr") or shutil.which("firefox")
    if path is None:
        missing = "no Firefox on this machine; install it or name it by the variable FIREFOX"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    profile = tmp_path_factory.mktemp("firefox")
    (profile / "user.js").write_text('user_pref("layout.css.prefers-color-scheme.content-override", 1);\n')
    with started(path, profile) as tab:
        yield tab


@pytest.mark.parametrize("path", PAGES)
def test_figures_are_drawn_a_key_moves_a_control_and_the_colours_follow_the_page(firefox, address, path):
    firefox.complaints.clear()
    firefox.at_home = ("about:", address)
    firefox.open(f"{address}/{path}")
    drawn = firefox.ask(DRAWN)
    light = firefox.ask(LOOKS)
    assert len(light) == drawn
    assert [figure for figure in light if figure["width"] < 150 or figure["height"] < 50] == []
    if address.startswith("file:"):  # over http it is the same page, which need not be moved again
        move_a_control(firefox)
        look_at_it_in_the_dark(firefox, light)
    assert firefox.complaints == []


@pytest.mark.parametrize("address", ["http"], indirect=True)
def test_a_figure_is_computed_in_the_page(firefox, address, vendored):
    firefox.complaints.clear()
    firefox.at_home = ("about:", address)
    firefox.open(f"{address}/book/control-plane.html")
    firefox.ask(DRAWN)
    given = {"requests": "60", "nodes": "7", "prefill_nodes": "3"}
    ran = firefox.ask(RUN.replace("GIVEN", json.dumps(given)))
    assert ran["error"] == ""
    assert "Done" in ran["status"]
    assert ran["from"] == "here"
    assert ran["changed"]
    outcome, _ = compute("prefill-scheduling-ttft", given, slice_of(traces.load("conversation")))
    means_s = [row["mean_s"] for row in outcome.rows]
    assert [row["mean_s"] for row in ran["rows"]] == pytest.approx(means_s, rel=1e-14)
    assert firefox.complaints == []


def move_a_control(firefox):
    control = firefox.ask(FOCUS)
    if control:
        before = firefox.ask(DRAWING)
        firefox.press(UP if control["atEnd"] and control["kind"] != "range" else DOWN)
        after = firefox.ask(f"new Promise(done => setTimeout(() => done({DRAWING}), 150))")
        assert after != before, control


def look_at_it_in_the_dark(firefox, light):
    assert firefox.ask(DARK) == "dark"
    dark = firefox.ask(LOOKS)
    firefox.ask("localStorage.clear()")
    assert [figure["name"] for figure in dark] == [figure["name"] for figure in light]
    assert all(one["ink"] != other["ink"] for one, other in zip(light, dark, strict=True) if one["ink"])
