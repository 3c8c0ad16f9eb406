"""Tables on a terminal."""

from collections.abc import Mapping, Sequence


def aligned(rows: Sequence[Mapping[str, object]]) -> str:
    """Lay out rows as a table; the last column is not padded."""
    columns = list(rows[0])
    lines = [columns, *([str(row[column]) for column in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
