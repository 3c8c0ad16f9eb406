"""The book's search, from a file and over http: everything that the papers number leads to its place here."""

import re

import pytest
from playwright.sync_api import expect

from mooncake_companion import reported
from mooncake_companion.publish import registry

pytestmark = [pytest.mark.browser, pytest.mark.slow]
from_a_file = pytest.mark.parametrize("address", ["file"], indirect=True)  # two tests use http as well

NUMBERED = [place for place in registry.places() if re.search(r"\d$", place.place.partition(", ")[2])]
TOP = 4
"""So many results hold what was asked for, as both papers may have it, with two charts each."""


@pytest.fixture
def search(open_page):
    """Ask as a reader does, and give the first results as title and address."""
    page = open_page("search.html?q=goodput")
    expect(page.locator("#search-results .search-summary")).to_contain_text("found")

    def asked(query):
        # What the page does when it opens, without opening it anew for each of a hundred questions.
        return page.evaluate(
            """query => {
              history.replaceState(null, "", "?q=" + encodeURIComponent(query));
              return Search._performSearch(...Search._parseQuery(query)).reverse()
                .map(([page, title, anchor]) => [title, page + ".html" + anchor]);
            }""",
            query,
        )

    return asked


@pytest.fixture
def results(open_page):
    """Ask by the page itself."""

    def asked(query):
        page = open_page(f"search.html?q={query}")
        expect(page.locator("#search-results .search-summary")).to_contain_text("found")
        return page

    return asked


def wanted(place):
    """Where the book looks at a place: its figures, or else its chapter."""
    return {figure.address for figure in place.figures} or {f"book/{place.chapter}.html"}


def leads_there(address, place):
    return address in wanted(place) or (not place.figures and address.partition("#")[0] in wanted(place))


def test_a_search_shows_titles_and_links_that_lead_on(results):
    page = results("Figure 9")
    links = page.locator("#search-results ul.search > li > a")
    assert links.first.inner_text() == "FAST’25, Figure 9: Hit ratio by cache capacity"
    links.first.click()
    expect(page.locator("#fig-cache-capacity")).to_be_in_viewport()
    assert page.url.partition("#")[0].endswith("book/tiered-cache.html")


def test_what_is_typed_into_the_field_of_any_page_is_searched(open_page):
    page = open_page("book/overview.html")
    page.keyboard.press("Control+k")
    page.locator("input[name=q]:visible").fill("arXiv Table 3")
    page.keyboard.press("Enter")
    first = page.locator("#search-results ul.search > li > a").first
    expect(first).to_have_text("arXiv, Table 3: Requests rejected by admission policy")


@from_a_file
def test_each_number_of_the_papers_leads_to_its_place_whichever_paper_is_meant(search):
    missed = []
    for place in NUMBERED:
        paper, _, name = place.place.partition(", ")
        for query in (name, f"{paper} {name}", f"{name} ({paper})"):
            found = search(query)[:TOP] if query == name else search(query)[: len(wanted(place))]
            if not any(leads_there(address, place) for _, address in found):
                missed.append((query, found))
    assert missed == []


@from_a_file
def test_a_named_paper_comes_first(search):
    for name in ("Figure 9", "Table 2", "section 5.2"):
        for paper in ("FAST'25", "arXiv"):
            assert search(f"{paper} {name}")[0][0].startswith(f"{paper.replace(chr(39), '’')}, {name}: ")


@from_a_file
@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("fig. 9", "FAST’25, Figure 9"),
        ("Fig 15", "FAST’25, Figure 15"),
        ("Eq. 2", "FAST’25, Equation 2"),
        ("§5.2", "FAST’25, section 5.2"),
        ("sec. 7.4", "arXiv, section 7.4"),
        ("Algorithm 1", "FAST’25, Algorithm 1"),
        ("section A.2", "FAST’25, section A.2"),
    ],
)
def test_short_forms_are_understood(search, query, first):
    assert search(query)[0][0].startswith(f"{first}: ")


@from_a_file
def test_each_reported_number_is_found_by_its_id(search, html):
    rows = set(re.findall(r'<tr id="([^"]+)"', (html / "book" / "scoreboard.html").read_text("utf-8")))
    ids = list(reported.claims()["id"])
    assert set(ids) == rows
    for name in ids[::20]:
        assert search(name)[0] == [name, f"book/scoreboard.html#{name}"]
