"""Links that run a chapter elsewhere: on Binder, in Colab, or as a notebook to download.

Plain links, pinned to this version's tag: nothing is asked of either service before a reader follows one.
"""

from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from sphinx.application import Sphinx

from mooncake_companion.publish.notebooks import FOLDER, TAG, write_notebooks

BINDER = "https://mybinder.org/v2/gh"
COLAB = "https://colab.research.google.com/github"
NOTEBOOKS_BRANCH = f"notebooks-{TAG}"
"""The branch that holds the chapters as notebooks, which Colab cannot make of their text itself."""


def binder_link(repository: str, page: str) -> str:
    """Opens a chapter's text as a notebook, on a machine made after ``.binder/``.

    >>> binder_link("https://github.com/owner/name", "book/results").replace(TAG, "TAG")
    'https://mybinder.org/v2/gh/owner/name/TAG?urlpath=lab%2Ftree%2Fbook%2Fresults.md'
    """
    return f"{BINDER}/{_name(repository)}/{TAG}?urlpath={quote(f'lab/tree/{page}.md', safe='')}"


def colab_link(repository: str, page: str) -> str:
    """Opens a chapter's notebook, which the release puts on a branch of the repository.

    >>> colab_link("https://github.com/owner/name", "book/results").replace(TAG, "TAG")
    'https://colab.research.google.com/github/owner/name/blob/notebooks-TAG/results.ipynb'
    """
    return f"{COLAB}/{_name(repository)}/blob/{NOTEBOOKS_BRANCH}/{page.rpartition('/')[2]}.ipynb"


def _name(repository: str) -> str:
    return urlsplit(repository).path.strip("/")


def add_buttons(app: Sphinx, page: str, _template: str, context: dict[str, Any], _doctree: Any) -> None:
    """Put the links behind a button at the top of a page with code."""
    repository = _repository(app)
    if not repository or not _has_code(app, page) or "header_buttons" not in context:
        return
    notebook = f"{FOLDER}/{page.rpartition('/')[2]}.ipynb"
    links = (
        (
            "Binder",
            binder_link(repository, page),
            "fas fa-cubes",
            "Run this chapter on Binder",
        ),
        ("Colab", colab_link(repository, page), "fab fa-google", "Run this chapter in Colab"),
        (
            "Notebook",
            context["pathto"](notebook, 1),
            "fas fa-download",
            "Download this chapter as a notebook",
        ),
    )
    context["header_buttons"].append(
        {
            "type": "group",
            "tooltip": "Run this chapter elsewhere",
            "icon": "fas fa-rocket",
            "label": "launch-buttons",
            "buttons": [
                {"type": "link", "text": text, "url": url, "icon": icon, "tooltip": tooltip}
                for text, url, icon, tooltip in links
            ],
        }
    )


def write(app: Sphinx, exception: Exception | None) -> None:
    """Write the notebooks that the links lead to."""
    repository = _repository(app)
    if exception or app.builder.format != "html" or not repository:
        return
    pages = sorted(page for page in app.env.found_docs if _has_code(app, page))
    write_notebooks(Path(app.confdir), Path(app.outdir), pages, repository)


def _repository(app: Sphinx) -> str:
    return str(app.config.html_theme_options.get("repository_url", ""))


def _has_code(app: Sphinx, page: str) -> bool:
    """Whether a page is a chapter with code; the page of a rerun, made from its own notebook, is not."""
    return "kernelspec" in app.env.metadata.get(page, {}) and Path(app.confdir, f"{page}.md").exists()


def setup(app: Sphinx) -> None:
    """Register with Sphinx."""
    app.connect("html-page-context", add_buttons, priority=502)  # after the theme's own
    app.connect("build-finished", write)
