"""How far the papers' headlines depend on what the papers leave open.

`one_at_a_time` varies each assumption alone, on whole traces; `sobol` varies all together, on the
start of each trace, and shares the variance out. `seed_spread` says how far the headlines scatter when
the traces themselves are generated anew. All three take minutes:

``python -m mooncake_companion.experiments.sensitivity`` writes them to ``data/recorded/sensitivity.json``.
"""

import dataclasses
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata, resources
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from tqdm import tqdm

from mooncake_companion import traces
from mooncake_companion.datafiles import data_path, replacing
from mooncake_companion.errors import CompanionError
from mooncake_companion.experiments.headlines import STUDIES, Assumption, Study, Workloads, study
from mooncake_companion.parameters import check, parameter

COMMAND = "python -m mooncake_companion.experiments.sensitivity"
RECORDED = ("recorded", "sensitivity.json")
DIGITS = 6
"""Significant digits that are kept."""

SOURCES = (
    "costs.py",
    "hardware.py",
    "llm.py",
    "presets.py",
    "settings.py",
    "experiments/cache_sharing.py",
    "experiments/headlines.py",
    "experiments/overload.py",
    "experiments/paper_traces.py",
    "experiments/prefill_scheduling.py",
    "experiments/sensitivity.py",
    "live/overload.py",
    "live/prefill_scheduling.py",
    "simulator/cluster.py",
    "simulator/coupled.py",
    "simulator/overload.py",
    "simulator/serving_path.py",
    "simulator/transfer.py",
    "simulator/fast/caches.py",
    "simulator/fast/coupled.py",
    "simulator/fast/decoders.py",
    "simulator/fast/engine.py",
    "simulator/fast/events.py",
    "simulator/fast/flows.py",
    "simulator/fast/shelves.py",
    "traces/finer_blocks.py",
    "traces/generator.py",
)
DATA = (
    "calibration.toml",
    "presets/models.toml",
    "presets/nodes.toml",
    "workloads/conversation.toml",
    "workloads/synthetic.toml",
)
"""Files of the package and of ``data`` whose change can move what is recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """How much is spent on the analysis; the defaults take some minutes on one core.

    With `points` n and d assumptions, `sobol` replays n·(d + 2) settings.
    """

    points: int = parameter(128, low=4, high=2**16, help="Sobol points of each matrix; a power of two")
    sobol_requests: int = parameter(
        3000, unit="requests", low=10, high=10**7, help="start of each trace on which variance is shared out"
    )
    resamples: int = parameter(500, low=10, high=10**5, help="bootstrap resamples of the indices")
    replicates: int = parameter(10, unit="runs", low=2, high=1000, help="stand-ins that are generated")
    seed: int = parameter(0, low=0, high=2**32 - 1, help="of the Sobol points, resamples and stand-ins")

    def __post_init__(self) -> None:
        check(self)


def one_at_a_time(
    varied: Study, workloads: Workloads, assumptions: Sequence[Assumption] | None = None
) -> pd.DataFrame:
    """Headlines of a study when one assumption leaves its nominal value, all others keeping theirs.

    Parameters
    ----------
    varied : Study
    workloads : mapping of str to Trace
        The study's traces.
    assumptions : sequence of Assumption, optional
        Those to vary; all, if not given.

    Returns
    -------
    DataFrame
        A row for each headline and level of each assumption. Columns: ``study``, ``headline``,
        ``assumption``, ``value`` (of the assumption), ``result``, ``nominal`` (the headline with
        nothing varied).
    """
    nominal = varied(workloads, {})
    rows = []
    for assumption in varied.assumptions if assumptions is None else assumptions:
        for value in assumption.levels:
            changed = value != assumption.nominal
            results = varied(workloads, {assumption.name: value}) if changed else nominal
            rows += [
                {
                    "study": varied.name,
                    "headline": headline,
                    "assumption": assumption.name,
                    "value": value,
                    "result": result,
                    "nominal": nominal[headline],
                }
                for headline, result in results.items()
            ]
    return pd.DataFrame(rows)


def sobol(
    varied: Study, workloads: Workloads, n: int, rng: np.random.Generator, *, resamples: int = 500
) -> pd.DataFrame:
    """Share of each headline's variance that is due to each assumption.

    Assumptions are independent of each other and as likely everywhere in their ranges.

    Parameters
    ----------
    varied : Study
    workloads : mapping of str to Trace
        The study's traces.
    n : int
        Points of each of the two matrices, a power of two; n·(d + 2) settings of d assumptions are
        replayed.
    rng : numpy.random.Generator
    resamples : int
        For the confidence intervals.

    Returns
    -------
    DataFrame
        A row for each headline and assumption. Columns: ``study``, ``headline``, ``assumption``,
        ``first`` (the assumption alone), ``total`` (with all its interactions), and the ends of
        their 95 % percentile intervals over bootstrapped points, ``first_low``, ``first_high``,
        ``total_low``, ``total_high``; ``mean`` and ``std`` of the headline (of its logarithm, see
        `Headline.kind`) over both matrices. Indices are 0 where nothing varies.

    Notes
    -----
    `scipy.stats.sobol_indices`: A. Saltelli et al., Computer Physics Communications 181 (2010) 259.
    """
    size = len(varied.assumptions)
    both = stats.qmc.Sobol(2 * size, rng=rng).random(n)
    a, b = both[:, :size], both[:, size:]
    mixed = [np.where(np.arange(size) == k, b, a) for k in range(size)]
    evaluated = [
        _outputs(varied, workloads, points) for points in tqdm([a, b, *mixed], desc=varied.name, disable=None)
    ]
    f_a, f_b, f_ab = evaluated[0], evaluated[1], np.stack(evaluated[2:])
    first, total = _indices(f_a, f_b, f_ab)
    draws = rng.integers(n, size=(resamples, n))
    spread = np.stack([_indices(f_a[:, k], f_b[:, k], f_ab[:, :, k]) for k in draws])
    low, high = np.quantile(spread, (0.025, 0.975), axis=0)
    rows = []
    for i, headline in enumerate(varied.headlines):
        together = np.concatenate((f_a[i], f_b[i]))
        for k, assumption in enumerate(varied.assumptions):
            rows.append(
                {
                    "study": varied.name,
                    "headline": headline.name,
                    "assumption": assumption.name,
                    "first": first[i, k],
                    "first_low": low[0, i, k],
                    "first_high": high[0, i, k],
                    "total": total[i, k],
                    "total_low": low[1, i, k],
                    "total_high": high[1, i, k],
                    "mean": together.mean(),
                    "std": together.std(),
                }
            )
    return pd.DataFrame(rows)


def seed_spread(studies: Sequence[Study], replicates: int, rng: np.random.Generator) -> pd.DataFrame:
    """Headlines on stand-ins of the traces, generated anew in every replicate.

    All assumptions have their nominal values.

    Returns
    -------
    DataFrame
        Columns: ``study``, ``headline``, ``replicate``, ``result``.
    """
    names = sorted({name for each in studies for name in each.workloads})
    rows = []
    for replicate, generator in enumerate(tqdm(rng.spawn(replicates), desc="stand-ins", disable=None)):
        made = {name: traces.generate(traces.load_workload(name), generator) for name in names}
        rows += [
            {"study": each.name, "headline": headline, "replicate": replicate, "result": result}
            for each in studies
            for headline, result in each(made, {}).items()
        ]
    return pd.DataFrame(rows)


def released(names: Iterable[str], requests: int | None = None) -> dict[str, traces.Trace]:
    """The released traces, or the start of each.

    Raises
    ------
    CompanionError
        If only a stand-in is to be had.
    """
    found = {name: traces.load(name) for name in names}
    for name, trace in found.items():
        if trace.origin != "released":
            raise CompanionError(
                f"the analysis needs the released {name} trace, not its stand-in; "
                "set MOONCAKE_TRACES to its folder"
            )
    return {name: trace.head(requests) if requests else trace for name, trace in found.items()}


def run(params: Params) -> dict[str, Any]:
    """All three analyses of all studies, as they are recorded.

    Raises
    ------
    CompanionError
        If a released trace is not to be had.
    """
    before = sources_sha256()
    studies = [study(name) for name in STUDIES]
    points, resampled = np.random.default_rng(params.seed).spawn(2)
    alone, shares = [], []
    for each in studies:
        alone.append(one_at_a_time(each, released(each.workloads)))
        start = released(each.workloads, params.sobol_requests)
        shares.append(sobol(each, start, params.points, points, resamples=params.resamples))
    scatter = seed_spread(studies, params.replicates, resampled)
    if sources_sha256() != before:
        raise RuntimeError("the sources changed during the run; record again")
    used = released({name for each in studies for name in each.workloads})
    return {
        "made_by": COMMAND,
        "sources_sha256": before,
        "packages": {name: metadata.version(name) for name in ("numba", "numpy", "scipy")},
        "traces": {name: trace.sha256 for name, trace in sorted(used.items())},
        "parameters": dataclasses.asdict(params),
        "headlines": _columns(_headlines(studies)),
        "assumptions": _columns(_assumptions(studies)),
        "one_at_a_time": _columns(pd.concat(alone)),
        "sobol": _columns(pd.concat(shares)),
        "seeds": _columns(scatter),
    }


def recorded() -> dict[str, pd.DataFrame]:
    """What was recorded, as tidy tables that the charts take.

    Returns
    -------
    dict of DataFrame
        ``headlines``, ``assumptions``, ``one_at_a_time``, ``sobol`` and ``seeds``, with the columns of
        `one_at_a_time`, `sobol` and `seed_spread`. The last three also have the headline's ``title``,
        ``unit``, ``where`` and ``reported``; the first two of them ``assumption_title``,
        ``assumption_unit``, ``assumption_nominal``, ``low``, ``high`` and ``why``; and ``seeds`` has
        ``nominal``, what the released trace gives.
    """
    record = json.loads(data_path(*RECORDED).read_text("utf-8"))
    found = {name: _frame(record[name]) for name in _TABLES}
    headlines = found["headlines"].drop(columns="kind")
    assumed = found["assumptions"].rename(
        columns={name: f"assumption_{name}" for name in ("title", "unit", "nominal")}
    )
    nominal = found["one_at_a_time"].groupby("headline", as_index=False)["nominal"].first()
    for name in ("one_at_a_time", "sobol"):
        found[name] = found[name].merge(headlines).merge(assumed, on=["study", "assumption"])
    found["seeds"] = found["seeds"].merge(headlines).merge(nominal)
    provenance = {
        "trace": ", ".join(record["traces"]),
        "trace_sha256": ", ".join(record["traces"].values()),
        "parameters": record["parameters"],
        "made_by": record["made_by"],
        "sources_sha256": record["sources_sha256"],
    }
    for table in found.values():
        table.attrs["provenance"] = provenance
    return found


def sources_sha256() -> str:
    """SHA-256 over the files that matter, in the order of their names."""
    package = resources.files("mooncake_companion")
    contents = [(name, package.joinpath(name).read_bytes()) for name in SOURCES]
    contents += [(f"data/{name}", data_path(*name.split("/")).read_bytes()) for name in DATA]
    digest = hashlib.sha256()
    for name, content in sorted(contents):
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def write(params: Params = Params()) -> None:
    """Run all and replace ``data/recorded/sensitivity.json``."""
    record = run(params)
    folder = data_path("README.md").parent
    with replacing(folder.joinpath(*RECORDED)) as part:
        part.write_text("".join(_lines(record)), "utf-8")


_TABLES = ("headlines", "assumptions", "one_at_a_time", "sobol", "seeds")


def _outputs(varied: Study, workloads: Workloads, points: np.ndarray) -> np.ndarray:
    """Headlines as their variance is decomposed, shape (headlines, points)."""
    columns = []
    for point in points:
        values = {each.name: each.at(float(u)) for each, u in zip(varied.assumptions, point, strict=True)}
        results = varied(workloads, values)
        columns.append([headline.scaled(results[headline.name]) for headline in varied.headlines])
    return np.array(columns).T


def _indices(f_a: np.ndarray, f_b: np.ndarray, f_ab: np.ndarray) -> np.ndarray:
    """First-order and total indices, shape (2, headlines, assumptions)."""
    outputs = {"f_A": f_a.copy(), "f_B": f_b.copy(), "f_AB": f_ab.copy()}
    with np.errstate(invalid="ignore", divide="ignore"):
        found = stats.sobol_indices(func=outputs, n=f_a.shape[-1])
    return np.stack((found.first_order, found.total_order)).reshape(2, len(f_a), len(f_ab))


def _headlines(studies: Sequence[Study]) -> pd.DataFrame:
    rows = [{"study": each.name} | _with_name(h, "headline") for each in studies for h in each.headlines]
    return pd.DataFrame(rows).rename(columns={"name": "headline"})


def _assumptions(studies: Sequence[Study]) -> pd.DataFrame:
    rows = [{"study": each.name} | _with_name(a, "assumption") for each in studies for a in each.assumptions]
    return pd.DataFrame(rows).drop(columns="values")


def _with_name(item: Any, name: str) -> dict[str, Any]:
    fields = dataclasses.asdict(item)
    return {name: fields.pop("name"), **fields}


def _columns(table: pd.DataFrame) -> dict[str, Any]:
    """A table as lists, numbers rounded and NaN as null."""
    rows = [[_rounded(value) for value in row] for row in table.itertuples(index=False)]
    return {"columns": list(table.columns), "rows": rows}


def _rounded(value: Any) -> Any:
    if isinstance(value, (bool, np.bool_, str)):
        return bool(value) if isinstance(value, np.bool_) else value
    number = float(f"{value:.{DIGITS}g}")
    if np.isnan(number):
        return None
    return int(number) if number.is_integer() else number


def _frame(columns: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(columns["rows"], columns=columns["columns"])


def _lines(record: dict[str, Any]) -> Iterator[str]:
    """JSON with a line for each row of a table."""
    lines = []
    for key, value in record.items():
        if key not in _TABLES:
            lines.append(f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
            continue
        rows = ",\n".join(f"   {json.dumps(row, ensure_ascii=False)}" for row in value["rows"])
        lines.append(
            f' {json.dumps(key)}: {{"columns": {json.dumps(value["columns"])}, "rows": [\n{rows}\n ]}}'
        )
    yield "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    try:
        write()
    except CompanionError as error:
        sys.exit(str(error))
