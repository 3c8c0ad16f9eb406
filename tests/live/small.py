"""What the tests of the live figures have in common."""

import pytest

from mooncake_companion import traces

REQUESTS = 60


def head(name):
    return traces.load(name).head(REQUESTS)


def close(row, expected):
    for name, value in expected.items():
        if isinstance(value, str):
            assert row[name] == value
        else:
            assert row[name] == pytest.approx(value, rel=1e-9, abs=1e-12, nan_ok=True), name


def alike(rows, table):
    """Rows with the columns and the values of a table, in its order."""
    expected = table.to_dict("records")
    assert len(rows) == len(expected) > 0
    for row, same in zip(rows, expected, strict=True):
        assert row.keys() == same.keys()
        close(row, same)
