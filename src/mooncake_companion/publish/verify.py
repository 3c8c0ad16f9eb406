"""See whether an exported figure is what the installed version makes of the same parameters."""

import csv
import io
import json
import math
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from mooncake_companion import __version__
from mooncake_companion.datafiles import read_bytes, require_plain_file, unreadable
from mooncake_companion.errors import CompanionError, InputError, shown
from mooncake_companion.parameters import Value
from mooncake_companion.publish import figures, origins, own_files
from mooncake_companion.publish.chapters import Chapter, any_chapter
from mooncake_companion.publish.rerun import drawn_figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came out.

    Parameters
    ----------
    figure : str
        Id of the figure.
    same : bool
        Whether the file holds the values that were computed anew, and is drawn like them.
    differences : tuple of str
        What differs, in words; may name another version or commit even where the figure is the same.
    """

    figure: str
    same: bool
    differences: tuple[str, ...]


def verify(root: Path, file: Path, own: Mapping[str, Path] | None = None) -> Verdict:
    """Run a figure's chapter again with the parameters that the file names, and compare.

    Parameters
    ----------
    root : Path
        The checkout.
    file : Path
        An exported SVG, PNG, PDF, JSON or CSV; the latter with its ``.csv.json`` beside it.
    own : mapping, optional
        Where the files of one's own lie that it was made from, by parameter. It has their names and
        checksums, and no path of it is followed.

    Raises
    ------
    InputError
        If the file says nothing of what made it, the book has no such chapter or parameters, or a file
        that it was made from is not given or is another.
    CompanionError
        If the chapter fails, or no longer draws the figure.
    """
    said = origins.origin(file)
    chapter, values = _made_by(root, file, said)
    with tempfile.TemporaryDirectory() as folder:
        values |= _given(file, said, values, own or {}, Path(folder))
        return _compared(root, file, said, chapter, values)


def _compared(
    root: Path, file: Path, said: Mapping[str, Any], chapter: Chapter, values: Mapping[str, Value]
) -> Verdict:
    name = said["figure"]
    drawn = drawn_figures(root, chapter, values)
    if name not in drawn:
        raise CompanionError(f"{file}: chapter {chapter.name} draws no figure {shown(name)!r} any more")
    anew = figures.provenance(drawn[name])
    differences = [
        f"{title}: recorded {shown(str(said.get(key)), 64)}, now {anew.get(key)}"
        for key, title in (("companion_version", "version"), ("commit", "commit"), ("trace_sha256", "trace"))
        if said.get(key) not in (None, anew.get(key))
    ]
    recorded = {**drawn[name], "usermeta": {"companion": {k: v for k, v in said.items() if k != "figure"}}}
    values_same = said.get("values_sha256") == anew["values_sha256"]
    if not values_same:
        differences.append(f"values: {_difference(file, drawn[name])}")
    made = figures.WRITERS[file.suffix[1:]](recorded)
    drawing_same = read_bytes(file) == (made if isinstance(made, bytes) else made.encode())
    if values_same and not drawing_same:
        kind = "the table" if file.suffix == ".csv" else "the drawing"
        differences.append(f"{kind}: {_difference(file, drawn[name])}")
    return Verdict(figure=name, same=values_same and drawing_same, differences=tuple(differences))


def _made_by(root: Path, file: Path, said: Mapping[str, Any]) -> tuple[Chapter, dict[str, Value]]:
    for key, kind in (("chapter", str), ("chapter_parameters", dict)):
        if not isinstance(said.get(key), kind):
            raise InputError(
                f"{file}: its provenance lacks {key}; exported by a version before {__version__}?"
            )
    if said["chapter"] not in {page.stem for page in (root / "book").glob("*.md")}:
        raise InputError(f"{file}: this book has no chapter {shown(said['chapter'])!r}")
    chapter = any_chapter(said["chapter"])
    known = {declared.name: declared for declared in chapter.parameters}
    given = said["chapter_parameters"]
    if unknown := given.keys() - known.keys():
        told = ", ".join(map(shown, sorted(unknown)))
        raise InputError(f"{file}: chapter {chapter.name} has no parameter {told}")
    try:
        return chapter, {name: known[name].validate(value) for name, value in given.items()}
    except InputError as error:
        raise InputError(f"{file}: its provenance: {error}") from None


def _given(
    file: Path, said: Mapping[str, Any], values: Mapping[str, Value], own: Mapping[str, Path], folder: Path
) -> dict[str, Value]:
    """The files that it was made from, under the names that they had then."""
    wanted = {name: path.name for name, path in own_files.among(values).items()}
    checksums = said.get("files_sha256")
    found: dict[str, Value] = {}
    for name, path in own.items():
        if name not in wanted:
            raise InputError(f"-p {name} {path}: {file} was not made from a file of one's own called so")
    for name, called in wanted.items():
        sha256 = checksums.get(name) if isinstance(checksums, dict) else None
        if name not in own:
            raise InputError(
                f"{file}: was made from a file of one's own, {name} {shown(called)!r}"
                f"{f', SHA-256 {sha256}' if isinstance(sha256, str) else ''}; say where it is: -p {name} PATH"
            )
        try:
            require_plain_file(own[name])
            got = own_files.sha256(own[name])
        except (OSError, ValueError) as error:
            raise unreadable(own[name], error) from None
        if sha256 not in (None, got):
            raise InputError(
                f"-p {name} {own[name]}: not the file that {file} was made from; expected SHA-256 "
                f"{shown(str(sha256), 64)}, got {got}"
            )
        target = folder / name / (called or "unnamed")
        target.parent.mkdir()
        shutil.copyfile(own[name], target)
        found[name] = str(target)
    return found


def _difference(file: Path, anew: figures.Spec) -> str:
    """Say how far a file's values are from new ones, as far as the file holds values."""
    try:
        return _difference_of(file, anew)
    except (ValueError, TypeError, AttributeError, RecursionError, csv.Error):
        return "the file holds no table that can be read"


def _difference_of(file: Path, anew: figures.Spec) -> str:
    rows = next(iter(figures.tables(anew)), [])
    match file.suffix:
        case ".json":
            old = next(iter(figures.tables(json.loads(file.read_text("utf-8")))), [])
            return _how_far(_cells(old), _cells(rows))
        case ".csv":
            text = file.read_text("utf-8")
            return _how_far(
                list(csv.reader(io.StringIO(text))), list(csv.reader(io.StringIO(figures.to_csv(anew))))
            )
        case _:
            return "not as it is made now"


def _cells(rows: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    return [list(row.values()) for row in rows]


def _how_far(old: Sequence[Sequence[Any]], new: Sequence[Sequence[Any]]) -> str:
    pairs: list[tuple[Any, Any]] = []
    for one, other in zip_longest(old, new):
        pairs.extend(zip_longest(one or (), other or ()))
    differing = [(one, other) for one, other in pairs if one != other]
    if not differing:
        return "the values are equal, not how they are written"
    largest = max((_relative(one, other) for one, other in differing), default=0.0)
    told = f"{len(differing)} of {len(pairs)} values differ"
    return f"{told}, by up to {100 * largest:.2g} %" if math.isfinite(largest) else told


def _relative(one: Any, other: Any) -> float:
    try:
        before, after = float(one), float(other)
    except (TypeError, ValueError, OverflowError):
        return math.inf
    return abs(after - before) / abs(after) if after else math.inf
