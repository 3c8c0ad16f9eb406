import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from mooncake_companion import datafiles, reported
from mooncake_companion.cli import companion
from mooncake_companion.errors import CompanionError, InputError
from mooncake_companion.publish import registry

CHECKOUT = Path(__file__).parents[2]
PAPERS = {"fast25": "FAST'25", "arxiv": "arXiv"}


def test_the_register_and_the_chapters_have_the_same_figures():
    for figure in registry.figures().values():
        chapter = (CHECKOUT / "book" / f"{figure.chapter}.md").read_text("utf-8")
        assert f"name: {figure.anchor}\n" in chapter
    drawn = {
        name
        for chapter in (CHECKOUT / "book").glob("*.md")
        for name in re.findall(r"name: fig-(\S+)", chapter.read_text("utf-8"))
    }
    assert drawn == set(registry.figures())


def test_what_a_figure_is_about_is_on_the_map():
    known = {place.place for place in registry.places()}
    assert {place for figure in registry.figures().values() for place in figure.places} <= known


def test_every_place_of_a_reported_number_is_on_the_map():
    known = {place.place for place in registry.places()}
    claims = reported.claims()
    for paper, where in zip(claims["paper"], claims["where"], strict=True):
        for found in re.findall(r"(?:Figure|Table|Equation) \d+", where):
            assert f"{PAPERS[paper]}, {found}" in known


def test_every_place_has_a_chapter():
    for place in registry.places():
        assert (CHECKOUT / "book" / f"{place.chapter}.md").exists(), place


def test_an_unknown_figure_is_told_with_those_that_come_near():
    with pytest.raises(InputError, match=r"no figure 'overload-loads'.*overload-pool-loads"):
        registry.figure("overload-loads")


def test_the_command_lists_figures():
    done = CliRunner().invoke(companion, ["figures", "list", "--json", "--chapter", "overload"])
    rows = json.loads(done.stdout)
    assert {row["chapter"] for row in rows} == {"overload"}
    assert rows[0]["address"] == f"book/overload.html#fig-{rows[0]['id']}"
    plain = CliRunner().invoke(companion, ["figures", "list"]).stdout
    assert all(name in plain for name in registry.figures())
    assert isinstance(
        CliRunner().invoke(companion, ["figures", "list", "--chapter", "x"]).exception, InputError
    )


def test_no_published_id_ever_vanishes():
    lines = (Path(__file__).parent / "published_figures.txt").read_text("utf-8").splitlines()
    published = {line for line in lines if not line.startswith("#")}
    assert len(published) == len(lines) - 1
    assert published <= set(registry.figures())


def test_every_section_with_a_reported_number_is_on_the_map():
    known = {place.place for place in registry.places()}
    claims = reported.claims()
    for paper, section, where in zip(claims["paper"], claims["section"], claims["where"], strict=True):
        assert set(registry.places_of(paper, section, where)) <= known


def test_the_map_counts_each_reported_number_at_all_its_places():
    counted = {name for place in registry.places() for name in place.numbers}
    assert counted == set(reported.claims()["id"])
    by_place = {place.place: place.numbers for place in registry.places()}
    assert "fast25.fig09.hit_rate.conversation.1e5" in by_place["FAST'25, section 5.3"]
    assert len(by_place["arXiv, Table 3"]) == 3


def test_each_place_has_an_address_of_its_own():
    anchors = [place.anchor for place in registry.places()]
    assert len(set(anchors)) == len(anchors)
    assert "fast25-section-5-2-1" in anchors


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("place,about,chapter\na,b,c\nd,e\n", 3),
        ("place,about,chapter\na,b,c,d\n", 2),
        ("place,chapter\na,b\n", 2),
    ],
)
def test_a_map_edited_wrongly_is_refused_with_its_line(tmp_path, monkeypatch, text, line):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/paper_map.csv").write_text(text)
    monkeypatch.setattr(datafiles, "_PACKAGE", tmp_path)
    with pytest.raises(CompanionError, match=rf"line {line}: expected a value for each of place, about"):
        registry.places.__wrapped__()
