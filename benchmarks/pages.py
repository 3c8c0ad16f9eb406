"""How soon a reader sees the first figure of each page: `python -m benchmarks.pages`, in a checkout.

Opens every page of the built book in Chromium over http, each time as a reader who has nothing of it
yet, and keeps the median. The built book shows what was recorded beside the weights that it has now.
"""

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from mooncake_companion.datafiles import replacing
from mooncake_companion.publish import pdf, serve, weights
from mooncake_companion.publish.build import build_book

from .records import machine

RECORDED = Path("data", *weights.RECORDED)
VISITS = 5
_PATIENCE_MS = 60_000
_WATCH = """
  window.companionDrawn = [];
  new MutationObserver(changes => {
    for (const change of changes)
      if (change.target.dataset.state === "drawn") window.companionDrawn.push(performance.now());
  }).observe(document, { subtree: true, attributes: true, attributeFilter: ["data-state"] });
"""


def main(root: Path) -> None:
    """Measure and write."""
    text = json.dumps(recording(root), indent=2) + "\n"
    with replacing(root / RECORDED) as part:
        part.write_text(text, "utf-8")
    sys.stdout.write(text)


def recording(root: Path, *, names: list[str] | None = None, visits: int = VISITS) -> dict[str, Any]:
    """What is kept: times by page, with the weight that each had, and what they were measured with."""
    from playwright.sync_api import sync_playwright

    folder = build_book(root, quiet=True).parent
    weighed = [weights.weigh(folder / f"{page}.html", folder) for page in names or pdf.pages(root)]
    with serve.serving(folder) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=pdf.browser(), args=list(pdf.OPTIONS))
        times = {
            each.page: {
                **first_and_last(browser, f"{address}/book/{each.page}.html", visits),
                "first_visit_bytes": each.first_visit_bytes,
            }
            for each in weighed
            if each.figures
        }
        version = browser.version
        browser.close()
    here = machine()
    return {
        "made_by": "python -m benchmarks.pages",
        "machine": here,
        "measured": {
            "median of": f"{visits} first visits",
            "by": f"Chromium {version.partition('.')[0]}, 1280 pixels wide",
            "on": f"{here['cores']} cores ({here['system']}, {here['architecture']})",
            "from": "a server on the same machine",
        },
        "pages": times,
    }


def first_and_last(browser: Any, address: str, visits: int) -> dict[str, float]:
    """Median seconds from the start of a visit until the first, and until the last, figure is drawn."""
    drawn = []
    for _ in range(visits):
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        page = context.new_page()
        page.add_init_script(_WATCH)
        page.goto(address)
        everything = "() => !document.querySelector('.companion-chart:not([data-state=drawn])')"
        page.wait_for_function(everything, timeout=_PATIENCE_MS)
        drawn.append(page.evaluate("window.companionDrawn"))
        context.close()
    return {
        "first_figure_s": round(statistics.median(times[0] for times in drawn) / 1000, 3),
        "all_figures_s": round(statistics.median(times[-1] for times in drawn) / 1000, 3),
    }


if __name__ == "__main__":
    main(Path(__file__).parents[1])
