"""The README's example runs as it stands, and its picture is what the model gives."""

import re
import shlex
from pathlib import Path

import click
import pytest

from mooncake_companion import reported, traces
from mooncake_companion.cli import companion
from mooncake_companion.experiments import end_to_end, goodput, prefill_scheduling
from mooncake_companion.live.figures import LIVE

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


def test_every_command_is_one_that_the_command_line_takes(tmp_path, monkeypatch):
    lines = re.findall(r"^\.venv/bin/companion (.*)$", README.read_text("utf-8"), re.MULTILINE)
    assert len(lines) > 8
    monkeypatch.chdir(tmp_path)
    for line in lines:
        command, words = companion, shlex.split(line, comments=True)
        for file in (word for word in words if word.startswith("review/")):
            Path(file).parent.mkdir(exist_ok=True)
            Path(file).touch()
        while isinstance(command, click.Group):
            command = command.commands[words.pop(0)]
        command.make_context(command.name, words)  # refuses an option or a value that is not known


def test_every_chapter_is_named():
    text = " ".join(README.read_text("utf-8").split())
    toc = (README.parent / "_toc.yml").read_text("utf-8").partition("caption: Appendix")[0]
    for page in re.findall(r"file: (book/[a-z-]+)", toc):
        title = re.search(r"^# (.+)$", (README.parent / f"{page}.md").read_text("utf-8"), re.MULTILINE)[1]
        assert f"*{title}*" in text


@pytest.mark.slow
def test_the_result_is_what_the_paper_reports_and_the_model_gives():
    if traces.load("conversation", download=False).origin != "released":
        pytest.skip("the released conversation trace is not on this machine; set MOONCAKE_TRACES")
    said = re.search(r"\*\*One result\.\*\*.*?\n\n", README.read_text("utf-8"), re.DOTALL)[0]
    numbers = [int(number) for number in re.findall(r"\d+", said.split("serves", 1)[1])]
    ids = [f"fast25.fig01.gain.{limit}ms" for limit in (100, 200, 300)]
    claimed = end_to_end.claims()
    modelled = [round(claimed[claim]) for claim in ids]
    stated = [round(reported.claim(claim)) for claim in ids]
    slow = goodput.gains(goodput.run(goodput.Params(), workloads=["conversation"], speedups=[0.5]))
    half = round(100 * float(slow["conversation", 0.1, 0.5]))
    assert numbers == [stated[0], 100, modelled[0], 200, 300, *stated[1:], *modelled[1:], 100, half]


def test_the_count_of_figures_that_run_in_the_page_is_told():
    for file in (README, README.with_name("CHANGELOG.md")):
        assert re.search(rf"\b{len(LIVE)}\b[^.]*\bfigures\b", file.read_text("utf-8")), file.name
