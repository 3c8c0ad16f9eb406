import json
import re
from pathlib import Path

import pytest
import rispy
import yaml
from citeproc.source.json import CiteProcJSON
from click.testing import CliRunner
from pybtex.database import parse_file, parse_string

from mooncake_companion import __version__
from mooncake_companion.cli import companion
from mooncake_companion.publish import citations, registry

CHECKOUT = Path(__file__).parents[2]
EVERYTHING = [None, *registry.figures().values()]


def told(name):
    return name.id if name else "the book"


@pytest.mark.parametrize("figure", EVERYTHING, ids=told)
def test_bibtex_is_read_by_pybtex(figure):
    entries = parse_string(citations.cite("bibtex", figure), "bibtex").entries
    assert list(entries) == [item["id"] for item in citations.items(figure)]
    for item in citations.items(figure):
        entry = entries[item["id"]]
        assert entry.fields["title"].strip("{}").replace("---", "—") == item["title"]
        assert entry.fields["url"] == item["URL"]
        assert len(entry.persons["author"]) == len(item["author"])


@pytest.mark.parametrize("figure", EVERYTHING, ids=told)
def test_ris_is_read_by_rispy(figure):
    entries = rispy.loads(citations.cite("ris", figure))
    for entry, item in zip(entries, citations.items(figure), strict=True):
        assert entry["title"] == item["title"]
        assert entry["urls"] == [item["URL"]]
        assert entry["year"] == str(item["issued"]["date-parts"][0][0])
        assert len(entry["authors"]) == len(item["author"])


@pytest.mark.parametrize("figure", EVERYTHING, ids=told)
def test_csl_json_is_read_by_citeproc(figure):
    known = CiteProcJSON(json.loads(citations.cite("csl-json", figure)))
    for item in citations.items(figure):
        assert str(known[item["id"]]["title"]) == item["title"]


def test_apa_names_all_authors_and_ends_with_the_address():
    for line, item in zip(citations.cite("apa").split("\n\n"), citations.items(), strict=True):
        assert line.strip().endswith(item["URL"])
        for author in item["author"]:
            assert author.get("family", author.get("literal")) in line


def test_a_paper_is_cited_before_the_figure_that_is_about_it():
    ids = [item["id"] for item in citations.items(registry.figure("overload-rejected"))]
    assert ids == ["qin2024mooncake", "mooncake-companion-overload-rejected"]
    assert citations.items(registry.figure("scoreboard-ratios"))[0]["id"].startswith("mooncake-companion")


def test_all_that_cites_the_papers_says_the_same():
    bibliography = parse_file(str(CHECKOUT / "book" / "references.bib")).entries
    cff = yaml.safe_load((CHECKOUT / "CITATION.cff").read_text("utf-8"))
    for item, reference in zip(citations.items(), cff["references"], strict=False):
        entry = bibliography[item["id"]]
        assert plain(entry.fields["title"]) == plain(item["title"]) == plain(reference["title"])
        families = [author["family"] for author in item["author"]]
        assert [" ".join(person.last_names) for person in entry.persons["author"]] == families
        assert [author["family-names"] for author in reference["authors"]] == families
        assert entry.fields["url"] == item["URL"] == reference["url"]
    assert cff["version"] == __version__ == citations.items()[-1]["version"]


def test_the_book_is_where_its_configuration_says():
    config = yaml.safe_load((CHECKOUT / "_config.yml").read_text("utf-8"))
    assert config["sphinx"]["config"]["html_baseurl"] == citations.book_url()


def test_the_command_prints_every_style():
    for style in citations.STYLES:
        done = CliRunner().invoke(companion, ["figures", "cite", "goodput", "--style", style])
        assert done.exit_code == 0
        assert done.stdout == citations.cite(style, registry.figure("goodput"))


def plain(title):
    return re.sub(r"[{}]", "", title).replace("---", "—")


def test_the_archive_s_metadata_say_the_same():
    archive = json.loads((CHECKOUT / ".zenodo.json").read_text("utf-8"))
    cff = yaml.safe_load((CHECKOUT / "CITATION.cff").read_text("utf-8"))
    assert archive["title"] == cff["title"]
    assert archive["license"] == cff["license"].lower()
    assert archive["keywords"] == cff["keywords"]
    assert archive["creators"] == cff["authors"]
    assert archive["description"] == " ".join(cff["abstract"].split())
    related = {entry["identifier"] for entry in archive["related_identifiers"]}
    assert {reference["url"] for reference in cff["references"]} & related
    assert citations.book_url() in related
