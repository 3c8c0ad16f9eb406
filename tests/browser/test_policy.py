"""The content-security policy: every page keeps it, from a file and over http, and it keeps others out."""

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]

WATCH = """
window.violations = [];
document.addEventListener('securitypolicyviolation', event =>
  window.violations.push(`${event.effectiveDirective} ${event.blockedURI} ${event.sample}`));
"""
INTRUDE = """
async () => {
  const script = document.createElement('script');
  script.textContent = 'window.intruded = 1';
  document.body.append(script);
  const button = document.createElement('button');
  button.setAttribute('onclick', 'window.intruded = 2');
  document.body.append(button);
  button.click();
  // Later, as what is evaluated at once for a debugger may do so.
  setTimeout(() => { try { window.intruded = eval('3'); } catch { /* as it must */ } }, 0);
  const picture = new Image();
  picture.src = 'http://127.0.0.1:9/picture.png';
  await fetch('http://127.0.0.1:9/').catch(() => 0);
  await new Promise(done => setTimeout(done, 100));
  return window.intruded;
}
"""


def every_page(html):
    found = (file.relative_to(html).as_posix() for file in html.rglob("*.html"))
    return sorted(path for path in found if not path.startswith("_static/"))


def test_every_page_keeps_the_policy(chromium, address, html):
    pages = [path for path in every_page(html) if path != "index.html"]  # leads on to the overview
    assert len(pages) > 20
    context, errors = chromium.new_context(), []
    page = context.new_page()
    page.add_init_script(WATCH)
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    for path in pages:
        page.goto(f"{address}/{path}")
        for chart in page.locator(".companion-chart").all():
            expect(chart).to_have_attribute("data-state", "drawn", timeout=15_000)
        assert page.evaluate("window.violations") == [], path
        assert errors == [], path
    context.close()


def test_what_does_not_belong_to_the_page_does_not_run(chromium, address):
    context = chromium.new_context()
    page = context.new_page()
    page.add_init_script(WATCH)
    page.goto(f"{address}/book/overview.html")
    assert page.evaluate(INTRUDE) is None
    blocked = page.evaluate("window.violations.map(each => each.split(' ')[0])")
    assert {"script-src-elem", "script-src-attr", "script-src", "img-src", "connect-src"} <= set(blocked)
    context.close()


@pytest.mark.parametrize("address", ["http"], indirect=True)
def test_the_themes_buttons_still_work(open_page):
    page = open_page("book/overview.html")
    page.evaluate("window.print = () => { window.printed = true }")
    page.locator("[data-companion-click=print]").evaluate("button => button.click()")
    assert page.evaluate("window.printed")
    page.evaluate("Element.prototype.requestFullscreen = () => { window.filled = true }")
    page.locator("[data-companion-click=full-screen]").first.evaluate("button => button.click()")
    assert page.evaluate("window.filled")
    assert page.locator("[onclick]").count() == 0


def test_every_page_has_a_policy_before_anything_that_it_governs(html):
    for path in every_page(html):
        text = (html / path).read_text("utf-8")
        at = text.index('<meta http-equiv="Content-Security-Policy" content="default-src \'self\'')
        assert not {"<script", "<link", "<style", "<img"} & {
            tag for tag in ("<script", "<link", "<style", "<img") if tag in text[:at]
        }
        assert "unsafe-eval'" not in text[at : text.index("/>", at)].replace("'wasm-unsafe-eval'", "")
        assert text.count("Content-Security-Policy") == 1
