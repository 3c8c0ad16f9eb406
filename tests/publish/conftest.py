"""A little book of our own look, with one chapter that runs in no time."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from mooncake_companion.parameters import check, parameter
from mooncake_companion.publish.chapters import Chapter

CHECKOUT = Path(__file__).parents[2]

OVERVIEW = "# Overview\n\nSee {numref}`fig-little-line` and [the chapter](little.md).\n"
REFERENCES = "# References\n\n```{bibliography}\n```\n"
BIBLIOGRAPHY = "@misc{someone, title = {A title}, author = {Someone}, year = {2025}}\n"
LITTLE = """\
---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
    format_version: 0.13
kernelspec:
  display_name: Python 3
  language: python
  name: python3
depends_on: [data]
---

# A little chapter

As {cite:t}`someone` says in [the overview](overview.md).

```{code-cell} ipython3
:tags: [parameters]

points = 3
label = "a"
```

```{code-cell} ipython3
:tags: [hide-input]
:mystnb:
:  figure:
:    name: fig-little-line
:    caption: |
:      A line.

import altair as alt
import pandas as pd
from mooncake_companion.charts import theme

if label == "broken":
    raise RuntimeError("label is broken")
table = pd.DataFrame({"x": range(points), "y": range(points)})
table.attrs["provenance"] = {
    "trace": "made-up", "trace_sha256": "0" * 64, "trace_source": "made up",
    "parameters": {"points": points, "label": label},
}
chart = alt.Chart(table).mark_line(clip=True).encode(x="x:Q", y="y:Q")
theme.finish(chart, name="little-line", description="A rising line.", table=table)
```

```{code-cell} ipython3
:tags: [remove-cell]

from myst_nb import glue

glue("last point", points - 1, display=False)
glue("label", label, display=False)
```

It ends at {glue:text}`last point`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LittleParams:
    points: int = parameter(3, low=1, high=9, unit="points", help="points of the line")
    label: str = parameter("a", help="any word")

    def __post_init__(self):
        check(self)


@pytest.fixture
def little():
    return Chapter(name="little", params=LittleParams)


@pytest.fixture
def little_root(tmp_path):
    root = tmp_path / "checkout"
    for folder in ("src/mooncake_companion", "data"):
        (root / folder).mkdir(parents=True)
    shutil.copytree(CHECKOUT / "book" / "_static", root / "book" / "_static")
    config = yaml.safe_load((CHECKOUT / "_config.yml").read_text("utf-8"))
    config["sphinx"]["config"]["companion_traces"] = []
    (root / "_config.yml").write_text(yaml.safe_dump(config), "utf-8")
    contents = {"format": "jb-book", "root": "book/overview", "chapters": [{"file": "book/little"}]}
    contents["chapters"].append({"file": "book/references"})
    (root / "_toc.yml").write_text(yaml.safe_dump(contents), "utf-8")
    book = root / "book"
    (book / "overview.md").write_text(OVERVIEW, "utf-8")
    (book / "references.md").write_text(REFERENCES, "utf-8")
    (book / "references.bib").write_text(BIBLIOGRAPHY, "utf-8")
    (book / "little.md").write_text(LITTLE, "utf-8")
    return root
