"""The built book in a browser, from a file and over http; a request to anywhere else fails the test."""

import functools
import http.server
import json
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from mooncake_companion.errors import CompanionError
from mooncake_companion.publish.build import build_book
from mooncake_companion.publish.live import PYODIDE_VERSION

CHECKOUT = Path(__file__).parents[2]
OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_arguments):
        pass


class QuietServer(http.server.ThreadingHTTPServer):
    def handle_error(self, _request, _client_address):
        """A page that is closed while it loads hangs up; what it did not get, the page's test sees."""


@pytest.fixture(scope="session")
def html():
    """The built book; building it takes seconds when nothing changed."""
    while True:
        try:
            return build_book(CHECKOUT, quiet=True).parent
        except CompanionError as error:  # tests may run side by side
            if "another build is under way" not in str(error):
                raise
            time.sleep(1)


@pytest.fixture(scope="session")
def vendored(html):
    """What the book says of Python for the page, if it brings that along, as it does where npm can get it."""
    told = json.loads((html / "_static/live/live.json").read_text("utf-8"))
    if not told["pyodide"].startswith("."):
        missing = "this book does not bring Pyodide along"
        pytest.fail(f"{missing}, though npm can get it") if npm_has_pyodide() else pytest.skip(missing)
    return told


def npm_has_pyodide():
    asks = ["npm", "view", f"pyodide@{PYODIDE_VERSION}", "version"]
    try:
        subprocess.run(asks, capture_output=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):  # it is not there, or gets no answer
        return False
    return True


@pytest.fixture(scope="session")
def chromium():
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        missing = "no chromium on this machine; install it or name it by the variable CHROMIUM"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture(scope="session", params=["file", "http"])
def address(request, html):
    if request.param == "file":
        yield html.as_uri()
        return
    handler = functools.partial(QuietHandler, directory=html)
    with QuietServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def open_page(chromium, address):
    """Open a page of the book; at the end, see that it asked nobody else and logged no error."""
    contexts, complaints = [], []

    def requested(request):
        if not request.url.startswith((address, "data:", "blob:")):
            complaints.append(f"outside request: {request.url}")

    def failed(request):
        if request.failure != "net::ERR_ABORTED":  # as a page's icon is when the page closes too soon
            complaints.append(f"failed request: {request.url}: {request.failure}")

    def logged(message):
        if message.type == "error":
            complaints.append(f"console: {message.text}")

    def opened(path, *, width=1280, colours="light"):
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=colours)
        contexts.append(context)
        page = context.new_page()
        page.on("request", requested)
        page.on("requestfailed", failed)
        page.on("console", logged)
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.goto(f"{address}/{path}")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []
