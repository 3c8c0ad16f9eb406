"""Python for the page: what npm gives is checked before it is used, and its lack is no failure."""

import io
import json
import re
import tarfile
import typing
from html.parser import HTMLParser
from types import SimpleNamespace

import pandas as pd
import pytest

from mooncake_companion.live.figures import LIVE
from mooncake_companion.parameters import describe
from mooncake_companion.publish import live, policy
from mooncake_companion.publish.chapters import CHAPTERS

FILES = {"pyodide.mjs": b"export const loadPyodide = 1", "pyodide.asm.wasm": b"\0asm"}


@pytest.fixture
def npm(tmp_path, monkeypatch):
    """An npm that packs what it is told to, and a cache of its own."""
    monkeypatch.setenv("MOONCAKE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(live, "PYODIDE_FILES", {name: live.checksum(body) for name, body in FILES.items()})
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def gives(files=FILES, status=0, says=""):
        packed = tmp_path / "packed.tgz"
        with tarfile.open(packed, "w:gz") as archive:
            for name, body in files.items():
                entry = tarfile.TarInfo(f"package/{name}")
                entry.size = len(body)
                archive.addfile(entry, io.BytesIO(body))
        script = folder / "npm"
        script.write_text(
            f"#!/bin/sh\necho '{says}' >&2\n"
            f'while [ "$1" != --pack-destination ]; do shift; done\n/bin/cp "{packed}" "$2"\nexit {status}\n'
        )
        script.chmod(0o755)

    return gives


def served(tmp_path):
    target = tmp_path / "html" / "pyodide"
    target.parent.mkdir(exist_ok=True)
    return live._serve_pyodide(target), target


def test_what_npm_gives_is_kept_and_served(npm, tmp_path):
    npm()
    there, target = served(tmp_path)
    assert there
    assert {file.name: file.read_bytes() for file in target.iterdir()} == FILES
    npm(status=1)  # not asked again
    (target / "pyodide.mjs").write_bytes(b"half")
    there, target = served(tmp_path)
    assert there
    assert (target / "pyodide.mjs").read_bytes() == FILES["pyodide.mjs"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"files": FILES | {"pyodide.mjs": b"evil"}}, "pyodide.mjs of the package from npm has another"),
        ({"files": {"pyodide.mjs": FILES["pyodide.mjs"]}}, "pyodide.asm.wasm"),
        ({"status": 1, "says": "no network"}, "npm cannot get it (no network)"),
    ],
)
def test_what_is_not_the_pinned_package_is_not_used(npm, tmp_path, given, told):
    npm(**given)
    problem = live._download(tmp_path / "cache" / "pyodide")
    assert told in problem
    assert not (tmp_path / "cache" / "pyodide").exists()
    assert not list((tmp_path / "cache").iterdir())
    there, target = served(tmp_path)
    assert not there
    assert not target.exists()


def test_without_npm_the_page_is_told_the_public_address(npm, tmp_path):
    (tmp_path / "html").mkdir()
    app = SimpleNamespace(outdir=str(tmp_path / "html"), confdir=str(tmp_path))
    live.write_files(app, {"another-figure": {}})
    assert not list((tmp_path / "html").iterdir())
    live.write_files(app, {"prefix-actions": {}})
    told = json.loads((tmp_path / "html/_static/live/live.json").read_text())
    assert told["pyodide"] == f"https://cdn.jsdelivr.net/npm/pyodide@{live.PYODIDE_VERSION}/"
    assert told["files"] == live.PYODIDE_FILES
    assert not (tmp_path / "html/_static/pyodide").exists()


class _Fields(HTMLParser):
    def __init__(self):
        super().__init__()
        self.fields, self.labelled, self.ids = {}, set(), set()

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        if tag in ("input", "select"):
            self.fields[named["name"]] = named
        if tag == "label":
            self.labelled.add(named["for"])
        self.ids.add(named.get("id"))


@pytest.mark.parametrize("name", LIVE)
def test_the_form_is_the_declaration(name):
    origin = {"trace": "t", "trace_source": "t", "trace_sha256": "0" * 64, "parameters": {}}
    read = _Fields()
    read.feed(live.control_html({"name": name, "usermeta": {"companion": origin}}))
    declared = {each.name: each for each in LIVE[name].fields()}
    assert read.fields.keys() == declared.keys()
    for field, found in read.fields.items():
        assert found["id"] in read.labelled
        assert set(found["aria-describedby"].split()) <= read.ids
        if declared[field].type in (int, float):
            assert float(found["min"]) == declared[field].low
            assert float(found["max"]) == declared[field].high
            assert declared[field].parse(found["value"]) == declared[field].default
    assert set(declared) - {"requests"} <= {each.name for each in describe(LIVE[name].params)}


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("transfer-tax", "bandwidth (Gbit/s)"),
        ("deployment-timeline", "window start (s)"),
        ("prefill-scheduling-ttft", "nic (bytes/s)"),
        ("prefix-break-even", "cached tokens"),
    ],
)
def test_a_label_has_the_unit_as_one_writes_it(name, label):
    origin = {"trace_source": "t", "trace_sha256": "0" * 64}
    control = live.control_html({"name": name, "usermeta": {"companion": origin}})
    assert f">{label}</label>" in control


@pytest.mark.parametrize("kept", ["true", "false"])
def test_what_is_true_or_false_is_chosen(kept):
    origin = {"trace_source": "t", "trace_sha256": "0" * 64, "parameters": {"shared_recency": kept == "true"}}
    control = live.control_html({"name": "hot-block-replicas", "usermeta": {"companion": origin}})
    options = re.search('name="shared_recency".*?>(<option.*?)</select>', control)[1]
    assert re.findall("<option( selected)?>(.*?)</option>", options) == [
        (" selected" if kept == each else "", each) for each in ("false", "true")
    ]


def test_a_figure_that_is_not_live_has_no_control():
    assert live.control_html({"name": "cache-capacity"}) == ""


@pytest.mark.parametrize(
    "start", ["<html><head>\n<meta charset='utf-8'>", '<head><meta charset="utf-8" />', ""]
)
def test_a_policy_is_renewed_and_knows_every_inline_script(start):
    page = f"{start}<script>one()</script><script src='a.js'></script><a onclick=\"window.print()\">p</a>"
    once = policy.with_policy(page)
    assert policy.with_policy(once) == once
    assert once.count("sha256-") == 1
    assert "onclick" not in once
    other = policy.with_policy(once.replace("one()", "two()"))
    assert other.count("sha256-") == 1
    assert policy.policy(page) not in other


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_sweep_of_a_chapter_measures_its_experiment_not_its_live_figure(name):
    measured = CHAPTERS[name].measure
    assert measured.__module__.startswith("mooncake_companion.experiments.")
    assert typing.get_type_hints(measured)["return"] is pd.DataFrame
