"""The README's example runs as it stands."""

import re
from pathlib import Path

from mooncake_companion import traces

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
