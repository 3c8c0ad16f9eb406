"""`companion sweep`: a chapter's experiment at many points."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mooncake_companion.cli.options import root_option
from mooncake_companion.errors import CompanionError, InputError

if TYPE_CHECKING:
    from mooncake_companion.publish.sweep import Swept

_SHOWN_FAILURES = 5


@click.command()
@click.argument("chapter")
@click.option(
    "-p",
    "given",
    multiple=True,
    metavar="NAME=VALUES",
    help="START:STOP:STEP (STOP included), a,b,c or one value; with --sample LOW:HIGH. Repeatable.",
)
@click.option(
    "--sample", type=click.IntRange(1), metavar="N", help="N points of a Latin hypercube, not a grid."
)
@click.option("--sample-seed", type=click.IntRange(0), default=0, show_default=True, help="Of the hypercube.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the results; runs/sweep-CHAPTER if not given.",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    metavar="N",
    help="Processes on this machine; one a core if not given.",
)
@click.option("--dask", "address", metavar="ADDRESS", help="A Dask scheduler, as tcp://HOST:8786.")
@click.option("--show", "quantity", default="", metavar="COLUMN", help="What the chart shows at first.")
@click.option("--over", multiple=True, metavar="NAME", help="Parameter to draw over; at most two.")
@click.option("--by", multiple=True, metavar="COLUMN", help="Column that tells the rows of a point apart.")
@click.option("--json", "as_json", is_flag=True, help="For programs: say what was made as an object.")
@root_option
def sweep(
    chapter: str,
    given: tuple[str, ...],
    sample: int | None,
    sample_seed: int,
    out: Path | None,
    workers: int | None,
    address: str | None,
    quantity: str,
    over: tuple[str, ...],
    by: tuple[str, ...],
    as_json: bool,
    root: Path | None,
) -> None:
    """Run CHAPTER's experiment at every point of a grid, or at the points of a Latin hypercube.

    All values are checked before anything runs. What each point gives is kept in a file of its own as
    it comes; interrupted, the same command goes on where it stopped. A point that fails is told at the
    end, the others go on, and the same command tries it again.

    \b
    companion sweep transfer -p prefill_nodes=4:16:4 -p seed=0,1,2
    companion sweep overload -p arrival_speedup=1:3:0.25 --show rejected_share
    companion sweep control-plane --sample 64 -p kvcache_balancing_threshold=1:20 -p arrival_speedup=0.8:1.2

    \b
    In the folder (runs/sweep-CHAPTER, or --out):
    results.parquet, results.csv   the rows of all points; parameters are the columns param_NAME
    figures/sweep.html             the chart, with drop-downs; also as .svg .png .json .csv
    points/, failed/               each point as it came: pandas.read_parquet("…/points") works meanwhile
    sweep.json, provenance.json    what was asked for, and what made it

    \b
    On a Dask cluster (pip install 'mooncake-companion[dask]', the same version on each worker):
    dask scheduler                             here; tells its address
    dask worker tcp://HOST:8786                on each machine, which also needs the traces
    companion sweep overload -p arrival_speedup=1:3:0.1 --dask tcp://HOST:8786

    `companion params CHAPTER` lists the names. The table is that of the experiment, not of the whole
    page; for the page at one point use `companion run`. Exit code 1 if a point failed.
    """  # noqa: D301 - \b is for click
    from mooncake_companion.publish import sweep_workers
    from mooncake_companion.publish.chapters import find_chapter
    from mooncake_companion.publish.project import find_root
    from mooncake_companion.publish.sweep import Drawn
    from mooncake_companion.publish.sweep import sweep as run
    from mooncake_companion.publish.sweep_plan import plan

    if address and workers:
        raise InputError("--workers is for this machine; with --dask the cluster's workers are used")
    asked = plan(find_chapter(chapter), list(map(_split, given)), sample=sample, sample_seed=sample_seed)
    top = find_root(root) if out is None or root is not None else _root_if_any()
    folder = out or _default_folder(top, chapter)
    processes = workers or sweep_workers.available_cores()
    engine = sweep_workers.dask(address, asked) if address else sweep_workers.local(processes)
    done = run(asked, folder, engine, root=top, drawn=Drawn(quantity=quantity, over=over, by=by))
    click.echo(json.dumps(_as_object(done), indent=1, ensure_ascii=False) if as_json else _told(done))
    if done.failures:
        raise CompanionError(_failed(done))


def _split(text: str) -> tuple[str, str]:
    name, equals, values = text.partition("=")
    if not equals:
        raise InputError(f"-p {text}: expected NAME=VALUES, such as seed=0:9:1 or seed=1,2,5")
    return name.strip(), values.strip()


def _root_if_any() -> Path | None:
    from mooncake_companion.publish.project import find_root

    try:
        return find_root()
    except CompanionError:
        return None


def _default_folder(root: Path | None, chapter: str) -> Path:
    return (root or Path.cwd()) / "runs" / f"sweep-{chapter}"


def _as_object(done: "Swept") -> dict[str, object]:
    return {
        "folder": str(done.folder),
        "points": done.points,
        "kept": done.kept,
        "failures": [dataclasses.asdict(failure) for failure in done.failures],
        "results": None if done.results is None else str(done.results),
        "figure": None if done.figure is None else str(done.figure),
    }


def _told(done: "Swept") -> str:
    kept = f", {done.kept} of them kept from before" if done.kept else ""
    lines = [f"{done.points - len(done.failures)} of {done.points} points done{kept}"]
    return "\n".join([*lines, *(str(path) for path in (done.results, done.figure) if path)])


def _failed(done: "Swept") -> str:
    from mooncake_companion.publish.sweep_plan import told

    shown = [
        f"  point {failure.point} ({told(failure.parameters)}): {failure.error}"
        for failure in done.failures[:_SHOWN_FAILURES]
    ]
    more = len(done.failures) - len(shown)
    rest = [f"  and {more} more"] if more else []
    return "\n".join(
        [
            f"{len(done.failures)} of {done.points} points failed; stack traces: {done.folder / 'failed'}",
            *shown,
            *rest,
        ]
    )
