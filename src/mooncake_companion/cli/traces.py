"""`companion traces`: find, fetch, measure, check, convert and generate request traces."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from mooncake_companion.errors import CompanionError, InputError

_HASH_CHARACTERS = 12

_json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs.")
_block_option = click.option(
    "--block-tokens",
    type=click.IntRange(1, 1 << 20),
    default=512,
    show_default=True,
    help="Tokens per hashed block.",
)


def _folder_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--folder",
        type=click.Path(path_type=Path),
        help="Look here first for released traces.  [default: $MOONCAKE_TRACES]",
    )(command)


@click.group()
def traces() -> None:
    """Find, fetch, measure, check, convert and generate request traces.

    \b
    companion traces list                       what is known, and where it is on this machine
    companion traces fetch conversation         download one, checked
    companion traces describe conversation      its sizes, lengths, arrivals and reuse
    companion traces validate mine.jsonl        what is wrong with a file of your own
    companion traces convert azure in.csv out.jsonl    a public trace in another format
    companion traces generate conversation -o standin.jsonl --seed 1

    A released trace is looked for in the folder that MOONCAKE_TRACES names, then in the download
    cache (or the folder MOONCAKE_CACHE), then downloaded. MOONCAKE_OFFLINE=1 forbids the download.
    Where a trace cannot be had, a generated stand-in takes its place, and its name says so.
    """  # noqa: D301 - \b is for click


@traces.command("list")
@_folder_option
@_json_option
def list_(folder: Path | None, as_json: bool) -> None:
    """List the traces known by name and where each would come from now.

    \b
    companion traces list
    companion traces list --json | jq '.[] | select(.path == null) | .name'
    """  # noqa: D301 - \b is for click
    from mooncake_companion.traces import generated, has_standin, locate, registered

    rows = [
        {
            "name": trace.name,
            "title": trace.title,
            "requests": trace.requests,
            "path": str(path) if (path := locate(trace.name, folder=folder)) else None,
            "standin": has_standin(trace.name),
            "checksum": trace.checksum,
            "url": trace.url,
            "licence": trace.licence,
            "citation": trace.citation,
            "note": trace.note,
        }
        for trace in registered().values()
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    click.echo("\n\n".join(map(_listed, rows)))
    click.echo(f"\nNever released, but can be generated: {', '.join(generated())}")


def _listed(row: Mapping[str, Any]) -> str:
    kind, _, digest = row["checksum"].rpartition(" ")
    otherwise = (
        "not on this machine; a stand-in can be generated" if row["standin"] else "not on this machine"
    )
    return (
        f"{row['name']:<14}{row['requests']:>7,} requests   {row['title']}\n"
        f"{'':<14}{row['path'] or otherwise}\n"
        f"{'':<14}{kind} {digest[:_HASH_CHARACTERS]}…   {row['licence']}"
    )


@traces.command("fetch")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@_folder_option
def fetch_(names: tuple[str, ...], folder: Path | None) -> None:
    """Download released traces that are not on this machine; all, if none is named.

    Each is checked against its checksum before it counts. The paths are written, one a line.

    \b
    companion traces fetch
    companion traces fetch conversation toolagent
    """  # noqa: D301 - \b is for click
    from mooncake_companion.traces import fetch, registered

    if unknown := [name for name in names if name not in registered()]:
        raise InputError(f"no trace is called {unknown[0]!r}; known are {', '.join(registered())}")
    failures = []
    for name in names or registered():
        try:
            click.echo(fetch(name, folder=folder))
        except InputError:
            raise
        except CompanionError as error:
            failures.append(str(error))
    if failures:
        raise CompanionError("\n       ".join(failures))


@traces.command("describe")
@click.argument("trace", metavar="NAME_OR_PATH")
@_folder_option
@click.option("--no-download", is_flag=True, help="Use only what is on this machine.")
@_json_option
def describe_(trace: str, folder: Path | None, no_download: bool, as_json: bool) -> None:
    """Measure a trace: sizes, lengths, arrivals and what could be reused of it.

    \b
    companion traces describe conversation
    companion traces describe conversation-standin
    companion traces describe ./mine.jsonl --json
    """  # noqa: D301 - \b is for click
    from mooncake_companion.traces import describe, load

    table = describe(load(trace, download=not no_download, folder=folder))
    if as_json:
        click.echo(json.dumps(table, indent=2))
        return
    width = max(map(len, table))
    for name, value in table.items():
        click.echo(f"{name:<{width}}  {_number(value)}")


def _number(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1 else f"{value:,.2f}".removesuffix(".00")
    return "none" if value is None else str(value)


@traces.command("validate")
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--most", type=click.IntRange(1), default=10, show_default=True, help="Stop after so many bad lines."
)
@_block_option
@_json_option
def validate_(path: Path, most: int, block_tokens: int, as_json: bool) -> None:
    """Check a file in the released format; name the bad lines and exit with 2 if there are any.

    Each line is a JSON object with timestamp (ms from the start, not decreasing), input_length and
    output_length (tokens) and hash_ids (one id for each block of input tokens begun; an id stands
    for the whole prefix that ends with its block).

    \b
    companion traces validate mine.jsonl
    companion traces validate mine.jsonl --json | jq '.problems[].line'
    """  # noqa: D301 - \b is for click
    import dataclasses

    from mooncake_companion.traces import validate_jsonl

    problems = validate_jsonl(path, most=most, block_tokens=block_tokens)
    if as_json:
        found = [dataclasses.asdict(problem) for problem in problems]
        click.echo(json.dumps({"path": str(path), "valid": not found, "problems": found}, indent=2))
    if problems:
        more = f" (stopped after {most})" if len(problems) == most else ""
        lines = "".join(f"\n  {problem}" for problem in problems)
        raise InputError(f"{path} is not a valid trace{more}:{lines}")
    if not as_json:
        click.echo(f"{path}: valid")


@traces.command("convert")
@click.argument("format", metavar="FORMAT")
@click.argument("source", metavar="IN", type=click.Path(path_type=Path))
@click.argument("target", metavar="OUT", type=click.Path(path_type=Path))
@click.option(
    "--block-tokens",
    type=click.IntRange(1, 1 << 20),
    default=512,
    show_default=True,
    help="Tokens per block of OUT; a multiple of 16 for bailian.",
)
@click.option("--requests", type=click.IntRange(1), help="Read only so many rows.  [default: all]")
@_json_option
def convert_(
    format: str,  # noqa: A002 - the argument's name in messages
    source: Path,
    target: Path,
    block_tokens: int,
    requests: int | None,
    as_json: bool,
) -> None:
    """Convert a public trace IN of some FORMAT to OUT in the released format, and say what it lacks.

    \b
    azure      Azure LLM inference traces 2023 and 2024: TIMESTAMP, ContextTokens, GeneratedTokens
    burstgpt   BurstGPT: Timestamp, Request tokens, Response tokens, and others
    bailian    Qwen Bailian anonymous traces: timestamp, input_length, output_length, hash_ids of
               16 tokens

    Azure and BurstGPT have no block ids: nothing can be reused. Bailian's blocks are joined to larger
    ones, and only whole ones count as reused; keep them with --block-tokens 16, and give that to
    `companion simulate` too. Requests without a prompt or an answer, as of failures, are left out;
    times begin at 0, and rows are put in order.

    \b
    companion traces convert azure AzureLLMInferenceTrace_conv.csv conv.jsonl
    companion traces convert burstgpt BurstGPT_1.csv burst.jsonl --requests 10000
    companion traces convert bailian qwen_traceA_blksz_16.jsonl qwen.jsonl --block-tokens 16
    """  # noqa: D301 - \b is for click
    from mooncake_companion.datafiles import is_there
    from mooncake_companion.traces import FORMATS, convert, write_jsonl

    if is_there(target) and is_there(source) and target.samefile(source):
        raise InputError(f"{target} is IN and OUT; name another file for OUT, so that IN stays what it is")
    done = convert(format, source, block_tokens=block_tokens, requests=requests)
    write_jsonl(done.trace, target)
    told = {
        "path": str(target),
        "requests": len(done.trace),
        "rows": done.rows,
        "skipped": done.skipped,
        "moved": done.moved,
        "block_tokens": block_tokens,
        "lacks": FORMATS[format].lacks,
    }
    if as_json:
        click.echo(json.dumps(told, indent=2))
        return
    click.echo(f"{target}: {len(done.trace):,} requests in {done.trace.duration_s:,.0f} s")
    if done.skipped:
        click.echo(f"left out: {done.skipped:,} of {done.rows:,} rows, without a prompt or an answer")
    if done.moved:
        click.echo(f"put in order: {done.moved:,} rows came before the one that they stood behind")
    click.echo(f"lacks: {FORMATS[format].lacks}")


@traces.command("generate")
@click.argument("name")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="JSONL file to write.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the random generator.")
@click.option(
    "--requests", type=click.IntRange(1, 10_000_000), help="How many.  [default: as the released trace]"
)
def generate_(name: str, output: Path, seed: int, requests: int | None) -> None:
    """Generate a trace with the statistics of a released one, or of a workload that the papers describe.

    It is written in the released format.

    With seed 0 and no number of requests it is the very stand-in that is used where the released
    trace cannot be had.

    \b
    companion traces generate conversation -o conversation-standin.jsonl
    companion traces generate synthetic -o long.jsonl --seed 7 --requests 20000
    companion traces generate l-eval -o l-eval.jsonl
    """  # noqa: D301 - \b is for click
    import numpy as np

    from mooncake_companion.traces import generate, generated, load_workload, registered, write_jsonl

    base = name.removesuffix("-standin")
    if base not in (*registered(), *generated()):
        known = ", ".join([*registered(), *generated()])
        raise InputError(f"no trace is called {name!r}; known are {known}")
    made = generate(load_workload(base), np.random.default_rng(seed), requests=requests)
    write_jsonl(made, output)
    click.echo(f"{output}: {len(made):,} requests, seed {seed}, SHA-256 {made.sha256}")


@traces.command("fit", hidden=True)
@click.argument("trace", metavar="NAME_OR_PATH")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="TOML file to write.")
def fit_(trace: str, output: Path) -> None:
    """Fit the statistics that `generate` needs on a trace that is on this machine.

    \b
    companion traces fit conversation -o data/workloads/conversation.toml
    """  # noqa: D301 - \b is for click
    from mooncake_companion.datafiles import replacing
    from mooncake_companion.traces import load
    from mooncake_companion.traces.fit import fit_workload
    from mooncake_companion.traces.workload import format_workload

    loaded = load(trace, download=False)
    if loaded.origin == "standin":
        raise CompanionError(
            f"the {trace} trace is not on this machine; a fit on its stand-in would be circular"
        )
    with replacing(output) as temporary:
        text = format_workload(fit_workload(loaded), made_by=f"companion traces fit {trace}")
        temporary.write_text(text, "utf-8")
    click.echo(output)
