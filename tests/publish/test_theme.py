import itertools

import altair as alt
import numpy as np
import pandas as pd
import pytest

from mooncake_companion.charts import theme

LIGHT_PAGE, DARK_PAGE = "#ffffff", "#121212"
GROUPS = (
    ("prefill", "decode"),
    ("vram", "dram", "ssd", "network"),
    ("hydrate", "recompute", "migrate", "replicate"),
    ("mooncake", "vllm", "vllm_prefix", "vllm_chunked"),
    ("global_cache_aware", "local_cache_aware", "load_balancing", "random"),
    ("baseline", "early_rejection", "predictive_rejection"),
    ("within_limits", "late_first_token", "slow_rhythm", "rejected", "wasted"),
    ("conversation", "toolagent", "synthetic", "arxiv"),
    ("prediction", "blind", "calibration"),
    ("alone", "with_interactions"),
)
# Machado, Oliveira and Fernandes (2009), full severity, on linear RGB.
VISION = {
    "usual": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
RGB_TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour):
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    xyz = RGB_TO_XYZ @ np.clip(rgb, 0, 1) / [0.95047, 1, 1.08883]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(one, other):
    low, high = sorted(RGB_TO_XYZ[1] @ linear(c) for c in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", theme.PALETTE)
@pytest.mark.parametrize("page", [LIGHT_PAGE, DARK_PAGE])
def test_every_colour_stands_out_from_both_pages(name, page):
    assert contrast(theme.PALETTE[name], page) >= 3  # WCAG 2.2, 1.4.11


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("vision", VISION)
def test_colours_of_a_group_stay_apart_for_every_eye(group, vision):
    seen = [lab(VISION[vision] @ linear(theme.PALETTE[name])) for name in group]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 18


@pytest.mark.parametrize("vision", VISION)
def test_cold_warm_and_hot_stay_apart_on_both_pages(vision):
    seen = [lab(VISION[vision] @ linear(colour)) for colour in theme.HEAT]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 18
    assert all(contrast(colour, page) >= 3 for colour in theme.HEAT for page in (LIGHT_PAGE, DARK_PAGE))


def test_a_colour_has_one_meaning():
    assert len({*theme.PALETTE.values(), *theme.HEAT}) == len(theme.PALETTE) + len(theme.HEAT)
    assert {name for group in GROUPS for name in group} | {"reported"} == set(theme.PALETTE)


def sample():
    table = pd.DataFrame({"x": [1, 2], "y": [3, 4]})
    table.attrs["provenance"] = {"trace_source": "made up"}
    return table, alt.Chart(table).mark_line().encode(x="x:Q", y="y:Q")


def test_a_finished_chart_carries_its_id_description_and_origin():
    table, chart = sample()
    spec = theme.finish(chart, name="a-line", description="A line.", table=table).to_dict()
    assert (spec["name"], spec["description"]) == ("a-line", "A line.")
    assert spec["usermeta"] == {"companion": {"trace_source": "made up"}}
    assert alt.Chart.from_dict(spec).to_dict() == spec


@pytest.mark.parametrize(
    ("name", "description"), [("A Line", "A line."), ("a_line", "A line."), ("a-line", " ")]
)
def test_a_chart_without_id_or_description_is_refused(name, description):
    table, chart = sample()
    with pytest.raises(ValueError, match="figure"):
        theme.finish(chart, name=name, description=description, table=table)


def test_a_long_table_is_not_cut():
    table = pd.DataFrame({"x": range(6000)})
    assert (
        len(next(iter(alt.Chart(table).mark_point().encode(x="x:Q").to_dict()["datasets"].values()))) == 6000
    )
