"""Means and quantiles of plain sequences, as NumPy defines them."""

import math
from bisect import bisect_right
from collections.abc import Sequence


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean.

    >>> mean([1.0, 2.0, 6.0])
    3.0
    """
    return math.fsum(values) / len(values)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Quantile of a sorted sequence, on the straight line between its neighbours.

    >>> quantile([1.0, 2.0, 4.0], 0.75)
    3.0
    """
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def interpolate(x: float, xs: Sequence[float], ys: Sequence[float]) -> float:
    """Value at `x` of the line through points in rising order of x; beyond its ends, that of the end.

    >>> interpolate(2.5, [1.0, 2.0, 4.0], [0.0, 10.0, 30.0])
    15.0
    """
    above = bisect_right(xs, x)
    if above in (0, len(xs)):
        return ys[min(above, len(xs) - 1)]
    slope = (ys[above] - ys[above - 1]) / (xs[above] - xs[above - 1])
    return ys[above - 1] + slope * (x - xs[above - 1])


def box(values_s: Sequence[float]) -> dict[str, float]:
    """Quartiles, mean and 1.5-IQR whiskers of a sample, in its unit."""
    ordered = sorted(values_s)
    q1, median, q3 = (quantile(ordered, share) for share in (0.25, 0.5, 0.75))
    reach = 1.5 * (q3 - q1)
    return {
        "whisker_low_s": min(value for value in ordered if value >= q1 - reach),
        "q1_s": q1,
        "median_s": median,
        "q3_s": q3,
        "whisker_high_s": max(value for value in ordered if value <= q3 + reach),
        "mean_s": mean(ordered),
    }
