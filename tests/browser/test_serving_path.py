"""What a reader does with the deployment switch and the latency budget, on the chapter's real page."""

import pytest
from playwright.sync_api import expect

from mooncake_companion.experiments import deployment_timeline, transfer_tax, two_phases

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PAGE = "book/serving-path.html"
FIGURES = ("two-phases", "deployment-timeline", "latency-budget", "transfer-tax")
PARAMS = deployment_timeline.Params()


@pytest.fixture(scope="module")
def found():
    return deployment_timeline.replays(PARAMS)


@pytest.fixture(scope="module")
def window(found):
    return deployment_timeline.window(PARAMS, found)


@pytest.fixture(scope="module")
def budget(found):
    return deployment_timeline.budget(PARAMS, found)


@pytest.fixture
def open_figure(open_page):
    def opened(name, **options):
        figure = open_page(PAGE, **options).locator(f"#fig-{name}")
        expect(figure.locator(".companion-chart")).to_have_attribute("data-state", "drawn")
        return figure

    return opened


def choose(figure, group, label):
    group = figure.get_by_role("radiogroup", name=group)
    group.get_by_role("radio", name=label, exact=True).check()


def heights(figure, row):
    bars = figure.locator(f"path[aria-roledescription='bar'][aria-label*='Row: {row}']")
    return bars.evaluate_all("bars => bars.map(bar => bar.getBBox().height)")


def test_all_figures_are_drawn(open_page):
    page = open_page(PAGE)
    for name in FIGURES:
        expect(page.locator(f"#fig-{name} .companion-chart")).to_have_attribute("data-state", "drawn")


def test_the_switch_draws_the_work_and_the_intervals_of_each_deployment(open_figure, window):
    figure = open_figure("deployment-timeline")
    for mode in deployment_timeline.MODES:
        choose(figure, "Deployment", mode)
        rows = window[window["mode"] == mode]
        work, intervals = (rows[rows["kind"] == kind] for kind in ("work", "interval"))
        beside = int((work["holds"] == deployment_timeline.BESIDE).sum())
        expect(figure.locator("path[aria-roledescription='bar']")).to_have_count(len(work) + beside)
        stalls = figure.locator("[aria-roledescription='rule mark'][aria-label*='with a prefill in it']")
        expect(stalls).to_have_count(int((intervals["holds"] == deployment_timeline.BEHIND).sum()))
        for node in work["node"].unique():
            expect(figure.locator("text", has_text=node).first).to_be_visible()


def test_only_two_pools_are_free_of_stalls(open_figure):
    figure = open_figure("deployment-timeline")
    stalls = figure.locator("[aria-roledescription='rule mark'][aria-label*='with a prefill in it']")
    assert stalls.count() > 0
    choose(figure, "Deployment", "Disaggregated")
    expect(stalls).to_have_count(0)


def test_a_bar_tells_its_requests_tokens_batch_and_seconds(open_figure, window):
    figure = open_figure("deployment-timeline")
    rows = window.query("mode == 'Coupled' and kind == 'work' and holds == 'prefill'")
    longest = rows.loc[rows["new_tokens"].idxmax()]
    bar = figure.locator(
        f"path[aria-roledescription='bar'][aria-label*='computed: {longest['new_tokens']:,};']"
    )
    label = bar.first.get_attribute("aria-label")
    assert f"Requests: {longest['requests']}" in label
    assert f"Time of one: {longest['seconds']:.2f} s" in label
    bar.first.hover()
    expect(figure.page.locator("#vg-tooltip-element")).to_contain_text(f"{longest['new_tokens']:,}")


def test_focus_amplifies_the_row_that_is_chosen(open_figure, budget):
    figure = open_figure("latency-budget")
    upper, lower = deployment_timeline.FIRST_TOKEN, deployment_timeline.RHYTHM
    assert max(heights(figure, upper)) == pytest.approx(max(heights(figure, lower)), abs=0.5)
    part = budget.query(
        f"prompts == 'all' and mode == 'Coupled' and row == '{upper}' and part == 'own prefill'"
    )
    told = figure.locator("text", has_text=f"own prefill {part['seconds'].iloc[0]:.2f} s")
    expect(told).to_have_count(0)
    choose(figure, "Amplify", "first token")
    expect(told.first).to_be_visible()
    assert max(heights(figure, upper)) > 3 * max(heights(figure, lower))
    choose(figure, "Amplify", "rhythm")
    expect(told).to_have_count(0)
    assert max(heights(figure, lower)) > 3 * max(heights(figure, upper))


def test_the_budget_is_that_of_the_prompts_chosen(open_figure, budget):
    figure = open_figure("latency-budget")
    for prompts in deployment_timeline.CLASSES:
        figure.get_by_label("Prompts", exact=True).select_option(label=prompts)
        for row, unit in ((deployment_timeline.FIRST_TOKEN, "s"), (deployment_timeline.RHYTHM, "ms")):
            rows = budget[(budget["prompts"] == prompts) & (budget["row"] == row)]
            total_s = rows.loc[rows["mode"] == "Coupled", "total_s"].iloc[0]
            told = f"Coupled: {total_s:.2f} s" if unit == "s" else f"Coupled: {1000 * total_s:.0f} ms"
            expect(figure.locator("text", has_text=told).first).to_be_visible()


def test_latency_instead_of_throughput_moves_lines_and_reported_marks(open_figure):
    figure = open_figure("two-phases")
    marks = figure.locator("path[aria-roledescription='point']")
    reported = two_phases.run(two_phases.Params()).query("origin == 'reported'")
    expect(marks).to_have_count(len(reported))
    line = figure.locator("path[aria-roledescription='line mark']").first
    before, mark = line.get_attribute("d"), marks.first.get_attribute("transform")
    choose(figure, "Shown", "latency")
    expect(line).not_to_have_attribute("d", before)
    expect(marks.first).not_to_have_attribute("transform", mark)


def test_a_slower_network_raises_the_tax_and_leaves_the_prefill(open_figure):
    figure = open_figure("transfer-tax")
    table = transfer_tax.run(transfer_tax.Params()).query("origin == 'modelled' and quantity == 'move'")
    lines = figure.locator("path[aria-roledescription='line mark']")
    before = lines.evaluate_all("lines => lines.map(line => line.getAttribute('d'))")
    for bandwidth in (100, 25):
        choose(figure, "Network of a node", str(bandwidth))
        row = table[table["bandwidth_gbit_per_s"] == bandwidth].nlargest(1, "input_tokens").iloc[0]
        expect(figure.locator("text", has_text=f"{row['share']:.1%} of the prefill")).to_be_visible()
    after = lines.evaluate_all("lines => lines.map(line => line.getAttribute('d'))")
    assert sum(old != new for old, new in zip(before, after, strict=True)) == 1
