"""The register of figures, and the map from the papers to the book."""

import csv
from dataclasses import dataclass
from functools import cache
from typing import Any

from mooncake_companion.datafiles import data_path, read_toml
from mooncake_companion.errors import CompanionError, InputError


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
    with data_path("paper_map.csv").open(encoding="utf-8", newline="") as file:
        return tuple(Place(**row) for row in csv.DictReader(file))
