import csv
import gzip

import pytest

from mooncake_companion.publish import weights

PAGE = """<html><head><title>Title &amp; more \u2014 Book</title>
<link rel="stylesheet" href="../_static/a.css?v=1"><link rel="preload" as="script" href="../_static/b.js">
<link rel="next" href="other.html"><script src="../_static/b.js?v=2"></script>
<script src="https://elsewhere.example/x.js"></script></head>
<body><i class="fas fa-rocket"></i><svg><title>not the page's</title></svg>
<div class="companion-chart"><img src="../figures/f.svg"></div>
<p>Not far from fab.</p>
<!-- page-weights -->{}<!-- end of page-weights --></body></html>"""


@pytest.fixture
def folder(tmp_path):
    for name, content in {
        "book/page.html": PAGE.format("").encode(),
        "_static/a.css": b'@import "base.css"; @font-face{src:url(fonts/fa-solid-900.woff2)}',
        "_static/base.css": b"@font-face{src:url(fonts/fa-brands-400.woff2)} i{src:url('data:font/x.woff2')}",
        "_static/b.js": b"1;" * 1000,
        "_static/fonts/fa-solid-900.woff2": bytes(300),
        "_static/fonts/fa-brands-400.woff2": bytes(500),
        "figures/f.svg": b"<svg></svg>" * 100,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return tmp_path.resolve()


def compressed(path):
    return len(gzip.compress(path.read_bytes(), 9, mtime=0))


def test_a_page_weighs_what_a_browser_fetches_with_it_each_once(folder):
    found = weights.weigh(folder / "book" / "page.html", folder)
    assert (found.page, found.title, found.figures) == ("page", "Title & more", 1)
    assert found.image_bytes == compressed(folder / "figures" / "f.svg")
    scripts_and_styles = sum(compressed(folder / "_static" / n) for n in ("a.css", "base.css", "b.js"))
    assert found.shared_bytes == scripts_and_styles + 300  # the font that is used, as it is
    assert found.first_visit_bytes == found.page_bytes + found.image_bytes + found.shared_bytes


def test_the_table_goes_into_the_page_and_into_a_file(folder, monkeypatch):
    times = {"measured": {"by": "a browser"}, "pages": {}}
    monkeypatch.setattr(weights, "recorded", lambda: times)
    (found,) = weights.write_weights(folder, ["book/page"], folder / "weights.csv")
    page = (folder / "book" / "page.html").read_text("utf-8")
    assert '<td><a href="page.html">Title &amp; more</a></td><td>1</td>' in page
    assert "not measured" in page
    with (folder / "weights.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert row["first_visit_bytes"] == str(found.first_visit_bytes)
    assert row["first_figure_s"] == ""


def test_writing_the_table_again_changes_nothing_else(folder, monkeypatch):
    monkeypatch.setattr(weights, "recorded", lambda: {"measured": {}, "pages": {}})
    seen = []
    for _ in range(3):
        weights.write_weights(folder, ["book/page"], folder / "weights.csv")
        seen.append((folder / "book" / "page.html").read_bytes())
    assert seen[0] == seen[1] == seen[2]
    assert seen[0].count(b"<table") == 1


@pytest.mark.parametrize(
    ("then", "told"),
    [(None, "not measured"), (1000, "0.50 s"), (950, "0.50 s"), (800, "0.50 s (when it weighed 1 kB)")],
)
def test_a_time_cannot_go_stale_unseen(then, told):
    now = weights.Weight(page="p", title="P", figures=1, page_bytes=600, image_bytes=100, shared_bytes=300)
    time = None if then is None else {"first_figure_s": 0.5, "first_visit_bytes": then}
    assert weights.first_figure(now, time) == told
