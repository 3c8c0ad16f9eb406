"""Options that several commands share."""

from pathlib import Path

import click

root_option = click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False),
    help="The checkout; found from the working directory if not given.",
)
