from pathlib import Path

import pytest

from mooncake_companion.publish.dependencies import dependencies

CHECKOUT = Path(__file__).parents[2]
PACKAGE = CHECKOUT / "src" / "mooncake_companion"

FILES = {
    "costs.py": "from mooncake_companion.datafiles import data_path\n"
    'read = data_path("presets", "nodes.toml")\n',
    "datafiles.py": "def data_path(*parts): ...\n",
    "charts/__init__.py": "from mooncake_companion.charts import bars, lines\n",
    "charts/bars.py": "from mooncake_companion.charts import theme\n",
    "charts/lines.py": "",
    "charts/theme.py": "",
    "traces/__init__.py": "from mooncake_companion.traces.read import load\n\n\ndef describe(): ...\n",
    "traces/read.py": 'TRACES = ("traces.toml",)\n\n\ndef load(name):\n    data_path(*TRACES)\n'
    '    return data_path("recorded", f"{name}.json")\n',
    "experiments/__init__.py": "",
    "experiments/one.py": "from mooncake_companion.costs import read\n",
    "experiments/two.py": "def run():\n    from mooncake_companion.experiments.one import read\n",
    "experiments/all.py": 'import importlib\n\nimportlib.import_module(f"{__package__}.two")\n',
}


@pytest.fixture
def root(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / "src" / "mooncake_companion" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return tmp_path


CHAPTER = """\
# A chapter

```python
from mooncake_companion import wrong
```

```{{code-cell}} ipython3
:tags: [hide-input]

{code}
```
"""


def depends(code, root):
    found = dependencies(CHAPTER.format(code=code), root)
    return sorted(path.removeprefix("src/mooncake_companion/") for path in found)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import numpy", []),
        (
            "from mooncake_companion.costs import read",
            ["costs.py", "data/presets/nodes.toml", "datafiles.py"],
        ),
        ("from mooncake_companion import costs", ["costs.py", "data/presets/nodes.toml", "datafiles.py"]),
        ("from mooncake_companion import charts\ncharts.bars.draw()", ["charts/bars.py", "charts/theme.py"]),
        ("from mooncake_companion.charts import lines as drawn", ["charts/lines.py"]),
        (
            "from mooncake_companion import charts\nf(charts)",
            ["charts/__init__.py", "charts/bars.py", "charts/lines.py", "charts/theme.py"],
        ),
        (
            "from mooncake_companion import traces\ntraces.load(1)",
            ["data/recorded", "data/traces.toml", "traces/read.py"],
        ),
        (
            "from mooncake_companion.traces import describe",
            ["data/recorded", "data/traces.toml", "traces/__init__.py", "traces/read.py"],
        ),
        (
            "from mooncake_companion.experiments import two",
            [
                "costs.py",
                "data/presets/nodes.toml",
                "datafiles.py",
                "experiments/one.py",
                "experiments/two.py",
            ],
        ),
    ],
)
def test_what_is_reached_and_nothing_else(root, code, expected):
    assert depends(code, root) == sorted(expected)


def test_modules_found_by_name_at_run_time_count_with_all_their_neighbours(root):
    found = depends("from mooncake_companion.experiments import all", root)
    assert {f"experiments/{name}.py" for name in ("__init__", "all", "one", "two")} <= set(found)


def test_a_changed_import_is_seen(root):
    before = depends("from mooncake_companion.experiments import one", root)
    source = root / "src" / "mooncake_companion" / "experiments" / "one.py"
    source.write_text("from mooncake_companion.charts import lines\n", "utf-8")
    assert (
        before
        != depends("from mooncake_companion.experiments import one", root)
        == [
            "charts/lines.py",
            "experiments/one.py",
        ]
    )


def test_every_module_of_the_model_is_reached_from_some_chapter():
    reached = {
        path
        for chapter in (CHECKOUT / "book").glob("*.md")
        for path in dependencies(chapter.read_text("utf-8"), CHECKOUT)
    }
    apart = {"cli", "publish"}
    # They make data that are kept, read other traces, draw what `companion sweep` finds, or run in a page.
    fitting = {"traces/fit.py", "traces/convert.py", "charts/sweep.py"}
    fitting |= {
        "live/answers.py",
        "live/end_to_end.py",
        "live/figures.py",
        "live/rejection.py",
        "live/walkthrough.py",
    }
    missed = {
        relative
        for module in PACKAGE.rglob("*.py")
        if (relative := module.relative_to(PACKAGE).as_posix()).split("/")[0] not in apart
        and module.name not in ("__init__.py", "__main__.py")
        and f"src/mooncake_companion/{relative}" not in reached
    }
    assert missed <= fitting


def test_the_book_s_chapters_depend_on_what_they_show():
    chapter = (CHECKOUT / "book" / "overload.md").read_text("utf-8")
    found = dependencies(chapter, CHECKOUT)
    for name in (
        "charts/overload.py",
        "charts/theme.py",
        "experiments/overload.py",
        "simulator/fast/engine.py",
    ):
        assert f"src/mooncake_companion/{name}" in found
    for name in ("charts/transfer.py", "experiments/hot_holder.py", "publish/rerun.py"):
        assert f"src/mooncake_companion/{name}" not in found


def test_the_book_s_chapters_depend_on_the_data_that_they_read():
    def data(name):
        found = dependencies((CHECKOUT / "book" / f"{name}.md").read_text("utf-8"), CHECKOUT)
        return {path for path in found if path.startswith("data")}

    assert {"data/reported", "data/traces.toml", "data/calibration.toml", "data/presets"} <= data("overload")
    assert not {"data", "data/recorded", "data/figures.toml"} & data("overload")
    assert not any(path.startswith("data/measured") for path in data("overload"))
    records = {f"data/recorded/{name}.json" for name in ("agreement", "fuzzing", "mutants", "real_store")}
    files = {f"data/measured/{file.name}" for file in (CHECKOUT / "data/measured").glob("*.csv")}
    assert records | files <= data("validation")
    assert "data" not in data("validation")
