"""An experiment that takes no time, for sweeps: other processes import it by this name."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from mooncake_companion.errors import InputError
from mooncake_companion.parameters import check, parameter
from mooncake_companion.publish.chapters import CHAPTERS, Chapter


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    size: int = parameter(3, low=1, high=1000, unit="tokens", help="a whole number")
    rate: float = parameter(1.0, low=0, high=100, help="a number")
    kind: str = parameter("usual", choices=("usual", "failing", "deadly", "odd"), help="what happens")
    trace: str = parameter("", help="a trace, which is not read")
    pause_s: float = parameter(0.0, unit="s", low=0, high=10, help="how long it takes")

    def __post_init__(self):
        check(self)
        if self.size > 500 and self.rate > 50:
            raise InputError("parameter rate: more than 50 needs a size of 500 at most")


def run(params):
    if log := os.environ.get("LITTLE_LOG"):
        with Path(log).open("a") as file:
            file.write(f"{params.size} {params.rate}\n")
    time.sleep(params.pause_s)
    if params.kind == "failing" and params.size == 2:
        raise ValueError("two is too few\nfor this")
    if params.kind == "deadly" and params.size == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if params.kind == "odd":
        return pd.DataFrame({"mixed": ["a", 1]})
    table = pd.DataFrame(
        {
            "system": ["one", "one", "other", "other"],
            "nodes": [1, 2, 1, 2],
            "seconds": [params.size * params.rate + place / 3 for place in range(4)],
            "share": [1 / (params.size + place) for place in range(4)],
        }
    )
    table.attrs["provenance"] = {"not": {"for", "JSON"}}
    return table


def chapter():
    return Chapter(name="little", params=Params)


def main():
    """The command line with this chapter among the others."""
    from mooncake_companion.cli import main as companion

    CHAPTERS["little"] = chapter()
    companion()
