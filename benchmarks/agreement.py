"""Count what the tests compare with independent answers: `python -m benchmarks.agreement`.

Runs those tests, slow ones too, and writes to ``data/recorded/agreement.json`` how many cases each
comparison tried and how many of them disagreed. It takes some minutes and needs the extra ``dev``.
"""

import hashlib
import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from mooncake_companion.datafiles import replacing

RECORDED = Path("data/recorded/agreement.json")
COMMAND = "python -m benchmarks.agreement"
PROFILE = "agreement"
"""Hypothesis profile of `tests/conftest.py`: as many cases as is worth waiting for, the same every time."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One row of the table in the validation chapter.

    Parameters
    ----------
    what : str
        Part of the model.
    against : str
        The independent answer.
    kind : {"program", "theory", "law", "relation", "fault"}
    unit : str
        What a case is, in the plural.
    tests : tuple of str
        Beginnings of the tests' ids.
    """

    what: str
    against: str
    kind: str
    unit: str
    tests: tuple[str, ...]


_SERVING, _COUPLED = "tests/simulator/test_serving_path.py::", "tests/simulator/test_coupled.py::"
_META = "tests/simulator/test_metamorphic.py::"

COMPARISONS = (
    Comparison(
        what="Eviction: LRU, FIFO, LFU, SIEVE, S3-FIFO, Belady",
        against="libCacheSim, equal misses",
        kind="program",
        unit="replays",
        tests=("tests/oracles/test_libcachesim.py::",),
    ),
    Comparison(
        what="Compiled engine, two pools",
        against="reference engine, token by token; times to the last bit, TBT to a billionth",
        kind="program",
        unit="clusters",
        tests=(
            "tests/simulator/test_engines_agree.py::test_on_thousands_of_clusters",
            "tests/simulator/test_engines_agree.py::test_with_the_fitted_constants",
        ),
    ),
    Comparison(
        what="Compiled engine, coupled nodes",
        against="reference engine, token by token; times to the last bit, TBT to a billionth",
        kind="program",
        unit="clusters",
        tests=("tests/simulator/test_engines_agree.py::test_on_thousands_of_coupled_clusters",),
    ),
    Comparison(
        what="LRU at all capacities at once",
        against="plain replays, capacity by capacity",
        kind="program",
        unit="streams",
        tests=("tests/simulator/test_reuse_distance.py::test_the_curve_is_what_replays_give",),
    ),
    Comparison(
        what="Compiled eviction",
        against="plain replays of every policy",
        kind="program",
        unit="streams",
        tests=("tests/simulator/test_replay_fast.py::test_hits_are_those_of_the_plain_replay",),
    ),
    Comparison(
        what="Belady's optimum",
        against="search through all choices of victims",
        kind="program",
        unit="streams",
        tests=("tests/simulator/test_eviction.py::test_no_choice_of_victims_hits_more_than_belady",),
    ),
    Comparison(
        what="Wait in front of a node",
        against="M/D/1 and M/M/1 (Pollaczek and Khinchine)",
        kind="theory",
        unit="replays of 40,000 requests",
        tests=(f"{_SERVING}test_waiting_in_front_of_one_node_is_that_of_theory",),
    ),
    Comparison(
        what="Requests in the system",
        against="Little's law",
        kind="theory",
        unit="clusters",
        tests=(f"{_SERVING}test_littles_law", f"{_COUPLED}test_littles_law"),
    ),
    Comparison(
        what="Chunked pipeline",
        against="makespan of a proportionate flow shop",
        kind="theory",
        unit="prefills",
        tests=(f"{_SERVING}test_a_pipeline_takes_what_its_closed_form_says",),
    ),
    Comparison(
        what="Sharing of links",
        against="definition of max–min fairness",
        kind="theory",
        unit="sets of flows",
        tests=("tests/simulator/test_transfer.py::test_every_flow_has_a_full_link_on_which_none_gets_more",),
    ),
    Comparison(
        what="Every replay",
        against="conservation: one fate a request, no byte lost, no memory overfull, nothing left",
        kind="law",
        unit="clusters",
        tests=(
            f"{_SERVING}test_every_request_meets_one_fate_and_no_byte_is_lost",
            f"{_SERVING}test_what_comes_first_comes_first",
            f"{_SERVING}test_no_gpu_is_busy_twice_and_no_memory_overfull",
            f"{_SERVING}test_nothing_is_left_when_all_is_done",
            f"{_COUPLED}test_laws_of_every_replay",
        ),
    ),
    Comparison(
        what="All bandwidths raised",
        against="no flow of those released together takes longer; doubled, half as long",
        kind="relation",
        unit="sets of flows",
        tests=(f"{_META}test_doubling_all_bandwidths", f"{_META}test_faster_links"),
    ),
    Comparison(
        what="A larger cache, LRU or Belady",
        against="no hit is lost",
        kind="relation",
        unit="streams",
        tests=(f"{_META}test_a_larger_lru", f"{_META}test_beladys_optimum"),
    ),
    Comparison(
        what="All times scaled",
        against="all results scaled alike, to the last bit",
        kind="relation",
        unit="clusters",
        tests=(f"{_META}test_scaling_all_times",),
    ),
    Comparison(
        what="Node names permuted",
        against="nothing else changes",
        kind="relation",
        unit="clusters and sets of flows",
        tests=(f"{_META}test_permuting_node_names", f"{_META}test_flows_do_not_care"),
    ),
    Comparison(
        what="Trace split at an idle moment, and that moment made longer",
        against="the same results, with the caches carried over",
        kind="relation",
        unit="clusters",
        tests=(
            "tests/simulator/test_carried_caches.py::",
            f"{_META}test_without_caches",
            f"{_META}test_how_long_an_idle_moment",
        ),
    ),
    Comparison(
        what="Last request left out",
        against="what ended before it came is the same",
        kind="relation",
        unit="clusters",
        tests=(f"{_META}test_the_future",),
    ),
    Comparison(
        what="More nodes, or faster ones, first come, first served",
        against="no request waits longer (Kiefer and Wolfowitz)",
        kind="relation",
        unit="clusters",
        tests=(f"{_META}test_more_nodes", f"{_META}test_faster_nodes"),
    ),
    Comparison(
        what="Bad traces, at every door that takes one",
        against="an error that names line, field and value, and nothing half-written",
        kind="fault",
        unit="files and doors",
        tests=("tests/doors/test_bad_traces.py::",),
    ),
    Comparison(
        what="Values that would be code, markup or formulas",
        against="the same values, as data",
        kind="fault",
        unit="words",
        tests=("tests/publish/test_safety.py::",),
    ),
    Comparison(
        what="Exports, reruns, sweeps and builds, killed at their writes, or two at once",
        against="undisturbed ones, byte for byte",
        kind="fault",
        unit="kinds of work",
        tests=("tests/publish/test_killed.py::", "tests/publish/test_killed_build.py::"),
    ),
    Comparison(
        what="Results under other hash seeds, workers, threads, time zones, languages and folders",
        against="the same bytes",
        kind="fault",
        unit="kinds of results",
        tests=("tests/publish/test_same_bytes.py::",),
    ),
)


class Counter:
    """Plugin of pytest that counts cases by test: Hypothesis examples, or one for a plain test."""

    def __init__(self) -> None:
        self.cases: dict[str, int] = {}
        self.outcomes: dict[str, str] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: Any) -> Any:
        """Note a test's outcome, and how many cases it tried."""
        report = yield
        if report.when == "call" or report.outcome != "passed":
            self.outcomes[report.nodeid] = report.outcome
            self.cases[report.nodeid] = examples(getattr(item, "hypothesis_statistics", ""))
        return report


def examples(statistics: str) -> int:
    """Cases of one test by Hypothesis' own account; 1 for a test without such.

    Raises
    ------
    ValueError
        If the account cannot be read: Hypothesis words it differently now.

    >>> examples("during generate phase: - 100 passing, 2 failing, and 7 invalid test cases")
    102
    """
    if not statistics:
        return 1
    found = re.findall(r"(\d+) passing(?: examples)?, (\d+) failing", statistics)
    if not found:
        raise ValueError(f"no number of cases in {statistics!r}")
    return sum(int(passing) + int(failing) for passing, failing in found)


def counted(tests: Sequence[str], root: Path) -> Counter:
    """Run tests and count; what they print is left out."""
    counter = Counter()
    files = sorted({test.partition("::")[0] for test in tests})
    chosen = [str(root / file) for file in files]
    pytest.main(
        [*chosen, "-q", "--no-header", "-p", "no:cacheprovider", f"--rootdir={root}"],
        plugins=[counter, _Only(tests)],
    )
    return counter


class _Only:
    """Plugin of pytest that leaves out all tests but those whose ids begin as given."""

    def __init__(self, beginnings: Sequence[str]) -> None:
        self._beginnings = tuple(beginnings)

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if item.nodeid.startswith(self._beginnings)]


def rows(counter: Counter, comparisons: Sequence[Comparison] = COMPARISONS) -> list[dict[str, Any]]:
    """The table, from what was counted.

    Raises
    ------
    RuntimeError
        If a comparison has no test, or one was left out: its program is not installed.
    """
    found = []
    for each in comparisons:
        mine = [test for test in counter.outcomes if test.startswith(each.tests)]
        left_out = [test for test in mine if counter.outcomes[test] == "skipped"]
        if not mine or left_out:
            raise RuntimeError(f"{each.what} against {each.against}: nothing ran, or not all: {left_out[:3]}")
        found.append(
            {
                "what": each.what,
                "against": each.against,
                "kind": each.kind,
                "unit": each.unit,
                "tests": len(mine),
                "cases": sum(counter.cases[test] for test in mine),
                "failed": sum(counter.outcomes[test] == "failed" for test in mine),
            }
        )
    return found


def files_of(comparisons: Sequence[Comparison]) -> list[str]:
    """Files with the tests, relative to the checkout."""
    return sorted({test.partition("::")[0] for each in comparisons for test in each.tests})


def sources(root: Path) -> list[str]:
    """Files whose change can move what is recorded: model, tests and this script."""
    package = root / "src" / "mooncake_companion"
    model = [package / "costs.py", package / "hardware.py", package / "llm.py"]
    model += (package / "simulator").rglob("*.py")
    named = [path.relative_to(root).as_posix() for path in model]
    return sorted([*named, *files_of(COMPARISONS), "tests/simulator/small.py", "benchmarks/agreement.py"])


def sources_sha256(root: Path) -> str:
    """SHA-256 over `sources`, in the order of their names."""
    digest = hashlib.sha256()
    for name in sources(root):
        content = (root / name).read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def recording(root: Path, comparisons: Sequence[Comparison] = COMPARISONS) -> dict[str, Any]:
    """What is written to `RECORDED`."""
    before = sources_sha256(root)
    counter = counted([test for each in comparisons for test in each.tests], root)
    if sources_sha256(root) != before:
        raise RuntimeError("the sources changed during the run; record again")
    return {
        "made_by": COMMAND,
        "sources_sha256": before,
        "packages": {
            name: metadata.version(name) for name in ("hypothesis", "libcachesim", "numba", "numpy")
        },
        "rows": rows(counter, comparisons),
    }


def main(root: Path) -> None:
    """Run and record."""
    os.environ["HYPOTHESIS_PROFILE"] = PROFILE
    record = recording(root)
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    with replacing(root / RECORDED) as part:
        part.write_text(text, "utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main(Path(__file__).parents[1])
