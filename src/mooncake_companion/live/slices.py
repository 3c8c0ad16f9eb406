"""The slice of a trace that a page brings along for its live figures."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from mooncake_companion.parameters import check, parameter
from mooncake_companion.simulator.reference import Record, Request

MOST_REQUESTS = 1000
"""Requests in a slice: as many as a browser replays in a few seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceParams:
    """How much of the slice is replayed."""

    requests: int = parameter(
        300, unit="requests", low=20, high=MOST_REQUESTS, help="so many of the trace, from its start"
    )

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The first requests of a trace.

    Parameters
    ----------
    name, source : str
        Of the trace; the source says if it is a stand-in.
    block_tokens : int
        Tokens in a full block.
    trace_requests : int
        Requests of the whole trace.
    requests : sequence of Request
    draws : sequence of float
        One uniform number in [0, 1) a request, for random routing, drawn when the slice was made.
    answers : sequence of sequence of int
        Blocks that each request's answer completes, as `Request.answer` has them; only models that return
        answers give them to the requests.
    """

    name: str
    source: str
    block_tokens: int
    trace_requests: int
    requests: Sequence[Request]
    draws: Sequence[float]
    answers: Sequence[Sequence[int]]

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Self:
        """Read a slice from what `to_json` made of it."""
        return cls(**{**told, "requests": [Request(*line) for line in told["requests"]]})

    def to_json(self) -> dict[str, Any]:
        """The slice as plain lists."""
        lines = [
            [each.arrival_s, each.input_tokens, each.output_tokens, list(each.blocks)]
            for each in self.requests
        ]
        told = {name: getattr(self, name) for name in self.__slots__}
        return told | {
            "requests": lines,
            "draws": list(self.draws),
            "answers": [list(each) for each in self.answers],
        }

    def head(self, requests: int, *, speedup: float = 1.0) -> Self:
        """The first so many requests, arriving so many times as fast."""
        kept = [each._replace(arrival_s=each.arrival_s / speedup) for each in self.requests[:requests]]
        told = {name: getattr(self, name) for name in self.__slots__}
        return type(self)(
            **told | {"requests": kept, "draws": self.draws[:requests], "answers": self.answers[:requests]}
        )


def without_decode(sliced: Slice) -> Slice:
    """The same prompts with answers of one token, which the prefill makes."""
    requests = [each._replace(output_tokens=1) for each in sliced.requests]
    return dataclasses.replace(sliced, requests=requests)


def ttfts_s(sliced: Slice, records: Sequence[Record]) -> list[float]:
    """Time to first token of every request, in seconds."""
    return [
        record.first_token_s - request.arrival_s
        for request, record in zip(sliced.requests, records, strict=True)
    ]


def hit_ratio(sliced: Slice, records: Sequence[Record]) -> float:
    """Share of the prompt tokens that was reused, where every request was prefilled."""
    choices = [record.choice for record in records if record.choice is not None]
    reused = sum(choice.local_tokens + choice.fetched_tokens for choice in choices)
    return reused / sum(request.input_tokens for request in sliced.requests)
