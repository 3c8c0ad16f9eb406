import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest
import yaml

from mooncake_companion.publish import launch, notebooks
from mooncake_companion.publish.citations import book_url

ROOT = Path(__file__).parents[2]
REPOSITORY = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))["sphinx"]["config"][
    "html_theme_options"
]["repository_url"]
CHAPTERS = [
    path for path in sorted((ROOT / "book").glob("*.md")) if "\nkernelspec:\n" in path.read_text("utf-8")
]


def made(source, glued=None):
    text = notebooks.notebook_text(
        source, glued or {}, REPOSITORY, pins=notebooks.pinned(ROOT), works=notebooks.works(ROOT)
    )
    return text, nbformat.reads(text, as_version=4)


@pytest.mark.parametrize("source", CHAPTERS, ids=lambda path: path.stem)
def test_each_chapter_becomes_a_valid_notebook_the_same_each_time(source):
    text, notebook = made(source)
    nbformat.validate(notebook)
    assert made(source)[0] == text
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)
    markdown = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert not re.search(r"\{[a-z:-]+\}`|^[`:]{3,}\{|\]\([a-z-]+\.md", markdown, re.MULTILINE)
    assert f"# {re.search(r'^# (.+)$', source.read_text('utf-8'), re.MULTILINE)[1]}" in markdown


def test_the_first_cell_installs_this_version_with_locked_packages():
    _, notebook = made(ROOT / "book" / "results.md")
    first = notebook.cells[0].source
    assert f"mooncake-companion @ git+{REPOSITORY}@{notebooks.TAG}" in first
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    pins = re.findall(r"(\S+)==(\S+)", first)
    assert {name for name, _ in pins} == set(notebooks.PINNED)
    assert all(f"\n{name}=={version} " in lock for name, version in pins)


def test_text_is_resolved_or_leads_to_the_book():
    glued = {
        "gain": {"data": {"text/plain": "321.62"}},
        "word": {"data": {"text/plain": "'many'"}},
    }
    text = (
        "(label)=\n# A\n{glue:text}`gain:.0f` %, {glue:text}`word`, {glue:text}`lost`. {cite:t}`k` and "
        "{cite:p}`k`. See [there](overload.md#a) and {doc}`notation`, {ref}`the figure <fig-x>`.\n"
        "$$\nx\n$$ (eq-x)\n:::{note}\nHidden\n:::\n"
    )
    shown = notebooks.plain(text, glued, {"k": "Qin et al., 2025"})
    assert shown == (
        "# A\n322 %, many, …. Qin et al., 2025 and "
        f"(Qin et al., 2025). See [there]({book_url()}book/overload.html#a) and "
        f"[notation]({book_url()}book/notation.html), the figure.\n$$\nx\n\\tag{{eq-x}}\n$$"
    )


def test_works_are_named_by_first_author_and_year(tmp_path):
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "references.bib").write_text(
        "@misc{a, author = {Someone}, year = {2025}}\n@misc{b, title = {B}}"
    )
    assert notebooks.works(tmp_path) == {"a": "Someone, 2025", "b": "b"}
    named = notebooks.works(ROOT)
    assert named["qin2025mooncake"] == "Qin et al., 2025"
    assert named["aiconfigurator"] == "NVIDIA"
    assert len(named) == (ROOT / "book" / "references.bib").read_text("utf-8").count("@")


def test_pages_that_are_gone_take_their_notebooks_with_them(tmp_path):
    (tmp_path / notebooks.FOLDER).mkdir()
    (tmp_path / notebooks.FOLDER / "gone.ipynb").touch()
    written = notebooks.write_notebooks(ROOT, tmp_path, ["book/overload"], REPOSITORY)
    assert list((tmp_path / notebooks.FOLDER).iterdir()) == written


def test_the_links_are_pinned_to_this_version():
    assert f"v{yaml.safe_load((ROOT / 'CITATION.cff').read_text('utf-8'))['version']}" == launch.TAG
    assert launch.TAG in launch.binder_link(REPOSITORY, "book/results").split("/")[7]
    assert f"/blob/notebooks-{launch.TAG}/" in launch.colab_link(REPOSITORY, "book/results")
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "notebooks.yml").read_text("utf-8"))
    assert workflow[True]["push"]["tags"] == ["v*"]
    assert "refs/heads/notebooks-$TAG" in workflow["jobs"]["notebooks"]["steps"][-1]["run"]


def test_binder_installs_what_is_locked_and_this_package():
    binder = ROOT / ".binder"
    assert (binder / "requirements.txt").read_text("utf-8") == "-r ../requirements.lock\n"
    python = (binder / "runtime.txt").read_text("utf-8").strip().removeprefix("python-")
    tested = yaml.safe_load((ROOT / ".github" / "workflows" / "book.yml").read_text("utf-8"))
    assert python in tested["jobs"]["test"]["strategy"]["matrix"]["python"]
    script = binder / "postBuild"
    assert os.access(script, os.X_OK)
    assert subprocess.run(["sh", "-n", script], check=False).returncode == 0
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    for needed in ("hatchling", "jupytext"):  # the one to install without isolation, the other to open .md
        assert f"\n{needed}==" in lock
    assert "-e ." in script.read_text("utf-8")


def test_the_viewer_that_binder_sets_is_one_that_jupytext_knows(tmp_path):
    """As `postBuild` does, into a settings file of its own."""
    (line,) = (
        line
        for line in (ROOT / ".binder" / "postBuild").read_text("utf-8").splitlines()
        if line.startswith("jupytext-config")
    )
    settings = tmp_path / "settings.json"
    command = Path(sys.executable).with_name("jupytext-config")
    subprocess.run([command, "--settings-file", settings, *line.split()[1:]], check=True, capture_output=True)
    assert "Jupytext Notebook" in settings.read_text("utf-8")


@pytest.mark.slow
def test_a_notebook_runs_with_nothing_but_the_wheel(tmp_path):
    """As in Colab, where no checkout is near; what the first cell would install is unpacked from a wheel."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(tmp_path / "site")
    text, _ = made(ROOT / "book" / "notation.md")
    (tmp_path / "chapter.ipynb").write_text(text, "utf-8")
    code = (
        "import nbclient, nbformat\n"
        "notebook = nbformat.read('chapter.ipynb', 4)\n"
        "notebook.cells[1:1] = [nbformat.v4.new_code_cell('import mooncake_companion; "
        "print(mooncake_companion.__file__)')]\n"
        "nbclient.NotebookClient(notebook, timeout=300).execute()\n"
        "nbformat.write(notebook, 'done.ipynb')\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "COMPANION_BUILD"} | {
        "PYTHONPATH": str(tmp_path / "site"),
        "MOONCAKE_OFFLINE": "1",
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    notebook = json.loads((tmp_path / "done.ipynb").read_text("utf-8"))
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    assert str(tmp_path / "site") in "".join(outputs[0]["text"])
    computed = {
        output["metadata"]["scrapbook"]["name"]: next(iter(output["data"].values()))
        for output in outputs
        if "scrapbook" in output.get("metadata", {})
    }
    assert computed["kv_bytes_per_token"] == "327680"
    assert 69 < float(computed["parameters"]) < 71
