"""The fuzzer's doors, tried at random and by the grammar of what they take; and its record, fresh."""

import importlib
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooncake_companion.cli.bench import load_benchmarks
from mooncake_companion.errors import CompanionError
from mooncake_companion.publish import sweep_plan
from mooncake_companion.publish.origins import read as read_origin
from mooncake_companion.traces import convert, read_jsonl, validate_jsonl

ROOT = Path(__file__).parents[2]
fuzz = importlib.import_module(f"{load_benchmarks(ROOT).__name__}.fuzz")

SAMPLE = {"preset": 200, "parameters": 150, "sweep": 40, "figure-pdf": 60}


@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_a_sample_is_let_in_or_refused_with_an_error_of_ours(name, monkeypatch):
    for module, most in (
        (sweep_plan, "MOST_POINTS"),
        (sys.modules["mooncake_companion.traces.convert"], "MOST_BLOCKS"),
    ):
        monkeypatch.setattr(module, most, getattr(module, most))  # a door makes it small
    let_in, refused = fuzz.sample(name, SAMPLE.get(name, 300), seed=2)
    assert let_in > 0
    assert refused > 0 or name == "sweep-record"


def test_what_is_no_error_of_ours_is_a_finding():
    def door(data):
        raise KeyError(data)

    with pytest.raises(KeyError):
        fuzz.tried(door, b"x")

    def rude(_data):
        raise CompanionError("it says \x1b[2J")

    with pytest.raises(AssertionError):
        fuzz.tried(rude, b"x")


def test_the_record_is_of_these_sources_and_of_a_million_inputs():
    record = json.loads((ROOT / fuzz.RECORDED).read_text("utf-8"))
    assert record["sources_sha256"] == fuzz.sources_sha256(ROOT), f"run: {fuzz.COMMAND}"
    assert [row["target"] for row in record["targets"]] == list(fuzz.TARGETS)
    assert record["inputs"] == sum(row["inputs"] for row in record["targets"]) >= 1_000_000
    assert all(row["inputs"] >= fuzz.TARGETS[row["target"]].runs for row in record["targets"])
    assert all(row["peak_rss_mb"] <= fuzz.MEMORY_MB for row in record["targets"])
    assert {finding["target"] for finding in record["findings"]} <= set(fuzz.TARGETS)


# --- by grammar: what is valid, changed in one place ------------------------------------------

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2**70),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.integers(-1, 3), max_size=3),
    st.dictionaries(st.text(max_size=1), st.none(), max_size=1),
)


@st.composite
def rows(draw, fields):
    """Valid rows of a trace of little blocks, of which some fields are something else."""
    count = draw(st.integers(1, 5))
    made, fresh = [], 0
    for number in range(count):
        blocks = draw(st.integers(1, 3))
        row = dict(zip(fields, (number, 16 * blocks, 1, list(range(fresh, fresh + blocks))), strict=True))
        fresh += blocks
        made.append(row)
    for _ in range(draw(st.integers(0, 2))):
        row = draw(st.sampled_from(made))
        if row:
            field = draw(st.sampled_from(list(row)))
            if draw(st.booleans()):
                row[field] = draw(ODD)
            else:
                del row[field]
    return made


FIELDS = ("timestamp", "input_length", "output_length", "hash_ids")


def outcome(call, *arguments, **named):
    """What a call gives, and what it says where it is refused."""
    try:
        return call(*arguments, **named), ""
    except CompanionError as error:
        assert str(error).isprintable()  # noqa: PT017
        return None, str(error)


@settings(max_examples=60)
@given(made=rows(FIELDS), end=st.sampled_from(["\n", "\r\n"]))
def test_a_trace_changed_in_some_fields_is_read_or_told_alike_by_all(made, end, tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzzed") / "t.jsonl"
    path.write_text(end.join(map(json.dumps, made)) + end, newline="")
    problems = validate_jsonl(path, block_tokens=16)
    trace, told = outcome(read_jsonl, path, block_tokens=16)
    assert (trace is None) == bool(problems)
    assert str(problems[0]) in told if problems else len(trace) == len(made)


@settings(max_examples=40)
@given(made=rows(FIELDS))
def test_a_file_of_bailians_changed_in_some_fields_is_converted_or_refused(made, tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzzed") / "t.jsonl"
    path.write_text("\n".join(map(json.dumps, made)))
    done, told = outcome(convert, "bailian", path, block_tokens=16)
    assert told.startswith(str(path)) if done is None else len(done.trace) + done.skipped == len(made)


@given(said=st.dictionaries(st.sampled_from(["figure", "chapter", "chapter_parameters"]), ODD | st.just("f")))
def test_whatever_an_svg_says_of_itself_is_read_or_refused(said):
    text = json.dumps(said).replace("&", "&amp;").replace("<", "&lt;")
    found, told = outcome(read_origin, Path("f.svg"), f"<svg><metadata>{text}</metadata>".encode(), "svg")
    assert told.startswith("f.svg") if found is None else found["figure"] == said["figure"]
