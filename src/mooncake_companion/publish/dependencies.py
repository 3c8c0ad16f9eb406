"""What the outputs of a chapter depend on: the modules that it reaches, and the data that these read.

Read from the sources without running them, so that a change re-executes the chapters that it can
move and no others. Where a source does not tell exactly, more is taken rather than less.
"""

import ast
import hashlib
import platform
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

PACKAGE = "mooncake_companion"
NUMERIC_PACKAGES = ("altair", "numpy", "pandas", "scipy")
STAMP = "companion_stamp"
"""Where a chapter's kernelspec holds its stamp, which is a part of jupyter-cache's key."""

_DATAFILES = "datafiles.py"
_READERS = ("data_path", "read_toml", "read_json", "read_csv", "read_rows")
"""Functions of that module that find a file of ``data`` by its parts."""

_CELL = re.compile(
    r"^```\{code-cell\}[^\n]*\n(?:(?::[^\n]*|---\n.*?\n---)\n)*(.*?)^```", re.MULTILINE | re.DOTALL
)


def dependencies(chapter: str, root: Path) -> list[str]:
    """Files and folders of a checkout that the outputs of a chapter depend on, beside its own text.

    Parameters
    ----------
    chapter : str
        A MyST text notebook.
    root : Path
        The checkout, with ``src/mooncake_companion`` and ``data``.

    Returns
    -------
    list of str
        Sorted paths relative to `root`.
    """
    package = root / "src" / PACKAGE
    waiting = list(_uses(ast.parse(_code(chapter)), package, package).modules)
    modules: set[Path] = set()
    data: set[str] = set()
    while waiting:
        module = waiting.pop()
        if module not in modules:
            modules.add(module)
            found = _module_uses(module, package, module.stat().st_mtime_ns)
            waiting += found.modules
            data |= found.data if module != package / _DATAFILES else set()
    return sorted([*(module.relative_to(root).as_posix() for module in modules), *data])


def split(chapter: str) -> tuple[dict[str, Any], str] | None:
    """Front matter and body of a MyST text notebook; None for a page that runs nothing."""
    if not chapter.startswith("---\n") or "\nkernelspec:\n" not in chapter:
        return None
    front, _, body = chapter[4:].partition("\n---\n")
    return yaml.safe_load(front), body


def stamp(root: Path, body: str, named: Iterable[str], machine: str) -> str:
    """Stamp of all that a chapter's outputs depend on beside its own cells.

    Parameters
    ----------
    root : Path
        The checkout.
    body : str
        Of a chapter, as `split` returns it.
    named : iterable of str
        Files and folders that its front matter names in ``depends_on``.
    machine : str
        As `machine_fingerprint` returns it.
    """
    return content_hash(root, [*dependencies(body, root), *named], machine)


def machine_fingerprint(traces_fingerprint: str) -> str:
    """Say what a chapter's outputs depend on beside the files of the checkout."""
    versions = [f"{package} {metadata.version(package)}" for package in NUMERIC_PACKAGES]
    return ", ".join([f"Python {platform.python_version()}", *versions, f"traces {traces_fingerprint}"])


def _code(chapter: str) -> str:
    lines = "\n".join(_CELL.findall(chapter)).splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith(("%", "!")))


@dataclass(frozen=True, slots=True)
class _Uses:
    modules: set[Path] = field(default_factory=set)
    data: set[str] = field(default_factory=set)


@cache
def _module_uses(module: Path, package: Path, _changed: int) -> _Uses:
    return _uses(ast.parse(module.read_text("utf-8")), module.parent, package)


def _uses(tree: ast.Module, folder: Path, package: Path) -> _Uses:
    found = _Uses()
    packages: dict[str, Path] = {}  # names that stand for packages of ours, to be resolved by attribute
    nodes = list(ast.walk(tree))
    for node in nodes:
        match node:
            case ast.ImportFrom(module=str(name), level=0) if name.split(".")[0] == PACKAGE:
                home = package.joinpath(*name.split(".")[1:])
                for alias in node.names:
                    if (home / alias.name).is_dir():
                        packages[alias.asname or alias.name] = home / alias.name
                    else:
                        found.modules.update(_homes(home, alias.name, package))
            case ast.Import():
                for alias in node.names:
                    if alias.name.split(".")[0] == PACKAGE:
                        found.modules.update(_everything(package.joinpath(*alias.name.split(".")[1:])))
            case ast.Call(func=ast.Name("import_module") | ast.Attribute(attr="import_module")):
                found.modules.update(_everything(folder))
            case ast.Call(func=ast.Name(name), args=arguments) if name in _READERS:
                found.data.add(_data(arguments, tree))
    found.modules.update(_reached(nodes, packages, package))
    return found


def _reached(nodes: list[ast.AST], packages: dict[str, Path], package: Path) -> Iterator[Path]:
    """Modules reached as attributes of packages, such as ``charts.overload``."""
    if not packages:
        return
    exact = set()
    for node in nodes:
        match node:
            case ast.Attribute(value=ast.Name(id=name) as value, attr=attribute) if name in packages:
                exact.add(id(value))
                yield from _homes(packages[name], attribute, package)
    for node in nodes:
        if isinstance(node, ast.Name) and node.id in packages and id(node) not in exact:
            yield from _everything(packages[node.id])  # passed on whole


def _homes(home: Path, name: str, package: Path) -> Iterator[Path]:
    """The modules that ``from home import name`` depends on."""
    if home.with_suffix(".py").is_file():
        yield home.with_suffix(".py")
        return
    if (home / f"{name}.py").is_file():
        yield home / f"{name}.py"
        return
    if (home / name).is_dir():
        yield from _everything(home / name)
        return
    door = home / "__init__.py"
    if not door.is_file():
        return
    for node in ast.walk(ast.parse(door.read_text("utf-8"))):
        match node:
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] == PACKAGE:
                if any((alias.asname or alias.name) == name for alias in node.names):
                    yield from _homes(package.joinpath(*module.split(".")[1:]), name, package)
                    return
    yield door


def _everything(home: Path) -> Iterator[Path]:
    if home.with_suffix(".py").is_file():
        yield home.with_suffix(".py")
    else:
        yield from home.rglob("*.py")


def _data(arguments: list[ast.expr], tree: ast.Module) -> str:
    """Path below ``data`` as far as it stands in the source; a README stands for its whole folder."""
    parts = ["data"]
    for argument in _spread(arguments, tree):
        match argument:
            case ast.Constant(value=str(part)) if part != "README.md":
                parts.append(part)
            case _:
                break
    return "/".join(parts)


def _spread(arguments: list[ast.expr], tree: ast.Module) -> Iterator[ast.expr]:
    """Arguments with those like ``*RECORDED`` replaced by the constant's elements."""
    constants = {
        target.id: statement.value.elts
        for statement in tree.body
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Tuple)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    for argument in arguments:
        match argument:
            case ast.Starred(value=ast.Name(id=name)) if name in constants:
                yield from constants[name]
            case _:
                yield argument


def content_hash(root: Path, parts: Iterable[str], salt: str = "") -> str:
    """Hash names and contents of all files in some parts of a folder.

    Parameters
    ----------
    root : Path
    parts : iterable of str
        Files and folders, relative to `root`.
    salt : str
        Anything else that should change the hash.
    """
    digest = hashlib.sha256(salt.encode())
    for part in parts:
        files = [root / part] if (root / part).is_file() else sorted((root / part).rglob("*"))
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(f"{file.relative_to(root).as_posix()}\0".encode())
                digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]
