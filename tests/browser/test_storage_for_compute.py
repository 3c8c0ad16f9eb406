"""What a reader does with the maps of section 2.2 and with Figure 13, on the chapter's real page."""

import re

import pytest
from playwright.sync_api import expect

from mooncake_companion.charts.theme import PALETTE
from mooncake_companion.experiments import storage_for_compute

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PAGE = "book/storage-for-compute.html"
PARAMS = storage_for_compute.Params()
ACTIONS = ("hydrate", "recompute", "migrate", "replicate")


@pytest.fixture
def open_figure(open_page):
    def opened(name, **options):
        page = open_page(PAGE, **options)
        figure = page.locator(f"#fig-{name}")
        expect(figure.locator(".companion-chart")).to_have_attribute("data-state", "drawn")
        return figure

    return opened


def set_slider(figure, label, value):
    slider = figure.get_by_role("slider", name=re.compile(label))
    slider.evaluate(
        "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }", value
    )


def drawn(figure):
    """Cells of each action's colour."""
    fills = figure.locator("path[aria-roledescription='rect mark']").evaluate_all(
        "marks => marks.map(mark => mark.getAttribute('fill').toUpperCase())"
    )
    return {name: fills.count(PALETTE[name]) for name in ACTIONS if PALETTE[name] in fills}


def expect_cells(figure, node, **controls):
    table = storage_for_compute.actions(PARAMS)
    chosen = storage_for_compute.chosen_actions(table, PARAMS, **controls)["action"]
    expected = chosen[table["node"] == node].value_counts().to_dict()
    for _ in range(50):
        if drawn(figure) == expected:
            return
        figure.page.wait_for_timeout(100)
    assert drawn(figure) == expected


def test_every_control_of_the_map_draws_what_the_model_says(open_figure):
    figure = open_figure("prefix-actions")
    expect_cells(figure, "a800", queue_s=1.0)
    set_slider(figure, "Queue", 4)
    expect_cells(figure, "a800", queue_s=4.0)
    set_slider(figure, "Requests", 3)
    expect_cells(figure, "a800", queue_s=4.0, uses=3)
    figure.get_by_role("radio", name="Algorithm 1").check()
    expect_cells(figure, "a800", queue_s=4.0, uses=3, rule=storage_for_compute.ALGORITHM_1)
    figure.get_by_role("radio", name="8 × H800").check()
    expect_cells(figure, "h800", queue_s=4.0, uses=3, rule=storage_for_compute.ALGORITHM_1)
    figure.get_by_role("radio", name="SSD").check()
    expect_cells(figure, "h800", place=storage_for_compute.OWN_SSD)


def test_a_choice_of_node_in_one_figure_leaves_the_other_alone(open_figure):
    figure = open_figure("prefix-break-even")
    other = figure.page.locator("#fig-prefix-actions")
    expect(other.locator(".companion-chart")).to_have_attribute("data-state", "drawn")
    lines = figure.locator("path[aria-roledescription='line mark']")
    before = lines.evaluate_all("marks => marks.map(mark => mark.getAttribute('d'))")
    figure.get_by_role("radio", name="8 × H800").check()
    expect(lines.first).not_to_have_attribute("d", before[0])
    expect(other.get_by_role("radio", name="8 × A800")).to_be_checked()


def test_the_slider_of_figure_13_moves_what_is_modelled(open_figure):
    figure = open_figure("network-bandwidth")
    line = figure.locator("path[aria-roledescription='line mark']").first
    before = line.get_attribute("d")
    set_slider(figure, "Prefill nodes", 12)
    expect(line).not_to_have_attribute("d", before)


def test_hovering_tells_the_seconds_of_each_way(open_figure):
    figure = open_figure("prefix-actions")
    figure.scroll_into_view_if_needed()
    figure.locator("path[aria-roledescription='rect mark']").first.hover()
    tooltip = figure.page.locator("#vg-tooltip-element.visible")
    for word in ("Soonest", "Fetched", "Computed again"):
        expect(tooltip).to_contain_text(word)
