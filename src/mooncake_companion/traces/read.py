"""The released JSONL format: read it, find what is wrong with it, write it."""

import hashlib
import json
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from mooncake_companion.datafiles import looks_like, replacing, require_plain_file, unreadable
from mooncake_companion.errors import SHOWN_CHARACTERS, InputError, shown
from mooncake_companion.traces.trace import BLOCK_TOKENS, Trace, jsonl_lines

LONGEST_LINE_BYTES = 16 << 20
"""A longer line is refused unread, so that a damaged file cannot fill the memory.

Room for a prompt of more than 10 million tokens in blocks of 16.
"""

LONGEST_TOKENS = 10**9  # its square, which prefill costs need, still fits 64 bits
LATEST_MS = 10**15  # above it, a float64 no longer tells milliseconds apart after the division
_LARGEST_ID = 2**63 - 1
_FIELDS = ("timestamp", "input_length", "output_length", "hash_ids")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong with one line of a trace file.

    Parameters
    ----------
    line : int
        Counted from 1; 0 if the whole file is meant.
    field : str
        Field of the line; empty if the whole line is meant.
    value : str
        What stands there, shortened.
    expected : str
        What should stand there.
    """

    line: int
    field: str
    value: str
    expected: str

    def __str__(self) -> str:
        place = f"line {self.line}" if self.line else "the file"
        field = f", field {self.field}" if self.field else ""
        return f"{place}{field}: got {self.value}; expected {self.expected}"


def read_jsonl(path: Path, *, name: str | None = None, block_tokens: int = BLOCK_TOKENS) -> Trace:
    """Read a trace in the released format: one JSON object a line.

    The fields are ``timestamp`` (milliseconds from the start, not decreasing), ``input_length``
    and ``output_length`` (tokens, at least 1) and ``hash_ids`` (ceil(input_length / block) ids, each
    standing for its whole prefix); other fields are ignored. A byte order mark and CRLF line
    ends are accepted.

    Parameters
    ----------
    path : Path
    name : str, optional
        Name of the trace; the file's name without its ending, if not given.
    block_tokens : int
        Tokens per block; 512 in the released traces.

    Raises
    ------
    InputError
        If the file cannot be read or a line is wrong: names the file, line, field, value and what
        was expected. Nothing of a wrong file is used.
    """
    scan = _Scan(block_tokens)
    for problem in scan.problems(path):
        raise InputError(f"{path}: {problem}; `companion traces validate` lists more")
    name = name or path.stem
    return Trace(
        name=name,
        origin="file",
        source=f"{name} trace (file, SHA-256 {scan.sha256[:12]}…)",
        sha256=scan.sha256,
        block_tokens=block_tokens,
        arrival_s=np.array(scan.arrival_s),
        input_tokens=np.array(scan.input_tokens),
        output_tokens=np.array(scan.output_tokens),
        block_ids=np.array(scan.block_ids),
        block_offsets=np.array(scan.block_offsets),
    )


def validate_jsonl(path: Path, *, most: int = 10, block_tokens: int = BLOCK_TOKENS) -> tuple[Problem, ...]:
    """Look for wrong lines in a trace file; empty if `read_jsonl` would read it.

    Parameters
    ----------
    path : Path
    most : int
        Stop after this many wrong lines.
    block_tokens : int
        Tokens per block.

    Raises
    ------
    InputError
        If the file cannot be read at all.
    """
    found = []
    for problem in _Scan(block_tokens).problems(path):
        found.append(problem)
        if len(found) >= most:
            break
    return tuple(found)


def write_jsonl(trace: Trace, path: Path) -> None:
    """Write a trace in the released format; a released trace comes out byte for byte.

    Raises
    ------
    InputError
        If the file cannot be written there.
    CompanionError
        If the disk is full.
    """
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.writelines(jsonl_lines(trace))


class _BadLine(Exception):  # noqa: N818 - never leaves this module
    """A line that is refused: field, value, what was expected."""

    def __init__(self, field: str, value: Any, expected: str) -> None:
        super().__init__(field, value, expected)
        self.field, self.expected = field, expected
        self.value = value if isinstance(value, _Words) else _Words(_shorten(value))

    def at(self, line: int) -> Problem:
        return Problem(line=line, field=self.field, value=self.value, expected=self.expected)


class _Words(str):
    """A value that is described instead of shown."""

    __slots__ = ()


class _Scan:
    """One pass over a file: gathers the columns, tells what is wrong."""

    def __init__(self, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.sha256 = ""
        self.arrival_s, self.input_tokens, self.output_tokens = array("d"), array("q"), array("q")
        self.block_ids, self.block_offsets = array("q"), array("q", [0])
        self._last_ms: int | Decimal = 0
        self._predecessor: dict[int, int] = {}

    def problems(self, path: Path) -> Iterator[Problem]:
        """Read the file, yielding what is wrong; the columns count only if nothing was."""
        digest = hashlib.sha256()
        line = 0
        for line, text in enumerate(bounded_lines(path), start=1):
            digest.update(text)
            try:
                self._take(text.removeprefix(b"\xef\xbb\xbf") if line == 1 else text)
            except _BadLine as bad:
                yield bad.at(line)
        if line == 0:
            yield Problem(line=0, field="", value="an empty file", expected="one JSON object a line")
        self.sha256 = digest.hexdigest()

    def _take(self, text: bytes) -> None:
        row = _parse(text)
        timestamp_ms = _timestamp(row["timestamp"])
        if timestamp_ms < self._last_ms:
            expected = f"at least the line's before, {self._last_ms} (sort the file by timestamp)"
            raise _BadLine("timestamp", timestamp_ms, expected)
        input_tokens = _tokens(row, "input_length")
        output_tokens = _tokens(row, "output_length")
        ids = _ids(row["hash_ids"], input_tokens, self.block_tokens)
        self._follow(ids)
        self._last_ms = timestamp_ms
        self.arrival_s.append(_seconds(timestamp_ms))
        self.input_tokens.append(input_tokens)
        self.output_tokens.append(output_tokens)
        self.block_ids.extend(ids)
        self.block_offsets.append(len(self.block_ids))

    def _follow(self, ids: list[int]) -> None:
        """Check that each id has one predecessor in the whole file."""
        known = self._predecessor
        before = [-1, *ids]
        for block, comes in zip(ids, before, strict=False):
            if (came := known.get(block, comes)) != comes:
                value = _Words(f"id {block} {_predecessor_words(comes)}")
                expected = f"it {_predecessor_words(came)}, as earlier in the file"
                raise _BadLine("hash_ids", value, f"{expected}: an id stands for its whole prefix")
        known.update(zip(ids, before, strict=False))


def bounded_lines(path: Path) -> Iterator[bytes]:
    """Lines of a plain file, each of bounded length.

    Raises
    ------
    InputError
        If the file cannot be read, has no end, is packed or in another encoding than UTF-8 by its
        first bytes, or has a line longer than `LONGEST_LINE_BYTES`; names the file and the line.
    """
    number = 0
    try:
        require_plain_file(path)
        with path.open("rb") as file:
            if kind := looks_like(file.peek(8)[:8]):
                name = f" {path.name}" if "unpack" in kind else ""
                raise InputError(f"{path} is {kind}{name}")
            while line := file.readline(LONGEST_LINE_BYTES + 1):
                number += 1
                if len(line) > LONGEST_LINE_BYTES:
                    raise InputError(
                        f"{path}: line {number} is longer than {LONGEST_LINE_BYTES:,} bytes; expected one "
                        "request a line"
                    )
                yield line
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error


def _parse(text: bytes) -> dict[str, Any]:
    """Read one line as an object that has all fields."""
    if not text.strip():
        raise _BadLine("", _Words("a blank line"), "one JSON object a line")
    try:
        row = _DECODER.decode(text.decode("utf-8"))
    except UnicodeDecodeError:
        raise _BadLine("", text, "UTF-8 text") from None
    except (ValueError, ArithmeticError, RecursionError) as error:
        cut = (
            "" if text.endswith(b"\n") else " (the file's last line looks cut off; download or copy it again)"
        )
        if b"\r" in text.rstrip():
            raise _BadLine("", text, "one JSON object a line; a line ends in LF or CRLF, not in CR") from None
        raise _BadLine("", text, f"a JSON object, but {_reason(error)}{cut}") from None
    if not isinstance(row, dict):
        raise _BadLine("", row, "a JSON object")
    for field in _FIELDS:
        if field not in row:
            raise _BadLine(field, _Words("nothing"), f"the fields {', '.join(_FIELDS)}")
    return row


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at column {error.colno}"
    return "it is nested too deeply" if isinstance(error, RecursionError) else shown(str(error))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) != len(pairs):
        raise ValueError("a field is given twice")
    return row


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is not a JSON number")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=Decimal, parse_constant=_no_constant)


def _timestamp(value: Any) -> int | Decimal:
    expected = f"milliseconds from the trace's start, a number from 0 to {LATEST_MS:.0e}"
    if type(value) not in (int, Decimal) or not 0 <= value <= LATEST_MS:
        raise _BadLine("timestamp", value, expected)
    return value


def _seconds(timestamp_ms: int | Decimal) -> float:
    """Nearest float64 to a thousandth of the decimal number."""
    return timestamp_ms / 1000 if isinstance(timestamp_ms, int) else abs(float(timestamp_ms.scaleb(-3)))


def _tokens(row: dict[str, Any], field: str) -> int:
    value = row[field]
    if type(value) is not int or not 1 <= value <= LONGEST_TOKENS:
        raise _BadLine(field, value, f"a whole number of tokens from 1 to {LONGEST_TOKENS:.0e}")
    return value


def _ids(value: Any, input_tokens: int, block_tokens: int) -> list[int]:
    if not isinstance(value, list):
        raise _BadLine("hash_ids", value, "a list of block ids")
    blocks = -(-input_tokens // block_tokens)
    if len(value) != blocks:
        expected = f"{blocks}, one for each {block_tokens} of {input_tokens} input tokens begun"
        raise _BadLine("hash_ids", _Words(f"{len(value)} ids"), expected)
    for block in value:
        if type(block) is not int or not 0 <= block <= _LARGEST_ID:
            raise _BadLine("hash_ids", block, f"ids that are whole numbers from 0 to {_LARGEST_ID}")
    if len(set(value)) != len(value):
        twice, times = Counter(value).most_common(1)[0]
        raise _BadLine("hash_ids", _Words(f"id {twice} {times} times"), "each id at most once in a request")
    return value


def _predecessor_words(block: int) -> str:
    return "stands first" if block < 0 else f"follows {block}"


def _shorten(value: Any) -> str:
    if isinstance(value, bytes):
        value = value[: 4 * SHOWN_CHARACTERS].decode("utf-8", "backslashreplace").rstrip("\r\n")
    text = str(value) if isinstance(value, Decimal) else json.dumps(value, default=str, ensure_ascii=False)
    return shown(text)
