"""Parameters that know their unit, range and meaning: declared once, checked once, then believed.

A `Params` class is a frozen dataclass whose fields are made with `parameter`; its
``__post_init__`` calls `check`. The command line, the chapters and the tests read the same
declaration through `describe`.
"""

import dataclasses
import re
import sys
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from mooncake_companion.errors import InputError, shown

Value = bool | int | float | str
P = typing.TypeVar("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One declared parameter.

    Parameters
    ----------
    name : str
    type : type
        `bool`, `int`, `float` or `str`.
    default : bool, int, float or str
    unit : str
        Unit as it is written after a number; empty for a plain number or a word.
    low, high : float or None
        Least and greatest value allowed, both included.
    choices : tuple of str
        The only values allowed; empty for any.
    help : str
        What it means, in one line.
    """

    name: str
    type: type
    default: Value
    unit: str
    low: float | None
    high: float | None
    choices: tuple[str, ...]
    help: str

    @property
    def range(self) -> str:
        """The allowed values, in words."""
        if self.choices:
            return " | ".join(self.choices)
        if self.low is not None and self.high is not None:
            return f"{_short(self.low)} to {_short(self.high)}"
        if self.low is not None:
            return f"at least {_short(self.low)}"
        if self.high is not None:
            return f"at most {_short(self.high)}"
        return "true | false" if self.type is bool else "any"

    def parse(self, text: str) -> Value:
        """Read the value from a command line.

        Raises
        ------
        InputError
            If `text` is not of the parameter's type or outside its range.
        """
        try:
            value = _PARSERS[self.type](text)
        except (ValueError, KeyError, OverflowError):
            raise InputError(
                f"parameter {self.name}: {_told(text)} is not {_KINDS[self.type]}; {self._expected()}"
            ) from None
        return self.validate(value)

    def validate(self, value: Any) -> Value:
        """Return `value`, as the declared type.

        Raises
        ------
        InputError
            If it has another type or lies outside the range; an int passes for a float.
        """
        if self.type is float and type(value) is int and is_finite(value):
            value = float(value)
        if type(value) is not self.type:
            raise InputError(
                f"parameter {self.name}: {_told(value)} is not {_KINDS[self.type]}; {self._expected()}"
            )
        if isinstance(value, str) and not _can_be_written(value):
            raise InputError(f"parameter {self.name}: {_told(value)} is not UTF-8 text; {self._expected()}")
        if self.choices and value not in self.choices:
            raise InputError(
                f"parameter {self.name}: {_told(value)} is not among its values; {self._expected()}"
            )
        if isinstance(value, (int, float)) and not self._in_range(value):
            raise InputError(f"parameter {self.name}: {_told(value)} is out of range; {self._expected()}")
        return cast("Value", value)

    def _in_range(self, value: float) -> bool:
        return (
            is_finite(value)
            and (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
        )

    def _expected(self) -> str:
        return f"expected {self.range}{' ' + self.unit if self.unit else ''}, for example {self.default!r}"


def _short(number: float) -> str:
    """A number in as few characters as tell it exactly.

    >>> [_short(number) for number in (0.5, 4096, 1e6, 2**32 - 1)]
    ['0.5', '4096', '1e6', '4294967295']
    """
    text = f"{number:g}"
    return re.sub(r"e\+0*", "e", text if float(text) == number else f"{number:.15g}")


def _told(value: Any) -> str:
    """A value as it stands in a message, however large it is."""
    if isinstance(value, (dict, list, tuple, set)):
        return f"a value of type {type(value).__name__}"
    try:
        return shown(repr(value))
    except ValueError:  # of an integer of thousands of digits
        return "a number of thousands of digits"


def _can_be_written(text: str) -> bool:
    """Whether a word is text that a file or another process can be given."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:  # what stands for bytes that are not UTF-8
        return False


def _parse_int(text: str) -> int:
    number = float(text) if "e" in text.lower() else int(text)
    if number != int(number):
        raise ValueError(text)
    return int(number)


_PARSERS: dict[type, typing.Callable[[str], Value]] = {
    int: _parse_int,
    float: float,
    str: str,
    bool: lambda text: {"true": True, "false": False}[text.lower()],
}
_KINDS = {int: "a whole number", float: "a number", str: "a word", bool: "true or false"}


def parameter(
    default: Value,
    *,
    help: str,  # noqa: A002
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """Declare a field of a `Params` class; see `Parameter` for the arguments."""
    declared = {"unit": unit, "low": low, "high": high, "choices": choices, "help": help}
    return dataclasses.field(default=default, metadata=declared)


def describe(params: type) -> tuple[Parameter, ...]:
    """List the parameters that a `Params` class declares, in its order."""
    types = typing.get_type_hints(params)
    return tuple(
        Parameter(name=f.name, type=types[f.name], default=cast("Value", f.default), **f.metadata)
        for f in dataclasses.fields(params)
        if "help" in f.metadata
    )


def check(params: Any) -> None:
    """Validate all fields of a `Params` instance; to be called from ``__post_init__``.

    Raises
    ------
    InputError
        Names the first field that is wrong, its value and what was expected.
    """
    for declared in describe(type(params)):
        object.__setattr__(params, declared.name, declared.validate(getattr(params, declared.name)))


def parse(params: type, given: Mapping[str, str]) -> dict[str, Value]:
    """Read parameters from a command line, by the declaration of a `Params` class.

    Raises
    ------
    InputError
        For a name that is not declared (the valid ones are named) or an unfit value.
    """
    known = {p.name: p for p in describe(params)}
    for name in given:
        if name not in known:
            raise InputError(f"unknown parameter {shown(name)!r}; valid ones are {', '.join(known)}")
    return {name: known[name].parse(text) for name, text in given.items()}


def collect(params: type[P], names: Mapping[str, Any]) -> P:
    """Build a `Params` from the variables of a chapter, as in ``collect(Params, locals())``.

    Every declared parameter must be there; whatever else is there is passed over.

    Raises
    ------
    InputError
        For a missing parameter, or a value that its declaration does not allow.
    """
    declared = [p.name for p in describe(params)]
    if missing := [name for name in declared if name not in names]:
        raise InputError(f"no variable for parameter {', '.join(missing)}")
    return params(**{name: names[name] for name in declared})


def is_finite(value: float) -> bool:
    """Whether a number is one that a float can hold: not infinite, not NaN, no greater integer."""
    return abs(value) <= sys.float_info.max


def require_positive(instance: object, *names: str) -> None:
    """Check that the named fields of a dataclass are finite and above zero.

    Raises
    ------
    InputError
        Names the class, the field and the value.
    """
    for name in names:
        value = getattr(instance, name)
        if not (value > 0 and is_finite(value)):
            raise InputError(f"{type(instance).__name__}.{name} must be positive and finite, got {value!r}")
