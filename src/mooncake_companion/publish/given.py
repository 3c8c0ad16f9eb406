"""The parameters that a user gives: presets, a YAML file and single values, the later over the earlier."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from mooncake_companion import presets, traces
from mooncake_companion.errors import InputError
from mooncake_companion.hardware import load_nodes
from mooncake_companion.llm import load_models
from mooncake_companion.parameters import Value, describe, parse


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


def _read_yaml(file: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(file.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict):
        raise InputError(f"{file}: expected lines like `prefill_nodes: 6`, got {type(found).__name__}")
    return found


def _checked(params: type, given: Mapping[Any, Any], place: str) -> dict[str, Value]:
    known = {declared.name: declared for declared in describe(params)}
    values = {}
    for name, value in given.items():
        if name not in known:
            raise InputError(f"{place}: this chapter has no parameter {name!r}; it has {', '.join(known)}")
        try:
            values[name] = known[name].validate(value)
        except InputError as error:
            raise InputError(f"{place}: {error}") from None
    return values
