"""The README's example runs as it stands, and its picture is what the model gives."""

import re
from pathlib import Path

import pytest

from mooncake_companion import traces
from mooncake_companion.experiments import prefill_scheduling

README = Path(__file__).parents[1] / "README.md"


def test_the_python_example_runs(capsys, monkeypatch):
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    head = traces.load("conversation-standin").head(200)
    monkeypatch.setattr(traces, "load", lambda name: head)
    exec(compile(example, "README.md", "exec"), {})
    mean_ttft_s, hit_ratio, share = map(float, capsys.readouterr().out.split())
    assert 0.1 < mean_ttft_s < 30
    assert 0 < hit_ratio < 1
    assert 0 < share <= 1
    assert len([line for line in example.splitlines() if line.strip()]) <= 10


@pytest.mark.slow
def test_the_picture_shows_what_the_model_gives():
    """Made by `companion run control-plane`, whose figure was copied here."""
    trace = traces.load("conversation", download=False)
    if trace.origin != "released":
        pytest.skip("the released conversation trace is not on this machine; set MOONCAKE_TRACES")
    picture = (README.parent / "book/_static/figure-5.svg").read_text("utf-8")
    assert trace.sha256 in picture
    drawn = re.findall(r">×([0-9.]+)<", picture)
    table = prefill_scheduling.run(prefill_scheduling.Params())
    shown = prefill_scheduling.comparison(table, 8)
    ratios = [*shown["modelled_ratio"], *shown["reported_ratio"]]
    assert sorted(drawn) == sorted(f"{ratio:.2f}" for ratio in ratios)
