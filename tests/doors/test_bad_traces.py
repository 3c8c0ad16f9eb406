"""Traces as nobody should write them, at every door that takes one: what is said, and how it ends."""

import gzip
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

GOOD = {"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [0, 1]}
NEXT = {**GOOD, "timestamp": 5, "hash_ids": [0, 2]}
MOST_KB = 400_000
"""Of memory that a process may take to say that a file is unfit; 80 MB of it are the interpreter's."""


def row(**changed):
    return json.dumps({**GOOD, **changed})


def lines(*rows, end="\n"):
    return "".join(f"{each}{end}" for each in rows).encode()


AZURE = b"TIMESTAMP,ContextTokens,GeneratedTokens\n"
TRACE = lines(row(), json.dumps(NEXT))
BAD = {
    "truncated line": (TRACE[:-20], "line 2: got", "last line looks cut off"),
    "wrong type": (lines(row(input_length="600")), 'line 1, field input_length: got "600"', "whole number"),
    "negative number": (lines(row(output_length=-3)), "line 1, field output_length: got -3", "from 1 to"),
    "huge number": (lines(row(input_length=10**30)), "line 1, field input_length: got 1000", "1e+09"),
    "number without end": (lines(row()).replace(b"600", b"6" * 5000), "line 1: got", "Exceeds the limit"),
    "huge id": (lines(row(hash_ids=[0, 2**64])), "line 1, field hash_ids: got 18446744", "from 0 to 922"),
    "NaN": (lines(row(timestamp=float("nan"))), "line 1: got", "NaN is not a JSON number"),
    "Infinity": (lines(row(timestamp=float("inf"))), "line 1: got", "Infinity is not a JSON number"),
    "time going back": (lines(row(timestamp=9), json.dumps(NEXT)), "line 2, field timestamp: got 5", "9"),
    "too few ids": (lines(row(hash_ids=[0])), "line 1, field hash_ids: got 1 ids", "expected 2, one for"),
    "too many ids": (lines(row(hash_ids=[0, 1, 2])), "field hash_ids: got 3 ids", "expected 2, one for each"),
    "an id twice": (lines(row(hash_ids=[7, 7])), "field hash_ids: got id 7 2 times", "each id at most once"),
    "an id with two prefixes": (
        lines(row(), row(hash_ids=[2, 1])),
        "line 2, field hash_ids: got id 1 follows 2",
        "it follows 0, as earlier in the file: an id stands for its whole prefix",
    ),
    "empty file": (b"", "the file: got an empty file", "one JSON object a line"),
    "blank line": (b"\n", "line 1: got a blank line", "one JSON object a line"),
    "gzip under another name": (gzip.compress(TRACE), "is gzip-compressed", "gunzip bad.jsonl"),
    "zip bomb": (gzip.compress(b"\0" * 10**8, 1), "is gzip-compressed", "unpack it first"),
    "ZIP archive": (b"PK\x03\x04" + TRACE, "is a ZIP archive", "unpack it first"),
    "zstd": (b"\x28\xb5\x2f\xfd" + TRACE, "is zstd-compressed", "unpack it first"),
    "Parquet": (b"PAR1" + TRACE, "is a Parquet file", "write it as text"),
    "UTF-16": (TRACE.decode().encode("utf-16"), "is UTF-16", "save it as UTF-8"),
    "bytes of no encoding": (TRACE.replace(b"600", b'"\xff"', 1), "line 1: got", "expected UTF-8 text"),
    "CR alone": (TRACE.replace(b"\n", b"\r"), "line 1: got", "ends in LF or CRLF, not in CR"),
    "an array": (json.dumps([GOOD]).encode(), "line 1: got [{", "expected a JSON object"),
    "a CSV": (b"timestamp,input_length\n0,600\n", 'line 1: got "timestamp,input_length"', "a JSON object"),
    "nested": (b'{"a":' * 50_000, "line 1: got", "nested too deeply"),
    "a field twice": (lines('{"timestamp": 1, ' + row()[1:]), "line 1: got", "a field is given twice"),
    "a field missing": (b'{"timestamp": 0}\n', "line 1, field input_length: got nothing", "the fields"),
    "orders to a terminal": (lines('"\x9b31m\u202e"'), r'line 1: got "\x9b31m\u202e"', "a JSON object"),
}


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def bad(tmp_path):
    def write(content, name="bad.jsonl"):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


@pytest.mark.parametrize(("content", "told", "expected"), BAD.values(), ids=BAD)
def test_a_bad_trace_is_told_with_line_field_value_and_what_was_expected(
    refused, bad, content, told, expected
):
    path = bad(content)
    for command in (("describe", path), ("validate", path), ("convert", "bailian", path, f"{path}.out")):
        said = refused("traces", *command)
        assert said.startswith(str(path))
        assert "\n" not in said.replace("\n  ", "")
        if command[0] != "convert":
            assert told in said, said
            assert expected in said, said
    assert names_in(path.parent) == ["bad.jsonl"]


@pytest.mark.parametrize(
    "change", [lambda text: b"\xef\xbb\xbf" + text, lambda text: text.replace(b"\n", b"\r\n")]
)
def test_a_byte_order_mark_and_crlf_do_no_harm(companion, bad, change):
    assert companion("traces", "validate", bad(change(TRACE)))[0] == 0


def test_what_is_not_a_file_is_not_waited_for(refused, tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "loop.jsonl").symlink_to(tmp_path / "loop.jsonl")
    for path, told in (
        (tmp_path / "pipe.jsonl", "not a plain file (a pipe or a device?)"),
        ("/dev/zero", "not a plain file"),
        (tmp_path, "is a folder; name a file in it"),
        (tmp_path / "none.jsonl", "cannot read"),
        (tmp_path / "loop.jsonl", "cannot read"),
        (tmp_path / ("x" * 300), "cannot read"),
        ("~no-such-user/t.jsonl", "no such user's home folder"),
    ):
        assert told in refused("traces", "describe", path)
        if not str(path).startswith("~"):
            assert told in refused("traces", "convert", "azure", path, tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()


LINE_OF_2_GB = """
import re, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
sys.argv = ["companion", "traces", *sys.argv[1:]]
from mooncake_companion.cli import main
try:
    main()
finally:
    print(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1])
"""
"""Its ``ru_maxrss`` would be that of the process that started it, if that is larger."""


def in_bounds(*words, most_kb=MOST_KB):
    done = subprocess.run(
        [sys.executable, "-c", LINE_OF_2_GB, *map(str, words)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done
    assert int(done.stdout.splitlines()[-1]) < most_kb
    return done.stderr


@pytest.mark.parametrize(
    "command", [("validate",), ("convert", "azure"), ("convert", "bailian")], ids=" ".join
)
def test_a_line_of_2_gb_takes_no_memory(tmp_path, command):
    path = tmp_path / "long.jsonl"
    with path.open("wb") as file:
        file.truncate(2 << 30)  # a hole: no disk is written
    targets = [tmp_path / "out.jsonl"] if command[0] == "convert" else []
    assert "line 1 is longer than 16,777,216 bytes" in in_bounds(*command, path, *targets)
    assert names_in(tmp_path) == ["long.jsonl"]


def test_a_pipe_that_never_ends_is_not_read(tmp_path):
    pipe = tmp_path / "endless.jsonl"
    os.mkfifo(pipe)
    stop = threading.Event()

    def feed():
        while not stop.is_set():
            try:
                end = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                stop.wait(0.05)
            else:
                os.close(end)

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        assert "not a plain file" in in_bounds("validate", pipe)
    finally:
        stop.set()
        feeder.join()


def test_the_densest_line_stays_within_the_memory(bad):
    """A line of the greatest length that becomes as many objects as a line can."""
    path = bad(b'{"a": [' + b"1.5," * ((16 << 20) // 4 - 5) + b"{}]}\n")
    assert "line 1, field timestamp: got nothing" in in_bounds("validate", path, most_kb=1_200_000)


def test_a_few_damaged_lengths_do_not_make_a_trace_that_fills_the_memory(bad, tmp_path):
    path = bad(AZURE + b"2023-11-16 18:15:46,1000000000,1\n" * 60, "a.csv")
    told = in_bounds("convert", "azure", path, tmp_path / "out.jsonl")
    assert "the first 52 rows make more than 100,000,000 blocks of 512 tokens" in told
    assert "--block-tokens" in told


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="only root can become somebody else")
def test_a_file_that_may_not_be_read_or_written(bad, tmp_path):
    path = bad(TRACE)
    path.chmod(0)
    code = (
        "import difflib, os, sys\n"  # click's, where nobody may read the library
        "from mooncake_companion.cli import main\n"
        "import mooncake_companion.traces, mooncake_companion.traces.convert\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "sys.argv = ['companion', *sys.argv[1:]]\n"
        "main()\n"
    )
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == "root" and folder != Path("/") and str(folder) != "/tmp":
            folder.chmod(0o755)

    def as_nobody(*words):
        command = [sys.executable, "-c", code, *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    assert as_nobody("traces", "describe", path) == (2, f"error: cannot read {path}: Permission denied\n")
    path.chmod(0o644)
    target = tmp_path / "out.jsonl"
    made = ("traces", "generate", "l-eval", "--requests", "3", "-o", target)
    assert as_nobody(*made) == (2, f"error: cannot write {target}: Permission denied\n")
    assert names_in(tmp_path) == ["bad.jsonl"]
