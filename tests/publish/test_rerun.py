import json
import os

import pytest

from mooncake_companion.errors import CompanionError, InputError
from mooncake_companion.publish import provenance
from mooncake_companion.publish import rerun as rerun_module
from mooncake_companion.publish.chapters import find_chapter
from mooncake_companion.publish.rerun import notice, rerun


def contents(folder, *, apart=()):
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name not in apart
    }


@pytest.mark.slow
def test_equal_runs_are_equal_but_for_the_date(little, little_root, tmp_path, monkeypatch):
    first = rerun(little_root, little, {"points": 4}, tmp_path / "first", html=False).folder
    monkeypatch.chdir(tmp_path)
    second = rerun(little_root, little, {"points": 4}, tmp_path / "second", html=False).folder
    assert contents(first, apart=["provenance.json"]) == contents(second, apart=["provenance.json"])
    one, other = (json.loads((folder / "provenance.json").read_text()) for folder in (first, second))
    assert one.pop("created")
    assert other.pop("created")
    assert one == other
    assert one["parameters"] == {"points": 4, "label": "a"}
    assert (one["trace"], one["trace_sha256"], one["commit"]) == ("made-up", "0" * 64, None)
    assert (first / "figures" / "little-line.csv").read_text() == "x,y\n0,0\n1,1\n2,2\n3,3\n"


@pytest.mark.slow
def test_a_failed_run_is_one_line_and_leaves_the_earlier_one_whole(little, little_root, tmp_path):
    out = tmp_path / "runs" / "little"
    rerun(little_root, little, {}, out, html=False)
    before, environment = contents(out), dict(os.environ)
    with pytest.raises(CompanionError) as failure:
        rerun(little_root, little, {"label": "broken"}, out, html=False)
    message = str(failure.value)
    assert "\n" not in message
    assert "cell [3] `import altair as alt`: RuntimeError: label is broken" in message
    assert contents(out) == before
    assert [path.name for path in out.parent.iterdir()] == ["little"]
    assert dict(os.environ) == environment


@pytest.mark.slow
def test_what_changed_is_told_number_by_number(little, little_root, tmp_path, monkeypatch):
    monkeypatch.setenv("MOONCAKE_CACHE", str(tmp_path / "cache"))
    done = rerun(little_root, little, {"points": 5}, tmp_path / "run", html=False)
    assert done.changes == (("last point", 2.0, 4.0),)
    assert done.changes[0].percent == 100
    written = (tmp_path / "run" / "changes.csv").read_text("utf-8")
    assert written == "name,published,now,change_percent\nlast point,2.0,4.0,100.0\n"
    assert rerun(little_root, little, {"points": 3}, tmp_path / "same", html=False).changes == ()


@pytest.mark.slow
def test_the_page_says_that_it_is_a_rerun(little, little_root, tmp_path):
    done = rerun(little_root, little, {"points": 5}, tmp_path / "run")
    page = done.page.read_text("utf-8")
    assert page.count('<meta http-equiv="Content-Security-Policy"') == 1
    assert "One number is not the published one" in page
    assert done.page == tmp_path / "run" / "html" / "little.html"
    assert "A rerun, not the published chapter" in page
    assert "points = 5" in page
    assert 'href="https://mooncake-companion.github.io/mooncake-companion/book/overview.html"' in page
    assert (tmp_path / "run" / "html" / "figures" / "little-line.svg").exists()


def test_the_notice_names_only_what_changed(little):
    told = notice(little, {"points": 3, "label": "b"})
    assert "`label = b` (published: `a`)" in told
    assert "points" not in told
    assert "published values" in notice(little, {})


def test_a_file_of_one_s_own_is_found_from_where_the_chapter_runs(tmp_path, monkeypatch):
    (tmp_path / "mine.toml").write_text('[node]\npreset = "h200"\n[model]\npreset = "deepseek-v3"\n')
    (tmp_path / "mine.jsonl").write_text(
        '{"timestamp": 0, "input_length": 5, "output_length": 2, "hash_ids": [0]}\n'
    )
    monkeypatch.chdir(tmp_path)
    given = {"node": "mine.toml", "model": "mine.toml", "trace": "mine.jsonl", "prefill_nodes": 1}
    made = str(tmp_path / "mine.toml")
    assert rerun_module._checked(find_chapter("your-cluster"), given) == {
        "node": made,
        "model": made,
        "trace": str(tmp_path / "mine.jsonl"),
        "prefill_nodes": 1,
    }


def test_values_that_do_not_go_together_are_refused_before_anything_runs(little, little_root, tmp_path):
    with pytest.raises(InputError, match="points"):
        rerun(little_root, little, {"points": 99}, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_with_something_else_is_not_replaced(little, little_root, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="something other than a rerun"):
        rerun(little_root, little, {}, tmp_path)


def test_a_checkouts_commit_is_told_with_its_changes(little_root):
    def git(*arguments):
        return provenance._git(little_root, "-c", "user.name=a", "-c", "user.email=a@b", *arguments)

    assert provenance.commit(little_root) is None
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "Start")
    clean = provenance.commit(little_root)
    assert len(clean) == 40
    (little_root / "book" / "new.md").write_text("# New\n")
    assert provenance.commit(little_root) == f"{clean}+dirty"


def test_a_trace_in_other_blocks_is_read_as_the_chapter_will_read_it(tmp_path):
    row = {"timestamp": 0, "input_length": 40, "output_length": 5, "hash_ids": [0, 1, 2]}
    mine = tmp_path / "mine.jsonl"
    mine.write_text(json.dumps(row) + "\n")
    chapter = find_chapter("your-cluster")
    given = {"trace": str(mine), "block_tokens": 16}
    assert rerun_module._checked(chapter, given) == given
    with pytest.raises(InputError, match="expected 1, one for each 512"):
        rerun_module._checked(chapter, {"trace": str(mine)})
    with pytest.raises(InputError, match="'conversation' has blocks of 512 tokens"):
        rerun_module._checked(chapter, {"block_tokens": 16})
