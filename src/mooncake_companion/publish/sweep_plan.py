"""What a sweep runs: the points of a grid or of a Latin hypercube, all checked before any runs."""

import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import qmc

import mooncake_companion
from mooncake_companion import traces
from mooncake_companion.datafiles import data_path
from mooncake_companion.errors import InputError, shown
from mooncake_companion.parameters import Parameter, Value, describe
from mooncake_companion.publish import own_files
from mooncake_companion.publish.chapters import Chapter

MOST_POINTS = 100_000
"""More than this is taken for a slip of the pen."""

_NOT_OF_THE_MODEL = ("charts", "cli", "publish")
_SHOWN_VALUES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """What one parameter takes in a sweep: some values, or a range to draw from.

    Parameters
    ----------
    parameter : Parameter
    values : tuple
        The values; empty for a range.
    low, high : int or float
        The range's ends, both included.
    """

    parameter: Parameter
    values: tuple[Value, ...] = ()
    low: float = 0
    high: float = 0

    def at(self, quantile: float) -> Value:
        """The value at a quantile in [0, 1): a share of the range, or of the list of values."""
        if self.values:
            return self.values[int(quantile * len(self.values))]
        if self.parameter.type is int:
            return int(self.low + math.floor(quantile * (self.high - self.low + 1)))
        return min(self.high, self.low + quantile * (self.high - self.low))

    @property
    def recorded(self) -> list[Value] | dict[str, float]:
        """The axis as JSON."""
        return list(self.values) if self.values else {"low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A sweep that can run.

    Parameters
    ----------
    chapter : Chapter
    axes : tuple of Axis
        One for each parameter that was given; one with a single value is not varied.
    sample, sample_seed : int or None
        Size and seed of a Latin hypercube; None for a grid.
    points : tuple of dict
        Values by parameter, point by point; what is not there has its default.
    traces : dict
        SHA-256 of each trace that is replayed, by its name or path.
    """

    chapter: Chapter
    axes: tuple[Axis, ...]
    sample: int | None
    sample_seed: int | None
    points: tuple[dict[str, Value], ...]
    traces: dict[str, str]

    @property
    def varied(self) -> tuple[Parameter, ...]:
        """The parameters that differ from point to point, in the order given."""
        return tuple(axis.parameter for axis in self.axes if len(axis.values) != 1)

    @property
    def fixed(self) -> dict[str, Value]:
        """The parameters that are the same at all points, defaults included."""
        varied = {declared.name for declared in self.varied}
        values = {p.name: self.points[0].get(p.name, p.default) for p in describe(self.chapter.params)}
        return {name: value for name, value in values.items() if name not in varied}

    def record(self) -> dict[str, Any]:
        """What makes this sweep this one: points of a sweep with an equal record are equal.

        Files of one's own are there by name, with their checksum.
        """
        points = [own_files.values_by_name(point) for point in self.points]
        files = {path for point in self.points for path in own_files.among(point).values()}
        return {
            "chapter": self.chapter.name,
            "parameters": {axis.parameter.name: axis.recorded for axis in self.axes},
            "sample": self.sample,
            "sample_seed": self.sample_seed,
            "points": len(self.points),
            "points_sha256": hashlib.sha256(json.dumps(points).encode()).hexdigest(),
            "traces": {own_files.told_by_name(trace, files): sha256 for trace, sha256 in self.traces.items()},
            "model_sha256": model_sha256(),
        }


def plan(
    chapter: Chapter, given: Sequence[tuple[str, str]], *, sample: int | None = None, sample_seed: int = 0
) -> Plan:
    """Read a sweep from a command line and check all of it.

    Parameters
    ----------
    chapter : Chapter
    given : sequence of (name, text)
        For a grid each text is ``START:STOP:STEP`` (STOP included), ``a,b,c`` or one value; for a sample
        ``LOW:HIGH`` (both included), ``a,b,c`` or one value.
    sample : int, optional
        Points of a Latin hypercube; a grid if not given.
    sample_seed : int
        Seed of the hypercube.

    Raises
    ------
    InputError
        For anything that cannot run: an unknown parameter, a value out of its range, values that do not
        go together at some point, a trace that cannot be had, nothing to vary, too many points.
    """
    _ = chapter.measure
    known = {declared.name: declared for declared in describe(chapter.params)}
    names = [name for name, _ in given]
    for name in names:
        if name not in known:
            raise InputError(f"unknown parameter {shown(repr(name))}; valid ones are {', '.join(known)}")
        if names.count(name) > 1:
            raise InputError(f"parameter {name}: given twice; put its values into one list, as in {name}=a,b")
    read = _grid_axis if sample is None else _sample_axis
    axes = tuple(read(known[name], text) for name, text in given)
    if all(len(axis.values) == 1 for axis in axes):
        raise InputError(
            "nothing to vary: give at least one parameter several values, "
            f"as in -p {next(iter(known))}=START:STOP:STEP; `companion params {chapter.name}` lists them"
        )
    points = _grid(axes) if sample is None else _latin_hypercube(axes, sample, sample_seed)
    points = [own_files.absolute(point) for point in points]
    found = _checked(chapter, points)
    seed = None if sample is None else sample_seed
    return Plan(
        chapter=chapter, axes=axes, sample=sample, sample_seed=seed, points=tuple(points), traces=found
    )


def model_sha256() -> str:
    """Checksum of all that can change a number: the package's sources below the charts, and its data."""
    package = Path(mooncake_companion.__file__).parent
    data = data_path()
    digest = hashlib.sha256()
    sources = [
        path
        for path in sorted(package.rglob("*.py"))
        if path.relative_to(package).parts[0] not in _NOT_OF_THE_MODEL
    ]
    files = [path for path in sorted(data.rglob("*")) if path.is_file()]
    for top, path in [*((package, path) for path in sources), *((data, path) for path in files)]:
        digest.update(f"{path.relative_to(top).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def replayed(values: Mapping[str, Value]) -> list[tuple[str, int]]:
    """The traces among a chapter's parameters, each with the tokens in its blocks."""
    block_tokens = values.get("block_tokens", traces.BLOCK_TOKENS)
    assert isinstance(block_tokens, int)
    return [
        (value, block_tokens if name == "trace" else traces.BLOCK_TOKENS)
        for name, value in values.items()
        if own_files.is_trace(name) and isinstance(value, str) and value
    ]


def told(point: Mapping[str, Value]) -> str:
    """Write a point's values in one line."""
    return ", ".join(f"{name}={value}" for name, value in point.items())


def difference(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Say in what two records of `Plan.record` differ; empty if they do not."""
    for key, value in now.items():
        before = earlier.get(key)
        if before == value:
            continue
        if key == "parameters" and isinstance(before, dict):
            for name in [*before, *value]:
                if before.get(name) != value.get(name):
                    return f"{name} is {_shown(before.get(name))} there and {_shown(value.get(name))} here"
            return f"its parameters are in the order {shown(', '.join(before), 200)}"
        if key == "model_sha256":
            return "its points were made by another version of the model"
        if key == "traces":
            return "its points were made from other traces"
        if key == "points_sha256":
            return "its points were drawn by another version of SciPy"
        return f"{key.replace('_', ' ')} is {shown(str(before))} there and {value} here"
    return ""


def _shown(axis: Any) -> str:
    if isinstance(axis, (str, int, float, bool)):
        return shown(str(axis))
    match axis:
        case None:
            return "not given"
        case {"low": low, "high": high}:
            return f"{low} to {high}"
        case [*values] if len(values) > _SHOWN_VALUES:
            return f"{', '.join(map(str, values[:3]))} … {values[-1]} ({len(values)} values)"
        case [*values]:
            return shown(", ".join(map(str, values)), 200)
        case _:
            return f"a value of type {type(axis).__name__}"


# --- axes -------------------------------------------------------------------------------------


def _grid_axis(declared: Parameter, text: str) -> Axis:
    parts = text.split(":")
    if declared.type not in (int, float) or len(parts) == 1:
        return _listed(declared, text)
    if len(parts) != 3:
        raise InputError(
            f"parameter {declared.name}: {shown(repr(text))} is not START:STOP:STEP; "
            "a range LOW:HIGH is for --sample, values are listed as a,b,c"
        )
    start, stop, step = (_number(declared, part) for part in parts)
    if step == 0 or (stop - start) / step < 0:
        raise InputError(
            f"parameter {declared.name}: {shown(repr(text))} never ends; STEP must lead from START to STOP"
        )
    if (count := int((stop - start) / step) + 1) > MOST_POINTS:
        raise InputError(
            f"parameter {declared.name}: {shown(repr(text))} has more values than {MOST_POINTS:,}"
        )
    values = (declared.parse(f"{(start + number * step).normalize():f}") for number in range(count))
    return Axis(parameter=declared, values=tuple(values))


def _sample_axis(declared: Parameter, text: str) -> Axis:
    parts = text.split(":")
    if declared.type not in (int, float) or len(parts) == 1:
        return _listed(declared, text)
    if len(parts) != 2:
        raise InputError(
            f"parameter {declared.name}: {shown(repr(text))} is not LOW:HIGH; START:STOP:STEP is for a grid, "
            "without --sample"
        )
    low, high = (declared.parse(part) for part in parts)
    assert isinstance(low, (int, float))
    assert isinstance(high, (int, float))
    if not low < high:
        raise InputError(
            f"parameter {declared.name}: {shown(repr(text))} is no range; LOW must be below HIGH"
        )
    return Axis(parameter=declared, low=low, high=high)


def _listed(declared: Parameter, text: str) -> Axis:
    values = tuple(declared.parse(part.strip()) for part in text.split(","))
    if twice := [value for value in values if values.count(value) > 1]:
        raise InputError(
            f"parameter {declared.name}: {shown(repr(twice[0]))} stands twice in {shown(repr(text))}"
        )
    return Axis(parameter=declared, values=values)


def _number(declared: Parameter, text: str) -> Decimal:
    """Read a number exactly as written, so that 0:1:0.1 has the values 0, 0.1, … 1."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("nan")
    if not math.isfinite(float(number) if not number.is_snan() else math.nan):
        raise InputError(f"parameter {declared.name}: {shown(repr(text))} is not a number")
    return number


# --- points -----------------------------------------------------------------------------------


def _grid(axes: Sequence[Axis]) -> list[dict[str, Value]]:
    _require_few(math.prod(len(axis.values) for axis in axes))
    names = [axis.parameter.name for axis in axes]
    return [
        dict(zip(names, values, strict=True)) for values in itertools.product(*(axis.values for axis in axes))
    ]


def _latin_hypercube(axes: Sequence[Axis], sample: int, seed: int) -> list[dict[str, Value]]:
    _require_few(sample)
    drawn = qmc.LatinHypercube(len(axes), rng=np.random.default_rng(seed)).random(sample)
    return [
        {axis.parameter.name: axis.at(float(quantile)) for axis, quantile in zip(axes, row, strict=True)}
        for row in drawn
    ]


def _require_few(points: int) -> None:
    if points > MOST_POINTS:
        raise InputError(f"the sweep has {points} points; the most is {MOST_POINTS}: use larger steps")


def _checked(chapter: Chapter, points: Sequence[Mapping[str, Value]]) -> dict[str, str]:
    """Build each point's `Params` and load each trace once; returns the traces' checksums."""
    found: dict[tuple[str, int], str] = {}
    defaults = {declared.name: declared.default for declared in describe(chapter.params)}
    for number, point in enumerate(points):
        try:
            chapter.build(point)
            for each in replayed({**defaults, **point}):
                if each not in found:
                    found[each] = traces.load(each[0], block_tokens=each[1]).sha256
        except InputError as error:
            raise InputError(f"point {number} ({shown(told(point), 200)}): {error}") from None
    return {trace: sha256 for (trace, _), sha256 in found.items()}
