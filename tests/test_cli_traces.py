import json

import pytest
from click.testing import CliRunner

from mooncake_companion.cli.traces import traces
from mooncake_companion.errors import CompanionError, InputError
from mooncake_companion.traces import Trace, read_jsonl, standin, write_jsonl


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    monkeypatch.delenv("MOONCAKE_TRACES", raising=False)
    monkeypatch.setenv("MOONCAKE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MOONCAKE_OFFLINE", "1")


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.jsonl"
    write_jsonl(Trace.from_requests([(0.0, 600, 1, [0, 1]), (3.0, 700, 2, [0, 2])]), path)
    return path


def run(*words):
    """What a command writes, and the error that it ends with."""
    result = CliRunner().invoke(traces, [str(word) for word in words])
    if result.exception and not isinstance(result.exception, CompanionError | SystemExit):
        raise result.exception
    return result.stdout, result.exception


def test_list_says_what_is_missing_and_what_stands_in():
    text, error = run("list")
    assert error is None
    assert "conversation   12,031 requests" in text
    assert "not on this machine; a stand-in can be generated" in text
    rows = {row["name"]: row for row in json.loads(run("list", "--json")[0])}
    assert list(rows) == ["conversation", "toolagent", "synthetic", "arxiv"]
    assert rows["toolagent"]["path"] is None
    assert [row["standin"] for row in rows.values()] == [True] * 4
    assert "Never released, but can be generated: arxiv-summarization, l-eval, simulated-128k" in text


def test_fetch_offline_fails_for_each_and_says_how_to_go_on():
    text, error = run("fetch", "conversation", "arxiv")
    assert text == ""
    assert error.exit_code == 1
    assert str(error).count("MOONCAKE_OFFLINE is set; run `companion traces fetch") == 2
    assert run("fetch", "nope")[1].exit_code == 2


def test_describe_measures_a_file_and_a_stand_in(small):
    table = json.loads(run("describe", small, "--json")[0])
    assert (table["requests"], table["duration_s"], table["distinct_blocks"]) == (2, 3.0, 3)
    assert table["infinite_cache_hit_ratio"] == pytest.approx(512 / 1300)
    text, error = run("describe", "conversation")
    assert error is None
    assert "a generated stand-in for the conversation trace" in text
    assert "requests                  12,031" in text


def test_describe_refuses_what_it_does_not_know(tmp_path):
    assert "known are conversation" in str(run("describe", "nope")[1])
    assert run("describe", tmp_path / "none.jsonl")[1].exit_code == 2
    assert "l-eval" in str(run("describe", "nope")[1])


def test_validate_passes_a_good_file(small):
    assert run("validate", small) == (f"{small}: valid\n", None)
    assert json.loads(run("validate", small, "--json")[0]) == {
        "path": str(small),
        "valid": True,
        "problems": [],
    }


def test_validate_names_the_bad_lines_and_ends_with_2(small):
    text = small.read_text().replace('"output_length": 2', '"output_length": 0')
    small.write_text(text + "no json\n")
    _, error = run("validate", small)
    assert isinstance(error, InputError)
    assert error.exit_code == 2
    assert "\n  line 2, field output_length: got 0; expected a whole number" in str(error)
    assert "\n  line 3: got " in str(error)
    written, error = run("validate", small, "--json", "--most", "1")
    assert [problem["line"] for problem in json.loads(written)["problems"]] == [2]
    assert "(stopped after 1)" in str(error)


def test_validate_takes_the_block_size(small):
    assert "3, one for each 256 of 600" in str(run("validate", small, "--block-tokens", 256)[1])


def test_generate_writes_the_stand_in_and_obeys_seed_and_number(tmp_path):
    path = tmp_path / "made.jsonl"
    text, error = run("generate", "synthetic", "-o", path)
    assert error is None
    assert read_jsonl(path) == standin("synthetic")
    assert standin("synthetic").sha256 in text
    run("generate", "synthetic-standin", "-o", path, "--seed", 5, "--requests", 30)
    made = read_jsonl(path)
    run("generate", "synthetic", "-o", path, "--seed", 6, "--requests", 30)
    assert len(made) == 30
    assert read_jsonl(path) != made


def test_generate_writes_workloads_that_were_never_released(tmp_path):
    path = tmp_path / "made.jsonl"
    assert run("generate", "simulated-16k", "-o", path, "--requests", 20)[1] is None
    assert set(read_jsonl(path).input_tokens.tolist()) == {16384}


def test_generate_refuses_unknown_names(tmp_path):
    assert run("generate", "nope", "-o", tmp_path / "x")[1].exit_code == 2
    assert not (tmp_path / "x").exists()


def test_a_fit_on_a_stand_in_is_refused(tmp_path):
    assert "circular" in str(run("fit", "conversation", "-o", tmp_path / "x")[1])


@pytest.mark.parametrize("command", ["list", "fetch", "describe", "validate", "generate"])
def test_each_help_shows_an_example(command):
    text, _ = run(command, "--help")
    assert f"\n  companion traces {command}" in text
