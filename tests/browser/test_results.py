"""What a reader does with the figures of results, on the chapter's real page."""

import re

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PAGE = "book/results.html"
FIGURES = (
    "tbt-distribution",
    "effective-capacity",
    "prefill-gpu-time",
    "goodput",
    "node-split",
    "request-rate",
    "real-requests",
    "gain-profile",
)


@pytest.fixture
def open_figure(open_page):
    def opened(name, **options):
        figure = open_page(PAGE, **options).locator(f"#fig-{name}")
        expect(figure.locator(".companion-chart")).to_have_attribute("data-state", "drawn")
        return figure

    return opened


def mark(figure, kind, label):
    """Marks of a kind whose accessible name has all the words of `label`."""
    words = "".join(f"(?=.*{re.escape(word)})" for word in label)
    found = figure.locator(f"path[aria-roledescription='{kind}']")
    return [each for each in found.all() if re.match(words, each.get_attribute("aria-label") or "")]


def number(label, heading):
    """The number that an accessible name has behind a heading."""
    return float(re.search(re.escape(heading) + r": ([0-9.,]+)", label)[1].replace(",", ""))


def test_mooncakes_capacity_at_100_ms_is_the_highest_on_every_workload(open_figure):
    figure = open_figure("effective-capacity")
    for workload in ("Conversation", "Tool and agent", "Synthetic"):
        figure.get_by_label("Workload", exact=True).select_option(label=workload)
        bars = figure.locator("path[aria-roledescription='bar']")
        expect(bars).to_have_count(12)
        shares = {
            system: number(
                mark(figure, "bar", ("100 ms", f"System: {system};"))[0].get_attribute("aria-label"),
                "Requests within it",
            )
            for system in ("Mooncake", "vLLM", "vLLM Prefix Caching", "vLLM Chunked Prefill")
        }
        assert max(shares, key=shares.get) == "Mooncake"


def test_the_workload_moves_the_distribution_and_a_system_is_singled_out(open_figure):
    figure = open_figure("tbt-distribution")
    line = figure.locator("path[aria-roledescription='line mark']").first
    before = line.get_attribute("d")
    figure.get_by_label("Workload", exact=True).select_option(label="Synthetic")
    expect(line).not_to_have_attribute("d", before)
    figure.get_by_label("Show", exact=True).select_option(label="vLLM Prefix Caching")
    pale = figure.locator("path[aria-roledescription='line mark'][opacity='0.1']")
    expect(pale).to_have_count(3)


def test_a_looser_limit_lets_more_through_and_another_system_has_other_fates(open_figure):
    figure = open_figure("goodput")

    def best():
        points = figure.locator("path[aria-label*='System: vLLM;'][aria-label*='Goodput']").all()
        return max(number(point.get_attribute("aria-label"), "Goodput (requests/s)") for point in points)

    def wasted():
        return figure.locator("path[aria-roledescription='area mark']").evaluate_all(
            "areas => areas.map(area => area.getAttribute('d'))"
        )

    strict = best()
    figure.get_by_role("radio", name="300 ms").check()
    figure.page.wait_for_timeout(300)
    assert best() > 1.2 * strict
    ours = wasted()
    figure.get_by_label("Fates under", exact=True).select_option(label="vLLM")
    figure.page.wait_for_timeout(300)
    assert len(ours) == len(wasted()) == 5
    assert ours != wasted()
    conversation = best()
    figure.get_by_label("Workload", exact=True).select_option(label="Synthetic")
    figure.page.wait_for_timeout(300)
    assert best() != conversation


def test_the_data_set_changes_rates_lines_and_marks(open_figure):
    figure = open_figure("request-rate")
    marks = figure.locator("path[aria-roledescription='line mark']")
    before = marks.evaluate_all("lines => lines.map(line => line.getAttribute('d'))")
    figure.get_by_label("Data set", exact=True).select_option(label="Simulated, 128k tokens")
    figure.page.wait_for_timeout(300)
    assert marks.evaluate_all("lines => lines.map(line => line.getAttribute('d'))") != before
    expect(figure.locator("g.role-axis-label text", has_text="0.14").first).to_be_visible()
