"""`companion scoreboard`: every number of the papers beside the model's."""

import json
import sys
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import click

from mooncake_companion.errors import InputError

_LONGEST_WORD = 20
_ROLES = ("prediction", "blind", "calibration", "setup", "open")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs.")
@click.option("--role", type=click.Choice(_ROLES), help="Only rows of this role.")
@click.option("--where", default="", metavar="TEXT", help="Only rows with TEXT in their place or id.")
@click.option("--fresh", is_flag=True, help="Run the experiments even if their results are kept.")
def scoreboard(as_json: bool, role: str | None, where: str, fresh: bool) -> None:
    """Set every number that the papers report beside what the model makes of it.

    Predictions were made without the figure that they are compared with; blind ones without even a
    choice between variants; calibration rows were used to fit the model's constants, or an assumption;
    setup is taken as input; open is not modelled, for the reason given. Errors are relative, or in
    points for shares. The summary is over the rows shown.

    The first call runs the experiments, which takes about a minute; their results are kept until the
    sources, the data or the traces change.

    \b
    companion scoreboard
    companion scoreboard --where "Figure 5"
    companion scoreboard --role open
    companion scoreboard --json | jq .summary
    """  # noqa: D301 - \b is for click
    from mooncake_companion.experiments import scoreboard as board

    table = board.run(where, fresh=fresh, tell=_tell)
    if role:
        table = table[table["role"] == role]
    if table.empty:
        raise InputError(f"no row with --where {where!r} and --role {role or 'any'}; try --where 'Figure 5'")
    summary = board.summary(table)
    if as_json:
        click.echo(
            json.dumps({"summary": summary, "rows": board.records(table)}, indent=1, ensure_ascii=False)
        )
    else:
        rows = board.readable(table).to_dict("records")
        click.echo(f"{_listed(rows)}\n\n{_summed_up(summary)}")


def _tell(number: int, count: int, name: str) -> None:
    """Say on a terminal what is under way."""
    if sys.stderr.isatty():
        click.echo(f"[{number}/{count}] {name} …", err=True)


def _listed(rows: Sequence[Mapping[Any, Any]]) -> str:
    """Lay out the rows below the place that they come from."""
    lines = [(_short(row), *_cells(row)) for row in rows]
    widths = [max(map(len, column)) for column in list(zip(*lines, strict=True))[:-1]]
    texts: list[str] = []
    numbered = zip(rows, lines, strict=True)
    for where, group in groupby(numbered, key=lambda pair: pair[0]["where"]):
        texts.append(f"\n{where}" if texts else where)
        for _, (name, *numbers, role) in group:
            cells = [name.ljust(widths[0])]
            cells += [cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True)]
            texts.append("  " + "  ".join([*cells, role]).rstrip())
    return "\n".join(texts)


def _short(row: Mapping[Any, Any]) -> str:
    """The id without the paper and the figure, which stand above."""
    return ".".join(row["id"].split(".")[2:]) or row["id"].split(".")[-1]


def _cells(row: Mapping[Any, Any]) -> tuple[str, str, str, str]:
    said = row["reported_shown"]
    if len(said) > _LONGEST_WORD:
        said = f"{said[: _LONGEST_WORD - 1]}…"
    note = f"open: {row['reason']}" if row["role"] == "open" else row["role"]
    return said, row["modelled_shown"], row["error_shown"], note


def _summed_up(summary: Mapping[str, Any]) -> str:
    counts = (
        f"{summary['rows']} rows: {summary['modelled']} modelled, {summary['setup']} setup, "
        f"{summary['open']} open; {summary['fitted_constants']} fitted constants"
    )
    lines = [
        counts,
        f"predictions: {_errors(summary['median_abs_rel_error'], summary['p90_abs_rel_error'])}",
        f"blind: {_errors(summary['blind_median_abs_rel_error'], summary['blind_p90_abs_rel_error'])}",
        f"orderings: {summary['orderings_kept']} of {summary['orderings_stated']} kept",
    ]
    return "\n".join(lines)


def _errors(median: float | None, p90: float | None) -> str:
    if median is None or p90 is None:
        return "none"
    return f"median error {median:.1%}, 90th percentile {p90:.1%}"
