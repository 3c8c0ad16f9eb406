"""Run an experiment at many points, keep each as it comes, and join them in one table and one chart.

A finished point is a file of its own, written under another name and renamed. So whatever ends a
sweep early, the points done stay, and the same sweep started again does the others.
"""

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm import tqdm

from mooncake_companion.charts import sweep as chart
from mooncake_companion.datafiles import read_text, replacing, require_plain_file, writable_folder
from mooncake_companion.errors import CompanionError, InputError, shown
from mooncake_companion.parameters import Value
from mooncake_companion.publish import figures, own_files, provenance
from mooncake_companion.publish.folders import LOCK, locked
from mooncake_companion.publish.sweep_plan import Plan, difference
from mooncake_companion.publish.sweep_workers import Result, Workers, calls

PREFIX = "param_"
"""Stands before a parameter's name in the table, whose own columns may have the same name."""

_RECORD = "sweep.json"
_ANEW = "name another folder, or remove this one and sweep anew"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A point that could not be worked out.

    Parameters
    ----------
    point : int
    parameters : dict
    error : str
        In one line.
    """

    point: int
    parameters: dict[str, Value]
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """Where a finished sweep lies, and what became of it.

    Parameters
    ----------
    folder : Path
    points, kept : int
        Points of the sweep, and those of them that an earlier run had done.
    failures : tuple of Failure
    results : Path or None
        The joined table; None if no point was done. ``results.csv`` beside it holds the same.
    figure : Path or None
        The chart as a page with its drop-downs; its SVG, PNG, JSON and CSV lie beside it.
    """

    folder: Path
    points: int
    kept: int
    failures: tuple[Failure, ...]
    results: Path | None
    figure: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """What the chart of a sweep shows at first.

    Parameters
    ----------
    quantity : str
        The column; empty for the first measured one.
    over : tuple of str
        One or two of the varied parameters; empty for the first two.
    by : tuple of str
        Columns that tell the rows of a point apart; empty to find them.
    """

    quantity: str = ""
    over: tuple[str, ...] = ()
    by: tuple[str, ...] = ()


def sweep(
    plan: Plan, out: Path, workers: Workers, *, root: Path | None = None, drawn: Drawn = Drawn()
) -> Swept:
    """Work out the points of a sweep that are not done yet, then join and draw all of them.

    Parameters
    ----------
    plan : Plan
    out : Path
        The folder: a new one, an empty one, or one that holds the same sweep.
    workers : callable
        `sweep_workers.local` or `sweep_workers.dask`.
    root : Path, optional
        The checkout, whose commit is written down.
    drawn : Drawn
        Of the chart; a finished sweep can be drawn anew without running a point.

    Raises
    ------
    InputError
        If the folder holds something else or another sweep (the difference is named), or `drawn` asks
        for what the table does not have.
    CompanionError
        If PyArrow is missing, another process works in the folder, or the sweep is interrupted.
    """
    _require_parquet()
    _require_drawable(plan, drawn)
    with _locked(out):
        _take(out, plan)
        missing = [n for n in range(len(plan.points)) if not _part(out, n).exists()]
        try:
            _work_out(plan, out, missing, workers)
        except KeyboardInterrupt:
            done = sum(_part(out, number).exists() for number in range(len(plan.points)))
            raise CompanionError(
                f"interrupted: {done} of {len(plan.points)} points are kept in {out}; "
                "the same command does the others"
            ) from None
        failures = tuple(_failures(plan, out))
        table = _joined(plan, out)
        _write_json(out / "provenance.json", _provenance(plan, root))
        figure = _draw(plan, table, out, drawn) if table is not None else None
    return Swept(
        folder=out,
        points=len(plan.points),
        kept=len(plan.points) - len(missing),
        failures=failures,
        results=None if table is None else out / "results.parquet",
        figure=figure,
    )


# --- the folder -------------------------------------------------------------------------------


def _require_parquet() -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise CompanionError(
            "a sweep writes Parquet, which needs the package pyarrow: pip install 'mooncake-companion[sweep]'"
        ) from None


@contextlib.contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Keep others out of the folder, having seen that it is none with something else in it."""
    known = not out.exists() or (out / _RECORD).exists()
    if not known and (not out.is_dir() or any(not _is_ours(path.name) for path in out.iterdir())):
        raise InputError(
            f"--out {out}: holds something other than a sweep; name another folder or empty this one"
        )
    writable_folder(out)
    with locked(out / LOCK, f"--out {out}: another process is at work on this sweep"):
        for part in out.rglob(".*.part"):  # of a sweep that was killed while it wrote
            part.unlink()
        yield


def _is_ours(name: str) -> bool:
    """Whether a sweep that was killed at its very start may have left this."""
    return name == LOCK or (name.startswith(f".{_RECORD}.") and name.endswith(".part"))


def _take(out: Path, plan: Plan) -> None:
    """Make the folder this sweep's, or see that it is, with all the points that it has."""
    record = out / _RECORD
    now = json.loads(json.dumps(plan.record()))
    if record.exists():
        if told := difference(_read_object(record), now):
            raise InputError(
                f"--out {out}: holds another sweep: {told}; name another folder or remove this one"
            )
    else:
        _write_json(record, now)
    for folder in ("points", "failed"):
        writable_folder(out / folder)
    for number in range(len(plan.points)):
        if _part(out, number).exists():
            _require_point(plan, number, _part(out, number))


def _read_object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        told = getattr(error, "msg", "it is nested too deeply")
        raise InputError(f"{path} is not JSON: {told}; {_ANEW}") from None
    if not isinstance(found, dict):
        raise InputError(f"{path}: expected an object, got {type(found).__name__}; {_ANEW}")
    return found


def _require_point(plan: Plan, number: int, part: Path) -> None:
    """See that a file from an earlier run is what this run would have written there."""
    import pyarrow.parquet

    expected = _values(plan, number)
    anew = "remove it, and the same command works the point out again"
    try:
        require_plain_file(part)
        file = pyarrow.parquet.ParquetFile(part)
        named = [column for column in expected if column in file.schema_arrow.names]
        table = file.read(columns=named)
    except (OSError, ValueError, KeyError, NotImplementedError) as error:  # PyArrow's are such
        told = shown(str(error).strip().partition("\n")[0], 120)
        raise InputError(f"{part} is not a table of point {number} ({told}); {anew}") from None
    for column, value in expected.items():
        if column not in named:
            raise InputError(f"{part}: has no column {column}; {anew}")
        if wrong := [each for each in table[column].to_pylist() if each != value]:
            got = shown(repr(wrong[0]))
            raise InputError(f"{part}, column {column}: got {got}; expected {value!r}; {anew}")


def _part(out: Path, number: int) -> Path:
    return out / "points" / f"{number:06d}.parquet"


def _note(out: Path, number: int) -> Path:
    return out / "failed" / f"{number:06d}.json"


def _write_json(target: Path, content: Any) -> None:
    with replacing(target) as temporary:
        temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")


# --- the points -------------------------------------------------------------------------------


def _work_out(plan: Plan, out: Path, missing: list[int], workers: Workers) -> None:
    if not missing:
        return
    results = workers(calls(plan, missing))
    # Closed at once when interrupted, so that no process works on for nobody.
    with (
        contextlib.closing(results),  # type: ignore[type-var]
        tqdm(
            total=len(plan.points),
            initial=len(plan.points) - len(missing),
            unit="point",
            disable=not sys.stderr.isatty(),
        ) as bar,
    ):
        for number, result in results:
            _keep(plan, out, number, result)
            bar.update()


def _keep(plan: Plan, out: Path, number: int, result: Result) -> None:
    """Write a point's file; what Parquet cannot hold is that point's failure, too."""
    error, details = result.error, result.details
    if result.table is not None:
        try:
            with replacing(_part(out, number)) as temporary:
                _with_point(plan, number, result.table).to_parquet(temporary, engine="pyarrow", index=False)
        except (TypeError, ValueError) as refused:  # PyArrow's are both
            error = details = f"its table cannot be written as Parquet: {refused}"
        else:
            _note(out, number).unlink(missing_ok=True)
            return
    _write_json(_note(out, number), {"error": error, "details": details})


def _with_point(plan: Plan, number: int, table: pd.DataFrame) -> pd.DataFrame:
    """Put the point's number and values before the columns of its table."""
    return pd.concat([pd.DataFrame(_values(plan, number), index=table.index), table], axis=1)


def _values(plan: Plan, number: int) -> dict[str, Value]:
    """The point's number and values, as columns."""
    told = own_files.values_by_name(plan.points[number])
    return {"point": number} | {PREFIX + name: value for name, value in told.items()}


def _failures(plan: Plan, out: Path) -> Iterator[Failure]:
    for number, point in enumerate(plan.points):
        if not _part(out, number).exists() and (note := _note(out, number)).exists():
            yield Failure(point=number, parameters=point, error=str(_read_object(note).get("error")))


def _joined(plan: Plan, out: Path) -> pd.DataFrame | None:
    """Join the points' tables in the points' order, as Parquet and as CSV."""
    parts = [part for number in range(len(plan.points)) if (part := _part(out, number)).exists()]
    if not parts:
        return None
    table = pd.concat([pd.read_parquet(part, engine="pyarrow") for part in parts], ignore_index=True)
    try:
        with replacing(out / "results.parquet") as temporary:
            table.to_parquet(temporary, engine="pyarrow", index=False)
    except (TypeError, ValueError) as error:  # PyArrow's are both
        if isinstance(error, CompanionError):
            raise
        told = shown(str(error), 200)
        raise InputError(
            f"{out / 'points'}: the tables do not fit together ({told}); remove those that were changed"
        ) from None
    with replacing(out / "results.csv") as temporary:
        words = table.select_dtypes(exclude="number").map(figures.without_formula)
        table.assign(**words).to_csv(temporary, index=False, lineterminator="\n")
    return table


def _provenance(plan: Plan, root: Path | None) -> dict[str, Any]:
    """What made the sweep, as a rerun says it; varied parameters stand below ``sweep``."""
    record = _told_record(plan)
    replayed = record["traces"].items()
    origins = (
        [{"trace": name, "trace_sha256": sha256} for name, sha256 in replayed] if len(replayed) == 1 else []
    )
    fixed = own_files.values_by_name(plan.fixed)
    recorded = provenance.record(root, plan.chapter.name, fixed, origins)
    return {**recorded, "sweep": record}


def _told_record(plan: Plan) -> dict[str, Any]:
    """What makes the sweep this one, as others may see it: files as they were typed are names, too."""
    files = {path for point in plan.points for path in own_files.among(point).values()}
    told: dict[str, Any] = own_files.told_by_name(plan.record(), files)
    return told


# --- the chart --------------------------------------------------------------------------------


def _require_drawable(plan: Plan, drawn: Drawn) -> None:
    varied = [declared.name for declared in plan.varied]
    for name in drawn.over:
        if name not in varied:
            raise InputError(
                f"--over {name}: not varied in this sweep; {', '.join(varied)} can be drawn over"
            )
    if len(drawn.over) > 2 or len(set(drawn.over)) < len(drawn.over):
        raise InputError("--over: a chart is drawn over one parameter or two different ones")


def _draw(plan: Plan, table: pd.DataFrame, out: Path, drawn: Drawn) -> Path:
    varied = {declared.name: declared for declared in plan.varied}
    over = drawn.over or tuple(varied)[:2]
    titles = {
        PREFIX + name: f"{name} ({varied[name].unit})" if varied[name].unit else name
        for name in (*over, *(name for name in varied if name not in over))
    }
    fixed = [PREFIX + axis.parameter.name for axis in plan.axes if axis.parameter.name not in varied]
    shown = table.drop(columns=fixed)
    own = [column for column in shown.columns if column != "point" and column not in titles]
    _require_known("--by", drawn.by, own)
    by = drawn.by or chart.distinguishing(shown, list(titles))
    quantities = chart.measured(shown, list(titles), by)
    if not quantities:
        raise CompanionError(f"the table in {out / 'results.csv'} has no numbers to draw")
    _require_known("--show", (drawn.quantity,) if drawn.quantity else (), quantities)
    shown.attrs["provenance"] = {
        "chapter": plan.chapter.name,
        "parameters": own_files.values_by_name(plan.fixed),
        "sweep": _told_record(plan),
    }
    spec = chart.over_parameters(
        shown,
        parameters=titles,
        drawn=len(over),
        by=by,
        quantity=drawn.quantity or quantities[0],
        lines=plan.sample is None,
    ).to_dict()
    folder = out / "figures"
    writable_folder(folder)
    figures.write_figure(spec, folder)
    page = folder / f"{spec['name']}.html"
    with replacing(page) as part:
        part.write_text(figures.to_html(spec), "utf-8")
    return page


def _require_known(option: str, names: Sequence[str], known: Sequence[str]) -> None:
    if unknown := [name for name in names if name not in known]:
        raise InputError(f"{option} {unknown[0]}: no such column; there are {', '.join(known)}")
