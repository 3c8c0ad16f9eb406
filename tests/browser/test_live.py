"""The model that runs in the page: Python in the browser, served from the book itself."""

import http.server
import json
import re
import threading

import pytest
from playwright.sync_api import expect
from tests.browser.test_accessibility import specs

from mooncake_companion.live.answers import answer
from mooncake_companion.live.figures import ELSEWHERE, LIVE
from mooncake_companion.publish import registry
from mooncake_companion.publish.live import PYODIDE_FILES

pytestmark = [pytest.mark.browser, pytest.mark.slow]
served = pytest.mark.parametrize("address", ["http"], indirect=True)
opened_as_file = pytest.mark.parametrize("address", ["file"], indirect=True)

FIRST = "prefill-scheduling-ttft"
PAGES = {name: registry.figure(name).address.partition("#")[0] for name in LIVE}
CHANGED = {
    "served-in-time": {"requests": "100", "nodes": "6", "prefill_nodes": "3"},
    "two-phases": {"node": "h200", "decode_context_tokens": "40000", "waits_for_host": "true"},
    "deployment-timeline": {"window_start_s": "100", "nodes": "3", "prefill_nodes": "1"},
    "latency-budget": {"requests": "200", "chunk_tokens": "512", "node": "h800"},
    "transfer-tax": {"node": "h200", "model": "deepseek-v3", "bandwidth_gbit_per_s": "37.5"},
    "prefix-break-even": {"node": "b200", "gpus": "4", "cached_tokens": "300000"},
    "prefix-actions": {"model": "deepseek-v3", "new_tokens": "777"},
    "network-bandwidth": {"requests": "100", "nodes": "6", "prefill_nodes": "4", "slowest_gbit_per_s": "90"},
    "workload-distributions": {"requests": "400", "block_tokens": "64", "common_tokens": "900"},
    "workload-arrivals": {"requests": "400", "window_s": "7.5", "short_window_s": "3"},
    "workload-length-histograms": {"requests": "400", "bins": "60", "most_answer_tokens": "1000"},
    "cache-block-heat": {"requests": "200", "prefill_nodes": "2", "dram_blocks": "300", "eviction": "lfu"},
    "cache-byte-flows": {"requests": "100", "input_tokens": "32768", "reused_tokens": "8192"},
    "prefix-choices": {"requests": "100", "prefill_nodes": "3", "cache_tokens_per_node": "500000"},
    "cache-policies": {"requests": "150", "other_policy": "belady", "least_capacity_blocks": "17"},
    "hot-block-replicas": {"requests": "400", "shared_recency": "false", "cache_tokens_per_node": "60000"},
    "prefill-pipeline-stages": {"pipeline_nodes": "3", "chunk_tokens": "3000", "long_tokens": "90000"},
    "prefill-pipeline-speedup": {"pipeline_nodes": "6", "chunk_tokens": "3000", "node": "h800"},
    "prefill-pipeline-load": {"drawn_requests": "100", "prefill_nodes": "6", "long_share": "0.25"},
    FIRST: {"requests": "100", "prefill_nodes": "5", "arrival_speedup": "1.25"},
    "prefill-scheduling-ttft-arxiv": {"requests": "100", "nodes": "6", "prefill_nodes": "3"},
    "request-walkthrough": {"request": "123", "nodes": "6", "prefill_nodes": "4"},
    "balancing-threshold-ttft": {"requests": "100", "kvcache_balancing_threshold": "4", "nodes": "9"},
    "overload-rejected": {"requests": "300", "decode_pool_nodes": "2", "arrival_speedup": "3"},
    "overload-mechanism": {"identical_input_tokens": "100000", "prefill_nodes": "4"},
    "overload-pool-loads": {"requests": "300", "prefill_pool_nodes": "5", "tbt_limit_s": "0.06"},
    "overload-decode-time": {"requests": "300", "tbt_limit_s": "0.06"},
    "tbt-distribution": {"requests": "100", "nodes": "6", "prefill_nodes": "4"},
    "effective-capacity": {"requests": "100", "arrival_speedup": "2.5", "chunk_tokens": "512"},
    "goodput": {"requests": "100", "nodes": "4", "prefill_nodes": "2", "tbt_limit_s": "0.15"},
    "node-split": {"requests": "100", "nodes": "5", "least_prefill_nodes": "2", "most_prefill_nodes": "4"},
    "request-rate": {"requests": "50", "highest_rate_per_s": "3.5", "nodes": "8", "tbt_multiple": "2"},
    "transfer-latency": {"bandwidth_gbit_per_s": "3200", "network_utilisation": "0.45", "startup_s": "0.1"},
    "latency-breakdown": {"model": "mixtral-8x7b", "network_gbit_per_s": "25", "cached_pct": "60"},
    "hot-holder-under-way": {"requests": "60", "prefix_tokens": "9000", "bandwidth_gbit_per_s": "25.5"},
    "measured-prefill": {"gpus": "4", "prefill_overhead_s": "0.02", "linear_utilisation": "0.6"},
    "measured-decode": {"decode_overhead_s": "0.005", "hbm_utilisation": "0.7", "host_sequence_s": "0"},
    "cluster-nodes": {"requests": "100", "prefill_nodes": "2", "decode_nodes": "1", "tbt_limit_s": "0.04"},
    "cluster-models": {"layers": "36", "kv_elements_per_layer": "1024", "parameters": "2e9"},
    "cluster-break-even": {"cached_tokens": "50000", "network_gbit_per_s": "200", "gpus": "4"},
    "hit-rate-counts": {"requests": "200", "capacity_blocks": "500", "finer_block_tokens": "64"},
    "local-cache-explanations": {"requests": "60", "prefill_nodes": "4", "other_shortlist_nodes": "2"},
    "balancing-threshold-bytes": {"requests": "150", "nic_bytes_per_s": "2e9", "prefill_nodes": "3"},
    "remote-kv-reads": {"input_tokens": "5000", "network_gbit_per_s": "3200", "node": "h200"},
    "returned-answers": {"requests": "100", "nodes": "6", "prefill_nodes": "4", "pairs": "2"},
}
RUN_TIMEOUT_MS = 180_000  # seconds on an idle machine
MOST_ADDED_BYTES = 6_000
TURN_MS = """
new Promise(done => {
  const start = performance.now();
  setTimeout(() => done(performance.now() - start), 0);
})
"""
KINDS = {"mjs": "text/javascript", "wasm": "application/wasm"}


@pytest.fixture
def open_control(open_page):
    def opened(figure=FIRST, **options):
        page = open_page(PAGES[figure], **options)
        return page, *control_of(page, figure)

    return opened


def control_of(page, figure):
    chart = page.locator(f"#fig-{figure}").locator(".companion-chart")
    expect(chart).to_have_attribute("data-state", "drawn", timeout=15_000)
    control = page.locator(f".companion-run[data-figure={figure}]")
    control.locator("summary").click()
    return chart, control


def run(control, **values):
    for name, value in values.items():
        field = control.locator(f"[name={name}]")
        if field.evaluate("field => field.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
    control.get_by_role("button", name="Run", exact=True).click()
    expect(control).to_have_attribute("data-state", "idle", timeout=RUN_TIMEOUT_MS)


def rows(chart):
    return chart.evaluate("box => Object.values(box.figure.spec.datasets)[0]")


def drawn(chart):
    return chart.locator(".companion-live svg").evaluate("svg => svg.outerHTML")


def test_every_figure_with_controls_can_be_run_or_says_why_not(html):
    interactive = {
        name: registry.figure(name).chapter
        for name, spec in specs(html).items()
        if any("bind" in param for param in spec.get("params", []))
    }
    assert len(interactive) > 40
    assert interactive.keys() - LIVE.keys() == ELSEWHERE.keys()
    for name in ELSEWHERE:
        page = html.joinpath("book", f"{interactive[name]}.html").read_text("utf-8")
        assert "companion-run-elsewhere" in page.partition(f'id="fig-{name}"')[2].partition("</figure>")[0]


@served
@pytest.mark.parametrize("path", dict.fromkeys(PAGES.values()))
def test_a_page_draws_what_the_library_computes(open_page, html, vendored, path):
    page = open_page(path)  # which starts Python once
    for figure in LIVE:
        if PAGES[figure] == path:
            draws_what_the_library_computes(page, figure, html)


def draws_what_the_library_computes(page, figure, html):
    chart, control = control_of(page, figure)
    before, published = drawn(chart), rows(chart)
    run(control, **CHANGED[figure])
    expect(control.locator(".companion-run-status")).to_contain_text("Done")
    expect(chart).to_have_attribute("data-state", "drawn")
    name = control.get_attribute("data-slice")
    sliced = (html / "_static/live" / name).read_text() if name else ""
    outcome = json.loads(answer(figure, json.dumps(CHANGED[figure]), sliced, lambda *_: None))
    here = [row for row in rows(chart) if row.get("origin") != "reported"]
    for row, expected in zip(here, outcome["rows"], strict=True):
        assert row.keys() == expected.keys(), figure
        for column, value in expected.items():
            # To the last bit but for powers, which two C libraries may round apart.
            same = pytest.approx(value, rel=1e-14) if isinstance(value, float) else value
            assert row[column] == same, (figure, column)
    assert [row for row in rows(chart) if row.get("origin") == "reported"] == [
        row for row in published if row.get("origin") == "reported" and outcome["reported"]
    ]
    assert drawn(chart) != before
    expect(chart.locator(".companion-live")).to_have_attribute("aria-label", outcome["description"])
    caption = page.locator(f"#fig-{figure} figcaption")
    expect(caption).to_contain_text(outcome["told"])
    control.get_by_role("button", name="Back to the book’s").click()
    expect(chart).to_have_attribute("data-from", "book")
    assert rows(chart) == published
    expect(caption.locator(".companion-run-told")).to_be_hidden()


@served
def test_a_control_offers_what_there_is_now_and_keeps_a_choice_that_still_is(open_control, vendored):
    _, chart, control = open_control("cache-block-heat")
    node, clock = chart.get_by_label("Prefill node"), chart.locator(".companion-live text")
    node.select_option(label="3")
    run(control, requests="100", prefill_nodes="6")
    expect(node.locator("option")).to_have_text(list("012345"))
    expect(clock.filter(has_text="on node 3")).to_be_visible()
    node.select_option(label="5")
    expect(clock.filter(has_text="on node 5")).to_be_visible()
    control.get_by_role("button", name="Back to the book’s").click()
    expect(chart).to_have_attribute("data-from", "book")
    expect(node.locator("option")).to_have_text(list("0123"))
    expect(clock.filter(has_text="on node 0")).to_be_visible()


@served
def test_a_bad_value_is_told_beside_its_field_and_the_figure_stays(open_control, vendored):
    _, chart, control = open_control()
    before = drawn(chart)
    for value, told in (("64", "out of range; expected 1 to 63 nodes"), ("16", "leaves no node of 16")):
        run(control, prefill_nodes=value)
        field = control.get_by_label("prefill nodes")
        expect(field).to_have_attribute("aria-invalid", "true")
        expect(field).to_be_focused()
        error = control.locator("#run-prefill-scheduling-ttft-prefill_nodes-error")
        expect(error).to_contain_text(f"parameter prefill_nodes: {value}")
        expect(error).to_contain_text(told)
    assert drawn(chart) == before
    run(control, prefill_nodes="8", requests="50")
    expect(field).not_to_have_attribute("aria-invalid", "true")
    expect(control.locator(".companion-run-status")).to_contain_text("Done")


@served
def test_a_run_leaves_the_page_alive_and_stops_on_demand(open_control, vendored):
    page, chart, control = open_control()
    before = drawn(chart)
    run(control, requests="50")
    control.get_by_role("button", name="Back to the book’s").click()
    control.get_by_label("requests").fill("1000")
    control.get_by_role("button", name="Run", exact=True).click()
    expect(control.locator(".companion-run-status")).to_contain_text("of 4 done", timeout=RUN_TIMEOUT_MS)
    assert page.evaluate(TURN_MS) < 1000
    control.get_by_role("button", name="Stop").click()
    expect(control.locator(".companion-run-status")).to_have_text("Stopped.")
    assert drawn(chart) == before
    run(control, requests="50")
    expect(control.locator(".companion-run-status")).to_contain_text("Done")


@served
def test_nothing_of_it_is_loaded_before_the_click(open_page):
    page = open_page(PAGES[FIRST])
    expect(page.locator(".companion-chart").first).to_have_attribute("data-state", "drawn")
    loaded = page.evaluate("performance.getEntriesByType('resource').map(entry => entry.name)")
    assert loaded
    assert not [name for name in loaded if re.search(r"_static/(live|pyodide)/|live-worker", name)]
    controls = page.locator(".companion-run").evaluate_all("all => all.map(one => one.outerHTML.length)")
    assert max(controls) < MOST_ADDED_BYTES


@opened_as_file
def test_a_file_says_how_to_serve_the_book(open_control):
    _, _, control = open_control()
    expect(control.locator(".companion-run-status")).to_contain_text("python -m http.server")
    expect(control.get_by_role("button", name="Run", exact=True)).to_be_disabled()


@served
def test_a_book_without_the_model_says_so_and_stays_whole(open_page):
    page = open_page(PAGES[FIRST])
    page.route("**/live.json", lambda route: route.fulfill(status=200, body="{}"))
    page.route("**/live-worker.js*", lambda route: route.fulfill(status=200, body="throw new Error('gone')"))
    chart = page.locator(f"#fig-{FIRST} .companion-chart")
    expect(chart).to_have_attribute("data-state", "drawn")
    before = drawn(chart)
    control = page.locator(f".companion-run[data-figure={FIRST}]")
    control.locator("summary").click()
    run(control)
    expect(control.locator(".companion-run-error")).to_contain_text("The rest of the page works without it")
    assert drawn(chart) == before


@pytest.fixture
def public_address(html):
    """Another server with the files of Pyodide, one of which can be altered, and what it was asked for."""
    asked, altered = [], set()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            name = self.path.rpartition("/")[2]
            asked.append(name)
            body = (html / "_static/pyodide" / name).read_bytes() + (b" " if name in altered else b"")
            self.send_response(200)
            self.send_header("Access-Control-Allow-Origin", "*")
            self.send_header("Content-Type", KINDS.get(name.rpartition(".")[2], "application/octet-stream"))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/pyodide/", asked, altered
        server.shutdown()


@served
@pytest.mark.parametrize("spoilt", [None, "pyodide.asm.wasm"])
def test_where_the_book_lacks_python_it_comes_from_elsewhere_after_the_click_and_checked(
    chromium, address, html, vendored, public_address, spoilt
):
    elsewhere, asked, altered = public_address
    altered.update({spoilt} - {None})
    context = chromium.new_context()
    told = vendored | {"pyodide": elsewhere}
    context.route("**/live.json", lambda route: route.fulfill(json=told))
    page = context.new_page()
    page.goto(f"{address}/{PAGES[FIRST]}")
    control = page.locator(f".companion-run[data-figure={FIRST}]")
    control.locator("summary").click()
    assert asked == []
    run(control, requests="50")
    if spoilt:
        expect(control.locator(".companion-run-error")).to_contain_text("could not run here")
    else:
        expect(control.locator(".companion-run-status")).to_contain_text("Done")
    assert set(asked) == set(PYODIDE_FILES)
    context.close()
