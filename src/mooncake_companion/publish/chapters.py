"""The chapters that can be run again, and what each lets a reader change."""

import ast
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from mooncake_companion.costs import load_calibration
from mooncake_companion.errors import InputError
from mooncake_companion.experiments import (
    deployment_timeline,
    goodput,
    hot_holder,
    overload,
    prefill_pipeline,
    prefill_scheduling,
    questions,
    storage_for_compute,
    tiered_cache,
    validation,
    workloads,
    your_cluster,
)
from mooncake_companion.hardware import load_node
from mooncake_companion.llm import load_model
from mooncake_companion.parameters import Parameter, Value, describe
from mooncake_companion.simulator.cluster import Deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """A chapter with parameters.

    Parameters
    ----------
    name : str
        As in its address and its file.
    params : type
        The `Params` class whose fields the chapter's cell tagged ``parameters`` sets.
    measured : callable, optional
        What a sweep makes of one such `Params`: a tidy table. If not given, ``run`` of the experiment
        that `params` belongs to.
    """

    name: str
    params: type
    measured: Callable[[Any], pd.DataFrame] | None = None

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What can be changed, in the declared order."""
        return describe(self.params)

    @property
    def measure(self) -> Callable[[Any], pd.DataFrame]:
        """The function that a sweep calls, in whatever process, for each of its points.

        Raises
        ------
        InputError
            If the chapter has none.
        """
        found = self.measured or getattr(sys.modules[self.params.__module__], "run", None)
        if found is None:
            raise InputError(f"chapter {self.name} has no table to sweep; run it with `companion run`")
        return found

    def build(self, values: Mapping[str, Value]) -> Any:
        """The chapter's `Params` of these values, seen to be fit before anything runs.

        Raises
        ------
        InputError
            For values that do not go together; so if the model does not fit on the node.
        """
        params = self.params(**values)
        node, model = getattr(params, "node", None), getattr(params, "model", None)
        if isinstance(node, str) and isinstance(model, str):
            deployment = Deployment(
                node=load_node(node), model=load_model(model), calibration=load_calibration()
            )
            deployment.require_fit()
        return params

    def notebook(self, root: Path) -> Path:
        """Path of the chapter's text notebook in a checkout."""
        return root / "book" / f"{self.name}.md"


CHAPTERS = {
    chapter.name: chapter
    for chapter in (
        Chapter(
            name="serving-path", params=deployment_timeline.Params, measured=deployment_timeline.run_modes
        ),
        Chapter(name="storage-for-compute", params=storage_for_compute.Params),
        Chapter(name="workloads", params=workloads.Params),
        Chapter(name="tiered-cache", params=tiered_cache.Params),
        Chapter(name="prefill-pool", params=prefill_pipeline.Params, measured=prefill_pipeline.run),
        Chapter(name="control-plane", params=prefill_scheduling.Params, measured=prefill_scheduling.run),
        Chapter(name="overload", params=overload.Params, measured=overload.run),
        Chapter(name="results", params=goodput.Params, measured=goodput.run),
        Chapter(name="transfer", params=hot_holder.Params, measured=hot_holder.run),
        Chapter(name="validation", params=validation.Params),
        Chapter(name="your-cluster", params=your_cluster.Params, measured=your_cluster.run),
        Chapter(name="questions", params=questions.Params),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NoParams:
    """The parameters of a chapter that has none."""


def any_chapter(name: str) -> Chapter:
    """A chapter by its name, with the parameters that it has, if any."""
    return CHAPTERS.get(name, Chapter(name=name, params=NoParams))


def find_chapter(name: str) -> Chapter:
    """Look up a chapter by its name.

    Raises
    ------
    InputError
        If there is none; the message names those there are.
    """
    if name not in CHAPTERS:
        raise InputError(f"no chapter {name!r} with parameters; there are {', '.join(CHAPTERS)}")
    return CHAPTERS[name]


def literals(source: str) -> dict[str, Any]:
    r"""Read a cell tagged ``parameters``: plain names set to plain literals, and nothing else.

    >>> literals("nodes = 16\nmodel = 'llama3-70b'")
    {'nodes': 16, 'model': 'llama3-70b'}

    Raises
    ------
    ValueError
        If the cell holds anything that papermill could misread.
    """
    values = {}
    for statement in ast.parse(source).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                values[name] = ast.literal_eval(value)
            case _:
                raise ValueError(f"not a plain NAME = LITERAL: {ast.unparse(statement)}")
    return values
