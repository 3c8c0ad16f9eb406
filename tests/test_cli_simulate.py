import csv
import importlib.util
import json

import pytest
from click.testing import CliRunner

from mooncake_companion.cli.simulate import simulate
from mooncake_companion.errors import CompanionError, InputError
from mooncake_companion.publish import figures
from mooncake_companion.traces import Trace, write_jsonl

MINE = """
[node]
preset = "h100"

[model]
preset = "llama3.1-8b"

[cluster]
prefill_nodes = 1
decode_nodes = 1
"""


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "mine.jsonl"
    write_jsonl(Trace.from_requests([(float(i), 1000, 10 + i, [0, i + 1]) for i in range(20)]), path)
    return path


@pytest.fixture
def preset(tmp_path):
    path = tmp_path / "my-cluster.toml"
    path.write_text(MINE)
    return path


def run(*words):
    """What the command writes, and the error that it ends with."""
    result = CliRunner().invoke(simulate, [str(word) for word in words])
    if result.exception and not isinstance(result.exception, CompanionError | SystemExit):
        raise result.exception
    return result.stdout, result.exception


def lines(text):
    return {line[:24].strip(): line[24:].split() for line in text.splitlines() if line[24:].strip()}


def test_a_summary_to_read(trace, preset):
    text, error = run("--trace", trace, "--preset", preset)
    assert error is None
    first, cluster, *_ = text.splitlines()
    assert first.startswith("mine trace (file, SHA-256 ")
    assert cluster == "1 + 1 nodes of 8 × NVIDIA H100-SXM5-80GB, Llama-3.1-8B"
    told = lines(text)
    assert told["requests"] == told["finished"] == ["20"]
    assert told["effective capacity"] == ["100.0%"]
    assert told["hit ratio"] == [f"{19 * 512 / 20_000:.1%}"]
    assert told["streamed (GB)"] == [f"{20_000 * 131_072 / 1e9:.0f}"]


def test_the_baselines_have_a_column_each(trace, preset):
    text, error = run("--trace", trace, "--preset", preset, "--systems")
    assert error is None
    assert len(lines(text)["TTFT, p90 (s)"]) == 4
    assert "vLLM Prefix Caching" in text


def test_json_says_what_it_was_made_from_and_options_beat_the_file(trace, preset):
    text, error = run(
        "--trace", trace, "--preset", preset, "--json", "--decode-nodes", "2", "--tbt-limit", "1e-3"
    )
    assert error is None
    told = json.loads(text)
    assert told["trace"] == "mine"
    assert told["parameters"]["decode_nodes"] == 2
    assert told["parameters"]["prefill_nodes"] == 1
    assert told["parameters"]["node"] == str(preset)
    [mooncake] = told["systems"]
    assert mooncake["late"] == 20
    assert mooncake["goodput_requests_per_s"] == 0
    assert mooncake["gpu_s_per_good_request"] is None


def test_results_are_left_and_an_earlier_one_replaced(trace, preset, tmp_path):
    out = tmp_path / "results"
    for words in ([], ["--systems"]):
        text, error = run("--trace", trace, "--preset", preset, "--out", out, *words)
        assert error is None
    assert str(out / "requests.csv") in text
    with (out / "requests.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4 * 20
    assert (rows[3]["system"], rows[3]["request"], rows[3]["outcome"]) == ("Mooncake", "3", "finished")
    assert float(rows[3]["ttft_s"]) > 0
    saved = json.loads((out / "summary.json").read_text())
    assert saved["systems"][0]["system"] == "Mooncake"
    drawn = json.loads((out / "figures" / "simulated-latencies.json").read_text())
    assert figures.provenance(drawn)["trace"] == "mine"
    assert {file.suffix for file in (out / "figures").iterdir()} == {".svg", ".png", ".json", ".csv"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.jsonl", "my-cluster.toml", "results"]


def test_the_cache_in_tokens_is_that_many(trace, preset):
    told = json.loads(run("--trace", trace, "--preset", preset, "--cache-tokens", "512", "--json")[0])
    assert told["parameters"]["cache_bytes_per_node"] == 512 * 131_072
    none = json.loads(run("--trace", trace, "--preset", preset, "--cache-tokens", "0", "--json")[0])
    assert none["systems"][0]["hit_ratio"] == 0 < told["systems"][0]["requests"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--node", "h99"], "no node preset 'h99'; there are a800"),
        (["--model", "deepseek-v3", "--node", "a800"], "DeepSeek-V3 does not fit on 8 × NVIDIA A800"),
        (["--prefill-nodes", "0"], "parameter prefill_nodes: 0 is out of range"),
        (["--admission", "strict"], "parameter admission: 'strict' is not among its values"),
        (["--threshold", "0.5"], "kvcache_balancing_threshold: 0.5 is out of range"),
        (["--cache-tokens", "5", "--cache-bytes", "5"], "say the same"),
        (["--preset", "nowhere.toml"], r"cannot read nowhere\.toml"),
        (["--preset", "mine.json"], r"its name must end in \.toml"),
        (["--block-tokens", "16"], r"line 1, field hash_ids: got 2 ids; expected 63"),
    ],
)
def test_what_is_wrong_is_said_with_exit_code_2(trace, words, message):
    text, error = run("--trace", trace, *words)
    assert isinstance(error, InputError)
    assert error.exit_code == 2
    assert text == ""
    with pytest.raises(InputError, match=message):
        raise error


def test_a_wrong_trace_or_folder_is_refused_before_anything_is_written(trace, preset, tmp_path):
    assert "no trace is called 'nope'" in str(run("--trace", "nope", "--preset", preset)[1])
    assert run("--preset", preset)[1].code == 2
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    error = run("--trace", trace, "--preset", preset, "--out", tmp_path / "full")[1]
    assert "holds something other than a simulation" in str(error)
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["thesis.tex"]


def test_parquet_needs_its_package(trace, preset, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    error = run("--trace", trace, "--preset", preset, "--out", tmp_path / "out", "--format", "parquet")[1]
    assert "needs the package pyarrow" in str(error)
    assert not (tmp_path / "out").exists()


def test_help_teaches():
    text, _ = run("--help")
    for word in ("my-cluster.toml", "companion traces convert", "--threshold", "effective capacity"):
        assert word in text


@pytest.mark.parametrize("out", ["taken/results", "/proc/none/results"])
def test_a_folder_that_cannot_be_made_is_said_before_anything_runs(trace, preset, tmp_path, monkeypatch, out):
    monkeypatch.setattr("mooncake_companion.experiments.your_cluster.results", None)
    (tmp_path / "taken").write_text("a file")
    _, error = run("--trace", trace, "--preset", preset, "--out", tmp_path / out)
    assert isinstance(error, InputError)
    assert str(error).startswith("cannot write ")


def test_more_tokens_than_a_float_counts_are_out_of_range(trace):
    _, error = run("--trace", trace, "--cache-tokens", 10**400)
    assert isinstance(error, InputError)
    assert "cache_bytes_per_node" in str(error)
