"""The Sphinx side of the book: figures that live in the page, with nothing fetched from elsewhere.

A chart's specification becomes a figure drawn in the page by scripts served from the book, a
static image for print and for readers without scripts, a line that says what it was made from, and
downloads. Executed outputs are kept until the sources, the data or the traces change.
"""

import html
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import vl_convert
import yaml
from docutils import nodes  # type: ignore[import-untyped]
from jupyter_cache import get_cache  # type: ignore[import-untyped]
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.osutil import relative_uri

from mooncake_companion import traces
from mooncake_companion.datafiles import replacing
from mooncake_companion.errors import CompanionError
from mooncake_companion.publish import citations, directives, figures, launch, live, policy, registry, search
from mooncake_companion.publish.chapters import any_chapter
from mooncake_companion.publish.dependencies import STAMP, content_hash, machine_fingerprint, split, stamp
from mooncake_companion.publish.kernel import use_this_interpreter
from mooncake_companion.simulator import Cluster, CoupledCluster, simulate

MIME = "application/vnd.vegalite.v6+json"

_log = logging.getLogger(__name__)
_LOOK = ("_config.yml", "_toc.yml", "book/_static", "data", "src/mooncake_companion/publish")
"""What every page may hold something of."""


class ChartNode(nodes.General, nodes.Element):  # type: ignore[misc]
    """A figure drawn in the page; holds `spec`."""


class ChartNotesNode(nodes.General, nodes.Element):  # type: ignore[misc]
    """What stands below a figure's caption: its origin and its downloads; holds `spec`."""


class VegaLiteMime:
    """Turns the output of a chart cell into a `ChartNode`; an entry point of MyST-NB."""

    mime_priority_overrides = (("*", MIME, 1),)

    @staticmethod
    def handle_mime(renderer: Any, data: Any, inline: bool) -> list[nodes.Element] | None:
        """Return the figure for a chart's output, None for any other output."""
        if data.mime_type != MIME or inline:
            return None
        spec = data.content if isinstance(data.content, dict) else json.loads(data.string)
        env = renderer.renderer.document.settings.env
        for problem in _problems(spec, _figures(env)):
            _log.warning(problem, location=env.docname, type="companion", subtype="figure")
        if "chapter" not in figures.provenance(spec):  # a rerun's figures say it already
            chapter = any_chapter(env.docname.rpartition("/")[2])
            published = {declared.name: declared.default for declared in chapter.parameters}
            spec = figures.stamped(spec, chapter=chapter.name, parameters=published)
        _figures(env)[spec.setdefault("name", "unnamed")] = {
            "docname": env.docname,
            "spec": spec,
            "fresh": True,
        }
        return [ChartNode("", spec=spec)]


def _problems(spec: figures.Spec, known: dict[str, Any]) -> Iterator[str]:
    name = spec.get("name")
    if not name:
        yield "a chart has no name; finish it with charts.theme.finish"
    elif name in known:
        yield f"two charts are named {name!r}, here and in {known[name]['docname']}"
    if not spec.get("description"):
        yield f"chart {name!r} has no description (alternative text)"
    if (count := len(figures.tables(spec))) != 1:
        yield f"chart {name!r} has {count} tables; join them into one tidy table, which readers can download"


def _figures(env: BuildEnvironment) -> dict[str, Any]:
    """Figures of the book by id, kept from build to build."""
    return _kept(env, "companion_figures")


def _stamps(env: BuildEnvironment) -> dict[str, Any]:
    """Chapters with the stamp that their outputs were computed under, kept from build to build."""
    return _kept(env, "companion_stamps")


def _kept(env: BuildEnvironment, name: str) -> dict[str, Any]:
    if not hasattr(env, name):
        setattr(env, name, {})
    found: dict[str, Any] = getattr(env, name)
    return found


# --- figures in the page ----------------------------------------------------------------------


def add_notes(_app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put the notes below each figure's caption, and see that its anchor is its id."""
    for chart in list(doctree.findall(ChartNode)):
        figure, name = chart.parent, chart["spec"]["name"]
        notes = ChartNotesNode("", spec=chart["spec"])
        if isinstance(figure, nodes.figure):
            figure.append(nodes.legend("", notes))
        else:
            figure.insert(figure.index(chart) + 1, notes)
        if f"fig-{name}" not in figure["ids"]:
            told = f"the cell of chart {name!r} must name its figure `fig-{name}` and give it a caption"
            _log.warning(told, location=docname, type="companion", subtype="figure")


def _visit_chart(translator: Any, node: ChartNode) -> None:
    spec = node["spec"]
    name, description = html.escape(spec["name"]), html.escape(spec.get("description", ""))
    # Sorted and without "<", so that it is the same in every build and cannot end the script.
    text = json.dumps(spec, separators=(",", ":"), sort_keys=True).replace("<", "\\u003c")
    translator.body.append(
        f'<div class="companion-chart" data-name="{name}">'
        '<div class="companion-controls"></div>'
        '<div class="companion-scroll"><div class="companion-live"></div>'
        f'<img class="companion-static" src="{_download(translator, name, "svg")}" alt="{description}"></div>'
        f'<script type="application/json">{text}</script>'
        "</div>"
    )
    raise nodes.SkipNode


def _visit_notes(translator: Any, node: ChartNotesNode) -> None:
    name = html.escape(node["spec"]["name"])
    links = " ".join(
        f'<a href="{_download(translator, name, ending)}" download>{label}'
        f'<span class="visually-hidden"> of figure {name}</span></a>'
        for ending, label in figures.KINDS.items()
    )
    origin = origin_html(figures.provenance(node["spec"]))
    if translator.builder.config.companion_live:
        translator.body.append(live.control_html(node["spec"]))
    translator.body.append(
        f'<div class="companion-notes">{origin}'
        f'<p class="companion-downloads"><a href="#fig-{name}">Permanent link'
        f'<span class="visually-hidden"> to figure {name}</span></a> Download: {links}</p>'
        f"{data_html(node['spec']['name'])}{cite_html(node['spec']['name'])}</div>"
    )
    raise nodes.SkipNode


def data_html(name: str) -> str:
    """A figure's rows as a table, folded away; a script makes it when it is opened."""
    figure = registry.figures().get(name)
    title = html.escape(f"Data of the figure: {figure.title if figure else name}")
    name = html.escape(name)
    return (
        f'<details class="companion-data" data-figure="{name}" data-caption="{title}">'
        f'<summary>Data table<span class="visually-hidden"> of figure {name}</span></summary>'
        '<div class="companion-table"><p>The rows are in the CSV above.</p></div></details>'
    )


def cite_html(name: str) -> str:
    """How to cite a figure, folded away; empty for a figure that is not in the register."""
    figure = registry.figures().get(name)
    if figure is None:
        return ""
    entries = html.escape(citations.cite("bibtex", figure).rstrip())
    return (
        '<details class="companion-cite"><summary>Cite'
        f'<span class="visually-hidden"> figure {html.escape(name)}</span></summary>'
        f'<div class="highlight-bibtex notranslate"><div class="highlight"><pre>{entries}</pre></div></div>'
        f"<p>As RIS, CSL-JSON or APA: <code>companion figures cite {html.escape(name)} --style ris</code></p>"
        "</details>"
    )


def origin_html(provenance: dict[str, Any]) -> str:
    """Say in small type what a figure was made from.

    >>> origin_html({"trace_source": "released trace"})
    '<p class="companion-origin">Data: released trace. </p>'

    Parameters stand in the order of their names: kept outputs have no other.
    """
    source = str(provenance.get("trace_source", "")).rstrip(". ")
    sentence = f'<p class="companion-origin">Data: {html.escape(source)}. </p>' if source else ""
    given = {name: value for name, value in provenance.get("parameters", {}).items() if value != ""}
    if not given:
        return sentence
    verb = "Drawn" if provenance.get("kind") == "reported" else "Modelled"
    values = ", ".join(
        f"<code>{html.escape(name)} = {html.escape(str(given[name]))}</code>" for name in sorted(given)
    )
    return (
        f'{sentence}<details class="companion-parameters">'
        f"<summary>{verb} with {len(given)} parameter{'s' * (len(given) != 1)}</summary>"
        f"<p>{values}</p></details>"
    )


def _download(translator: Any, name: str, ending: str) -> str:
    builder = translator.builder
    return relative_uri(builder.get_target_uri(builder.current_docname), f"figures/{name}.{ending}")


def _skip(_translator: Any, _node: nodes.Element) -> None:
    raise nodes.SkipNode


def write_downloads(app: Sphinx, exception: Exception | None) -> None:
    """Write the files of every figure that changed, and remove those of figures that are gone.

    All are written if what draws them may have changed.
    """
    if exception or app.builder.format != "html":
        return
    folder = Path(app.outdir, "figures")
    folder.mkdir(exist_ok=True)
    known = _figures(app.env)
    anew = _kept(app.env, "companion_look").get("anew", True)
    for file in folder.iterdir():
        if file.name.partition(".")[0] not in known:
            file.unlink()
    for name, figure in sorted(known.items()):
        specification = folder / f"{name}.json"
        written = not anew and specification.exists()
        if not written or (figure["fresh"] and _differs(specification, figure["spec"])):
            figures.write_figure(figure["spec"], folder)
    if app.config.companion_live:
        live.write_files(app, {name: figure["spec"] for name, figure in known.items()})


def _differs(written: Path, spec: figures.Spec) -> bool:
    return written.read_text("utf-8") != figures.to_json(spec)


def check_register(app: Sphinx, env: BuildEnvironment) -> None:
    """See that the register of figures and the chapters agree; a book without the register has none."""
    if not Path(app.confdir, "data", "figures.toml").exists():
        return
    drawn = {name: figure["docname"].rpartition("/")[2] for name, figure in _figures(env).items()}
    told = {figure.id: figure.chapter for figure in registry.figures().values()}
    pages = {docname.rpartition("/")[2] for docname in env.found_docs}
    for name in sorted(drawn.keys() | told.keys()):
        if drawn.get(name) != told.get(name) and told.get(name, drawn.get(name)) in pages:
            there = drawn.get(name, "no chapter")
            said = f"data/figures.toml says {told[name]}" if name in told else "data/figures.toml lacks it"
            _log.warning("figure %r is in %s; %s", name, there, said, type="companion", subtype="figure")


# --- scripts out of installed packages ---------------------------------------------------------


def serve_scripts(app: Sphinx) -> None:
    """Have Vega and MathJax served from the book itself."""
    if app.builder.format != "html":
        return
    scripts = Path(app.outdir, "_static", "js")
    scripts.mkdir(parents=True, exist_ok=True)
    bundle = f"vega-{figures.VEGA_LITE_VERSION}-{metadata.version('vl-convert-python')}.js"
    if not (scripts / bundle).exists():
        # Without a snippet of our own: the stubs demand one, the function does not.
        code = vl_convert.javascript_bundle(vl_version=figures.VEGA_LITE_VERSION)  # type: ignore[call-arg]
        with replacing(scripts / bundle) as part:
            part.write_text(f"(()=>{{{code}}})();", "utf-8")
    app.add_js_file(f"js/{bundle}", defer="defer")
    app.add_js_file("js/figures.js", defer="defer")
    app.add_js_file("js/tables.js", defer="defer")
    if app.config.companion_live:
        app.add_js_file("js/live.js", defer="defer")
        app.add_css_file("css/live.css")
    app.add_js_file("js/data-tables.js", defer="defer")
    installed = metadata.files("sphinx-mathjax-offline") or []
    mathjax = next(file for file in installed if file.name == "tex-svg.js")
    shutil.copyfile(str(mathjax.locate()), scripts / "tex-svg.js")
    app.config.mathjax_path = "js/tex-svg.js"
    _write_style_of_cells(app)


def _write_style_of_cells(app: Sphinx) -> None:
    """Write MyST-NB's style sheet before the pages, which name the checksums of such files.

    It would be there only after the pages of a first build, which then differed from later ones.
    """
    style = resources.files("myst_nb.static").joinpath("mystnb.css").read_bytes()
    for name, _ in app.registry.css_files:
        if name.startswith("mystnb."):
            Path(app.outdir, "_static", name).write_bytes(style)


# --- outputs that follow sources, data and traces ----------------------------------------------


def fetch_traces(app: Sphinx) -> None:
    """Fetch the traces that the chapters use, once and before any of them runs.

    Where one cannot be had, the chapter uses its stand-in and says so; the kernels are told not to
    try again.
    """
    for name in app.config.companion_traces:
        try:
            traces.fetch(name)
            _log.info("trace %s is at hand", name)
        except CompanionError as error:
            _log.info("trace %s: its stand-in will be used (%s)", name, error)
    os.environ["MOONCAKE_OFFLINE"] = "1"
    _kept(app.env, "companion_machine")["fingerprint"] = machine_fingerprint(traces.sources_fingerprint())


def make_cache(app: Sphinx) -> None:
    """Make the cache of outputs before several processes find that it is not there."""
    folder = app.config.nb_execution_cache_path or Path(app.outdir).parent / ".jupyter_cache"
    _ = get_cache(folder).db


def compile_engines(app: Sphinx, _env: BuildEnvironment, docnames: list[str]) -> None:
    """Compile the engines once, where several chapters would else each do so at the same time."""
    if len(docnames) > 1 and app.config.nb_execution_mode != "off":
        trace = traces.Trace.from_requests([(0.0, 600, 2, [0, 1])])
        simulate(trace, Cluster.from_presets("a800", "llama3-70b", prefill_nodes=1, decode_nodes=1))
        simulate(trace, CoupledCluster.from_presets("a800", "llama3-70b", nodes=1))


def stamp_source(app: Sphinx, docname: str, source: list[str]) -> None:
    """Put a stamp of all that a chapter depends on where jupyter-cache looks: in its kernelspec.

    What its imports do not tell, a chapter names in its front matter: ``depends_on: [data/extra.csv]``.
    """
    if (parts := split(source[0])) is None:
        return
    front_matter, body = parts
    named = front_matter.pop("depends_on", [])
    made_from = _stamp(app, body, named)
    _stamps(app.env)[docname] = (body, named, made_from)
    front_matter["kernelspec"][STAMP] = made_from
    source[0] = f"---\n{yaml.safe_dump(front_matter, sort_keys=False)}---\n{body}"


def outdated(
    app: Sphinx, env: BuildEnvironment, _added: set[str], _changed: set[str], _removed: set[str]
) -> list[str]:
    """List the chapters whose sources, data or traces changed in content since they were read."""
    return [
        docname
        for docname, (body, named, made_from) in _stamps(env).items()
        if docname in env.found_docs and _stamp(app, body, named) != made_from
    ]


def note_reading(_app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
    """Note whether any page is read anew, and that no figure is yet."""
    _kept(env, "companion_look")["reads"] = bool(docnames)
    for figure in _figures(env).values():
        figure["fresh"] = False


def all_or_none(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Have every page written if any page, or what all pages share, changed.

    Else a page kept from an earlier build would name style sheets by checksums that are gone, and
    Sphinx would lose that page's index entries from the search.
    """
    kept = _kept(env, "companion_look")
    look = content_hash(Path(app.confdir), _LOOK, f"vl-convert {metadata.version('vl-convert-python')}")
    anew = kept.get("look") != look
    same = kept.get("pages") == sorted(env.found_docs) and not anew and not kept["reads"]
    kept |= {"look": look, "anew": anew, "pages": sorted(env.found_docs)}
    return [] if same else kept["pages"]


def _stamp(app: Sphinx, body: str, named: Iterable[str]) -> str:
    return stamp(Path(app.confdir), body, named, _kept(app.env, "companion_machine")["fingerprint"])


def purge(_app: Sphinx, env: BuildEnvironment, docname: str) -> None:
    """Forget the figures and the stamp of a chapter that is read anew or gone."""
    for name in [name for name, figure in _figures(env).items() if figure["docname"] == docname]:
        del _figures(env)[name]
    _stamps(env).pop(docname, None)


def merge(_app: Sphinx, env: BuildEnvironment, docnames: list[str], other: BuildEnvironment) -> None:
    """Take over the figures and stamps of chapters read by another process."""
    _figures(env).update({k: v for k, v in _figures(other).items() if v["docname"] in docnames})
    _stamps(env).update({k: v for k, v in _stamps(other).items() if k in docnames})


def _declare_safe(app: Sphinx, _config: Any) -> None:
    """Say of two extensions what they do not: pages may be read side by side.

    One numbers sections when all pages are read, the other only writes LaTeX.
    """
    for name in ("sphinx_multitoc_numbering", "sphinx_jupyterbook_latex"):
        if name in app.extensions:
            app.extensions[name].parallel_read_safe = app.extensions[name].parallel_write_safe = True


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    os.environ["COMPANION_BUILD"] = "1"  # the kernels inherit it, and draw charts for the page
    use_this_interpreter(Path(app.doctreedir).parent / "kernel")
    app.add_config_value("companion_traces", [], "env")
    app.add_config_value("companion_live", False, "html")
    skipped: Any = dict.fromkeys(("latex", "text", "texinfo", "man"), (_skip, None))
    app.add_node(ChartNode, html=(_visit_chart, None), **skipped)
    app.add_node(ChartNotesNode, html=(_visit_notes, None), **skipped)
    app.connect("builder-inited", serve_scripts)
    app.connect("builder-inited", fetch_traces)
    app.connect("builder-inited", make_cache)
    app.connect("env-before-read-docs", compile_engines)
    app.connect("source-read", stamp_source)
    app.connect("env-get-outdated", outdated)
    app.connect("env-before-read-docs", note_reading)
    app.connect("env-updated", all_or_none)
    app.connect("env-purge-doc", purge)
    app.connect("env-merge-info", merge)
    app.connect("doctree-resolved", add_notes)
    app.connect("env-check-consistency", check_register)
    app.connect("build-finished", write_downloads)
    directives.setup(app)
    search.setup(app)
    launch.setup(app)
    policy.setup(app)
    app.connect("config-inited", _declare_safe, priority=900)
    return {"version": "2", "parallel_read_safe": True, "parallel_write_safe": True}
