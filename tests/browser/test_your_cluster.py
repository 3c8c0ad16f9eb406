"""What a reader does with the figures of a cluster of one's own, on the chapter's real page."""

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PAGE = "book/your-cluster.html"
FIGURES = ("cluster-nodes", "cluster-models", "cluster-break-even")


@pytest.fixture
def open_figure(open_page):
    def opened(name, **options):
        page = open_page(PAGE, **options)
        figure = page.locator(f"#fig-{name}")
        expect(figure.locator(".companion-chart")).to_have_attribute("data-state", "drawn")
        return figure

    return opened


def test_without_the_hosts_time_a_fast_replay_is_served(open_figure):
    figure = open_figure("cluster-nodes")
    labels = figure.locator("g.role-mark text")
    figure.get_by_label("Replay", exact=True).select_option("× 2")
    expect(labels.filter(has_text="6.")).to_have_count(0)
    figure.get_by_role("radio", name="hidden behind the GPUs").check()
    expect(labels.filter(has_text="6.")).to_have_count(5)


def test_models_by_another_quantity(open_figure):
    figure = open_figure("cluster-models")
    labels = figure.locator("g.role-mark text")
    expect(labels.filter(has_text="70.3")).to_have_count(1)
    figure.get_by_label("Show", exact=True).select_option("Weights (GB)")
    expect(labels.filter(has_text="671")).to_have_count(1)


def test_a_longer_prefix_pays_on_a_slower_network(open_figure):
    figure = open_figure("cluster-break-even")
    labels = figure.locator("g.role-mark text")
    expect(labels.filter(has_text="42.3")).to_have_count(1)
    expect(labels.filter(has_text="–")).to_have_count(6)
    figure.get_by_label("Cached prefix", exact=True).select_option("131,072 tokens")
    expect(labels.filter(has_text="42.3")).to_have_count(0)
    figure.get_by_label("Bandwidth", exact=True).select_option("Equation 2 over the network's line rate (%)")
    expect(labels.filter(has_text="–")).to_have_count(6)
