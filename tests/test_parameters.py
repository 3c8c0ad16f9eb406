"""Declared parameters: what is accepted, what is refused, and with which words."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from mooncake_companion.errors import InputError
from mooncake_companion.parameters import check, collect, describe, parameter, parse, require_positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    nodes: int = parameter(16, unit="nodes", low=1, high=64, help="nodes")
    rate: float = parameter(0.5, unit="requests/s", low=0, help="rate")
    policy: str = parameter("lru", choices=("lru", "fifo"), help="policy")
    pinned: bool = parameter(False, help="pins")

    def __post_init__(self):
        check(self)


def test_command_line_values_get_their_types():
    given = {"nodes": "3", "rate": "2", "policy": "fifo", "pinned": "true"}
    params = Params(**parse(Params, given))
    assert params == Params(nodes=3, rate=2.0, policy="fifo", pinned=True)
    assert type(params.rate) is float


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("nodes", "3.5", "whole number"),
        ("nodes", "many", "whole number"),
        ("nodes", "65", "1 to 64 nodes"),
        ("nodes", "0", "1 to 64 nodes"),
        ("rate", "nan", "out of range"),
        ("rate", "inf", "out of range"),
        ("rate", "-1", "at least 0 requests/s"),
        ("policy", "random", "lru | fifo"),
        ("pinned", "1", "true or false"),
        ("nodes", "__import__('os')", "whole number"),
    ],
)
def test_refusal_names_the_parameter_the_value_and_what_was_expected(name, text, words):
    with pytest.raises(InputError) as refusal:
        parse(Params, {name: text})
    assert name in str(refusal.value)
    assert text in str(refusal.value)
    assert words in str(refusal.value)


def test_unknown_parameter_names_the_valid_ones():
    with pytest.raises(
        InputError, match="unknown parameter 'node'; valid ones are nodes, rate, policy, pinned"
    ):
        parse(Params, {"node": "3"})


def test_python_values_are_checked_too():
    assert Params(rate=3).rate == 3.0
    with pytest.raises(InputError, match="nodes"):
        Params(nodes=True)
    with pytest.raises(InputError, match="nodes"):
        Params(nodes="16")


def test_collect_takes_what_is_declared_and_passes_over_the_rest():
    variables = {"nodes": 2, "rate": 1, "policy": "lru", "pinned": True, "other": object()}
    assert collect(Params, variables) == Params(nodes=2, rate=1.0, policy="lru", pinned=True)
    with pytest.raises(InputError, match="pinned"):
        collect(Params, {"nodes": 2, "rate": 1.0, "policy": "lru"})


def test_every_declared_range_is_put_into_words():
    assert [p.range for p in describe(Params)] == ["1 to 64", "at least 0", "lru | fifo", "true | false"]


def test_whole_numbers_beyond_every_float_are_refused_like_others():
    with pytest.raises(InputError, match="parameter rate"):
        Params(rate=10**400)
    with pytest.raises(InputError, match=r"parameter nodes: 10{59}… is out of range"):
        Params(nodes=10**400)
    with pytest.raises(InputError, match="must be positive and finite"):
        require_positive(SimpleNamespace(gpus=10**400), "gpus")
