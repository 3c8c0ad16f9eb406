"""Commands about the book's figures."""

import dataclasses
import json

import click

from mooncake_companion.cli.tables import aligned


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def figures() -> None:
    """Look up the book's figures.

    \b
    companion figures list                   every figure with its chapter
    companion figures list --chapter overload
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
                {"id": each.id, "chapter": each.chapter, "paper": "; ".join(each.places), "title": each.title}
                for each in chosen
            ]
        )
    )
