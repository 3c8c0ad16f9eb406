"""Directives of the appendix: tables made from the register, so that they cannot fall behind it."""

from collections.abc import Iterable, Iterator

from docutils import nodes  # type: ignore[import-untyped]
from docutils.statemachine import StringList  # type: ignore[import-untyped]
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from mooncake_companion.datafiles import data_path
from mooncake_companion.publish import registry
from mooncake_companion.publish.chapters import CHAPTERS


class _Table(SphinxDirective):
    """A table written as MyST text, so that its references are checked like those of any page."""

    has_content = False
    head: tuple[str, ...] = ()

    def rows(self) -> Iterator[tuple[str, ...]]:
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        for file in ("figures.toml", "paper_map.csv"):
            self.env.note_dependency(str(data_path(file)))  # the page is read anew when it changes
        lines = [_row(self.head), _row("---" for _ in self.head), *(_row(row) for row in self.rows())]
        holder = nodes.container(classes=["companion-wide"])
        self.state.nested_parse(StringList(lines, source=self.env.docname), self.content_offset, holder)
        return [holder]


class PaperMap(_Table):
    """Every section, figure, table and equation of one paper, with chapter, figures, numbers and command."""

    required_arguments = 1
    head = ("In the paper", "What it is about", "Chapter", "Figures", "Numbers", "`companion run`")

    def rows(self) -> Iterator[tuple[str, ...]]:
        """One a place whose name begins with the argument."""
        for place in registry.places():
            paper, _, where = place.place.partition(", ")
            if paper != self.arguments[0]:
                continue
            figures = ", ".join(f"{{ref}}`{each.title} <{each.anchor}>`" for each in place.figures) or "–"
            chapter = f"{{doc}}`{place.chapter}`"
            name = f"[{where[0].upper()}{where[1:]}]{{#{place.anchor}}}"
            numbers = _numbers(place)
            command = f"`{place.chapter}`" if place.chapter in CHAPTERS else "–"
            yield name, place.about, chapter, figures, numbers, command


class FigureList(_Table):
    """Every figure with its id, its chapter and what of the papers it is about."""

    head = ("Figure", "Id", "Chapter", "In the papers", "Since")

    def rows(self) -> Iterator[tuple[str, ...]]:
        """One a figure."""
        for each in registry.figures().values():
            yield (
                f"{{ref}}`{each.title} <{each.anchor}>`",
                f"`{each.id}`",
                f"{{doc}}`{each.chapter}`",
                "; ".join(each.places) or "–",
                each.since,
            )


class PageWeights(SphinxDirective):
    """Where a build writes what each page weighs, when all of them are written."""

    has_content = False

    def run(self) -> list[nodes.Node]:
        """Leave the place."""
        text = '<div class="companion-wide"><!-- page-weights --><!-- end of page-weights --></div>'
        return [nodes.raw("", text, format="html")]


def _numbers(place: registry.Place) -> str:
    """How many numbers the paper states there, with a link to the first one's row of the scoreboard."""
    if not place.numbers:
        return "–"
    return f'<a href="scoreboard.html#{place.numbers[0]}">{len(place.numbers)}</a>'


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def setup(app: Sphinx) -> None:
    """Register the directives."""
    app.add_directive("paper-map", PaperMap)
    app.add_directive("figure-list", FigureList)
    app.add_directive("page-weights", PageWeights)
