"""Leave what `companion simulate` found: numbers, a row for every request, and charts.

Made in a folder beside its target and renamed at the end, as a rerun is.
"""

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mooncake_companion import __version__
from mooncake_companion.charts import your_cluster as charts
from mooncake_companion.datafiles import writable_folder
from mooncake_companion.errors import InputError
from mooncake_companion.experiments.your_cluster import distributions
from mooncake_companion.publish import figures
from mooncake_companion.publish.folders import replacing_folder, require_replaceable
from mooncake_companion.simulator import Outcome, Result

SUMMARY = "summary.json"
_KIND = "a simulation"
FORMATS = ("csv", "parquet")
"""Formats of the table with a row for every request."""


def check_target(out: Path, form: str) -> None:
    """See, before anything runs, that the results can be left there.

    Raises
    ------
    InputError
        If the folder holds something else than an earlier simulation or cannot be made, or Parquet
        cannot be written.
    """
    if form == "parquet" and importlib.util.find_spec("pyarrow") is None:
        raise InputError("--format parquet needs the package pyarrow: install it, or take --format csv")
    require_replaceable(out, SUMMARY, _KIND)
    writable_folder(out.parent)


def write(
    out: Path, table: pd.DataFrame, results: Mapping[str, Result], form: str = "csv"
) -> tuple[Path, ...]:
    """Write ``summary.json``, ``summary.csv``, ``requests.csv`` or ``.parquet``, and ``figures/``.

    Parameters
    ----------
    out : Path
        The folder to make, or to replace.
    table : DataFrame
        As `experiments.your_cluster.run` returns it.
    results : mapping
        The replay by each system.
    form : str
        One of `FORMATS`.

    Returns
    -------
    tuple of Path
        The files that were written, but for those of the figures.
    """
    check_target(out, form)
    with replacing_folder(out, SUMMARY, _KIND) as scratch:
        made = scratch / "made"
        (made / "figures").mkdir()
        made.joinpath(SUMMARY).write_text(as_json(table) + "\n", "utf-8")
        words = table.select_dtypes(exclude="number").map(figures.without_formula)
        table.assign(**words).to_csv(made / "summary.csv", index=False, lineterminator="\n")
        _write_requests(made / f"requests.{form}", results)
        latencies = pd.concat([distributions(*each) for each in results.items()], ignore_index=True)
        latencies.attrs = table.attrs
        if len(latencies):
            figures.write_figure(charts.latencies(latencies).to_dict(), made / "figures")
    return tuple(out / name for name in (SUMMARY, "summary.csv", f"requests.{form}"))


def as_json(table: pd.DataFrame) -> str:
    """The summary with what made it, as JSON; what there is not is null."""
    rows = [{name: _plain(value) for name, value in row.items()} for row in table.to_dict("records")]
    return json.dumps(
        {"companion_version": __version__, **table.attrs["provenance"], "systems": rows},
        indent=1,
        ensure_ascii=False,
    )


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _write_requests(path: Path, results: Mapping[str, Result]) -> None:
    names = {outcome.value: outcome.name.lower() for outcome in Outcome}
    parts = []
    for system, result in results.items():
        frame = result.frame()
        frame["outcome"] = frame["outcome"].map(names)
        frame.insert(0, "request", np.arange(len(frame)))
        frame.insert(0, "system", system)
        parts.append(frame)
    everything = pd.concat(parts, ignore_index=True)
    if path.suffix == ".parquet":
        everything.to_parquet(path, index=False)
    else:
        everything.to_csv(path, index=False, lineterminator="\n")
