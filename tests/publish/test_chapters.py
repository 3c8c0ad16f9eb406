from pathlib import Path

import pytest

from mooncake_companion.errors import InputError
from mooncake_companion.publish.chapters import CHAPTERS, find_chapter, literals
from mooncake_companion.publish.rerun import read_notebook

CHECKOUT = Path(__file__).parents[2]


@pytest.mark.parametrize("chapter", CHAPTERS.values(), ids=CHAPTERS)
def test_a_chapters_cell_holds_its_parameters_and_their_defaults(chapter):
    notebook = read_notebook(chapter.notebook(CHECKOUT))
    tagged = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    assert len(tagged) == 1
    declared = {parameter.name: parameter.default for parameter in chapter.parameters}
    in_cell = literals(tagged[0].source)
    assert in_cell == declared
    assert {name: type(value) for name, value in in_cell.items()} == {
        name: type(value) for name, value in declared.items()
    }


@pytest.mark.parametrize("source", ["a = b = 1", "a: int = 1", "a = f()", "import os", "a, b = 1, 2"])
def test_what_papermill_could_misread_is_refused(source):
    with pytest.raises(ValueError):
        literals(source)


def test_an_unknown_chapter_is_told_those_there_are():
    with pytest.raises(InputError, match="control-plane"):
        find_chapter("contol-plane")
