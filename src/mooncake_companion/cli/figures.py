"""Commands about the book's figures: list, export, cite, verify."""

import dataclasses
import json
from pathlib import Path

import click

from mooncake_companion.cli.options import root_option
from mooncake_companion.cli.tables import aligned


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def figures() -> None:
    """Look up the book's figures, export them, cite them, check exported ones.

    \b
    companion figures list --chapter overload
    companion figures export overload-rejected --format svg,csv
    companion figures cite overload-rejected --style bibtex
    companion figures verify overload-rejected.svg
    """  # noqa: D301 - \b is for click


@figures.command("list")
@click.option("--chapter", help="Only those of one chapter.")
@click.option("--json", "as_json", is_flag=True, help="For programs: a list of objects.")
def list_figures(chapter: str | None, as_json: bool) -> None:
    """List every figure: id, title, chapter, what of the papers it is about, first version.

    Ids and addresses never change and never vanish.
    """
    from mooncake_companion.errors import InputError
    from mooncake_companion.publish import registry

    chosen = [each for each in registry.figures().values() if chapter in (None, each.chapter)]
    if not chosen:
        known = dict.fromkeys(each.chapter for each in registry.figures().values())
        raise InputError(
            f"--chapter {chapter}: no chapter of that name has figures; there are {', '.join(known)}"
        )
    if as_json:
        rows = [
            {**dataclasses.asdict(each), "anchor": each.anchor, "address": each.address} for each in chosen
        ]
        click.echo(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    click.echo(
        aligned(
            [
                {
                    "id": each.id,
                    "chapter": each.chapter,
                    "since": each.since,
                    "paper": "; ".join(each.places),
                    "title": each.title,
                }
                for each in chosen
            ]
        )
    )


@figures.command()
@click.argument("name", metavar="ID")
@click.option(
    "--format", "formats", default="svg", show_default=True, help="Of svg, png, pdf, json, csv; with commas."
)
@click.option(
    "-p",
    "given",
    nargs=2,
    multiple=True,
    metavar="NAME VALUE",
    help="Change a parameter of its chapter; repeatable.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="Folder for the files, made if it is not there; the working directory if not given.",
)
@root_option
def export(name: str, formats: str, given: tuple[tuple[str, str], ...], out: Path, root: Path | None) -> None:
    """Write a figure to files, computed anew.

    Each file carries what made it: parameters, version, commit, checksum of the trace. A CSV has no
    place for that, and gets a second file beside it, ID.csv.json.

    \b
    companion figures export prefill-scheduling-ttft
    companion figures export prefill-scheduling-ttft --format svg,pdf,csv --out review
    companion figures export prefill-scheduling-ttft -p prefill_nodes 6
    """  # noqa: D301 - \b is for click
    from mooncake_companion.datafiles import writable_folder
    from mooncake_companion.errors import CompanionError, InputError
    from mooncake_companion.parameters import parse
    from mooncake_companion.publish import registry
    from mooncake_companion.publish.chapters import any_chapter
    from mooncake_companion.publish.figures import WRITERS, write_figure
    from mooncake_companion.publish.project import find_root
    from mooncake_companion.publish.rerun import drawn_figures

    kinds = [kind.strip().lower() for kind in formats.split(",")]
    if unknown := [kind for kind in kinds if kind not in WRITERS]:
        raise InputError(
            f"--format {', '.join(unknown)}: not a format; expected some of {', '.join(WRITERS)}"
        )
    figure = registry.figure(name)
    chapter = any_chapter(figure.chapter)
    values = parse(chapter.params, dict(given))
    writable_folder(out)
    drawn = drawn_figures(find_root(root), chapter, values)
    if name not in drawn:
        raise CompanionError(f"chapter {chapter.name} drew no figure {name!r} with these parameters")
    click.echo("\n".join(map(str, write_figure(drawn[name], out, kinds))))


@figures.command()
@click.argument("name", metavar="[ID]", required=False)
@click.option(
    "--style",
    type=click.Choice(["bibtex", "ris", "csl-json", "apa"]),
    default="bibtex",
    show_default=True,
    help="How the entries are written.",
)
def cite(name: str | None, style: str) -> None:
    """Print how to cite a figure, or without ID the papers and this book.

    Where a figure is about one of the papers', that paper comes first.

    \b
    companion figures cite prefill-scheduling-ttft
    companion figures cite prefill-scheduling-ttft --style ris > figure.ris
    companion figures cite --style apa
    """  # noqa: D301 - \b is for click
    from mooncake_companion.publish import citations, registry

    click.echo(citations.cite(style, registry.figure(name) if name else None), nl=False)


@figures.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--json", "as_json", is_flag=True, help="For programs: an object.")
@click.option(
    "-p",
    "own",
    nargs=2,
    multiple=True,
    type=(str, click.Path(path_type=Path)),
    metavar="NAME PATH",
    help="Where a trace, node or model of your own lies that FILE was made from; repeatable.",
)
@root_option
@click.pass_context
def verify(
    context: click.Context, file: Path, as_json: bool, own: tuple[tuple[str, Path], ...], root: Path | None
) -> None:
    """Make an exported FILE's figure anew, and say whether it is the same.

    Its chapter runs with the parameters that the file names, under the installed version. Says
    `same` (exit code 0) or `different` (1), and what differs in version, data or values. FILE has the
    names and checksums of the files that it was made from; say where yours are.

    \b
    companion figures verify review/prefill-scheduling-ttft.pdf
    companion figures verify mine.svg -p trace my-requests.jsonl
    """  # noqa: D301 - \b is for click
    from mooncake_companion.publish.project import find_root
    from mooncake_companion.publish.verify import verify as compare

    verdict = compare(find_root(root), file, dict(own))
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(verdict), indent=1, ensure_ascii=False))
    else:
        lines = [f"{'same' if verdict.same else 'different'}: figure {verdict.figure}"]
        click.echo("\n".join([*lines, *(f"  {each}" for each in verdict.differences)]))
    context.exit(0 if verdict.same else 1)
