"""The register of figures, and the map from the papers to the book."""

import dataclasses
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from mooncake_companion.datafiles import read_rows, read_toml
from mooncake_companion.errors import CompanionError, InputError

PAPERS = {"fast25": "FAST'25", "arxiv": "arXiv"}
"""How the book calls the papers, by their short names in ``data/reported/``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure of the book.

    Parameters
    ----------
    id : str
        In kebab case; never changes and never vanishes.
    title : str
    chapter : str
        The chapter that shows it.
    places : tuple of str
        What of the papers it is about, such as "FAST'25, Figure 5"; may be empty.
    since : str
        First version of the book that has it.
    """

    id: str
    title: str
    chapter: str
    places: tuple[str, ...]
    since: str

    @property
    def anchor(self) -> str:
        """Its place in the chapter's page."""
        return f"fig-{self.id}"

    @property
    def address(self) -> str:
        """Its address below the book's first page."""
        return f"book/{self.chapter}.html#{self.anchor}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A section, figure, table or equation of the papers, and the chapter about it.

    Parameters
    ----------
    place : str
        Such as "arXiv, Table 3".
    about : str
        What it says, in other words.
    chapter : str
    """

    place: str
    about: str
    chapter: str

    @property
    def anchor(self) -> str:
        """Its row's place in the page that maps the papers to the book."""
        return re.sub(r"[^a-z0-9]+", "-", self.place.replace("'", "").lower())

    @property
    def numbers(self) -> tuple[str, ...]:
        """Ids of the numbers that stand there; a section has those of its subsections."""
        return _numbers().get(self.place, ())

    @property
    def figures(self) -> tuple[Figure, ...]:
        """The book's figures about it."""
        return tuple(figure for figure in figures().values() if self.place in figure.places)


@cache
def figures() -> dict[str, Figure]:
    """All figures by id, in the order of the register."""
    table = read_toml("figures.toml")
    return {name: _figure(name, row) for name, row in table.items()}


def _figure(name: str, row: Any) -> Figure:
    try:
        return Figure(
            id=name,
            title=row["title"],
            chapter=row["chapter"],
            places=tuple(row["places"]),
            since=row["since"],
        )
    except (KeyError, TypeError) as error:
        raise CompanionError(f"data/figures.toml, table [{name}]: no right {error}") from None


def figure(name: str) -> Figure:
    """Look up a figure by its id.

    Raises
    ------
    InputError
        If there is none; the message names some that come near.
    """
    if name not in figures():
        import difflib

        near = difflib.get_close_matches(name, figures(), cutoff=0.3) or list(figures())[:3]
        raise InputError(
            f"no figure {name!r}; did you mean {', '.join(near)}? `companion figures list` has them all"
        )
    return figures()[name]


@cache
def places() -> tuple[Place, ...]:
    """What the papers hold, in their order."""
    rows = read_rows("paper_map.csv")
    columns = [field.name for field in dataclasses.fields(Place)]
    for number, row in enumerate(rows, 2):
        if list(row) != columns or None in row.values():
            raise CompanionError(
                f"data/paper_map.csv, line {number}: expected a value for each of {', '.join(columns)}"
            )
    return tuple(Place(**row) for row in rows)


@cache
def _numbers() -> dict[str, tuple[str, ...]]:
    from mooncake_companion import reported  # here, as it loads pandas

    found: dict[str, list[str]] = {}
    for claim in reported.claims().to_dict("records"):
        for place in places_of(claim["paper"], claim["section"], claim["where"]):
            found.setdefault(place, []).append(claim["id"])
    return {place: tuple(ids) for place, ids in found.items()}


def places_of(paper: str, section: str, where: str) -> tuple[str, ...]:
    """Name all places of a reported number: figures, tables, equations, and its sections with those above.

    Parameters
    ----------
    paper, section, where : str
        As in ``data/reported/claims.csv``.

    >>> places_of("fast25", "5.4.3; 2.2", "Figure 14a; Equation 1")[:3]
    ("FAST'25, Figure 14", "FAST'25, Equation 1", "FAST'25, section 5.4.3")
    """
    names = re.findall(r"(?:Figure|Table|Equation) \d+", where)
    for part in map(str.strip, section.split(";")):
        if part == "Abstract":
            names.append("abstract")
        elif part[0] == "A":
            names += [f"section {part}", "appendix"]
        elif part[0].isdigit():
            numbers = part.split(".")
            names += [f"section {'.'.join(numbers[:depth])}" for depth in range(len(numbers), 0, -1)]
    return tuple(dict.fromkeys(f"{PAPERS[paper]}, {name}" for name in names))
