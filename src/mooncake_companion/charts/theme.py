"""The look of every figure: one theme, one palette, one way to finish a chart.

Importing this module registers and enables the theme ``companion``. Only marks carry colours
here; text and axes take theirs from the page that shows the chart (light or dark), and fall back
to dark on white in an exported file.
"""

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import altair as alt
import pandas as pd

MIME = "application/vnd.vegalite.v6+json"
"""Output type of a chart in a notebook cell.

Altair's own ``mimetype`` renderer says ``…v6.json``; without ``+json`` nbformat refuses a dict,
and neither jupyter-cache nor papermill can store the output.
"""

FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
"""Font of exported files: the exporter carries it, so that its files are the same on every machine."""

PALETTE = {
    # The two kinds of work, as in Okabe and Ito's palette.
    "prefill": "#0072B2",
    "decode": "#D55E00",
    # Tiers, from the fastest to the farthest.
    "vram": "#AD6CD9",
    "dram": "#21A63C",
    "ssd": "#806040",
    "network": "#46698C",
    # What is done for a prompt's start.
    "hydrate": "#0CA4A8",
    "recompute": "#615BAD",
    "migrate": "#A88B07",
    "replicate": "#B93E56",
    # Systems.
    "mooncake": "#505FE5",
    "vllm": "#CC2900",
    "vllm_prefix": "#4C9954",
    "vllm_chunked": "#B23EA7",
    # Scheduling policies.
    "global_cache_aware": "#6C8DD9",
    "local_cache_aware": "#00A600",
    "load_balancing": "#844CD9",
    "random": "#BF7C60",
    # Ways to admit requests.
    "baseline": "#389494",
    "early_rejection": "#D44211",
    "predictive_rejection": "#B613EC",
    # What becomes of a request.
    "within_limits": "#44A0A8",
    "late_first_token": "#8F8D34",
    "slow_rhythm": "#B87E6D",
    "rejected": "#7F4CB9",
    "wasted": "#A4446A",
    # Workloads.
    "conversation": "#BF6E1D",
    "toolagent": "#2E7373",
    "synthetic": "#BF5AE0",
    "arxiv": "#998C63",
    # Roles of a modelled value on the scoreboard.
    "prediction": "#1E78D0",
    "blind": "#D0423F",
    "calibration": "#8C7A9E",
    # What an assumption does to a headline.
    "alone": "#1C8A8F",
    "with_interactions": "#B06A10",
    # What a paper reports, beside what is modelled.
    "reported": "#767676",
}
"""One colour for one meaning in the whole project.

Each has a contrast of at least 3:1 on the light and on the dark page. Colours of one group stay
apart for readers with protanopia, deuteranopia and tritanopia; reported values are told from
modelled ones by their shape as well.
"""

HEAT = ("#3F7FD1", "#D57D00", "#C8202F")
"""How much a thing is in demand, from cold to hot; bound by the same rules as `PALETTE`."""

DASHES: list[list[float]] = [[1, 0], [8, 3], [2, 3], [8, 3, 2, 3]]
SHAPES = ["circle", "square", "triangle-up", "diamond", "cross"]
SHAPES += ["triangle-down", "triangle-right", "triangle-left"]
"""What tells things apart beside their colour: patterns of lines, shapes of points, in the order of use."""

_KEBAB = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_Chart = TypeVar("_Chart", bound=alt.TopLevelMixin)


def colours(meanings: Mapping[str, str]) -> alt.Scale:
    """Colour scale from what the data say to what it means in `PALETTE`.

    >>> colours({"Global cache aware": "global_cache_aware"}).to_dict()
    {'domain': ['Global cache aware'], 'range': ['#6C8DD9']}
    """
    return alt.Scale(domain=list(meanings), range=[PALETTE[meaning] for meaning in meanings.values()])


def dashes(names: Iterable[str]) -> alt.Scale:
    """A pattern of line for each name, so that colour is not all that tells them apart.

    >>> dashes(["Prefill", "Decode"]).to_dict()
    {'domain': ['Prefill', 'Decode'], 'range': [[1, 0], [8, 3]]}
    """
    return alt.Scale(domain=(there := list(names)), range=DASHES[: len(there)])


def shapes(names: Iterable[str]) -> alt.Scale:
    """A shape of point for each name, as `dashes` for lines."""
    return alt.Scale(domain=(there := list(names)), range=SHAPES[: len(there)])


def singled_out(
    name: str,
    field: str,
    values: Iterable[str],
    *,
    shown: float = 1,
    dimmed: float = 0.1,
) -> tuple[alt.Parameter, Any]:
    """A menu that leaves one value of a field alone or shows all, and the opacity that follows it.

    A legend could be clicked for it, but has nothing that a keyboard reaches.
    """
    menu = alt.param(name=name, value="all", bind=alt.binding_select(options=["all", *values], name="Show "))
    chosen = f"{name} == 'all' || {name} == datum.{field}"
    return menu, alt.condition(chosen, alt.value(shown), alt.value(dimmed))


def opacity_key(table: pd.DataFrame, *encodings: Any, color: str = "#808080") -> alt.Chart:
    """A layer without marks that has the legend of an opacity: Vega-Lite makes none for that of a fill."""
    chart: alt.Chart = alt.Chart(table).transform_filter("false").mark_bar(color=color).encode(*encodings)
    return chart


def finish(chart: _Chart, *, name: str, description: str, table: pd.DataFrame) -> _Chart:
    """Give a chart what the book needs: its id, its text for those who don't see it, its origin.

    Parameters
    ----------
    chart : altair chart
    name : str
        The figure's id, in kebab case; part of addresses, so it is for ever.
    description : str
        What the figure shows, in a sentence or two; read aloud by screen readers.
    table : DataFrame
        What the chart was drawn from; ``table.attrs["provenance"]`` goes into the chart.

    Returns
    -------
    altair chart
        A copy of `chart`.

    Raises
    ------
    ValueError
        If `name` is not in kebab case or `description` is empty.
    """
    if not _KEBAB.fullmatch(name):
        raise ValueError(f"a figure's name is in kebab case, such as 'prefill-scheduling-ttft'; got {name!r}")
    if not description.strip():
        raise ValueError(f"figure {name!r} has no description; say in a sentence or two what it shows")
    origin = {"companion": table.attrs.get("provenance", {})}
    finished: _Chart = chart.properties(name=name, description=description, usermeta=origin)
    return finished


def _render(spec: dict[str, Any], **metadata: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Emit the chart's specification; the page draws it."""
    return {MIME: spec, "text/plain": spec.get("description", "Vega-Lite chart")}, {MIME: metadata}


@alt.theme.register("companion", enable=True)
def _theme() -> alt.theme.ThemeConfig:
    return {
        "config": {
            "font": FONT,
            "view": {"continuousWidth": 560, "continuousHeight": 320, "stroke": None},
            "axis": {
                "domain": False,
                "gridOpacity": 0.6,
                "labelFontSize": 12,
                "labelPadding": 6,
                "tickSize": 4,
                "titleFontSize": 12,
                "titleFontWeight": "normal",
                "titlePadding": 10,
            },
            "axisX": {"grid": False, "domain": True},
            "header": {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal"},
            "legend": {
                "labelFontSize": 12,
                "labelLimit": 320,
                "orient": "top",
                "symbolSize": 90,
                "titleFontSize": 12,
                "titleFontWeight": "normal",
            },
            "line": {"strokeWidth": 2.25},
            "point": {"filled": True, "opacity": 1, "size": 70},
            "text": {"fontSize": 12},
            "title": {"anchor": "start", "fontSize": 14, "fontWeight": "bold"},
        }
    }


alt.data_transformers.enable("default", max_rows=None)
alt.renderers.register("companion", _render)
if os.environ.get("COMPANION_BUILD"):  # set where the book or a rerun is built; elsewhere Altair's own
    alt.renderers.enable("companion")
