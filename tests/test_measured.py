"""Published measurements as tables: in SI units, and sums of what was measured and nothing else."""

import pandas as pd
import pytest

from mooncake_companion import measured
from mooncake_companion.datafiles import data_path


@pytest.mark.parametrize("name", ["engine_prefills", "engine_steps", "kernel_prefills", "kernel_steps"])
def test_both_gpus_are_there_and_the_newer_one_is_faster(name):
    table = pd.DataFrame(getattr(measured, name)())
    assert set(table["gpu"]) == {"a100", "h100"}
    assert {4, 8} <= set(table["gpus"])
    seconds = (
        table.groupby(["gpus", "sequences", "tokens", "gpu"])["seconds"].median().unstack("gpu").dropna()
    )
    assert len(seconds) >= 12
    assert (seconds["h100"] < seconds["a100"]).mean() > 0.95
    assert seconds.to_numpy().max() < 20, "seconds, not milliseconds"


def test_a_step_of_kernels_by_hand():
    """Batch 8, context 4,096, eight A100: the files' own rows, added up."""
    operators_ms = 0.007 + 0.019 + 0.003 + 0.0165 + 0.007 + 0.081 + 0.004 + 0.042 + 2 * 0.002
    attention_ms, all_reduce_ms = 0.02993, 0.01135
    (step,) = (
        each
        for each in measured.kernel_steps()
        if (each.gpu, each.gpus, each.sequences, each.tokens) == ("a100", 8, 8, 4096)
    )
    expected_s = 80 * (operators_ms + attention_ms + 2 * all_reduce_ms) / 1e3
    assert step.seconds == pytest.approx(expected_s, rel=1e-6)


def test_nothing_is_extrapolated():
    """The H100's operators were measured to 4,096 tokens, so its prefills end there."""
    longest = pd.DataFrame(measured.kernel_prefills()).groupby("gpu")["tokens"].max()
    assert longest.to_dict() == {"a100": 16_384, "h100": 4096}


def test_power_capped_rows_are_left_out():
    runs = pd.read_csv(data_path("measured", "splitwise_llama2_70b_end_to_end.csv"))
    used = runs[~runs["hardware"].str.endswith("-pcap")]
    assert len(measured.engine_steps()) == len(used) < len(runs)


def test_every_file_has_its_source_and_licence():
    folder = data_path("measured")
    told = (folder / "README.md").read_text("utf-8")
    for path in folder.glob("*.csv"):
        (row,) = (line for line in told.splitlines() if line.startswith("| `") and path.name in line)
        assert "MIT, ©" in row or "Apache-2.0, ©" in row
