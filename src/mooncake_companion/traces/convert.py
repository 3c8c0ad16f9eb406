"""Public traces in other formats: what each has, what it lacks, and how it becomes one of ours.

Azure LLM inference traces, 2023 and 2024 (CSV)
    ``TIMESTAMP`` (a date and time), ``ContextTokens``, ``GeneratedTokens``.
BurstGPT (CSV)
    ``Timestamp`` (seconds), ``Model``, ``Request tokens``, ``Response tokens``, ``Total tokens``, ``Log
    Type``; later files also ``Session ID`` and ``Elapsed time``.
Qwen Bailian usage traces, anonymous (JSONL)
    ``chat_id``, ``parent_chat_id``, ``timestamp`` (seconds), ``input_length``, ``output_length``,
    ``type``, ``turn``, ``hash_ids`` (one for each 16 tokens; what is not full may have none).

The first two do not say what prompts have in common, so every block is its own and nothing can be
reused.
"""

import csv
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from mooncake_companion.errors import InputError, shown
from mooncake_companion.traces.read import LATEST_MS, LONGEST_TOKENS, bounded_lines
from mooncake_companion.traces.trace import BLOCK_TOKENS, Trace

BAILIAN_BLOCK_TOKENS = 16

_LONE_CR = re.compile(r"(?<=\r)(?!\n|\Z)")
_LATEST_S = LATEST_MS // 1000
MOST_BLOCKS = 10**8
"""A trace of more blocks is refused, as a few damaged lengths make one that fills the memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A public format.

    Parameters
    ----------
    name, title : str
    fields : tuple of str
        Those that are read; a file must have all of them.
    lacks : str
        What a trace made from it cannot say.
    """

    name: str
    title: str
    fields: tuple[str, ...]
    lacks: str


FORMATS = {
    each.name: each
    for each in (
        Format(
            name="azure",
            title="Azure LLM inference traces 2023 and 2024 (CSV)",
            fields=("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
            lacks="block ids and sessions: every block is its own, so nothing can be reused",
        ),
        Format(
            name="burstgpt",
            title="BurstGPT (CSV)",
            fields=("Timestamp", "Request tokens", "Response tokens"),
            lacks="block ids: every block is its own, so nothing can be reused; models are taken together",
        ),
        Format(
            name="bailian",
            title="Qwen Bailian anonymous usage traces (JSONL)",
            fields=("timestamp", "input_length", "output_length", "hash_ids"),
            lacks="nothing that a replay needs; which request continues which chat is left out",
        ),
    )
}


class Conversion(NamedTuple):
    """A converted trace, and what became of the file's rows.

    Parameters
    ----------
    trace : Trace
    rows : int
        Rows that were read.
    skipped : int
        Rows without a prompt or an answer, as of requests that failed, which were left out.
    moved : int
        Rows that came before the one that they stood behind; all were put in order.
    """

    trace: Trace
    rows: int
    skipped: int
    moved: int


class _Row(NamedTuple):
    arrival_s: float
    input_tokens: int
    output_tokens: int
    ids: Sequence[int]


def convert(
    kind: str, path: Path, *, block_tokens: int = BLOCK_TOKENS, requests: int | None = None
) -> Conversion:
    """Read a trace in a public format.

    Parameters
    ----------
    kind : str
        A name in `FORMATS`.
    path : Path
    block_tokens : int
        Tokens per block of the new trace. Bailian's 16-token blocks are joined, so it must be a
        multiple of 16 there; a block counts as reused only as a whole.
    requests : int, optional
        Read no more than so many rows.

    Returns
    -------
    Conversion
        Its trace begins at 0 s and is in order.

    Raises
    ------
    InputError
        For an unknown format, an unfit block size, a file that cannot be read, or a row that is
        wrong: names the file, the line, the field, the value and what was expected.
    """
    if kind not in FORMATS:
        raise InputError(f"no trace format {kind!r}; there are {', '.join(FORMATS)}")
    if block_tokens < 1 or (kind == "bailian" and block_tokens % BAILIAN_BLOCK_TOKENS):
        raise InputError(
            f"block_tokens: {block_tokens} is unfit; expected a multiple of {BAILIAN_BLOCK_TOKENS} for "
            "bailian, and at least 1"
        )
    rows = _READERS[kind](path, _text_lines(path), block_tokens)
    read = list(_of_bounded_blocks(path, itertools.islice(rows, requests), block_tokens))
    kept = [row for row in read if row.input_tokens and row.output_tokens]
    if not kept:
        raise InputError(f"{path}: no row has a prompt and an answer")
    moved = sum(after.arrival_s < before.arrival_s for before, after in itertools.pairwise(kept))
    kept.sort(key=lambda row: row.arrival_s)
    return Conversion(_trace(kind, path, kept, block_tokens), len(read), len(read) - len(kept), moved)


def _text_lines(path: Path) -> Iterator[str]:
    for number, line in enumerate(bounded_lines(path), start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            _refuse(path, number, "", line[error.start :].decode("latin-1"), "UTF-8 text")
        yield from _LONE_CR.split(text) if "\r" in text else (text,)


def _of_bounded_blocks(path: Path, rows: Iterable[_Row], block_tokens: int) -> Iterator[_Row]:
    blocks = 0
    for number, row in enumerate(rows, start=1):
        blocks += -(-row.input_tokens // block_tokens)
        if blocks > MOST_BLOCKS:
            raise InputError(
                f"{path}: the first {number:,} rows make more than {MOST_BLOCKS:,} blocks of {block_tokens} "
                "tokens; read fewer (--requests), or take larger blocks (--block-tokens)"
            )
        yield row


def _trace(kind: str, path: Path, rows: Sequence[_Row], block_tokens: int) -> Trace:
    start_s = rows[0].arrival_s
    own = itertools.count()
    requests = (
        (
            round(row.arrival_s - start_s, 6),
            row.input_tokens,
            row.output_tokens,
            row.ids or [next(own) for _ in range(-(-row.input_tokens // block_tokens))],
        )
        for row in rows
    )
    return Trace.from_requests(
        requests,
        name=path.stem,
        source=f"{path.stem} trace (converted from {FORMATS[kind].title})",
        block_tokens=block_tokens,
    )


# --- CSV --------------------------------------------------------------------------------------


def _azure(path: Path, file: Iterable[str], _block_tokens: int) -> Iterator[_Row]:
    for line, row in _csv_rows(path, file, "azure"):
        yield _Row(
            _moment(path, line, "TIMESTAMP", row["TIMESTAMP"]),
            _count(path, line, "ContextTokens", row["ContextTokens"]),
            _count(path, line, "GeneratedTokens", row["GeneratedTokens"]),
            (),
        )


def _burstgpt(path: Path, file: Iterable[str], _block_tokens: int) -> Iterator[_Row]:
    for line, row in _csv_rows(path, file, "burstgpt"):
        yield _Row(
            _seconds(path, line, "Timestamp", row["Timestamp"]),
            _count(path, line, "Request tokens", row["Request tokens"]),
            _count(path, line, "Response tokens", row["Response tokens"]),
            (),
        )


def _csv_rows(path: Path, file: Iterable[str], kind: str) -> Iterator[tuple[int, Mapping[str, str]]]:
    reader = csv.DictReader(file, restval="")
    try:
        columns = reader.fieldnames or []
        for field in FORMATS[kind].fields:
            if field not in columns:
                had = shown(", ".join(columns), 200) or "nothing"
                wanted = ", ".join(FORMATS[kind].fields)
                raise InputError(f"{path}: no column {field!r} in line 1, which has {had}; expected {wanted}")
        for row in reader:
            if extra := row.get(None):
                _refuse(path, reader.line_num, "", f"{len(columns) + len(extra)}", f"{len(columns)} columns")
            yield reader.line_num, row
    except csv.Error as error:
        raise InputError(f"{path}: line {reader.line_num}: not CSV: {error}") from None


def _moment(path: Path, line: int, field: str, text: str) -> float:
    """Seconds since 1970 of a date and time, in UTC where it names no zone."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        _refuse(path, line, field, text, "a date and time such as 2023-11-16 18:15:46.6805900")
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _seconds(path: Path, line: int, field: str, value: Any) -> float:
    try:
        seconds = float(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else -1
    except (ValueError, OverflowError):
        seconds = -1
    if not 0 <= seconds <= _LATEST_S:  # also refuses NaN
        _refuse(path, line, field, value, f"seconds, a number from 0 to {_LATEST_S:.0e}")
    return seconds


def _count(path: Path, line: int, field: str, text: str) -> int:
    try:
        number = float(text)
    except ValueError:
        number = -1
    if not (0 <= number <= LONGEST_TOKENS and number == int(number)):
        _refuse(path, line, field, text, f"a whole number of tokens from 0 to {LONGEST_TOKENS:.0e}")
    return int(number)


# --- JSONL ------------------------------------------------------------------------------------


def _bailian(path: Path, file: Iterable[str], block_tokens: int) -> Iterator[_Row]:
    """Rows with ids that stand for a prompt's whole start, whatever the file's ids stand for."""
    known: dict[tuple[int, tuple[int, ...]], int] = {}
    for line, text in enumerate(file, start=1):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
        except RecursionError:
            _refuse(path, line, "", text, "a JSON object, but it is nested too deeply")
        except ValueError as error:
            _refuse(path, line, "", text, f"a JSON object, but {error}")
        if not isinstance(row, dict):
            _refuse(path, line, "", row, "a JSON object")
        for field in FORMATS["bailian"].fields:
            if field not in row:
                _refuse(path, line, field, None, f"the fields {', '.join(FORMATS['bailian'].fields)}")
        input_tokens, output_tokens = (
            _whole(path, line, field, row[field]) for field in ("input_length", "output_length")
        )
        ids = _ids(path, line, row["hash_ids"], input_tokens)
        width = block_tokens // BAILIAN_BLOCK_TOKENS
        joined: list[int] = []
        for first in range(0, len(ids), width):
            key = (joined[-1] if joined else -1, tuple(ids[first : first + width]))
            joined.append(known.setdefault(key, len(known)))
        arrival_s = _seconds(path, line, "timestamp", row["timestamp"])
        yield _Row(arrival_s, input_tokens, output_tokens, joined)


def _whole(path: Path, line: int, field: str, value: Any) -> int:
    if type(value) is not int or not 0 <= value <= LONGEST_TOKENS:
        _refuse(path, line, field, value, f"a whole number of tokens from 0 to {LONGEST_TOKENS:.0e}")
    return int(value)


def _ids(path: Path, line: int, value: Any, input_tokens: int) -> list[int]:
    blocks = -(-input_tokens // BAILIAN_BLOCK_TOKENS)
    if not isinstance(value, list) or not all(type(each) is int and each >= 0 for each in value):
        _refuse(path, line, "hash_ids", value, "a list of whole numbers that are at least 0")
    if len(value) == blocks - 1 and input_tokens % BAILIAN_BLOCK_TOKENS:
        return [*value, -line]  # a block that is not full may have no id; then it is its own
    if len(value) != blocks:
        expected = f"{blocks}, one for each {BAILIAN_BLOCK_TOKENS} of {input_tokens} input tokens begun"
        _refuse(path, line, "hash_ids", f"{len(value)} ids", expected)
    return value


_READERS: Mapping[str, Callable[[Path, Iterable[str], int], Iterator[_Row]]] = {
    "azure": _azure,
    "burstgpt": _burstgpt,
    "bailian": _bailian,
}


def _refuse(path: Path, line: int, field: str, value: Any, expected: str) -> NoReturn:
    try:
        got = shown("" if value is None else str(value).strip())
    except (ValueError, RecursionError):  # a number of more digits than Python writes
        got = "a value too large to show"
    place = f", field {field}" if field else ""
    raise InputError(f"{path}: line {line}{place}: got {got or 'nothing'}; expected {expected}")
