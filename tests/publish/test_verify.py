import hashlib
import json
from dataclasses import dataclass

import pytest
from click.testing import CliRunner

from mooncake_companion.cli import companion
from mooncake_companion.errors import InputError
from mooncake_companion.parameters import check, parameter
from mooncake_companion.publish import chapters, figures, origins
from mooncake_companion.publish.rerun import drawn_figures, rerun
from mooncake_companion.publish.verify import verify

pytestmark = pytest.mark.slow


@pytest.fixture
def exported(little_root, little, tmp_path, monkeypatch):
    monkeypatch.setitem(chapters.CHAPTERS, "little", little)
    folder = tmp_path / "exported"
    folder.mkdir()
    spec = drawn_figures(little_root, little, {"points": 5})["little-line"]
    return {path.suffix[1:]: path for path in figures.write_figure(spec, folder, figures.WRITERS)}


def test_every_kind_says_what_made_it_and_is_the_same(exported, little_root):
    assert set(exported) == {"svg", "png", "pdf", "json", "csv"}
    for file in exported.values():
        said = origins.origin(file)
        assert said["figure"] == "little-line"
        assert said["chapter_parameters"] == {"points": 5, "label": "a"}
        assert said["trace_sha256"] == "0" * 64
        verdict = verify(little_root, file)
        assert verdict.same, verdict


@pytest.mark.parametrize(
    ("kind", "old", "new", "told"),
    [
        ("csv", b"2,2", b"2,7", "1 of 12 values differ"),
        ("svg", b"aria-roledescription", b"aria-roledescriptions", "the drawing"),
        ("json", b'"y": 2', b'"y": 4', "1 of 10 values differ, by up to 1e+02 %"),
    ],
)
def test_what_was_changed_by_hand_is_different(exported, little_root, kind, old, new, told):
    content = exported[kind].read_bytes()
    assert old in content
    exported[kind].write_bytes(content.replace(old, new, 1))
    verdict = verify(little_root, exported[kind])
    assert not verdict.same
    assert told in " ".join(verdict.differences)


def test_another_model_gives_different_values_and_the_command_says_so(exported, little_root):
    chapter = little_root / "book" / "little.md"
    chapter.write_text(chapter.read_text("utf-8").replace('"y": range(points)', '"y": range(1, points + 1)'))
    command = ["figures", "verify", str(exported["pdf"]), "--json", "--root", str(little_root)]
    done = CliRunner().invoke(companion, command)
    assert done.exit_code == 1
    said = json.loads(done.stdout)
    assert (said["figure"], said["same"]) == ("little-line", False)
    assert "values" in said["differences"][-1]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.txt", b"", "no figure of this book"),
        ("a.svg", b"<svg></svg>", "no provenance"),
        ("a.png", b"GIF89a", "not a PNG"),
        ("a.pdf", b"%PDF-1.4 nothing", "no provenance"),
        ("a.json", b"[]", "no provenance"),
        ("a.json", b'{"name": "x"}', "no usermeta.companion"),
        ("a.csv", b"1,2\n", "a.csv.json is not there"),
    ],
)
def test_a_file_that_says_nothing_is_refused(tmp_path, little_root, name, content, told):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=told):
        verify(little_root, tmp_path / name)


def test_a_parameter_that_the_chapter_does_not_have_is_named(exported, little_root):
    spec = json.loads(exported["json"].read_text("utf-8"))
    spec["usermeta"]["companion"]["chapter_parameters"]["speed"] = "__import__('os')"
    exported["json"].write_text(json.dumps(spec))
    with pytest.raises(InputError, match="no parameter speed"):
        verify(little_root, exported["json"])


@pytest.mark.parametrize("chapter", ["gone", "../little", "/etc/hosts"])
def test_only_chapters_of_the_book_are_run(tmp_path, little_root, chapter):
    (tmp_path / "a.csv").write_text("1,2\n")
    said = {"figure": "little-line", "chapter": chapter, "chapter_parameters": {}}
    (tmp_path / "a.csv.json").write_text(json.dumps(said))
    with pytest.raises(InputError, match="no chapter"):
        verify(little_root, tmp_path / "a.csv")


def test_an_abyss_of_brackets_holds_no_provenance(tmp_path, little_root):
    (tmp_path / "a.json").write_text("[" * 100_000)
    with pytest.raises(InputError, match="no provenance"):
        verify(little_root, tmp_path / "a.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedParams:
    points: int = parameter(3, low=1, high=9, help="points of the line")
    trace: str = parameter("conversation", help="a trace")
    label: str = parameter("a", help="any word")

    def __post_init__(self):
        check(self)


def test_a_file_of_ones_own_is_told_by_name_and_checksum_and_given_again(little_root, tmp_path, monkeypatch):
    chapter = chapters.Chapter(name="little", params=TracedParams)
    monkeypatch.setitem(chapters.CHAPTERS, "little", chapter)
    page = little_root / "book" / "little.md"
    text = page.read_text("utf-8").replace("points = 3\n", 'points = 3\ntrace = "conversation"\n')
    page.write_text(text.replace('"label": label}', '"label": label, "trace": trace}'), "utf-8")
    mine, out = tmp_path / "private" / "mine.jsonl", tmp_path / "out"
    mine.parent.mkdir()
    mine.write_text('{"timestamp": 0, "input_length": 6, "output_length": 3, "hash_ids": [0]}\n')
    rerun(little_root, chapter, {"trace": str(mine)}, out, html=False)
    for file in (path for path in out.rglob("*") if path.is_file()):
        assert b"private" not in file.read_bytes(), file
    figure = out / "figures" / "little-line.svg"
    said = origins.origin(figure)
    assert said["chapter_parameters"]["trace"] == said["parameters"]["trace"] == "mine.jsonl"
    assert said["files_sha256"] == {"trace": hashlib.sha256(mine.read_bytes()).hexdigest()}
    with pytest.raises(InputError, match=r"made from a file of one's own, trace 'mine.jsonl'.*: -p trace"):
        verify(little_root, figure)
    moved = mine.rename(tmp_path / "another-name.jsonl")
    command = ["figures", "verify", str(figure), "-p", "trace", str(moved), "--root", str(little_root)]
    done = CliRunner().invoke(companion, command)
    assert (done.exit_code, done.stdout.splitlines()[0]) == (0, "same: figure little-line"), done.output
