"""The command `companion`: words to calls. Heavy imports happen inside the commands."""

import errno
import io
import os
import sys

import click

from mooncake_companion import __version__
from mooncake_companion.cli.bench import bench
from mooncake_companion.cli.book import build, cache, params, pdf, run, serve
from mooncake_companion.cli.figures import figures
from mooncake_companion.cli.scoreboard import scoreboard
from mooncake_companion.cli.simulate import simulate
from mooncake_companion.cli.sweep import sweep
from mooncake_companion.cli.traces import traces
from mooncake_companion.datafiles import expanded
from mooncake_companion.errors import CompanionError, InputError


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="companion")
def companion() -> None:
    """Run, change and cite every figure and number of the Mooncake papers.

    \b
    companion build                                   the whole book
    companion serve                                   the built book on this machine
    companion pdf                                     the same on paper
    companion params control-plane                    what a chapter lets you change
    companion run control-plane -p prefill_nodes 6    the chapter again, with your values
    companion sweep transfer -p seed=0,1,2            an experiment at many points
    companion simulate --trace my.jsonl               your trace on your cluster
    companion figures list                            every figure with its chapter and address
    companion scoreboard                              every number of the papers beside the model's
    companion traces list                             the request traces and where they are
    companion bench                                   how fast the model is here

    Exit codes: 0 done, 1 it failed, 2 bad usage or bad input.
    """  # noqa: D301 - the backspace is click's mark for a paragraph to leave alone


for command in (build, serve, pdf, params, run, sweep, simulate, figures, scoreboard, traces, cache, bench):
    companion.add_command(command)


_FOLDER_VARIABLES = ("MOONCAKE_TRACES", "MOONCAKE_CACHE")


def main() -> None:
    """Run the command line; an error of ours becomes one line and its exit code."""
    try:
        _settle()
        sys.exit(_run())
    except CompanionError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        click.echo(f"error: {place}{error.strerror or error}", err=True)
        sys.exit(1)
    except MemoryError:
        click.echo(
            "error: there is not enough memory for this; nothing half-written was left behind", err=True
        )
        sys.exit(1)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted; nothing half-written was left behind", err=True)
        sys.exit(1)


def _run() -> int:
    """Run a command, and see that all it wrote has arrived."""
    code = companion.main(standalone_mode=False)
    try:
        sys.stdout.flush()
    except OSError as error:
        # What is still held back cannot be written at the interpreter's end either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.EPIPE:  # as of `| head`
            return 1
        raise OSError(error.errno, error.strerror, "standard output") from None
    return code or 0


def _settle() -> None:
    """Write whatever a name holds, and name folders so that they are found from any other."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    for variable in _FOLDER_VARIABLES:
        if named := os.environ.get(variable):
            try:
                os.environ[variable] = str(expanded(named).absolute())
            except InputError as error:
                raise InputError(f"{variable}: {error}") from None
