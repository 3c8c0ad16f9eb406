"""Where the checkout is: the sources of the book are not part of an installed wheel."""

from pathlib import Path

import yaml

from mooncake_companion.errors import CompanionError, InputError

_MARKS = ("_config.yml", "_toc.yml", "book", "src/mooncake_companion")


def find_root(given: Path | None = None) -> Path:
    """Find the folder that holds the book's sources.

    Looked for in this order: `given`, the working directory and its parents, the place of an
    editable install.

    Raises
    ------
    InputError
        If `given` is not such a folder.
    CompanionError
        If there is none: the package was installed without a checkout.
    """
    if given is not None:
        if not _is_root(given):
            raise InputError(f"--root {given}: no book there; expected a folder with {', '.join(_MARKS)}")
        return given.resolve()
    here = Path.cwd()
    for folder in (here, *here.parents, Path(__file__).parents[3]):
        if _is_root(folder):
            return folder
    raise CompanionError(
        "the book's sources are not here: an installed package holds the models, not the chapters; "
        "clone the repository and run this inside it, or name it with --root"
    )


def pages(root: Path) -> list[str]:
    """The pages of the book in their order, without endings."""
    contents = yaml.safe_load((root / "_toc.yml").read_text("utf-8"))
    parts = contents.get("parts", [contents])
    return [contents["root"], *(chapter["file"] for part in parts for chapter in part["chapters"])]


def _is_root(folder: Path) -> bool:
    return all((folder / mark).exists() for mark in _MARKS)
