"""The content-security policy of every page: what a page may load and run is what the book itself is.

A policy in the page works from a file as well as over http. Inline scripts of the theme and of Sphinx
are let in one by one, by checksum; handlers written into tags, which would need more, are moved into a
script of the book.
"""

import base64
import hashlib
import re
from pathlib import Path

from sphinx.application import Sphinx

_DIRECTIVES = {
    # All that is not named below, such as the next page, which Firefox fetches beforehand.
    "default-src": "'self'",
    # WebAssembly is Python's; the live model asks for it where a server sends this policy as a header.
    "script-src": "'self' 'wasm-unsafe-eval'",
    # Vega, MathJax and the theme set styles of elements, whose checksums cannot be known beforehand.
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data: blob:",
    "font-src": "'self'",
    "connect-src": "'self'",
    "worker-src": "'self'",
    "object-src": "'none'",
    "frame-src": "'none'",
    "media-src": "'none'",
    "form-action": "'self'",
    "base-uri": "'none'",
}

_CLICKS = {"toggleFullScreen()": "full-screen", "window.print()": "print"}
"""Handlers that the theme writes into its buttons, as ``js/clicks.js`` calls them."""

_HANDLER = re.compile(r'\sonclick="([^"]*)"')
_INLINE = re.compile(r"<script(?P<attributes>[^>]*)>(?P<code>.*?)</script\s*>", re.DOTALL | re.IGNORECASE)
_DATA = re.compile(r'\b(src=|type="application/(ld\+)?json")', re.IGNORECASE)
_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
_START = re.compile(r'(<head[^>]*>\s*)?(<meta charset="[^"]*"\s*/?>)', re.IGNORECASE)


def with_policy(page: str) -> str:
    r"""A page with its policy in front of all that it governs; one that it had is replaced.

    >>> print(with_policy('<head><meta charset="utf-8" /><script>go()</script></head>').replace("; ", ";\n"))
    <head><meta charset="utf-8" /><meta http-equiv="Content-Security-Policy" content="default-src 'self';
    script-src 'self' 'wasm-unsafe-eval' 'sha256-5KYv+PUboo5h+0+YAtGRPbwv5d/QxzHslP4YGnUaxRw=';
    style-src 'self' 'unsafe-inline';
    img-src 'self' data: blob:;
    font-src 'self';
    connect-src 'self';
    worker-src 'self';
    object-src 'none';
    frame-src 'none';
    media-src 'none';
    form-action 'self';
    base-uri 'none'" /><script>go()</script></head>
    """
    page = _POLICY.sub("", page)
    page = _HANDLER.sub(_moved, page)
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy(page)}" />'
    start = _START.search(page)
    at = start.end() if start else 0
    return page[:at] + meta + page[at:]


def policy(page: str) -> str:
    """The policy of a page: that of the book, with the checksums of the page's inline scripts."""
    codes = (each["code"] for each in _INLINE.finditer(page) if not _DATA.search(each["attributes"]))
    sums = sorted({f"'sha256-{_sha256(code)}'" for code in codes})
    told = _DIRECTIVES | {"script-src": " ".join([_DIRECTIVES["script-src"], *sums])}
    return "; ".join(f"{name} {sources}" for name, sources in told.items())


def _moved(handler: re.Match[str]) -> str:
    name = _CLICKS.get(handler[1])
    return f' data-companion-click="{name}"' if name else handler[0]


def _sha256(code: str) -> str:
    return base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()


def write_policies(app: Sphinx, exception: Exception | None) -> None:
    """Give every page of a finished build its policy."""
    if exception or app.builder.format != "html":
        return
    for file in sorted(Path(app.outdir).rglob("*.html")):
        if "_static" in file.relative_to(app.outdir).parts:
            continue  # templates of the theme
        page = file.read_text("utf-8")
        changed = with_policy(page)
        if changed != page:
            file.write_text(changed, "utf-8")


def setup(app: Sphinx) -> None:
    """Register with Sphinx, behind all that writes pages."""
    app.add_js_file("js/clicks.js", defer="defer")
    app.connect("build-finished", write_policies, priority=950)
