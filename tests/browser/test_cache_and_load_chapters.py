"""What a reader does with the figures on caches, workloads and overload, on the chapters' real pages."""

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CHOICES = {
    ("tiered-cache", "cache-block-heat", "Prefill node"): "3",
    ("tiered-cache", "cache-block-heat", "Colour"): "Time since its last use",
    ("tiered-cache", "cache-byte-flows", "Scenario"): "Prefix on another node",
    ("tiered-cache", "prefix-choices", "Setting"): "Only hot blocks are copied",
    ("tiered-cache", "prefix-choices", "Count"): "Tokens reused",
    ("tiered-cache", "hot-block-replicas", "Trace"): "Synthetic",
    ("workloads", "workload-distributions", "Of the"): "Answer (tokens)",
    ("workloads", "workload-arrivals", "View"): "First two minutes",
    ("workloads", "workload-length-histograms", "Length of"): "Answers",
    ("overload", "overload-mechanism", "Prompts of"): "8,192 tokens",
}


@pytest.fixture
def open_figure(open_page):
    def opened(chapter, name, **options):
        page = open_page(f"book/{chapter}.html", **options)
        expect(page.locator(f"#fig-{name} .companion-chart")).to_have_attribute("data-state", "drawn")
        return page, page.locator(f"#fig-{name}")

    return opened


def marks(figure):
    """All that is drawn, without tooltips and axes."""
    return figure.locator(
        ".companion-live g.mark-rect, .companion-live g.mark-rule, .companion-live g.mark-line"
    ).evaluate_all(
        'groups => groups.map(group => group.innerHTML.replace(/aria-label="[^"]*"/g, \'\')).join()'
    )


def cells(figure):
    return figure.locator(".companion-live g.mark-rect.role-mark path")


@pytest.mark.parametrize(("chapter", "name", "control"), CHOICES)
def test_a_choice_changes_what_is_drawn(open_figure, chapter, name, control):
    page, figure = open_figure(chapter, name)
    choice = CHOICES[chapter, name, control]
    before = marks(figure)
    assert before
    menu = figure.get_by_label(control, exact=True)
    if menu.evaluate("control => control.tagName") == "SELECT":
        menu.select_option(label=choice)
    else:
        menu.get_by_label(choice).check()
    page.wait_for_timeout(300)
    assert marks(figure) != before


def test_the_slider_moves_through_time_and_a_click_outlines_a_block(open_figure):
    _, figure = open_figure("tiered-cache", "cache-block-heat")
    assert cells(figure).count() == 48 + 144 + 192, "full at the end"
    figure.locator("input[type=range]").evaluate(
        "slider => { slider.value = 1; slider.dispatchEvent(new Event('input')); }"
    )
    expect(figure.locator(".companion-live text", has_text="after 21 s")).to_be_visible()
    assert 0 < cells(figure).count() < 48 + 144 + 192
    cells(figure).first.click()
    expect(cells(figure).first).to_have_attribute("stroke-width", "3")


def test_a_block_tells_its_tier_uses_age_position_and_holders(open_figure):
    page, figure = open_figure("tiered-cache", "cache-block-heat")
    cells(figure).first.hover()
    tooltip = page.locator("#vg-tooltip-element.visible")
    for told in ("Block", "VRAM", "asked for it", "Last use", "prefix", "Held by nodes"):
        expect(tooltip).to_contain_text(told)


def test_solid_is_what_decode_waits_for(open_figure):
    _, figure = open_figure("tiered-cache", "cache-byte-flows")
    lines = figure.locator(".companion-live g.mark-rule.role-mark line")

    def dashes():
        drawn = lines.evaluate_all(
            "lines => lines.map(l => [l.getAttribute('stroke-dasharray'), l.getAttribute('stroke-width')])"
        )
        return [dash in (None, "", "1,0") for dash, _ in drawn], [float(width) for _, width in drawn]

    solid, widths = dashes()
    assert sum(solid) == 1, "the load for decode alone"
    assert len(set(widths)) == 1, "a cold prompt moves all its bytes on every way"
    figure.get_by_label("Scenario", exact=True).select_option(label="Prefix in DRAM, nothing overlapped")
    expect(lines).to_have_count(4)
    solid, widths = dashes()
    assert all(solid)
    assert len(set(widths)) == 3, "known, new, and the whole prompt twice"
