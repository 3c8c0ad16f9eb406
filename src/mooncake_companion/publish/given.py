"""The parameters that a user gives: presets, a YAML file and single values, the later over the earlier."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from mooncake_companion import presets, traces
from mooncake_companion.datafiles import read_text
from mooncake_companion.errors import InputError, shown
from mooncake_companion.hardware import load_nodes
from mooncake_companion.llm import load_models
from mooncake_companion.parameters import Value, describe, parse

_MOST_BYTES = 100_000
_EXPONENT = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+")
"""A number such as 1e12, which YAML 1.1 takes for a word as it lacks the point or the sign."""


def gather(
    params: type,
    *,
    chosen_presets: Sequence[str] = (),
    file: Path | None = None,
    pairs: Mapping[str, str] | None = None,
) -> dict[str, Value]:
    """Join what was given for a chapter, checked against what it declares.

    Parameters
    ----------
    params : type
        The chapter's `Params` class.
    chosen_presets : sequence of str
        Names of nodes or models, or TOML files with tables [node], [model], [cluster]; a later one wins.
    file : Path, optional
        A YAML file of names and values; over the presets.
    pairs : mapping, optional
        Names and values as a command line has them; over all else.

    Raises
    ------
    InputError
        Names the file, the field, its value and what was expected.
    """
    values: dict[str, Value] = {}
    for preset in chosen_presets:
        values |= _of_preset(params, preset)
    if file is not None:
        values |= _checked(params, _read_yaml(file), f"{file}")
    return values | parse(params, dict(pairs or {}))


def _of_preset(params: type, preset: str) -> dict[str, Value]:
    if not presets.is_file(preset):
        kinds = {"node": tuple(load_nodes()), "model": tuple(load_models())}
        found = {kind: preset for kind, known in kinds.items() if preset in known}
        if not found:
            known = ", ".join(name for names in kinds.values() for name in names)
            raise InputError(f"--preset {preset}: neither a preset nor a .toml file; presets are {known}")
        return _checked(params, found, f"--preset {preset}")
    tables = presets.read(Path(preset))
    if unknown := tables.keys() - set(presets.TABLES):
        told = ", ".join(sorted(map(str, unknown)))
        raise InputError(f"{preset}: unknown table {told}; expected some of {', '.join(presets.TABLES)}")
    files = {kind: preset for kind in ("node", "model") if kind in tables}
    given = _checked(params, {**files, **tables.get("cluster", {})}, preset)
    require_no_other_file(given, preset)
    return given


def require_no_other_file(given: Mapping[str, Value], preset: str) -> None:
    """See that a preset's file leads to no other file: where it came from, nobody may know.

    Raises
    ------
    InputError
        Names the field that does, and how else the file can be given.
    """
    known = {*load_nodes(), *load_models(), *traces.registered(), *traces.generated(), preset, ""}
    for name in ("node", "model", *(name for name in given if name.endswith("trace"))):
        value = str(given.get(name, ""))
        if value.removesuffix(traces.STANDIN) not in known:
            raise InputError(
                f"{preset}, table [cluster]: {name} = {value!r} is no name that is known, and a preset "
                f"leads to no other file; give it on the command line"
            )


class _Loader(yaml.SafeLoader):
    """YAML without what a file of names and values needs not: aliases, and names that come twice."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.constructor.ConstructorError(
                None,
                None,
                "an alias (*) has no place here",
                self.peek_event().start_mark,  # type: ignore[no-untyped-call]
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        found: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        if len(found) < len(node.value):
            names = [key.value for key, _ in node.value]
            twice = next((name for name in names if names.count(name) > 1), names[0])
            raise yaml.constructor.ConstructorError(
                None, None, f"{shown(str(twice))!r} stands there twice", node.start_mark
            )
        return found


def _read_yaml(file: Path) -> dict[str, Any]:
    text = read_text(file, most_bytes=_MOST_BYTES)
    try:
        found = yaml.load(text, _Loader)
    except RecursionError:
        raise InputError(f"{file}: not names and values: it is nested too deeply") from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError) as error:
        # PyYAML lets through what Python says of a date such as 2001-99-99, or of an unfit tag.
        raise InputError(f"{file}: not YAML: {shown(_what(error), 300)}") from None
    if not isinstance(found, dict):
        kind = "nothing" if found is None else type(found).__name__
        raise InputError(f"{file}: expected lines like `prefill_nodes: 6`, got {kind}")
    return {name: _number_if_any(value) for name, value in found.items()}


def _what(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return " ".join(str(error).split())
    return f"line {mark.line + 1}, column {mark.column + 1}: {getattr(error, 'problem', error)}"


def _number_if_any(value: Any) -> Any:
    if not isinstance(value, str) or not _EXPONENT.fullmatch(value):
        return value
    number = float(value)
    return int(number) if number.is_integer() else number


def _checked(params: type, given: Mapping[Any, Any], place: str) -> dict[str, Value]:
    known = {declared.name: declared for declared in describe(params)}
    values = {}
    for name, value in given.items():
        if name not in known:
            told = shown(repr(name)) if isinstance(name, str) else f"of type {type(name).__name__}"
            raise InputError(f"{place}: this chapter has no parameter {told}; it has {', '.join(known)}")
        try:
            values[name] = known[name].validate(value)
        except InputError as error:
            raise InputError(f"{place}: {error}") from None
    return values
