"""A value, a preset, a file's name is data: nothing in it runs, in the chapter, on the page or in a file."""

import ast
import csv
import io
import json
import os
import shutil
from functools import cache
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from IPython.core.inputtransformer2 import TransformerManager

from mooncake_companion.errors import InputError
from mooncake_companion.publish import figures
from mooncake_companion.publish.chapters import CHAPTERS, find_chapter
from mooncake_companion.publish.given import gather
from mooncake_companion.publish.rerun import as_code, read_notebook, rerun, with_values
from mooncake_companion.publish.sphinx_ext import origin_html

CHECKOUT = Path(__file__).parents[2]
FREE = [
    (chapter.name, declared.name)
    for chapter in CHAPTERS.values()
    for declared in chapter.parameters
    if declared.type is str and not declared.choices
]
NASTY = [
    "\"); __import__('os').system('touch canary') #",
    "'''\n__import__('os').system('touch canary')\n'''",
    '"""\nimport os\n"""',
    "\\",
    '\\"',
    '\\\\"; import os #',
    "a\nb = 1",
    "a\r\nb",
    "{__import__('os').getcwd()}",
    "{{ config }} {% raw %}",
    "%%bash\ntouch canary",
    "!touch canary",
    "a?",
    "$(touch canary) `touch canary` ; touch canary",
    "\u2028\u2029\x85\x0b\x0c\x1c",
    "\0",
    "\ud800",
    "\U0001f40d\ufeff",
    "N" * 100_000,
    "\\N{DIGIT ONE} \\x41 \\u0041",
    "# -*- coding: latin-1 -*-",
    "",
]


def injected(chapter, values):
    """The cell that the chapter would run, as IPython would hand it to Python."""
    notebook = with_values(notebooks(chapter), values)
    (cell,) = (cell for cell in notebook.cells if "injected-parameters" in cell.metadata.get("tags", ()))
    return TransformerManager().transform_cell(cell.source)


@cache
def notebooks(chapter):
    return read_notebook(CHAPTERS[chapter].notebook(CHECKOUT))


def evaluated(source):
    """What the cell's assignments give, with nothing run; anything but NAME = LITERAL is an error."""
    found = {}
    for statement in ast.parse(source).body:
        assert isinstance(statement, ast.Assign), ast.unparse(statement)
        (target,) = statement.targets
        found[target.id] = ast.literal_eval(statement.value)
    return found


def test_there_are_such_parameters():
    assert ("control-plane", "trace") in FREE
    assert ("your-cluster", "node") in FREE


@pytest.mark.parametrize(("chapter", "name"), FREE)
def test_a_word_is_handed_to_its_chapter_as_it_is_and_as_nothing_else(chapter, name):
    for word in NASTY:
        assert evaluated(injected(chapter, {name: word})) == {name: word}


@given(st.text() | st.text(alphabet="\\\"'\n\r{}#%!?();_ a\0\u2028\ud800"))
def test_so_is_any_word(word):
    assert evaluated(injected("control-plane", {"trace": word, "prefill_nodes": 3})) == {
        "trace": word,
        "prefill_nodes": 3,
    }


def test_what_the_writer_of_source_gets_wrong_is_refused(monkeypatch):
    from papermill.translators import PythonTranslator

    monkeypatch.setattr(PythonTranslator, "translate_str", classmethod(lambda cls, word: f'"{word}"'))
    for word in ('"; import os #', "a\nb", "\\x41"):
        with pytest.raises(InputError, match="parameter trace: cannot be handed to a chapter exactly"):
            with_values(notebooks("control-plane"), {"trace": word})


@given(st.text(alphabet="`<>a*[]{}$|\n\\ :") | st.text())
@example("`<script>alert(1)</script>`")
@example("a`{eval-rst}`")
@example("\n\n:::\n# Title")
def test_a_value_on_a_page_is_code_and_nothing_else(word):
    from markdown_it import MarkdownIt

    (block, inline, _) = MarkdownIt("commonmark").parse("x " + as_code(word or " "))
    assert block.type == "paragraph_open"
    kinds = [child.type for child in inline.children]
    assert kinds in (["text", "code_inline"], ["text"])
    if kinds == ["text"]:
        assert not (word or " ").strip("` ")


def spec(word):
    return {
        "name": "evil",
        "description": word,
        "data": {"values": [{"x": word, "y": 1}]},
        "mark": "bar",
        "encoding": {"x": {"field": "x", "type": "nominal"}, "y": {"field": "y", "type": "quantitative"}},
        "usermeta": {"companion": {"trace_source": word, "parameters": {"trace": word}}},
    }


MARKUP = "</script></metadata><script>window.evil = 1</script><!--<script>"


def test_markup_in_a_figures_values_stays_text():
    page, drawing = figures.to_html(spec(MARKUP)), figures.to_svg(spec(MARKUP))
    assert "evil = 1</script>" not in page
    assert "window.evil" in page
    assert page.count("<!--<script>") == figures.to_html(spec("plain")).count("<!--<script>")
    assert "<script" not in drawing
    assert "<script" not in origin_html(figures.provenance(spec(MARKUP)))


@pytest.mark.parametrize("word", ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1"])
def test_no_cell_of_a_table_is_a_formula(word):
    table = list(csv.reader(io.StringIO(figures.to_csv(spec(word)))))
    assert table == [["x", "y"], ["'" + word, "1"]]


def test_numbers_and_other_words_of_a_table_stay_as_they_are():
    rows = [{"x": -1.5, "y": "a=b"}, {"x": None, "y": "–"}, {"x": 2, "y": "-"}]
    made = figures.to_csv({**spec(""), "data": {"values": rows}})
    assert made == "x,y\n-1.5,a=b\n,–\n2,-\n"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("trace", "/etc/passwd"),
        ("trace", "../../secret.jsonl"),
        ("node", "other.toml"),
        ("model", "/dev/zero"),
    ],
)
def test_a_preset_leads_to_no_other_file(field, value, tmp_path):
    preset = tmp_path / "evil.toml"
    preset.write_text(f'[cluster]\n{field} = "{value}"\n')
    params = find_chapter("your-cluster").params
    with pytest.raises(InputError, match=rf"{field} = .*leads to no other file"):
        gather(params, chosen_presets=[str(preset)])
    preset.write_text('[cluster]\ntrace = "synthetic-standin"\nnode = "h100"\n')
    assert gather(params, chosen_presets=[str(preset)])["node"] == "h100"


@pytest.mark.parametrize(
    "tag", ["object/apply:os.system", "object/new:os.system", "name:os.system", "module:os"]
)
def test_yaml_makes_no_objects(tag, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.yml").write_text(f"trace: !!python/{tag} [touch canary]\n")
    with pytest.raises(InputError, match=r"evil\.yml: not YAML"):
        gather(find_chapter("control-plane").params, file=tmp_path / "evil.yml")
    assert not (tmp_path / "canary").exists()


TABLE = "```{code-cell} ipython3\npd.set_option('display.max_colwidth', None)\ntable\n```"
EVIL = (
    "\"); __import__('os').system('touch canary') #`</code></script><script>window.evil = 1</script>"
    "<img src=x onerror='window.evil = 1'>{{ 1 }} $x$ {eval-rst}`x`"
)


@pytest.mark.slow
@pytest.mark.browser
def test_a_real_run_shows_such_a_word_and_does_nothing_with_it(little, little_root, tmp_path, monkeypatch):
    """In a notebook that puts it wherever a trace's name may come: table, chart, tooltip, origin, text."""
    from playwright.sync_api import sync_playwright

    browser_path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if browser_path is None:
        pytest.skip("no chromium on this machine")
    chapter = little_root / "book" / "little.md"
    changes = (
        ('"trace": "made-up"', '"trace": label'),
        ('"trace_source": "made up"', '"trace_source": label'),
        ('description="A rising line."', 'description="A rising line. " + label'),
        ('{"x": range(points)', '{"x": [f"{label}{number}" for number in range(points)]'),
        (
            'mark_line(clip=True).encode(x="x:Q", y="y:Q")',
            'mark_bar().encode(x="x:N", y="y:Q", tooltip=["x"])',
        ),
        (
            "It ends at",
            f"{TABLE}\n\nIt is {{glue:text}}`label` and ends at",
        ),
    )
    text = chapter.read_text("utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    chapter.write_text(text, "utf-8")
    monkeypatch.setenv("MOONCAKE_CACHE", str(tmp_path / "cache"))
    done = rerun(little_root, little, {"label": EVIL}, tmp_path / "run")
    assert list(tmp_path.rglob("canary")) == []
    cells = json.loads((tmp_path / "run" / "notebook.ipynb").read_text("utf-8"))["cells"]
    (cell,) = (each for each in cells if "injected-parameters" in each["metadata"].get("tags", ()))
    assert evaluated("".join(cell["source"])) == {"label": EVIL}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(done.page.as_uri())
        page.wait_for_selector(".companion-live svg")
        assert EVIL in page.inner_text(".companion-rerun")
        assert EVIL in page.inner_text("table.dataframe")
        page.hover(".companion-live svg .mark-rect path >> nth=2")
        page.wait_for_selector("#vg-tooltip-element.visible")
        assert "onerror" in page.inner_text("#vg-tooltip-element")
        assert page.evaluate("typeof window.evil") == "undefined"
        browser.close()
