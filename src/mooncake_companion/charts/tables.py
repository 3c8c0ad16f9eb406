"""Tables to read: the numbers of a data frame as text, with headings in words."""

import pandas as pd


def readable(table: pd.DataFrame, columns: dict[str, tuple[str, str]]) -> pd.DataFrame:
    """Pick, name and format columns.

    Parameters
    ----------
    table : DataFrame
    columns : dict
        Column of `table` to (heading, format), as ``{"error": ("Error", "{:+.0%}")}``.

    >>> readable(pd.DataFrame({"error": [-0.118]}), {"error": ("Error", "{:+.0%}")})
      Error
    0  -12%
    """
    shown = {heading: table[name].map(form.format) for name, (heading, form) in columns.items()}
    return pd.DataFrame(shown, index=table.index.rename(None))
