"""Every chapter that can be run again, run with one parameter changed."""

import json
from pathlib import Path

import pytest

from mooncake_companion.publish import registry
from mooncake_companion.publish.chapters import CHAPTERS
from mooncake_companion.publish.rerun import rerun

CHECKOUT = Path(__file__).parents[2]
CHANGED = {
    "serving-path": ("prefill_nodes", 1),
    "storage-for-compute": ("model", "qwen2.5-72b"),
    "workloads": ("conversation", "synthetic"),
    "tiered-cache": ("cache_tokens_per_node", 1_000_000),
    "prefill-pool": ("node", "h100"),
    "control-plane": ("prefill_nodes", 6),
    "overload": ("ttft_limit_s", 20.0),
    "results": ("node", "h100"),
    "transfer": ("prefill_nodes", 6),
    "validation": ("seed", 1),
    "your-cluster": ("node", "h200"),
    "questions": ("input_tokens", 32_768),
}


def test_no_chapter_is_left_out():
    assert CHANGED.keys() == CHAPTERS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGED)
def test_a_chapter_runs_with_one_parameter_changed(name, tmp_path):
    parameter, value = CHANGED[name]
    done = rerun(CHECKOUT, CHAPTERS[name], {parameter: value}, tmp_path / "run", html=False)
    assert done.changes, "no number of the chapter moved"

    record = json.loads((done.folder / "provenance.json").read_text("utf-8"))
    published = {declared.name: declared.default for declared in CHAPTERS[name].parameters}
    assert record["parameters"] == published | {parameter: value}

    drawn = {file.name.partition(".")[0] for file in (done.folder / "figures").iterdir()}
    assert drawn == {figure.id for figure in registry.figures().values() if figure.chapter == name}
