"""How to cite a figure, or the whole: as BibTeX, RIS, CSL-JSON, or in the style of the APA.

A figure that is about one of the papers' is cited with that paper first.
"""

import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from mooncake_companion import __version__
from mooncake_companion.datafiles import read_json
from mooncake_companion.publish.registry import Figure

Item = dict[str, Any]

PAPERS = {"FAST'25": "qin2025mooncake", "arXiv": "qin2024mooncake"}
"""The papers by the name under which the book points at their places."""
COMPANION = "mooncake-companion"

_BIBTEX_KINDS = {
    "paper-conference": "inproceedings",
    "report": "techreport",
    "software": "misc",
    "graphic": "misc",
}
_RIS_KINDS = {"paper-conference": "CPAPER", "report": "RPRT", "software": "COMP", "graphic": "FIGURE"}


@cache
def _known() -> dict[str, Item]:
    items = read_json("citations.json")
    return {item["id"]: item for item in items}


def book_url() -> str:
    """Where the book is published, with a slash at its end."""
    return str(_known()[COMPANION]["URL"])


def items(figure: Figure | None = None) -> list[Item]:
    """What to cite, in CSL-JSON: the papers that are concerned first, then this book.

    Parameters
    ----------
    figure : Figure, optional
        If given, only the papers that it is about, and the book's entry is of the figure.
    """
    book = {**_known()[COMPANION], "version": __version__}
    if figure is None:
        return [*(_known()[key] for key in PAPERS.values()), book]
    about = [place.partition(",")[0] for place in figure.places]
    papers = [_known()[key] for paper, key in PAPERS.items() if paper in about]
    return [
        *papers,
        {
            **book,
            "id": f"{COMPANION}-{figure.id}",
            "type": "graphic",
            "title": f"{figure.title} (figure {figure.id})",
            "container-title": book["title"],
            "URL": book_url() + figure.address,
        },
    ]


def cite(style: str, figure: Figure | None = None) -> str:
    """Write the entries of `items` in one of `STYLES`; the text ends with a line's end."""
    return STYLES[style](items(figure))


def _bibtex(entries: Sequence[Item]) -> str:
    return "\n".join(map(_bibtex_entry, entries))


def _bibtex_entry(item: Item) -> str:
    kind = _BIBTEX_KINDS[item["type"]]
    place = {"inproceedings": "booktitle", "misc": "howpublished"}.get(kind)
    fields = {
        "author": " and ".join(_family_first(author) for author in item["author"]),
        "title": "{" + item["title"].replace("—", "---") + "}",
        **({place: item["container-title"]} if place and "container-title" in item else {}),
        "year": _year(item),
        "pages": item.get("page", "").replace("–", "--"),
        "institution" if kind == "techreport" else "publisher": item.get("publisher", ""),
        "address": item.get("publisher-place", ""),
        "number": item.get("number", ""),
        "isbn": item.get("ISBN", ""),
        "note": f"Version {item['version']}" if "version" in item else "",
        "url": item["URL"],
    }
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
    return "\n".join([f"@{kind}{{{item['id']},", *lines, "}", ""])


def _ris(entries: Sequence[Item]) -> str:
    return "\n".join(map(_ris_entry, entries))


def _ris_entry(item: Item) -> str:
    first, _, last = item.get("page", "").partition("–")
    tags = [
        ("TY", _RIS_KINDS[item["type"]]),
        *(("AU", _plain_family_first(author)) for author in item["author"]),
        ("TI", item["title"]),
        ("T2", item.get("container-title", "")),
        ("PY", _year(item)),
        ("SP", first),
        ("EP", last),
        ("PB", item.get("publisher", "")),
        ("CY", item.get("publisher-place", "")),
        ("M1", item.get("number", "")),
        ("SN", item.get("ISBN", "")),
        ("ET", item.get("version", "")),
        ("UR", item["URL"]),
        ("ID", item["id"]),
    ]
    return "".join(f"{tag}  - {value}\n" for tag, value in tags if value) + "ER  - \n"


def _csl_json(entries: Sequence[Item]) -> str:
    return json.dumps(list(entries), indent=1, ensure_ascii=False) + "\n"


def _apa(entries: Sequence[Item]) -> str:
    return "\n".join(f"{_apa_entry(item)}\n" for item in entries)


def _apa_entry(item: Item) -> str:
    names = [_apa_name(author) for author in item["author"]]
    authors = names[0] if len(names) == 1 else f"{', '.join(names[:-1])}, & {names[-1]}"
    title = item["title"].replace(" — ", "—")
    match item["type"]:
        case "paper-conference":
            source = f"{title}. In {item['container-title']} (pp. {item['page']}). {item['publisher']}."
        case "report":
            source = f"{title} ({item['number']}). {item['publisher']}."
        case "graphic":
            source = f"{title} [Figure]. In {item['container-title']} (Version {item['version']})."
        case _:
            source = f"{title} (Version {item['version']}) [Computer software]."
    ending = "" if authors.endswith(".") else "."
    return f"{authors}{ending} ({_year(item)}). {source} {item['URL']}"


def _family_first(author: Item) -> str:
    return "{" + author["literal"] + "}" if "literal" in author else _plain_family_first(author)


def _plain_family_first(author: Item) -> str:
    return str(author["literal"]) if "literal" in author else f"{author['family']}, {author['given']}"


def _apa_name(author: Item) -> str:
    if "literal" in author:
        return str(author["literal"])
    initials = " ".join(f"{part[0]}." for part in author["given"].split())
    return f"{author['family']}, {initials}"


def _year(item: Item) -> str:
    return str(item["issued"]["date-parts"][0][0])


STYLES: dict[str, Callable[[Sequence[Item]], str]] = {
    "bibtex": _bibtex,
    "ris": _ris,
    "csl-json": _csl_json,
    "apa": _apa,
}
"""The styles by name, each with what writes it."""
