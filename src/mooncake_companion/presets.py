"""Nodes, models and settings from TOML: those that ship with the project, and a user's own file.

A user's file has a table for each thing that it describes, such as ``[node]`` and ``[model]``. A table
may begin from a preset and change some of its fields::

    [node]
    preset = "h100"
    nic_bytes_per_s = 50e9
"""

import dataclasses
import functools
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from mooncake_companion.datafiles import data_path
from mooncake_companion.errors import InputError

T = TypeVar("T")

ENDING = ".toml"
"""What tells a user's file from the name of a preset."""
TABLES = ("node", "model", "cluster")
"""Tables that a user's file may have."""

MOST_BYTES = 1_000_000
"""Size of the largest file that is read."""
_MOST_INT = 2**63 - 1

_KINDS = {int: "a whole number", float: "a number", str: "a text in quotes"}


def shipped(kind: type[T], file: str) -> dict[str, T]:
    """All presets of one file of ``data/presets``, by name."""
    tables = _shipped_tables(file)
    return {name: build(kind, fields, f"{file}, table [{name}]") for name, fields in tables.items()}


@functools.cache
def _shipped_tables(file: str) -> Mapping[str, Any]:
    return read(data_path("presets", file))


def find(kind: type[T], name: str, table: str, known: Mapping[str, T]) -> T:
    """A preset by its name, or what a user's file says in a table.

    Parameters
    ----------
    kind : type
        The dataclass to make.
    name : str
        One of `known`, or the path of a file that ends in ``.toml``.
    table : str
        "node" or "model".
    known : mapping
        Presets by name; a table may begin from one with ``preset = NAME``.

    Raises
    ------
    InputError
        Names the file, the table, the field and the value, and what would be right.
    """
    if not is_file(name):
        if name not in known:
            raise InputError(
                f"no {table} preset {name!r}; there are {', '.join(known)}, or give a file {ENDING} that "
                f"has a table [{table}]"
            )
        return known[name]
    fields = dict(table_of(Path(name), table))
    place = f"{name}, table [{table}]"
    stem = Path(name).stem
    basis = fields.pop("preset", None)
    if basis is None:
        return build(kind, {"title": stem, "source": name, **fields}, place)
    if not isinstance(basis, str) or basis not in known:
        raise InputError(f"{place}, field preset: there is no {basis!r}; there are {', '.join(known)}")
    base: Any = known[basis]
    inherited = dataclasses.asdict(base)
    if fields:
        inherited |= {"title": f"{base.title}, changed", "source": f"{base.source}; changed by {name}"}
    return build(kind, inherited | fields, place)


def is_file(name: str) -> bool:
    """Whether a word is the path of a user's file and not the name of a preset."""
    return name.endswith(ENDING)


def table_of(path: Path, table: str) -> Mapping[str, Any]:
    """One table of a user's file.

    Raises
    ------
    InputError
        If the file cannot be read, has a table that means nothing, or lacks this one.
    """
    tables = read(path)
    for name, fields in tables.items():
        if name not in TABLES or not isinstance(fields, dict):
            raise InputError(f"{path}: {name!r} is none of the tables {_tables(TABLES)}")
    if table not in tables:
        raise InputError(f"{path} has no table [{table}]; it has {_tables(tables) or 'none'}")
    found: Mapping[str, Any] = tables[table]
    return found


def read(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises
    ------
    InputError
        If it cannot be read, or is not TOML; says where.
    """
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"{path} is not a file")  # a pipe would be waited for, a device has no end
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:  # such as a null character in a name
        raise InputError(f"cannot read {str(path)!r}: {error}") from None
    if len(content) > MOST_BYTES:
        raise InputError(f"{path} is too large for a preset: more than {MOST_BYTES:,} bytes")
    try:
        return tomllib.loads(content.decode("utf-8"))
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text") from None
    except ValueError as error:  # not TOML, or a number of thousands of digits
        raise InputError(f"{path} is not TOML: {error}") from None
    except RecursionError:
        raise InputError(f"{path}: its tables or lists are nested too deeply") from None


def build(kind: type[T], fields: Mapping[str, Any], place: str) -> T:
    """Make a dataclass from the fields of a table.

    Raises
    ------
    InputError
        Begins with `place`, and names the field that is unknown, missing, of another type, or unfit.
    """
    hints = typing.get_type_hints(kind)
    declared = {field.name: field for field in dataclasses.fields(typing.cast("Any", kind))}
    for name in fields:
        if name not in declared:
            raise InputError(f"{place}: unknown field {name!r}; valid ones are {', '.join(declared)}")
    values = {
        name: _typed(value, hints[name], f"{place}, field {name}")
        for name, value in fields.items()
        if value is not None
    }
    for name, field in declared.items():
        if field.default is dataclasses.MISSING and name not in values:
            raise InputError(f"{place}: field {name} is missing; it is {_KINDS[_base(hints[name])]}")
    try:
        return kind(**values)
    except InputError as error:
        raise InputError(f"{place}: {error}") from None


def _typed(value: Any, hint: Any, place: str) -> Any:
    wanted = _base(hint)
    if type(value) is int and abs(value) > _MOST_INT:
        raise InputError(f"{place}: a number of {len(str(abs(value)))} digits is too large")
    if wanted is float and type(value) is int:
        return float(value)
    if wanted is int and type(value) is float and value.is_integer():
        return int(value)  # TOML writes large numbers as 1e12
    if type(value) is not wanted:
        raise InputError(f"{place}: {value!r} is not {_KINDS[wanted]}")
    return value


def _base(hint: Any) -> type:
    """`int` of ``int | None``."""
    if isinstance(hint, types.UnionType):
        hint = next(each for each in typing.get_args(hint) if each is not type(None))
    base: type = hint
    return base


def _tables(names: typing.Iterable[str]) -> str:
    return ", ".join(f"[{name}]" for name in names)
