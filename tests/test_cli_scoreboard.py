import json

import pytest
from click.testing import CliRunner

from mooncake_companion.cli import companion
from mooncake_companion.errors import CompanionError, InputError
from mooncake_companion.experiments import scoreboard

SUMMARY_KEYS = [
    "rows",
    "modelled",
    "open",
    "setup",
    "median_abs_rel_error",
    "p90_abs_rel_error",
    "orderings_stated",
    "orderings_kept",
    "fitted_constants",
    "blind_median_abs_rel_error",
    "blind_p90_abs_rel_error",
]


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("MOONCAKE_CACHE", str(tmp_path))


def run(*words):
    result = CliRunner().invoke(companion, ["scoreboard", *words])
    if result.exception and not isinstance(result.exception, CompanionError | SystemExit):
        raise result.exception
    return result.stdout, result.exception


def test_json_has_the_summary_and_the_rows():
    told = json.loads(run("--json", "--where", "fast25.fig12")[0])
    assert list(told) == ["summary", "rows"]
    assert list(told["summary"]) == SUMMARY_KEYS
    assert told["summary"]["rows"] == len(told["rows"]) == 31
    assert list(told["rows"][0]) == list(scoreboard.COLUMNS)
    row = next(row for row in told["rows"] if row["id"] == "fast25.fig12.bw_8x400")
    assert row["where"] == "FAST'25, section 5.4.1"
    assert row["reported"] == 190
    assert row["error"] == pytest.approx(row["modelled"] / 190 - 1)
    assert row["command"] == "companion scoreboard --fresh --where fast25.fig12.bw_8x400"
    tcp = next(row for row in told["rows"] if row["id"].endswith("4x200gbps.tcp.40gb"))
    assert (tcp["modelled"], tcp["error"], tcp["role"]) == (None, None, "open")


def test_the_command_of_a_row_shows_that_row():
    told = json.loads(run("--json", "--fresh", "--where", "fast25.fig12.bw_8x400")[0])
    assert [row["id"] for row in told["rows"]] == ["fast25.fig12.bw_8x400"]


def test_the_table_for_people_stands_below_its_places_and_ends_with_the_summary():
    text, error = run("--where", "fast25.eq2")
    assert error is None
    lines = text.splitlines()
    assert lines[0] == "FAST'25, Equation 2"
    assert "B/G > 2*d*s / (gqa*…" in lines[1]
    assert any(line.split()[:5] == ["b_min_a800", "6", "GB/s", "5.859", "GB/s"] for line in lines)
    assert "open: advice on what to buy" in text
    assert lines[-4].startswith("4 rows: 2 modelled, 1 setup, 1 open; ")
    assert lines[-3] == "predictions: median error 2.3%, 90th percentile 2.3%"
    assert lines[-2:] == ["blind: none", "orderings: 0 of 0 kept"]


def test_role_leaves_only_its_rows():
    told = json.loads(run("--json", "--role", "open", "--where", "fast25.fig12")[0])
    assert {row["role"] for row in told["rows"]} == {"open"}
    assert told["summary"]["modelled"] == 0


def test_nothing_found_and_unknown_roles_are_bad_usage():
    error = run("--where", "Figure 99")[1]
    assert isinstance(error, InputError)
    assert "no row with --where 'Figure 99' and --role any" in str(error)
    assert run("--role", "guess")[1].code == 2
