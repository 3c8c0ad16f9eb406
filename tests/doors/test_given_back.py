"""What a user gives back: the folder of an earlier sweep, and the file of an exported figure."""

import json
import struct
import zlib

import pandas as pd
import pytest

from little_sweep import chapter
from mooncake_companion.errors import InputError
from mooncake_companion.publish import origins
from mooncake_companion.publish.sweep import sweep
from mooncake_companion.publish.sweep_plan import plan
from mooncake_companion.publish.verify import verify

ASKED = (("size", "1,2"), ("rate", "1.5"))


def serial(todo):
    for number, call in todo.items():
        yield number, call()


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    pytest.importorskip("pyarrow", reason="needs the extra `sweep`")
    out = tmp_path_factory.mktemp("swept") / "out"
    sweep(plan(chapter(), list(ASKED)), out, serial)
    return {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()}


@pytest.fixture
def out(swept, tmp_path):
    for name, content in swept.items():
        target = tmp_path / "out" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return tmp_path / "out"


def refusal(out):
    with pytest.raises(InputError) as caught:
        sweep(plan(chapter(), list(ASKED)), out, serial)
    assert str(caught.value).isprintable()
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is not JSON: Expecting value"),
        (b'{"chapter": "lit', "is not JSON: Unterminated string"),
        (b"\xff\xfe\x00", "is not UTF-8 text: UTF-16"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[1]", "expected an object, got list"),
        (b"{}", "chapter is None there and little here"),
        (b'{"chapter": "little", "parameters": 5}', "parameters is 5 there"),
        (b'{"chapter": "little", "parameters": {"size": 7, "rate": [1.5]}}', "size is 7 there and 1, 2 here"),
        (
            b'{"chapter": "little", "parameters": {"size": null, "\x1b[2J": 1}}',
            "is not JSON: Invalid control",
        ),
    ],
)
def test_a_record_that_was_damaged_or_is_anothers(out, content, told):
    (out / "sweep.json").write_bytes(content)
    before = sorted(out.rglob("*"))
    assert told in refusal(out)
    assert sorted(out.rglob("*")) == before


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-30]), r"is not a table of point 1 \("),
        (lambda path: path.write_bytes(b""), r"is not a table of point 1 \("),
        (lambda path: path.write_text("point,size\n"), r"is not a table of point 1 \("),
        (lambda path: pd.DataFrame({"x": [1]}).to_parquet(path), "has no column point"),
        (
            lambda path: path.write_bytes(path.with_name("000000.parquet").read_bytes()),
            "column point: got 0; expected 1",
        ),
        (
            lambda path: pd.read_parquet(path).assign(param_size="2").to_parquet(path),
            "column param_size: got '2'; expected 2",
        ),
        (lambda path: (path.unlink(), path.mkdir()), "is a folder"),
    ],
)
def test_a_point_that_is_not_what_it_was(out, change, told):
    part = out / "points" / "000001.parquet"
    change(part)
    with pytest.raises(InputError, match=told) as caught:
        sweep(plan(chapter(), list(ASKED)), out, serial)
    assert str(part) in str(caught.value)
    if part.is_file():
        part.unlink()
        assert sweep(plan(chapter(), list(ASKED)), out, serial).kept == 1


def test_tables_that_do_not_fit_together(out):
    part = out / "points" / "000001.parquet"
    pd.read_parquet(part).assign(seconds="long").to_parquet(part)
    assert f"{out / 'points'}: the tables do not fit together" in refusal(out)


def test_a_folder_that_is_taken(out):
    (out / "failed").write_text("")
    assert f"cannot write {out / 'failed'}: File exists" in refusal(out)


# --- figures ----------------------------------------------------------------------------------

SAID = {"figure": "f", "chapter": "little", "chapter_parameters": {"points": 3}, "values_sha256": "0"}


def svg(said):
    return f"<svg><metadata>{json.dumps(said)}</metadata></svg>".encode()


def png(said, cut=None):
    body = b"iTXtprovenance\0\0\0\0\0" + json.dumps(said).encode()
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    return (b"\x89PNG\r\n\x1a\n" + chunk)[:cut]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("f.gif", b"GIF89a", "no figure of this book; expected a file ending in .svg, .png"),
        ("f.svg", b"", "no <metadata>"),
        ("f.svg", svg(SAID)[:40], "no <metadata>"),
        ("f.svg", b"<svg><metadata>{</metadata></svg>", "Expecting property name"),
        ("f.svg", b"\xff" + svg(SAID), "can't decode byte 0xff"),
        ("f.svg", svg([1]), "names no figure"),
        ("f.svg", svg({"figure": 1}), "names no figure"),
        ("f.svg", svg({"figure": "\ud800"}), "surrogates not allowed"),
        ("f.svg", b"<svg><metadata>" + b"[" * 100_000 + b"</metadata>", "recursion"),
        ("f.svg", svg({**SAID, "chapter": 5}), "its provenance lacks chapter"),
        ("f.svg", svg({**SAID, "chapter": "../../etc/passwd"}), "no chapter '../../etc/passwd'"),
        ("f.svg", svg({**SAID, "chapter_parameters": [1]}), "lacks chapter_parameters"),
        ("f.png", png(SAID, 30), "the PNG is cut off at byte 30"),
        ("f.png", b"\x89PNG\r\n\x1a\n\xff\xff", "unpack_from"),
        ("f.png", svg(SAID), "not a PNG"),
        ("f.pdf", b"%PDF-1.7\n%%EOF", "not a whole PDF"),
        ("f.pdf", png(SAID), "not a whole PDF"),
        ("f.json", b'{"name": "f", "usermeta": 5}', "no usermeta.companion"),
        ("f.json", b'{"name": "f", "usermeta": {"companion": []}}', "no usermeta.companion"),
        ("f.json", b'{"usermeta": {"companion": {}}}', "'name'"),
        ("f.json", b"\x00" * 100, "Expecting value"),
        ("f.csv", b"x,y\n", "f.csv.json is not there"),
    ],
)
def test_a_file_that_says_nothing_or_nonsense_of_itself(tmp_path, name, content, told):
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "little.md").touch()
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(InputError) as caught:
        verify(tmp_path, file)
    assert str(caught.value).startswith(str(file))
    assert told in str(caught.value)


def test_a_huge_file_is_not_read_whole(tmp_path):
    file = tmp_path / "f.json"
    with file.open("wb") as handle:
        handle.truncate(3 << 30)
    with pytest.raises(InputError, match="longer than 67,108,864 bytes"):
        origins.origin(file)


@pytest.mark.parametrize(
    ("edited", "told"),
    [
        ({"prefill_nodes": 6, "nodes_": 1}, "chapter control-plane has no parameter nodes_"),
        ({"prefill_nodes": "6"}, "its provenance: parameter prefill_nodes: '6' is not a whole number"),
        (
            {"prefill_nodes": 10**30},
            "parameter prefill_nodes: 1000000000000000000000000000000 is out of range",
        ),
        (
            {"trace": "/etc/passwd"},
            "was made from a file of one's own, trace 'passwd'; say where it is: -p trace",
        ),
    ],
)
def test_an_edited_provenance_is_checked_and_no_path_in_it_followed(tmp_path, edited, told):
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "control-plane.md").touch()
    file = tmp_path / "f.svg"
    file.write_bytes(svg({**SAID, "chapter": "control-plane", "chapter_parameters": edited}))
    with pytest.raises(InputError) as caught:
        verify(tmp_path, file)
    assert told in str(caught.value)


def test_the_file_that_it_was_made_from_must_be_the_same(tmp_path):
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "control-plane.md").touch()
    file, mine = tmp_path / "f.svg", tmp_path / "mine.jsonl"
    mine.write_text("")
    made_from = {"chapter": "control-plane", "chapter_parameters": {"trace": "mine.jsonl"}}
    file.write_bytes(svg({**SAID, **made_from, "files_sha256": {"trace": "00"}}))
    with pytest.raises(InputError, match=r"not the file .* was made from; expected SHA-256 00, got e3b0"):
        verify(tmp_path, file, {"trace": mine})
    with pytest.raises(InputError, match=r"-p node .*was not made from a file of one's own called so"):
        verify(tmp_path, file, {"trace": mine, "node": mine})
