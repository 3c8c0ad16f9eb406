"""`companion bench`: how fast the model is on this machine."""

import importlib.util
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from mooncake_companion.cli.options import root_option
from mooncake_companion.errors import CompanionError, InputError

_PACKAGE = "mooncake_companion_benchmarks"
_KB = 1000.0


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs.")
@click.option("--list", "list_only", is_flag=True, help="List the names and goals; run nothing.")
@click.option("--repeats", type=click.IntRange(1), help="Runs of which the fastest counts.")
@click.option(
    "--most-requests",
    type=click.IntRange(100),
    help="Largest size of a benchmark that grows: 10000000 for all of scaling-requests.",
)
@root_option
def bench(
    names: tuple[str, ...],
    as_json: bool,
    list_only: bool,
    repeats: int | None,
    most_requests: int | None,
    root: Path | None,
) -> None:
    """Measure how fast the model is here, and how much memory it takes.

    Each benchmark uses one core and runs once beforehand; the fastest of its repeats counts. Without
    a NAME all run that take seconds. A goal that is missed is said, but is no failure: machines differ.

    \b
    companion bench --list
    companion bench
    companion bench conversation-mooncake --json | jq '.benchmarks[].requests_per_s'
    companion bench scaling-requests --most-requests 10000000    some minutes, about 10 GB
    companion bench kimi-day                                     some minutes, up to 8 GB
    """  # noqa: D301 - \b is for click
    from mooncake_companion.publish.project import find_root

    package = load_benchmarks(find_root(root))
    if unknown := [name for name in names if name not in package.BENCHMARKS]:
        raise InputError(f"no benchmark is called {unknown[0]!r}; known are {', '.join(package.BENCHMARKS)}")
    if list_only:
        rows = [_listed(name, package.BENCHMARKS[name]) for name in names or package.BENCHMARKS]
        click.echo(json.dumps(rows, indent=2) if as_json else "\n".join(map(_list_line, rows)))
        return
    chosen = names or [name for name, known in package.BENCHMARKS.items() if known.by_default]
    records: list[dict[str, Any]] = []
    for name in chosen:
        _say(name)
        records += package.run(name, repeats=repeats, most_requests=most_requests)
    if as_json:
        click.echo(json.dumps({"benchmarks": records, "machine": package.machine()}, indent=2))
    else:
        click.echo(_table(records))


def load_benchmarks(root: Path) -> ModuleType:
    """Import the folder `benchmarks` of a checkout, under a name that no other package has.

    Raises
    ------
    CompanionError
        If the checkout has no such folder.
    """
    if _PACKAGE in sys.modules:
        return sys.modules[_PACKAGE]
    folder = root / "benchmarks"
    if not (folder / "__init__.py").is_file():
        raise CompanionError(
            f"{root} has no benchmarks; they are part of the repository, not of an installed package"
        )
    spec = importlib.util.spec_from_file_location(
        _PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[_PACKAGE] = package
    try:
        spec.loader.exec_module(package)
    except BaseException:
        del sys.modules[_PACKAGE]
        raise
    return package


def _listed(name: str, benchmark: Any) -> dict[str, Any]:
    return {
        "name": name,
        "summary": benchmark.summary,
        "goal": None if benchmark.goal is None else str(benchmark.goal),
        "by_default": benchmark.by_default,
    }


def _list_line(row: Mapping[str, Any]) -> str:
    notes = [f"goal: {row['goal']}"] if row["goal"] else []
    notes += [] if row["by_default"] else ["only if named"]
    return f"{row['name']:<24}{row['summary']}" + "".join(f"\n{'':<24}{note}" for note in notes)


def _say(name: str) -> None:
    """Say on a terminal what is under way."""
    if sys.stderr.isatty():
        click.echo(f"{name} …", err=True)


def _table(records: Sequence[Mapping[str, Any]]) -> str:
    lines = [("name", "requests", "requests/s", "seconds", "peak", "")]
    lines += [
        (
            record["name"] + (f" ({record['nodes']} nodes)" if "nodes" in record else ""),
            _number(record["requests"]),
            _number(record["requests_per_s"]),
            f"{record['seconds']:.3g}",
            f"{_bytes(record['peak_bytes'])} ({record['peak_of']})",
            _note(record),
        )
        for record in records
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(_line(line, widths) for line in lines)


def _line(line: Sequence[str], widths: Sequence[int]) -> str:
    first, *numbers, note = line
    cells = [first.ljust(widths[0])]
    cells += [cell.rjust(width) for cell, width in zip(numbers, widths[1:-1], strict=True)]
    return "  ".join([*cells, note]).rstrip()


def _note(record: Mapping[str, Any]) -> str:
    notes = []
    if "ratio" in record:
        notes.append(f"{record['ratio']:.3g} × {record['ratio_to']}")
    if "time_exponent" in record:
        notes.append(f"time ~ requests^{record['time_exponent']:.3f}")
    if "met" in record:
        notes.append(f"goal {'met' if record['met'] else 'missed'}: {record['goal']}")
    return "; ".join(notes)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size < _KB:
            return f"{size:.3g} {unit}"
        size /= _KB
    return f"{size:.3g} GB"
