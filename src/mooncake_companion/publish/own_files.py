"""Files of a user's own among a chapter's parameters: found from any folder, told by name alone.

Where a file lies is nobody else's business, and a path out of a file that somebody sent is never
followed: what is exported has the file's name and its checksum, and whoever checks it names the file.
"""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mooncake_companion import presets, traces
from mooncake_companion.datafiles import is_there
from mooncake_companion.parameters import Value

_STANDIN = "-standin"


def is_trace(name: str) -> bool:
    """Whether a parameter names a trace; one that is called as a registered trace says what stands for it."""
    return name == "trace" or name.endswith("_trace") or name in traces.registered()


def is_own(name: str, value: Value) -> bool:
    """Whether a parameter's value is the path of a file, and not a name that the project knows.

    >>> is_own("trace", "conversation"), is_own("trace", "mine.jsonl"), is_own("node", "mine.toml")
    (False, True, True)
    >>> is_own("toolagent", "toolagent-standin"), is_own("toolagent", "mine.jsonl")
    (False, True)
    """
    if not isinstance(value, str) or not value:
        return False
    if is_trace(name):
        return value.removesuffix(_STANDIN) not in {*traces.registered(), *traces.generated()}
    return name in ("node", "model") and presets.is_file(value)


def absolute(values: Mapping[str, Value]) -> dict[str, Value]:
    """The values, with the paths of files as they are found from any folder."""
    return {
        name: str(Path(value).resolve())
        if isinstance(value, str) and is_own(name, value) and is_there(Path(value))
        else value
        for name, value in values.items()
    }


def among(values: Mapping[str, Value]) -> dict[str, Path]:
    """The files among the values, by parameter."""
    return {name: Path(str(value)) for name, value in values.items() if is_own(name, value)}


def sha256(path: Path) -> str:
    """Checksum of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def told_by_name(content: Any, files: Iterable[Path]) -> Any:
    """The content with each file's name where its path stood; dictionaries and lists are changed in place.

    >>> told_by_name({"trace": "/mine/mine.jsonl"}, [Path("/mine/mine.jsonl")])
    {'trace': 'mine.jsonl'}
    """
    paths = sorted(files, key=lambda path: len(str(path)), reverse=True)
    return _renamed(content, [(str(path), path.name) for path in paths]) if paths else content


def values_by_name(values: Mapping[str, Value]) -> dict[str, Value]:
    """Parameters with the names of files for their paths."""
    named: dict[str, Value] = told_by_name(dict(values), among(values).values())
    return named


def _renamed(content: Any, names: list[tuple[str, str]]) -> Any:
    if isinstance(content, str):
        for path, name in names:
            content = content.replace(path, name)
    elif isinstance(content, dict):
        for key, value in content.items():
            content[key] = _renamed(value, names)
    elif isinstance(content, list):
        content[:] = [_renamed(each, names) for each in content]
    return content
