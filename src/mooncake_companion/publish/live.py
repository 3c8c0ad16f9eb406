"""The live model in the page: its controls, and the files that they load once a reader asks for them.

Python in the browser is Pyodide, of a pinned version, each file checked. Where npm can get it, the book
serves it itself; else the page loads it from its public address, and that only after a click.
"""

import base64
import hashlib
import html
import json
import re
import shutil
import subprocess
import tarfile
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sphinx.application import Sphinx
from sphinx.util import logging

from mooncake_companion import traces
from mooncake_companion.datafiles import cache_path
from mooncake_companion.experiments import deployment_timeline
from mooncake_companion.live.figures import ELSEWHERE, LIVE
from mooncake_companion.live.slices import MOST_REQUESTS, Slice
from mooncake_companion.parameters import Parameter
from mooncake_companion.publish import figures
from mooncake_companion.publish.dependencies import dependencies
from mooncake_companion.simulator.serving_path import requests_of
from mooncake_companion.traces.answers import answer_blocks

PYODIDE_VERSION = "314.0.7"
PYODIDE_FILES = {
    "pyodide.mjs": "sha384-Lp79fMwxa4n2BLtugpUAoQMlbxIdg8iCUiP1r3h7nJLkQjwlXT1JzZTeHVL+f4Dg",
    "pyodide.asm.mjs": "sha384-/2281iaC0Iimw0B3Kagy1DBfZcJG3W4KYW+EmOqhsdY3fR9BJ88FE2Zt6y0KQKpa",
    "pyodide.asm.wasm": "sha384-y++qrQ72KPA1fTjLIuGMP+jppgGxjbLCgfdb0zMrnNnQVhxRUXTOTF6rTxNzllSu",
    "python_stdlib.zip": "sha384-xW3A5jmenkrPXbsgrIaB1FCJh9OuLT7FRMagsJMgtlhVc19k/mSy3+7nMaF/d767",
    "pyodide-lock.json": "sha384-o8SQQvpVlZnOl04+3dFTJipKxul9GbViVusA379wlOrfHSgxbzt0yPiqCTxOiYES",
}
"""The files of the npm package that the page needs; a file with another checksum is not used."""
PYODIDE_ADDRESS = f"https://cdn.jsdelivr.net/npm/pyodide@{PYODIDE_VERSION}/"
"""Where the same package lies in public."""

DRAWS_SEED = 0
"""Of the random policy's choices in a slice; as `experiments.prefill_scheduling` has it."""

_FOLDER = "live"
_NPM_TIMEOUT_S = 120
_LIVE_CODE = "```{code-cell}\nfrom mooncake_companion.live import answers\n```\n"

_UNITS_IN_NAMES = ("s", "bytes/s", "Gbit/s")
_CODE = re.compile("`([^`]*)`")
_log = logging.getLogger(__name__)


# --- the control below a figure ------------------------------------------------------------------


def control_html(spec: figures.Spec) -> str:
    """Where a reader computes a figure again, or why not here; empty for a figure that says neither.

    The form stays hidden until the page's script has seen that it works.
    """
    name = spec["name"]
    if name in ELSEWHERE:
        return (
            f'<p class="companion-run-elsewhere">Not to be run in a page: {_marked_up(ELSEWHERE[name])}.</p>'
        )
    live = LIVE.get(name)
    if live is None:
        return ""
    origin = _origin(spec)
    given = origin.get("parameters", {})
    fields = "".join(_field_html(name, field, given) for field in live.fields())
    slice_file = f' data-slice="{slice_name(origin)}"' if live.replays else ""
    return (
        f'<details class="companion-run" data-figure="{name}"{slice_file} hidden>'
        f'<summary>Run it here<span class="visually-hidden">: figure {name}</span></summary>'
        f'<form novalidate><p class="companion-run-about">{_about(live.replays, origin)}</p>'
        f'<div class="companion-run-fields">{fields}</div>'
        '<div class="companion-run-buttons"><button type="submit">Run</button>'
        '<button type="button" data-act="stop" disabled>Stop</button>'
        '<button type="button" data-act="back" disabled>Back to the book’s</button></div>'
        '<p class="companion-run-status" role="status"></p>'
        '<p class="companion-run-error" role="alert"></p></form></details>'
    )


def _about(replays: bool, origin: Mapping[str, Any]) -> str:
    of_what = (
        f" from the first requests of the {html.escape(str(origin['trace_source']).rstrip('. '))}, not all"
        if replays
        else ""
    )
    return (
        f"Computes the figure in this browser{of_what}. The first run starts Python, some 6 MB; nothing is "
        "sent anywhere."
    )


def _field_html(figure: str, field: Parameter, given: Mapping[str, Any]) -> str:
    name = html.escape(field.name)
    ident = f"run-{figure}-{name}"
    value = given.get(field.name, field.default)
    value = field.default if value == "" else value
    attributes = f'id="{ident}" name="{name}" aria-describedby="{ident}-about {ident}-error"'
    choices = ("false", "true") if field.type is bool else field.choices
    if choices:
        options = "".join(
            f"<option{' selected' if choice == _plain(value) else ''}>{html.escape(choice)}</option>"
            for choice in choices
        )
        entry = f"<select {attributes}>{options}</select>"
    else:
        limits = "".join(
            f' {limit}="{_plain(bound)}"'
            for limit, bound in (("min", field.low), ("max", field.high))
            if bound is not None
        )
        step = "1" if field.type is int else "any"
        entry = f'<input type="number" step="{step}"{limits} value="{_plain(value)}" required {attributes}>'
    about = field.help if choices else f"{field.help}. {field.range} {field.unit}".rstrip()
    about = _marked_up(about[0].upper() + about[1:])
    return (
        f'<div class="companion-run-field"><label for="{ident}">{_label(field)}</label>{entry}'
        f'<small id="{ident}-about">{about}</small>'
        f'<small id="{ident}-error" class="companion-run-wrong"></small></div>'
    )


def _marked_up(text: str) -> str:
    """Text as HTML, with code where it has backticks."""
    return _CODE.sub(r"<code>\1</code>", html.escape(text))


def _label(field: Parameter) -> str:
    """Its name in words, with the unit as one writes it where the name ends in it."""
    ending = f"_{field.unit.replace('/', '_per_')}".lower()
    if field.unit in _UNITS_IN_NAMES and field.name.endswith(ending):
        return f"{field.name.removesuffix(ending).replace('_', ' ')} ({field.unit})"
    return field.name.replace("_", " ")


def _plain(value: Any) -> str:
    """As `Parameter.parse` reads it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.15g}" if isinstance(value, float) else str(value)


# --- the files that it loads ----------------------------------------------------------------------


def _origin(spec: figures.Spec) -> dict[str, Any]:
    """What made a figure; of several traces, the one whose slice is replayed."""
    origin = figures.provenance(spec)
    live = LIVE[spec["name"]]
    if not live.trace:
        return origin
    trace = traces.load(live.trace)
    return origin | {"trace_sha256": trace.sha256, "trace_source": trace.source}


def slice_name(origin: Mapping[str, Any]) -> str:
    """File of the slice of the trace that a figure was made from."""
    return f"slice-{str(origin['trace_sha256'])[:16]}.json"


def _replayed(figure: str, parameters: Mapping[str, Any]) -> traces.Trace:
    """The trace that a figure replays; of some it is a part."""
    live = LIVE[figure]
    if live.params is deployment_timeline.Params:
        return deployment_timeline.at_own_pace(deployment_timeline.Params(**parameters))
    return traces.load(live.trace or parameters[live.trace_parameter])


def slice_of(trace: traces.Trace) -> Slice:
    """The first requests of a trace, with what the random policy draws for them."""
    head = trace.head(min(MOST_REQUESTS, len(trace)))
    draws = np.random.default_rng(DRAWS_SEED).spawn(1)[0].random(len(head))
    answers = answer_blocks(head)
    return Slice(
        name=trace.name,
        source=trace.source,
        block_tokens=trace.block_tokens,
        trace_requests=len(trace),
        requests=requests_of(head),
        draws=draws.tolist(),
        answers=[answers.of(index).tolist() for index in range(len(head))],
    )


def write_files(app: Sphinx, specs: Mapping[str, figures.Spec]) -> None:
    """Write the slices, the wheel and Python itself, as far as it can be had; nothing for a book without."""
    if not LIVE.keys() & specs.keys():
        return
    folder = Path(app.outdir, "_static", _FOLDER)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, live in LIVE.items():
        if live.replays and name in specs:
            origin = _origin(specs[name])
            target = folder / slice_name(origin)
            if not target.exists():
                told = slice_of(_replayed(name, origin["parameters"])).to_json()
                target.write_text(json.dumps(told, separators=(",", ":")), "utf-8")
    wheel = build_wheel(_checkout(app), folder)
    vendored = _serve_pyodide(Path(app.outdir, "_static", "pyodide"))
    settings = {
        "wheel": wheel.name,
        "version": hashlib.sha256(wheel.read_bytes()).hexdigest()[:16],
        "pyodide": "../pyodide/" if vendored else PYODIDE_ADDRESS,
        "files": PYODIDE_FILES,
    }
    folder.joinpath("live.json").write_text(json.dumps(settings, indent=1) + "\n", "utf-8")


def build_wheel(root: Path, folder: Path) -> Path:
    """Build a wheel of the modules and data that live figures reach, which depends on nothing.

    Parameters
    ----------
    root : Path
        The checkout.
    folder : Path
        Where the wheel is left; the same sources give the same bytes.
    """
    from hatchling.builders.wheel import WheelBuilder

    reached = dependencies(_LIVE_CODE, root)
    modules = {name for name in reached if name.startswith("src/")}
    modules |= {f"{package}/__init__.py" for name in modules for package in _packages(name)}
    config = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    for name in ("dependencies", "optional-dependencies", "scripts", "entry-points", "readme"):
        config["project"].pop(name, None)
    config["tool"]["hatch"]["build"]["targets"]["wheel"] = {
        "only-include": sorted(modules),
        "sources": ["src"],
        "force-include": {name: f"mooncake_companion/{name}" for name in reached if name.startswith("data/")},
    }
    (built,) = WheelBuilder(str(root), config=config).build(directory=str(folder), versions=["standard"])
    return Path(built)


def _packages(module: str) -> list[str]:
    parts = module.split("/")[:-1]
    return ["/".join(parts[:depth]) for depth in range(2, len(parts) + 1)]


def _checkout(app: Sphinx) -> Path:
    """Where the sources are: the book's own folder, or that of an editable install."""
    here = Path(app.confdir)
    return here if (here / "pyproject.toml").exists() else _checkout_of_package()


def _checkout_of_package() -> Path:
    return Path(__file__).parents[3]


# --- Python for the browser -----------------------------------------------------------------------


def checksum(content: bytes) -> str:
    """Checksum as subresource integrity writes it.

    >>> checksum(b"")[:20]
    'sha384-OLBgp1GsljhM2'
    """
    return f"sha384-{base64.b64encode(hashlib.sha384(content).digest()).decode()}"


def _serve_pyodide(target: Path) -> bool:
    """Put Pyodide's files there; False, with a line that says why, where they cannot be had."""
    kept = cache_path("pyodide", PYODIDE_VERSION)
    if not _is_whole(kept):
        problem = _download(kept)
        if problem:
            _log.info(
                "the live model will load Python from %s when a reader asks: %s", PYODIDE_ADDRESS, problem
            )
            shutil.rmtree(target, ignore_errors=True)
            return False
    if not _is_whole(target):
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(kept, target)
    return True


def _is_whole(folder: Path) -> bool:
    return all(
        (folder / name).is_file() and checksum((folder / name).read_bytes()) == known
        for name, known in PYODIDE_FILES.items()
    )


def _download(target: Path) -> str:
    """Have npm fetch the package, check every file, and keep them; returns what went wrong, or nothing."""
    npm = shutil.which("npm")
    if npm is None:
        return "npm is not installed"
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".pyodide.") as scratch:
        command = [npm, "pack", "--silent", "--pack-destination", scratch, f"pyodide@{PYODIDE_VERSION}"]
        try:
            done = subprocess.run(
                command, cwd=scratch, capture_output=True, text=True, check=False, timeout=_NPM_TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            return f"npm did not answer within {_NPM_TIMEOUT_S} s"
        packed = next(Path(scratch).glob("*.tgz"), None)
        if done.returncode or packed is None:
            return f"npm cannot get it ({next(iter(done.stderr.strip().splitlines()), 'no reason given')})"
        made = Path(scratch, "made")
        made.mkdir()
        with tarfile.open(packed) as archive:
            for name, known in PYODIDE_FILES.items():
                content = _member(archive, f"package/{name}")
                if checksum(content) != known:
                    return f"{name} of the package from npm has another checksum than is pinned"
                (made / name).write_bytes(content)
        shutil.rmtree(target, ignore_errors=True)
        made.rename(target)
    return ""


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    """Content of a file of an archive; empty where there is none. Nothing is unpacked by name."""
    try:
        found = archive.extractfile(name)
    except KeyError:
        return b""
    return found.read() if found else b""
