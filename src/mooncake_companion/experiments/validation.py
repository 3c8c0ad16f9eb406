"""What the model was compared with, how often, and what was found: the table of the validation chapter."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import pandas as pd

from mooncake_companion.datafiles import read_json
from mooncake_companion.experiments import measured_costs, queueing_theory, real_store
from mooncake_companion.parameters import check, parameter

KINDS = {
    "program": "Other programs",
    "measurement": "Measurements",
    "theory": "Theory",
    "law": "Conservation",
    "relation": "Relations",
    "fault": "Bad input, faults",
    "change": "The tests themselves",
}

_PHASES = {"prefill": "Prefill", "decode": "Decode step"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """What is computed anew with the chapter: waits beside queueing theory, and costs beside GPUs.

    The other comparisons take minutes or need a real store, and are recorded.
    """

    trace: str = parameter("conversation", choices=("conversation", "synthetic"), help="prompts of M/G/1")
    requests: int = parameter(20_000, unit="requests", low=1000, high=10**6, help="of each replay")
    gpus: int = parameter(8, unit="GPUs", low=4, high=8, help="that work on a batch; measured are 4 and 8")
    seed: int = parameter(0, low=0, high=2**32 - 1, help="of arrivals and prompts")

    def __post_init__(self) -> None:
        check(self)

    @property
    def queueing(self) -> queueing_theory.Params:
        """Those of the comparison with queueing theory."""
        return queueing_theory.Params(trace=self.trace, requests=self.requests, seed=self.seed)

    @property
    def costs(self) -> measured_costs.Params:
        """Those of the comparison with measurements."""
        return measured_costs.Params(gpus=self.gpus)


def recorded() -> dict[str, Any]:
    """What ``python -m benchmarks.agreement`` wrote: ``rows``, ``packages``, and what made it."""
    found: dict[str, Any] = read_json("recorded", "agreement.json")
    return found


def run(params: Params) -> pd.DataFrame:
    """What was tried, how many, what was found.

    Returns
    -------
    DataFrame
        Columns: ``kind`` (a value of `KINDS`), ``what``, ``against``, ``cases``, ``tried`` (the same in
        words), ``found``.
    """
    waits = queueing_theory.run(params.queueing)
    return table(waits, measured_costs.run(params.costs), params)


def table(waits: pd.DataFrame, costs: pd.DataFrame, params: Params) -> pd.DataFrame:
    """As of `run`, from the tables of `queueing_theory.run` and `measured_costs.run`."""
    rows = [_counted(row) for row in recorded()["rows"]]
    rows += [_store(), _queue(waits), *_measured(costs), _fuzzed(), _changed()]
    order = list(KINDS.values())
    found = pd.DataFrame(rows).sort_values("kind", key=lambda kinds: kinds.map(order.index), kind="stable")
    found.attrs["provenance"] = {"parameters": dataclasses.asdict(params)}
    return found.reset_index(drop=True)


def _counted(row: dict[str, Any]) -> dict[str, Any]:
    failed = row["failed"]
    return {
        "kind": KINDS[row["kind"]],
        "what": row["what"],
        "against": row["against"],
        "cases": row["cases"],
        "tried": f"{row['cases']:,} {row['unit']}",
        "found": "all agree" if not failed else f"{failed} of {row['tests']} tests disagree",
    }


def _store() -> dict[str, Any]:
    found = real_store.agreement()
    return {
        "kind": KINDS["program"],
        "what": "Model of the store's eviction",
        "against": "the real Mooncake Store, hits of every request",
        "cases": found["requests_compared"],
        "tried": f"{found['requests_compared']:,} requests in {found['replays']} replays",
        "found": f"{found['requests_compared'] - found['requests_alike']:,} requests differ",
    }


def _queue(waits: pd.DataFrame) -> dict[str, Any]:
    found = queueing_theory.agreement(waits)
    return {
        "kind": KINDS["theory"],
        "what": "Wait in front of a node, by utilisation",
        "against": "M/D/1, M/M/1 and M/G/1",
        "cases": found["points"],
        "tried": f"{found['points']} replays, {found['requests']:,} requests",
        "found": f"{found['within']} of {found['points']} within the 95 % interval",
    }


def _measured(costs: pd.DataFrame) -> list[dict[str, Any]]:
    rows = []
    pairs = costs[["phase", "modelled", "measured_as"]].drop_duplicates()
    for phase, modelled, measured_as in pairs.itertuples(index=False):
        alike = (costs["phase"] == phase) & (costs["modelled"] == modelled)
        ratios = costs.loc[alike & (costs["measured_as"] == measured_as), "ratio"]
        rows.append(
            {
                "kind": KINDS["measurement"],
                "what": f"{_PHASES[phase]} ({modelled.removeprefix('Model, ')})",
                "against": f"{measured_as.removeprefix('Measured: ')}, A100 and H100",
                "cases": len(ratios),
                "tried": f"{len(ratios)} batches and lengths",
                "found": f"{ratios.min():.2f} to {ratios.max():.2f} times",
            }
        )
    return rows


def _fuzzed() -> dict[str, Any]:
    found = read_json("recorded", "fuzzing.json")
    return {
        "kind": KINDS["fault"],
        "what": "Readers of files and words",
        "against": "inputs that a fuzzer made of good ones",
        "cases": found["inputs"],
        "tried": f"{found['inputs']:,} inputs to {len(found['targets'])} readers",
        "found": f"{len(found['findings'])} faults, all mended; now each is read, or refused in a line",
    }


def _changed() -> dict[str, Any]:
    found = read_json("recorded", "mutants.json")
    files = len(found["targets"])
    return {
        "kind": KINDS["change"],
        "what": "Costs, scheduler, caches and links, with one thing changed",
        "against": "the tests that speak about them",
        "cases": found["mutants"],
        "tried": f"{found['mutants']:,} changes in {files} files",
        "found": f"{found['killed_share']:.1%} noticed; {found['equivalent']} of the rest change nothing",
    }
