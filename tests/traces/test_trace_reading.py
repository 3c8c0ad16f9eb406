import gzip
import hashlib
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_strategies import BLOCK, traces

from mooncake_companion.errors import InputError
from mooncake_companion.traces import locate, read, read_jsonl, validate_jsonl, write_jsonl

GOOD = {"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [0, 1]}


def line(**changed):
    return json.dumps({**GOOD, **changed})


@pytest.fixture
def file(tmp_path):
    def write(*lines, end="\n"):
        path = tmp_path / "some.jsonl"
        path.write_bytes(
            b"".join((text if isinstance(text, bytes) else text.encode()) + end.encode() for text in lines)
        )
        return path

    return write


def refusal(path):
    with pytest.raises(InputError) as caught:
        read_jsonl(path)
    assert caught.value.exit_code == 2
    return str(caught.value)


@given(trace=traces())
def test_what_is_written_reads_back_the_same(trace, tmp_path_factory):
    path = tmp_path_factory.mktemp("trip") / "t.jsonl"
    write_jsonl(trace, path)
    back = read_jsonl(path, block_tokens=BLOCK)
    assert back == trace
    assert back.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    for column in ("arrival_s", "input_tokens", "output_tokens", "block_ids", "block_offsets"):
        assert getattr(back, column).tolist() == getattr(trace, column).tolist()


def test_a_released_trace_is_written_byte_for_byte(released, tmp_path):
    path = tmp_path / "again.jsonl"
    write_jsonl(released, path)
    assert path.read_bytes() == locate(released.name).read_bytes()


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("timestamp", -1, "milliseconds from the trace's start"),
        ("timestamp", "0", "milliseconds from the trace's start"),
        ("timestamp", True, "milliseconds from the trace's start"),
        ("timestamp", None, "milliseconds from the trace's start"),
        ("timestamp", 10**16, "a number from 0 to 1e+15"),
        ("input_length", 0, "a whole number of tokens from 1"),
        ("input_length", 600.0, "a whole number of tokens from 1"),
        ("input_length", True, "a whole number of tokens from 1"),
        ("input_length", 10**18, "a whole number of tokens from 1"),
        ("output_length", 0, "a whole number of tokens from 1"),
        ("output_length", [], "a whole number of tokens from 1"),
        ("hash_ids", {}, "a list of block ids"),
        ("hash_ids", [0], "2, one for each 512 of 600 input tokens begun"),
        ("hash_ids", [0, 1, 2], "2, one for each 512 of 600 input tokens begun"),
        ("hash_ids", [0, 0], "each id at most once"),
        ("hash_ids", [0, -1], "whole numbers from 0"),
        ("hash_ids", [0, 1.0], "whole numbers from 0"),
        ("hash_ids", [0, False], "whole numbers from 0"),
        ("hash_ids", [0, 2**63], "whole numbers from 0"),
        ("hash_ids", [0, "1"], "whole numbers from 0"),
    ],
)
def test_a_bad_value_is_named_with_file_line_field_and_what_was_expected(file, field, value, expected):
    path = file(line(), line(**{field: value}))
    message = refusal(path)
    assert message.startswith(f"{path}: line 2, field {field}: got ")
    assert expected in message
    if not isinstance(value, list | dict):
        assert f"got {json.dumps(value)};" in message


@pytest.mark.parametrize("field", list(GOOD))
def test_a_missing_field_is_named(file, field):
    row = {name: value for name, value in GOOD.items() if name != field}
    assert f"line 1, field {field}: got nothing" in refusal(file(json.dumps(row)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "got a blank line"),
        (b"[1, 2]", "line 1: got [1, 2]; expected a JSON object"),
        (b"{'timestamp': 0}", "expected a JSON object, but Expecting property name"),
        (b"\xff\xfe{", "is UTF-16; save it as UTF-8"),
        (b"{\xff}", "expected UTF-8 text"),
        (line().replace("600", "NaN").encode(), "NaN is not a JSON number"),
        (line().replace("600", "-Infinity").encode(), "-Infinity is not a JSON number"),
        (line().replace("600", "1e999").encode(), "field input_length: got 1E+999"),
        (line(timestamp=7).replace("7", "1e999").encode(), "field timestamp: got 1E+999"),
        (line(timestamp=7).replace("7", "1e99999999999999999999").encode(), "line 1"),
        (line().replace("600", "9" * 5000).encode(), "expected a JSON object, but Exceeds the limit"),
        (line().replace("{", '{"timestamp": 1, ').encode(), "a field is given twice"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_line_that_is_no_record_is_refused(file, text, message):
    assert message in refusal(file(text, line()))


def test_time_must_not_run_backwards(file):
    path = file(line(timestamp=5), line(timestamp=4))
    assert "line 2, field timestamp: got 4; expected at least the line's before, 5" in refusal(path)


@pytest.mark.parametrize(
    ("ids", "value", "expected"),
    [
        ([2, 1], "id 1 follows 2", "it follows 0, as earlier"),
        ([1, 2], "id 1 stands first", "it follows 0, as earlier"),
        ([2, 0], "id 0 follows 2", "it stands first, as earlier"),
    ],
)
def test_an_id_stands_for_its_whole_prefix(file, ids, value, expected):
    message = refusal(file(line(), line(hash_ids=ids)))
    assert f"line 2, field hash_ids: got {value}; expected {expected}" in message


def test_more_fields_fractions_of_ms_a_mark_and_crlf_are_accepted(file):
    path = file(
        "\ufeff" + line(timestamp=0.5, session="a"), line(timestamp=1.25, hash_ids=[0, 2]), end="\r\n"
    )
    trace = read_jsonl(path)
    assert trace.arrival_s.tolist() == [0.0005, 0.00125]
    assert trace.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (trace.name, trace.origin) == ("some", "file")
    assert trace.source == f"some trace (file, SHA-256 {trace.sha256[:12]}…)"


def test_a_cut_last_line_is_said_to_be_cut(file):
    path = file(line(), line())
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    assert "line 2" in refusal(path)
    assert "last line looks cut off" in refusal(path)
    path.write_bytes(whole[:-1])
    assert len(read_jsonl(path)) == 2


@given(cut=st.integers(1, 200))
def test_no_cut_inside_a_line_goes_unnoticed(cut, tmp_path_factory):
    whole = (line() + "\n" + line(timestamp=9, hash_ids=[0, 2]) + "\n").encode()
    path = tmp_path_factory.mktemp("cut") / "t.jsonl"
    path.write_bytes(whole[:cut])
    inside = cut < len(whole) - 1 and whole[cut - 1 : cut + 1] != b"}\n" and whole[cut - 1 : cut] != b"\n"
    assert bool(validate_jsonl(path)) == inside


def test_files_that_are_no_text_files_are_told_apart(tmp_path):
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "packed.jsonl").write_bytes(gzip.compress(line().encode()))
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert "the file: got an empty file" in refusal(tmp_path / "empty.jsonl")
    assert "gzip-compressed; unpack it first" in refusal(tmp_path / "packed.jsonl")
    assert "not a plain file (a pipe" in refusal(tmp_path / "pipe.jsonl")
    assert "is a folder" in refusal(tmp_path)
    assert "cannot read" in refusal(tmp_path / "none.jsonl")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)


@given(
    lines=st.lists(
        st.binary(max_size=40)
        | st.fixed_dictionaries({field: JSON | st.just(value) for field, value in GOOD.items()}).map(
            lambda row: json.dumps(row).encode()
        ),
        max_size=4,
    )
)
def test_whatever_a_file_holds_is_read_or_refused_in_order(lines, tmp_path_factory):
    path = tmp_path_factory.mktemp("any") / "t.jsonl"
    path.write_bytes(b"\n".join(lines))
    try:
        found = validate_jsonl(path)
    except InputError:  # it looked like a packed file
        return
    if found:
        assert f": {found[0]}" in refusal(path)
    else:
        assert len(read_jsonl(path)) >= 1


def test_an_endless_line_is_refused_unread(file, monkeypatch):
    monkeypatch.setattr(read, "LONGEST_LINE_BYTES", 100)
    assert "longer than 100 bytes" in refusal(file(line(), "x" * 200))


def test_validation_lists_the_bad_lines_and_goes_on_between(file):
    path = file(
        line(), "nonsense", line(output_length=0), line(timestamp=3, hash_ids=[0, 2]), line(timestamp=2)
    )
    assert [(p.line, p.field) for p in validate_jsonl(path)] == [
        (2, ""),
        (3, "output_length"),
        (5, "timestamp"),
    ]
    assert [p.line for p in validate_jsonl(path, most=2)] == [2, 3]
    assert validate_jsonl(file(line())) == ()


def test_a_failed_write_leaves_nothing_and_says_where(tmp_path, file):
    trace = read_jsonl(file(line()))
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="cannot write"):
        write_jsonl(trace, tmp_path / "folder")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "some.jsonl"]
