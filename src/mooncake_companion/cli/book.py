"""Commands around the book: build it, run a chapter again, look after what is kept."""

import json
from pathlib import Path
from typing import Any

import click

from mooncake_companion.cli.options import root_option
from mooncake_companion.cli.tables import aligned
from mooncake_companion.errors import CompanionError

_MOST_CHANGES = 15
"""Changed numbers that are shown after a run; the file has all."""


@click.command()
@root_option
@click.option("-q", "--quiet", is_flag=True, help="Say only where the page is, or what is wrong.")
def build(root: Path | None, quiet: bool) -> None:
    """Build the whole book and say where its first page is.

    Every warning is an error. Chapters run again only if the sources, the data or the traces they
    use have changed.

    \b
    companion build
    companion build --quiet
    """  # noqa: D301 - \b is for click
    from mooncake_companion.publish.build import build_book
    from mooncake_companion.publish.project import find_root

    click.echo(build_book(find_root(root), quiet=quiet))


@click.command()
@root_option
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="Where to serve; 0 for any port that is free.",
)
@click.option("--open", "open_it", is_flag=True, help="Open the first page in the browser.")
def serve(root: Path | None, port: int, open_it: bool) -> None:
    """Serve the built book to this machine, until you press Ctrl+C.

    The book can be read from its files, too; a browser runs Python in a page only if it is served.

    \b
    companion serve
    companion serve --port 0 --open
    """  # noqa: D301 - \b is for click
    from mooncake_companion.publish import serve as serving
    from mooncake_companion.publish.project import find_root

    with serving.server(find_root(root) / "_build" / "html", port) as running:
        first = f"{serving.url(running)}/index.html"
        click.echo(f"{first} (Ctrl+C ends it)")
        if open_it:
            click.launch(first)
        try:
            running.serve_forever()
        except KeyboardInterrupt:
            click.echo("ended", err=True)


@click.command()
@root_option
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file; _build/mooncake-companion.pdf if not given.",
)
def pdf(root: Path | None, out: Path | None) -> None:
    """Build the book and print it to one PDF, with static figures, for readers on paper.

    Needs Chromium or Chrome; the variable CHROMIUM names one that is not found.

    \b
    companion pdf
    companion pdf --out review.pdf
    """  # noqa: D301 - \b is for click
    from mooncake_companion.publish.build import build_book, building
    from mooncake_companion.publish.pdf import write_pdf
    from mooncake_companion.publish.project import find_root

    top = find_root(root)
    html = build_book(top, quiet=True).parent
    with building(top):  # no other build changes the pages while they are printed
        click.echo(write_pdf(top, html, out or top / "_build" / "mooncake-companion.pdf"))


@click.command()
@click.argument("chapter")
@click.option("--json", "as_json", is_flag=True, help="For programs: a list of objects.")
def params(chapter: str, as_json: bool) -> None:
    """List what CHAPTER lets you change: name, type, default, unit, range and meaning.

    \b
    companion params control-plane
    companion params control-plane --json
    """  # noqa: D301 - \b is for click
    from mooncake_companion.publish.chapters import find_chapter

    rows = [
        {
            "name": declared.name,
            "type": declared.type.__name__,
            "default": declared.default,
            "unit": declared.unit,
            "range": declared.range,
            "help": declared.help,
        }
        for declared in find_chapter(chapter).parameters
    ]
    click.echo(json.dumps(rows, indent=1, ensure_ascii=False) if as_json else aligned(rows))


@click.command()
@click.argument("chapter")
@click.option(
    "-p", "given", nargs=2, multiple=True, metavar="NAME VALUE", help="Change a parameter; repeatable."
)
@click.option(
    "--params",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="YAML file of names and values; -p goes before it.",
)
@click.option(
    "--preset",
    "presets",
    multiple=True,
    metavar="NAME_OR_FILE",
    help="A node's or model's name, or a TOML file with [node], [model] or [cluster]; repeatable.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the results, replaced if it holds an earlier rerun; runs/CHAPTER if not given.",
)
@click.option("--no-html", is_flag=True, help="Leave out the page, which takes the longer part of the time.")
@root_option
def run(
    chapter: str,
    given: tuple[tuple[str, str], ...],
    file: Path | None,
    presets: tuple[str, ...],
    out: Path | None,
    no_html: bool,
    root: Path | None,
) -> None:
    """Run CHAPTER again with your values.

    Leaves the executed notebook, the page in the book's look (html/CHAPTER.html), every figure as
    SVG, PNG, JSON and CSV (figures/), and what made them (provenance.json). The same values give the
    same figures, byte for byte. A run that fails or is interrupted leaves an earlier result whole.
    At the end it lists the numbers of the chapter that are not the published ones.

    \b
    companion run control-plane -p prefill_nodes 6
    companion run control-plane -p trace my-requests.jsonl -p seed 7 --out runs/mine
    companion run control-plane --preset h800 --params mine.yml
    companion run control-plane --no-html

    `companion params CHAPTER` lists the names.
    """  # noqa: D301 - \b is for click
    from mooncake_companion.publish.chapters import find_chapter
    from mooncake_companion.publish.given import gather
    from mooncake_companion.publish.project import find_root
    from mooncake_companion.publish.rerun import rerun

    found = find_chapter(chapter)
    values = gather(found.params, chosen_presets=presets, file=file, pairs=dict(given))
    top = find_root(root)
    done = rerun(top, found, values, out or top / "runs" / chapter, html=not no_html)
    if done.changes:
        click.echo(aligned([_told(change) for change in done.changes[:_MOST_CHANGES]]), err=True)
        if (more := len(done.changes) - _MOST_CHANGES) > 0:
            click.echo(f"… and {more} more in {done.folder / 'changes.csv'}", err=True)
    click.echo(done.page or done.folder)


def _told(change: Any) -> dict[str, str]:
    return {
        "number": change.name,
        "published": f"{change.published:,.4g}",
        "now": f"{change.now:,.4g}",
        "change": f"{change.percent:+,.1f} %",
    }


@click.group()
def cache() -> None:
    """Show or remove what is kept: the built book, downloaded traces, compiled code, scored claims.

    \b
    companion cache path
    companion cache clear book
    companion cache clear --yes
    """  # noqa: D301 - \b is for click


@cache.command("path")
@root_option
def cache_path(root: Path | None) -> None:
    """Say where each cache lies."""
    click.echo("\n".join(f"{name}\t{folder}" for name, folder in _cache_folders(root).items()))


@cache.command("clear")
@click.argument("names", nargs=-1, type=click.Choice(["book", "traces", "compiled", "scoreboard"]))
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@root_option
def cache_clear(names: tuple[str, ...], yes: bool, root: Path | None) -> None:
    """Remove the caches, or only those named; all in them can be made or downloaded again."""
    from mooncake_companion.publish.cache import clear

    chosen = {name: folder for name, folder in _cache_folders(root).items() if not names or name in names}
    there = {name: folder for name, folder in chosen.items() if folder.exists()}
    if not there:
        click.echo("nothing to remove")
        return
    if not yes:
        click.confirm("Remove " + " and ".join(map(str, there.values())) + "?", abort=True)
    click.echo("\n".join(f"removed {folder}" for folder in clear(there)))


def _cache_folders(root: Path | None) -> dict[str, Path]:
    from mooncake_companion.publish.cache import cache_folders
    from mooncake_companion.publish.project import find_root

    try:
        top = find_root(root)
    except CompanionError:
        if root is not None:
            raise
        top = None  # an installed package without a checkout still has traces
    return cache_folders(top)
