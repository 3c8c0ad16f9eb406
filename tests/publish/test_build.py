import json
import os
import shutil

import pytest
import yaml

from mooncake_companion.errors import CompanionError, InputError
from mooncake_companion.publish.build import build_book, building, useful_lines
from mooncake_companion.publish.dependencies import content_hash
from mooncake_companion.publish.glued import published_numbers
from mooncake_companion.publish.sphinx_ext import origin_html


def snapshot(folder):
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def executions(root):
    """How often the chapter ran: jupyter-cache numbers its entries."""
    return len(list((root / "_build" / ".jupyter_cache" / "executed").glob("*")))


@pytest.mark.slow
def test_a_book_is_built_whole_and_again_the_same(little_root, tmp_path):
    page = build_book(little_root, quiet=True)
    html = page.parent
    chapter = (html / "book" / "little.html").read_text("utf-8")
    assert 'id="fig-little-line"' in chapter
    assert "Data: made up." in chapter
    assert "points = 3" in chapter
    for ending in ("svg", "png", "json", "csv"):
        assert f'href="../figures/little-line.{ending}"' in chapter
        assert (html / "figures" / f"little-line.{ending}").exists()
    assert "https://cdn" not in chapter
    assert json.loads((html / "figures" / "little-line.json").read_text())["name"] == "little-line"
    first = snapshot(html)
    for folder in (html, little_root / "_build" / ".doctrees"):
        shutil.rmtree(folder)  # the outputs are kept, and give the same pages
    build_book(little_root, quiet=True)
    kept = snapshot(html)
    assert [name for name in first if first[name] != kept.get(name)] == []
    (little_root / "_build").rename(tmp_path / "first")
    build_book(little_root, quiet=True)
    second = snapshot(html)
    assert [name for name in first if first[name] != second.get(name)] == []
    (little_root / "data" / "new.csv").write_text("1")  # runs the chapter again, to the same end
    build_book(little_root, quiet=True)
    third = snapshot(html)
    assert [name for name in first if first[name] != third.get(name)] == []
    overview = little_root / "book" / "overview.md"
    text = overview.read_text("utf-8")
    for words, known in ((f"{text}\nFleetingly.\n", True), (text, False)):
        overview.write_text(words, "utf-8")
        build_book(little_root, quiet=True)
        assert ('"fleetingli"' in (html / "searchindex.js").read_text("utf-8")) == known
    last = snapshot(html)
    assert [name for name in first if first[name] != last.get(name)] == []
    # What all pages share, and a page that another one's numbers and the search's index hang on.
    style, overview = (
        little_root / "book" / "_static" / "css" / "book.css",
        little_root / "book" / "overview.md",
    )
    style.write_text(style.read_text("utf-8") + "\n/* changed */\n", "utf-8")
    build_book(little_root, quiet=True)
    glossary = "\n```{glossary}\nnewness\n: Of a word.\n```\n"
    overview.write_text(overview.read_text("utf-8") + glossary, "utf-8")
    build_book(little_root, quiet=True)
    references = little_root / "book" / "references.md"
    references.write_text(references.read_text("utf-8") + "\nMore.\n", "utf-8")
    build_book(little_root, quiet=True)
    fourth = snapshot(html)
    (little_root / "_build" / "html").rename(tmp_path / "html")
    (little_root / "_build" / ".doctrees").rename(tmp_path / "doctrees")
    build_book(little_root, quiet=True)
    assert [name for name in fourth if fourth[name] != snapshot(html).get(name)] == []


@pytest.mark.slow
def test_a_chapter_runs_again_when_data_change_and_not_otherwise(little_root):
    text = (little_root / "book" / "little.md").read_text("utf-8")
    assert published_numbers(little_root, text, "little") is None
    for content, expected in (("1", 1), ("1", 1), ("2", 2), ("1", 2)):
        (little_root / "data" / "value.csv").write_text(content)
        build_book(little_root, quiet=True)
        assert executions(little_root) == expected
        assert published_numbers(little_root, text, "little") == {"last point": 2}
    with building(little_root):  # may be half-written
        assert published_numbers(little_root, text, "little") is None
    assert published_numbers(little_root, f"{text}\nMore prose.\n", "little") == {"last point": 2}
    assert published_numbers(little_root, text.replace("points = 3", "points = 4"), "little") is None
    (little_root / "data" / "value.csv").write_text("3")
    assert published_numbers(little_root, text, "little") is None


@pytest.mark.slow
def test_pages_can_move_to_another_part(little_root):
    build_book(little_root, quiet=True)
    contents = yaml.safe_load((little_root / "_toc.yml").read_text())
    first, last = contents.pop("chapters")
    contents["parts"] = [{"numbered": True, "chapters": [first]}, {"chapters": [last]}]
    (little_root / "_toc.yml").write_text(yaml.safe_dump(contents))
    assert build_book(little_root, quiet=True).exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ('description="A rising line."', 'description=" "', "no description"),
        ("name: fig-little-line", "name: fig-other", "must name its figure"),
        ('y="y:Q")', 'y="y:Q") + alt.Chart(table.head(1)).mark_point()', "has 2 tables"),
    ],
)
def test_a_fault_fails_the_build_each_time(little_root, right, wrong, told):
    chapter = little_root / "book" / "little.md"
    chapter.write_text(chapter.read_text("utf-8").replace(right, wrong), "utf-8")
    for _ in range(2):
        with pytest.raises(CompanionError, match=told):
            build_book(little_root, quiet=True)


def test_a_folder_that_cannot_be_written_is_told_before_anything_runs(little_root):
    (little_root / "_build").write_text("in the way")
    with pytest.raises(InputError, match=r"cannot write .*_build: File exists"):
        build_book(little_root, quiet=True)


@pytest.mark.slow
def test_a_changed_script_reaches_the_pages_without_running_a_chapter(little_root):
    page = build_book(little_root, quiet=True).parent / "book" / "little.html"
    script = little_root / "book" / "_static" / "js" / "tables.js"
    before = page.read_text("utf-8")
    image = page.parents[1] / "figures" / "little-line.svg"
    drawn = image.read_bytes()
    image.write_text("as an earlier version drew it")
    build_book(little_root, quiet=True)
    assert image.read_bytes() != drawn  # nothing changed
    script.write_text("/* another */")
    os.utime(script, (page.stat().st_mtime + 5,) * 2)
    build_book(little_root, quiet=True)
    assert (page.parents[1] / "_static" / "js" / "tables.js").read_text("utf-8") == "/* another */"
    assert page.read_text("utf-8") != before  # names the script with its checksum
    assert image.read_bytes() == drawn
    assert executions(little_root) == 1


def test_of_a_log_only_the_complaints_are_told():
    complaint = "book/a.md:3: WARNING: no such figure"
    log = f"\x1b[31m{complaint}\x1b[0m\nreading\nRuntimeError:\n{complaint}\n"
    assert useful_lines(log) == complaint
    assert useful_lines("killed\n") == "killed"


def test_the_hash_follows_names_and_contents(tmp_path):
    seen = set()
    for name, text in (("a", "1"), ("a", "2"), ("b", "2")):
        folder = tmp_path / f"{name}{text}" / "src"
        folder.mkdir(parents=True)
        (folder / name).write_text(text)
        seen.add(content_hash(folder.parent, ["src"]))
        assert content_hash(folder.parent, ["src"], "other machine") not in seen
    assert len(seen) == 3


def test_the_origin_is_told_as_text_not_as_markup():
    told = origin_html({"trace_source": "<b>", "parameters": {"p": "<i>"}})
    assert "&lt;b&gt;" in told
    assert "p = &lt;i&gt;" in told
    assert "with 1 parameter<" in told
    assert origin_html({}) == ""


def test_a_parameter_without_a_value_is_not_told():
    told = origin_html({"parameters": {"trace": "", "nodes": 16, "seed": 0}})
    assert "trace" not in told
    assert "with 2 parameters<" in told
    assert "seed = 0" in told
    assert origin_html({"parameters": {"trace": ""}}) == ""
