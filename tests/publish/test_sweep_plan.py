import hashlib
import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import little_sweep
from mooncake_companion.errors import InputError
from mooncake_companion.publish import sweep_workers
from mooncake_companion.publish.chapters import CHAPTERS
from mooncake_companion.publish.sweep_plan import difference, model_sha256, plan

LITTLE = little_sweep.chapter()


def values(name, text):
    return [point[name] for point in plan(LITTLE, [(name, text)]).points]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("size", "1:9:4", [1, 5, 9]),
        ("size", "1:10:4", [1, 5, 9]),
        ("size", "3:1:-1", [3, 2, 1]),
        ("size", "1e2:3e2:1e2", [100, 200, 300]),
        ("rate", "0:0.5:0.1", [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]),
        ("rate", "2, 1,5", [2.0, 1.0, 5.0]),
        ("kind", "usual,failing", ["usual", "failing"]),
    ],
)
def test_a_grids_values_are_those_written(name, text, expected):
    found = values(name, text)
    assert found == expected
    assert {type(value) for value in found} == {type(expected[0])}


def test_a_grid_is_every_combination_and_one_value_is_fixed():
    planned = plan(LITTLE, [("size", "1,2,3"), ("kind", "failing"), ("rate", "0:1:0.5")])
    expected = [
        {"size": size, "kind": "failing", "rate": rate}
        for size, rate in itertools.product((1, 2, 3), (0, 0.5, 1))
    ]
    assert list(planned.points) == expected
    assert [declared.name for declared in planned.varied] == ["size", "rate"]
    assert planned.fixed == {"kind": "failing", "trace": "", "pause_s": 0.0}


@given(points=st.integers(1, 60), seed=st.integers(0, 2**32), low=st.floats(0, 40), width=st.floats(0.01, 60))
def test_a_latin_hypercube_stays_in_range_and_covers_each_stratum_once(points, seed, low, width):
    given = [("rate", f"{low!r}:{low + width!r}"), ("size", "1:500"), ("pause_s", "1:9")]
    planned = plan(LITTLE, given, sample=points, sample_seed=seed)
    assert len(planned.points) == points
    rates, sizes, pauses = (np.array([p[n] for p in planned.points]) for n in ("rate", "size", "pause_s"))
    assert low <= rates.min() <= rates.max() <= low + width
    assert 1 <= sizes.min() <= sizes.max() <= 500
    assert sizes.dtype.kind == "i"
    strata = np.floor((pauses - 1) / 8 * points + 1e-9).astype(int)
    assert sorted(strata) == list(range(points))


def test_a_sample_of_whole_numbers_takes_each_as_often():
    planned = plan(LITTLE, [("size", "1:10"), ("kind", "usual,odd")], sample=40, sample_seed=3)
    sizes = [point["size"] for point in planned.points]
    assert sorted(sizes) == sorted([*range(1, 11)] * 4)
    assert [point["kind"] for point in planned.points].count("odd") == 20


def test_a_sample_is_its_seeds():
    asked = [("size", "1:100"), ("rate", "0:9")]
    one, again, other = (plan(LITTLE, asked, sample=9, sample_seed=seed) for seed in (1, 1, 2))
    assert one.points == again.points != other.points


@pytest.mark.parametrize(
    ("given", "sample", "told"),
    [
        ([("sice", "1:2:1")], None, "unknown parameter 'sice'; valid ones are size, rate"),
        ([("size", "1:2")], None, "LOW:HIGH is for --sample"),
        ([("size", "1:2:1")], 4, "START:STOP:STEP is for a grid"),
        ([("size", "5:1:1")], None, "never ends"),
        ([("size", "1:5:0")], None, "never ends"),
        ([("size", "1:x:1")], None, "'x' is not a number"),
        ([("size", "1:nan:1")], None, "'nan' is not a number"),
        ([("size", "1:2:0.5")], None, "'1.5' is not a whole number"),
        ([("size", "0:3:1")], None, "0 is out of range; expected 1 to 1000 tokens"),
        ([("size", "5:2")], 4, "LOW must be below HIGH"),
        ([("size", "1:2000")], 4, "2000 is out of range"),
        ([("kind", "usual,fine")], None, "'fine' is not among its values"),
        ([("size", "1,2,1")], None, "1 stands twice"),
        ([("size", "1,2"), ("size", "3")], None, "given twice"),
        ([("size", "1")], None, "nothing to vary"),
        ([], None, "nothing to vary"),
        ([("rate", "0:100:0.000001")], None, "has more values than 100,000"),
        ([("rate", "0:100:0.01"), ("size", "1:1000:1")], None, "10001000 points"),
        (
            [("size", "400:600:100"), ("rate", "10,60")],
            None,
            r"point 5 \(size=600, rate=60.0\): .*500 at most",
        ),
        ([("size", "1,2"), ("trace", "no-such")], None, "no trace is called 'no-such'"),
    ],
)
def test_what_cannot_run_is_told_before_anything_runs(given, sample, told):
    with pytest.raises(InputError, match=told):
        plan(LITTLE, given, sample=sample)


@pytest.mark.parametrize("chapter", CHAPTERS.values(), ids=CHAPTERS)
def test_every_chapter_can_be_swept(chapter):
    assert callable(chapter.measure)


def test_a_trace_file_is_named_so_that_any_process_finds_it(tmp_path, monkeypatch):
    line = '{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [0]}\n'
    (tmp_path / "mine.jsonl").write_text(line)
    monkeypatch.chdir(tmp_path)
    planned = plan(LITTLE, [("trace", "mine.jsonl"), ("size", "1,2")])
    assert {Path(point["trace"]) for point in planned.points} == {tmp_path / "mine.jsonl"}
    assert list(planned.traces) == [str(tmp_path / "mine.jsonl")]


def test_a_trace_file_of_other_blocks_is_read_with_them_here_and_in_the_workers(tmp_path):
    mine = tmp_path / "mine.jsonl"
    mine.write_text('{"timestamp": 0, "input_length": 20, "output_length": 1, "hash_ids": [0, 1]}\n')
    asked = [("trace", str(mine)), ("prefill_nodes", "4,8")]
    with pytest.raises(InputError, match="got 2 ids; expected 1, one for each 512"):
        plan(CHAPTERS["your-cluster"], asked)
    planned = plan(CHAPTERS["your-cluster"], [*asked, ("block_tokens", "16")])
    sha256 = hashlib.sha256(mine.read_bytes()).hexdigest()
    assert sweep_workers.traces_of(planned) == ((str(mine), 16, sha256),)
    sweep_workers.require_same.cache_clear()
    sweep_workers.require_same(model_sha256(), sweep_workers.traces_of(planned))


def test_a_model_that_does_not_fit_is_told_before_anything_runs():
    for name in ("overload", "control-plane", "storage-for-compute", "tiered-cache", "prefill-pool"):
        with pytest.raises(InputError, match=r"point 1 .*does not fit on"):
            plan(CHAPTERS[name], [("model", "llama3-70b,deepseek-v3")])


def test_two_different_sweeps_are_told_apart_by_what_differs():
    first = plan(LITTLE, [("size", "1:3:1")]).record()
    assert difference(first, plan(LITTLE, [("size", "1,2,3")]).record()) == ""
    for asked, sample, told in [
        ([("size", "1:9:1")], None, "size is 1, 2, 3 there and 1, 2, 3 … 9 (9 values) here"),
        ([("size", "1:3:1"), ("rate", "2")], None, "rate is not given there and 2.0 here"),
        ([("size", "1:3")], 3, "size is 1, 2, 3 there and 1 to 3 here"),
    ]:
        assert difference(first, plan(LITTLE, asked, sample=sample).record()) == told
    drawn = [plan(LITTLE, [("size", "1:9")], sample=3, sample_seed=seed).record() for seed in (0, 1)]
    assert difference(*drawn) == "sample seed is 0 there and 1 here"
    assert "another version of the model" in difference({**first, "model_sha256": "0"}, first)
