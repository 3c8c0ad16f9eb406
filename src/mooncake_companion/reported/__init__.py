"""What the papers report: printed numbers and digitized curves, as tidy tables.

``data/reported/README.md`` says how they were read and how to cite them.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
import pandas as pd

from mooncake_companion.datafiles import read_csv
from mooncake_companion.errors import InputError


@cache
def _read(name: str) -> pd.DataFrame:
    return read_csv("reported", f"{name}.csv")


def figure(name: str) -> pd.DataFrame:
    """One figure's readings, such as ``figure("fast25_fig05")``; a fresh table at each call."""
    return _read(name).copy()


def along(table: pd.DataFrame, axis: str, *, by: Sequence[str], marks: int) -> pd.DataFrame:
    """Thin out digitized curves: of each, the readings nearest to points evenly along an axis.

    Parameters
    ----------
    table : DataFrame
        Readings of one or more curves.
    axis : str
        The column along which they are thinned out.
    by : sequence of str
        Columns that tell the curves apart.
    marks : int
        Most readings that are left of each.

    Returns
    -------
    DataFrame
        Rows of `table`, none changed, in their order.
    """
    kept: list[int] = []
    for _, curve in table.groupby(list(by), sort=False):
        values = curve[axis].to_numpy()
        wanted = np.linspace(values.min(), values.max(), marks)
        nearest = np.abs(values[None, :] - wanted[:, None]).argmin(axis=1)
        kept.extend(curve.index[np.unique(nearest)])
    return table.loc[sorted(kept)]


def claims() -> pd.DataFrame:
    """All numbers that the papers state, a row each; a fresh table at each call."""
    return _read("claims").copy()


def orderings() -> pd.DataFrame:
    """What the papers put in order, a row each; a fresh table at each call.

    Columns: ``id``, ``where``, ``statement``, ``order`` (ids of claims, or numbers, between ``<`` and
    ``<=``; chains are separated by ``;``).
    """
    return _read("orderings").copy()


def claim(claim_id: str) -> float:
    """The value of one claim, in the unit of its row.

    Raises
    ------
    InputError
        If there is no claim of that id, or its value is a word.
    """
    found = _read("claims").set_index("id")["value"]
    if claim_id not in found.index:
        raise InputError(f"no reported claim {claim_id!r}; data/reported/claims.csv lists them")
    try:
        return float(found[claim_id])
    except ValueError:
        raise InputError(f"reported claim {claim_id} is not a number: {found[claim_id]!r}") from None
