"""What a reader does with the pipelines, on the chapter's real page."""

import pytest
from playwright.sync_api import expect

from mooncake_companion.experiments import prefill_pipeline

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PAGE = "book/prefill-pool.html"
FIGURES = ("prefill-pipeline-stages", "prefill-pipeline-speedup", "prefill-pipeline-load", "layerwise-store")
PARAMS = prefill_pipeline.Params()


@pytest.fixture
def open_figure(open_page):
    def opened(name, **options):
        page = open_page(PAGE, **options)
        figure = page.locator(f"#fig-{name}")
        expect(figure.locator(".companion-chart")).to_have_attribute("data-state", "drawn")
        return figure

    return opened


def choose(figure, group, label):
    group = figure.get_by_role("radiogroup", name=group)
    group.get_by_role("radio", name=label, exact=True).check()


def lines(figure):
    marks = figure.locator("path[aria-roledescription='line mark']")
    return marks.evaluate_all("marks => marks.map(mark => mark.getAttribute('d'))")


def test_all_figures_are_drawn(open_page):
    page = open_page(PAGE)
    for name in FIGURES:
        expect(page.locator(f"#fig-{name} .companion-chart")).to_have_attribute("data-state", "drawn")


def test_the_timeline_shows_the_chunks_and_first_tokens_of_what_is_chosen(open_figure):
    figure = open_figure("prefill-pipeline-stages")
    table = prefill_pipeline.stages(PARAMS)
    for nodes, chunk in ((8, 4096), (8, 16384), (1, 1024)):
        choose(figure, "Nodes of the instance", str(nodes))
        choose(figure, "Tokens of a chunk", f"{chunk:,}")
        chosen = table.query(f"pipeline_nodes == {nodes} and chunk_tokens == {chunk}")
        expect(figure.locator("path[aria-roledescription='bar']")).to_have_count(len(chosen))
        end_s = chosen.query("prompt == 'long'")["end_s"].max()
        expect(figure.locator("text", has_text=f"long: first token after {end_s:.2f} s")).to_be_visible()


def test_coarser_chunks_bend_the_lines(open_figure):
    figure = open_figure("prefill-pipeline-speedup")
    before = lines(figure)
    choose(figure, "Tokens of a chunk", "16,384")
    marks = figure.locator("path[aria-roledescription='line mark']")
    expect(marks.last).not_to_have_attribute("d", before[-1])


def test_statistic_and_fixed_cost_change_both_panels(open_figure):
    figure = open_figure("prefill-pipeline-load")
    seen = [lines(figure)]
    marks = figure.locator("path[aria-roledescription='line mark']")
    for group, label in (("Time to first token", "90th percentile"), ("Fixed cost", "none")):
        choose(figure, group, label)
        for number in (0, -1):
            expect(marks.nth(number)).not_to_have_attribute("d", seen[-1][number])
        seen.append(lines(figure))
