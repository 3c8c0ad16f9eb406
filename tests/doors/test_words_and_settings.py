"""Parameter files, command lines and environment variables as they should not be."""

import os

import pytest

from mooncake_companion.errors import InputError
from mooncake_companion.experiments.prefill_scheduling import Params
from mooncake_companion.publish.given import gather

NESTED = "a: &a [x, x]\n" + "".join(
    f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdef", "bcdefg", strict=True)
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"seed: 1\nseed: 2\n", "not YAML: line 1, column 1: 'seed' stands there twice"),
        (b"seed: 2001-99-99\n", "not YAML: month must be in 1..12"),
        (b"seed: !!timestamp x\n", "not YAML: "),
        (b"seed: !!int x\n", "not YAML: invalid literal"),
        (b"seed: !!python/object/apply:os.system [id]\n", "not YAML: line 1, column 7: could not determine"),
        (b"seed: " + b"9" * 5000, "not YAML: Exceeds the limit"),
        (b"seed: 0x" + b"f" * 5000, "parameter seed: a number of thousands of digits is out of range"),
        (b"seed: " + b":".join([b"1"] * 3000), "a number of thousands of digits is out of range"),
        (b"seed: .nan\n", "parameter seed: nan is not a whole number"),
        (b"arrival_speedup: .inf\n", "parameter arrival_speedup: inf is out of range"),
        (b"arrival_speedup: 1e999\n", "parameter arrival_speedup: inf is out of range"),
        (b"seed: [1, 2]\n", "parameter seed: a value of type list is not a whole number"),
        (b"- 1\n", "expected lines like `prefill_nodes: 6`, got list"),
        (b"", "expected lines like `prefill_nodes: 6`, got nothing"),
        (b"? [a]\n: 1\n", "not YAML: line 1, column 3: found unhashable key"),
        (b"seed: 1\n---\nseed: 2\n", "not YAML: line 2, column 1: but found another document"),
        (NESTED.encode(), "not YAML: line 2, column 8: an alias (*) has no place here"),
        (b"a: " + b"[" * 5000, "nested too deeply"),
        (b'trace: "a\\0b"\n', r"parameter trace: 'a\x00b' is not UTF-8 text"),
        (b'trace: "\\ud800"\n', r"parameter trace: '\ud800' is not UTF-8 text"),
        (b"s\xffeed: 1\n", "is not UTF-8 text: byte 2, in line 1, is none"),
        ("seed: 1\n".encode("utf-16"), "is not UTF-8 text: UTF-16; save it as UTF-8"),
        (b"\x1b[2J: 1\n", "not YAML: "),
        (b"#" * 200_000, "longer than 100,000 bytes"),
    ],
)
def test_a_parameter_file_is_told_with_file_and_field(tmp_path, text, told):
    file = tmp_path / "p.yml"
    file.write_bytes(text)
    with pytest.raises(InputError) as caught:
        gather(Params, file=file)
    assert str(caught.value).startswith(str(file))
    assert told in str(caught.value)
    assert str(caught.value).isprintable()


def test_numbers_as_people_write_them_are_numbers(tmp_path):
    file = tmp_path / "p.yml"
    file.write_text("\ufeffseed: 1e3\narrival_speedup: 5e-1\nprefill_nodes: 6\n", "utf-8")
    assert gather(Params, file=file) == {"seed": 1000, "arrival_speedup": 0.5, "prefill_nodes": 6}


def test_a_pipe_for_parameters_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "p.yml")
    with pytest.raises(InputError, match="not a plain file"):
        gather(Params, file=tmp_path / "p.yml")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("params", "nope"), "no chapter 'nope' with parameters; there are serving-path"),
        (("run", "nope"), "no chapter 'nope'"),
        (("run", "control-plane", "-p", "seed", "9" * 5000), "parameter seed: '9999"),
        (("run", "control-plane", "-p", "seed", "nan"), "parameter seed: 'nan' is not a whole number"),
        (("run", "control-plane", "-p", "arrival_speedup", "nan"), "nan is out of range; expected 0.01 to"),
        (("run", "control-plane", "-p", "x" * 999, "1"), "unknown parameter 'xxx"),
        (("run", "control-plane", "-p", "trace", "\udcff"), r"parameter trace: '\udcff' is not UTF-8 text"),
        (
            ("run", "control-plane", "-p", "model", "llama3.1-405b"),
            "Llama-3.1-405B does not fit on 8 × NVIDIA",
        ),
        (("run", "overload", "-p", "model", "deepseek-v3"), "does not fit on"),
        (("run", "storage-for-compute", "-p", "model", "deepseek-v3"), "does not fit on"),
        (("run", "tiered-cache", "-p", "served_trace", "none.jsonl"), "cannot read none.jsonl"),
        (
            ("sweep", "overload", "-p", "model=llama3-70b,deepseek-v3"),
            "point 1 (model=deepseek-v3): DeepSeek",
        ),
        (("sweep", "overload", "-p", "seed=1:1e9999:1"), "parameter seed: '1e9999' is not a number"),
        (("sweep", "overload", "-p", "seed"), "-p seed: expected NAME=VALUES"),
        (("simulate", "--trace", "none.jsonl"), "cannot read none.jsonl"),
        (
            ("simulate", "--trace", "conversation", "--speedup", "nan"),
            "parameter arrival_speedup: nan is out of",
        ),
        (("figures", "cite", "nope"), "no figure 'nope'; did you mean"),
        (("figures", "export", "nope"), "no figure 'nope'"),
        (("figures", "export", "overload-rejected", "--format", "gif"), "--format gif: not a format"),
        (("traces", "convert", "x", "a", "b"), "no trace format 'x'; there are azure"),
        (("traces", "generate", "../x", "-o", "a"), "no trace is called '../x'"),
        (("bench", "nope"), "no benchmark is called 'nope'"),
        (("build", "--root", "/nowhere"), "--root /nowhere: no book there"),
    ],
)
def test_a_word_that_is_unfit_is_told_with_what_would_be_right(refused, words, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert told in refused(*words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        (
            "MOONCAKE_TRACES",
            "{}/none",
            "MOONCAKE_TRACES names {}/none, which is not a folder that can be read",
        ),
        (
            "MOONCAKE_TRACES",
            "{}/file",
            "MOONCAKE_TRACES names {}/file, which is not a folder that can be read",
        ),
        (
            "MOONCAKE_TRACES",
            "~no-such-user/x",
            "MOONCAKE_TRACES: cannot read ~no-such-user/x: there is no such",
        ),
        (
            "MOONCAKE_CACHE",
            "{}/file",
            "MOONCAKE_CACHE names {}/file, which is not a folder; name one, or unset it",
        ),
        ("MOONCAKE_CACHE", "~no-such-user/x", "MOONCAKE_CACHE: cannot read ~no-such-user/x"),
    ],
)
def test_a_variable_that_is_unfit_is_named(refused, monkeypatch, tmp_path, variable, value, told):
    (tmp_path / "file").touch()
    monkeypatch.delenv("MOONCAKE_TRACES", raising=False)
    monkeypatch.setenv(variable, value.format(tmp_path))
    assert refused("traces", "list").startswith(told.format(tmp_path))


def test_a_folder_is_found_from_any_other(companion, monkeypatch, tmp_path):
    """A chapter runs in another folder than the command that was given."""
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MOONCAKE_CACHE", "mine")
    assert companion("cache", "path")[0] == 0
    assert os.environ["MOONCAKE_CACHE"] == str(tmp_path / "mine")


def test_what_a_terminal_cannot_show_is_written_all_the_same(companion, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "\udcff.jsonl").write_text(
        '{"timestamp": 0, "input_length": 6, "output_length": 3, "hash_ids": [0]}\n'
    )
    assert companion("traces", "validate", "\udcff.jsonl")[0] == 0


def test_in_is_not_overwritten_by_out(refused, tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,374,44\n")
    before = file.read_bytes()
    assert "is IN and OUT" in refused("traces", "convert", "azure", file, file)
    assert file.read_bytes() == before
