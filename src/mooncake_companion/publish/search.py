"""What the book's search finds beside words: the papers' figures, tables, sections and numbers.

Sphinx's search splits "Figure 9" into words and drops the 9. So every place of the papers is entered
as an object with a title of its own, which the search lists with a direct link; ``search.js`` puts
those of the number that was asked for first.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils.nodes import make_id  # type: ignore[import-untyped]
from sphinx.application import Sphinx
from sphinx.domains import Domain, ObjType

from mooncake_companion import reported
from mooncake_companion.publish import registry

SCRIPT = Path("book", "_static", "js", "search.js")
SCOREBOARD = "scoreboard"

_Object = tuple[str, str, str, str, str, int]


class PapersDomain(Domain):
    """Places of the papers, and the numbers that they state, with where they are looked at here."""

    name = "papers"
    label = "The Mooncake papers"
    object_types = {  # noqa: RUF012 - as Sphinx has it
        "chart": ObjType("chart"),
        "place": ObjType("text"),
        "entry": ObjType("entry"),
        "number": ObjType("reported and modelled"),
    }

    def get_type_name(self, type: ObjType, primary: bool = False) -> str:  # noqa: A002, ARG002
        """What stands behind a result, without the name of the domain."""
        return type.lname

    def get_objects(self) -> Iterator[_Object]:
        """List all of them: name, title, kind, page, anchor, priority."""
        pages = {page.rpartition("/")[2]: page for page in self.env.found_docs}
        for place in registry.places():
            for number, figure in enumerate(place.figures):
                if figure.chapter in pages:
                    name, title = f"{place.anchor}.{figure.id}", _title(place, figure.title)
                    yield name, title, "chart", pages[figure.chapter], figure.anchor, min(number, 2)
            if not place.figures and place.chapter in pages:
                page = pages[place.chapter]
                yield place.anchor, _title(place), "place", page, make_id(self.env.titles[page].astext()), 0
            if "paper-map" in pages:
                yield f"{place.anchor}.map", _title(place), "entry", pages["paper-map"], place.anchor, 0
        if SCOREBOARD in pages:
            for name in reported.claims()["id"]:
                yield name, name, "number", pages[SCOREBOARD], name, 1

    def merge_domaindata(self, _docnames: Any, _otherdata: Any) -> None:
        """Nothing to merge: what is listed comes from the register, not from the pages."""


def _title(place: registry.Place, about: str = "") -> str:
    # A curly apostrophe, as Sphinx would turn a straight one into a character reference full of digits.
    return f"{place.place.replace(chr(39), '’')}: {about or place.about}"


def setup(app: Sphinx) -> None:
    """Register the domain, and the script that puts the results in order."""
    app.add_domain(PapersDomain)
    app.connect("config-inited", _use_script)
    app.connect("html-collect-pages", _forget_gone_words)


def _forget_gone_words(app: Sphinx) -> list[Any]:
    """Drop words that stand on no page any more: an earlier build's index brings them along, and keeps them.

    It is called after the pages are written and before the index is; it adds no page.
    """
    indexer = getattr(app.builder, "indexer", None)
    for name in ("_mapping", "_title_mapping"):
        words = getattr(indexer, name, {})
        for word in [word for word, pages in words.items() if not pages]:
            del words[word]
    return []


def _use_script(app: Sphinx, config: Any) -> None:
    if (Path(app.confdir) / SCRIPT).exists():
        config.html_search_scorer = str(SCRIPT)
