"""Public formats, from small files made up for this."""

import json

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from mooncake_companion.cli.traces import traces as command
from mooncake_companion.errors import InputError
from mooncake_companion.traces import convert, infinite_cache_hit_ratio, read_jsonl, write_jsonl

AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-01-01 00:00:01.5000000,600,5
2023-01-01 00:00:01.2500000,10,7
2023-01-01 00:00:04.0000000,0,9
2023-01-01 00:01:01.2500000,1024,1
"""
AZURE_2024 = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2024-01-01 02:00:00.250000+02:00,600,5
2024-01-01 00:00:01+00:00,10,7
"""
BURSTGPT = """\
Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,600,5,605,Conversation log
45,GPT-4,10,0,10,API log
118.5,GPT-4,10,7,17,"Conversation log, long"
"""
BURSTGPT_LATER = """\
Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
5,a,1.5,ChatGPT,600.0,5,605,Conversation log
"""


def bailian(*rows):
    names = ("timestamp", "input_length", "output_length", "hash_ids")
    made = ({**dict(zip(names, row, strict=True)), "chat_id": 1, "turn": 1, "type": "text"} for row in rows)
    return "".join(json.dumps(row) + "\n" for row in made)


@pytest.fixture
def write(tmp_path):
    def written(text, name="made-up.txt"):
        path = tmp_path / name
        path.write_text(text, "utf-8", newline="")
        return path

    return written


def columns(trace):
    return (trace.arrival_s.tolist(), trace.input_tokens.tolist(), trace.output_tokens.tolist())


def test_azure_is_put_in_order_from_zero_and_shares_nothing(write):
    done = convert("azure", write(AZURE))
    assert columns(done.trace) == ([0.0, 0.25, 60.0], [10, 600, 1024], [7, 5, 1])
    assert (done.rows, done.skipped, done.moved) == (4, 1, 1)
    assert done.trace.block_ids.tolist() == [0, 1, 2, 3, 4]
    assert infinite_cache_hit_ratio(done.trace) == 0


def test_azure_of_2024_has_time_zones(write):
    assert columns(convert("azure", write(AZURE_2024)).trace) == ([0.0, 0.75], [600, 10], [5, 7])


def test_burstgpt_leaves_failures_out_and_may_have_sessions(write):
    done = convert("burstgpt", write(BURSTGPT))
    assert columns(done.trace) == ([0.0, 113.5], [600, 10], [5, 7])
    assert (done.rows, done.skipped, done.moved) == (3, 1, 0)
    assert columns(convert("burstgpt", write(BURSTGPT_LATER)).trace) == ([0.0], [600], [5])


def test_bailian_joins_its_blocks(write):
    text = bailian((10.5, 40, 3, [1, 2, 3]), (11, 33, 4, [1, 2, 9]), (12, 16, 1, [2]))
    fine = convert("bailian", write(text), block_tokens=16).trace
    assert columns(fine) == ([0.0, 0.5, 1.5], [40, 33, 16], [3, 4, 1])
    assert [fine.blocks_of(i).tolist() for i in range(3)] == [[0, 1, 2], [0, 1, 3], [4]]
    coarse = convert("bailian", write(text), block_tokens=32).trace
    assert [coarse.blocks_of(i).tolist() for i in range(3)] == [[0, 1], [0, 2], [3]]
    assert convert("bailian", write(text)).trace.block_tokens == 512


def test_a_block_of_bailian_s_that_is_not_full_may_lack_its_id(write):
    text = bailian((1, 40, 3, [1, 2]), (2, 40, 3, [1, 2]), (3, 32, 3, [1, 2]))
    trace = convert("bailian", write(text), block_tokens=16).trace
    assert [trace.blocks_of(i).tolist() for i in range(3)] == [[0, 1, 2], [0, 1, 3], [0, 1]]


@given(
    st.lists(
        st.tuples(st.floats(0, 1e6), st.lists(st.integers(0, 5), min_size=1, max_size=8), st.integers(0, 15)),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from([16, 32, 64]),
)
def test_whatever_bailian_s_ids_stand_for_ours_stand_for_prefixes(tmp_path_factory, rows, block_tokens):
    """A trace that could not be valid is refused by `Trace`; so it is enough that it is made."""
    path = tmp_path_factory.mktemp("bailian") / "made-up.jsonl"
    path.write_text(bailian(*((at, 16 * len(ids) - short, 1, ids) for at, ids, short in rows)))
    trace = convert("bailian", path, block_tokens=block_tokens).trace
    by_prefix = {}
    order = sorted(range(len(rows)), key=lambda i: rows[i][0])
    for index, row in enumerate(order):
        ids, width = rows[row][1], block_tokens // 16
        for block, ours in enumerate(trace.blocks_of(index).tolist()):
            assert by_prefix.setdefault(tuple(ids[: (block + 1) * width]), ours) == ours
    assert len(set(by_prefix.values())) == len(by_prefix)


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("azure", BURSTGPT, r"no column 'TIMESTAMP' in line 1, which has Timestamp, Model"),
        ("azure", "", "no column 'TIMESTAMP' in line 1, which has nothing"),
        (
            "azure",
            AZURE.replace("2023-01-01 00:00:04", "4 o'clock"),
            "line 4, field TIMESTAMP: got 4",
        ),
        (
            "azure",
            AZURE.replace(",600,", ",x,"),
            "line 2, field ContextTokens: got x; expected",
        ),
        ("azure", AZURE.replace(",600,", ",1.5,"), "line 2, field ContextTokens: got 1.5"),
        ("azure", AZURE.replace(",600,", ",-1,"), "line 2, field ContextTokens: got -1"),
        ("azure", AZURE.replace(",600,", ","), "line 2, field GeneratedTokens: got nothing"),
        ("azure", AZURE.replace(",600,", ",6,0,0,"), "line 2: got .* expected 3 columns"),
        ("azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n", "no row has a prompt and an answer"),
        ("burstgpt", BURSTGPT.replace("45,", "nan,"), "line 3, field Timestamp: got nan; expected seconds"),
        ("burstgpt", BURSTGPT.replace("45,", "-45,"), "line 3, field Timestamp: got -45"),
        (
            "bailian",
            bailian((1, 40, 3, [1])),
            "line 1, field hash_ids: got 1 ids; expected 3, one",
        ),
        ("bailian", bailian((1, 40, 3, [1, 2, "x"])), "field hash_ids: got .* a list of whole numbers"),
        ("bailian", bailian((1, 40, 3, [1, 2, 3])) + "{", r"line 2: got \{; expected a JSON object, but"),
        ("bailian", bailian((1, 40, 3, [1, 2, 3])) + "[]", "line 2: got .*; expected a JSON object"),
        ("bailian", '{"timestamp": 1}', "line 1, field input_length: got nothing; expected the fields"),
        ("bailian", bailian((1, "40", 3, [1, 2, 3])), "field input_length: got 40; expected a whole number"),
        ("bailian", bailian((True, 40, 3, [1, 2, 3])), "field timestamp: got True"),
    ],
)
def test_what_is_wrong_is_named_with_file_line_and_field(write, kind, text, message):
    path = write(text)
    with pytest.raises(InputError, match=message) as caught:
        convert(kind, path)
    assert str(caught.value).startswith(str(path))


def test_what_cannot_be_converted(tmp_path, write):
    with pytest.raises(InputError, match="no trace format 'csv'; there are azure, burstgpt, bailian"):
        convert("csv", write(AZURE))
    with pytest.raises(InputError, match=r"cannot read .*: No such file"):
        convert("azure", tmp_path / "nowhere.csv")
    with pytest.raises(InputError, match="24 is unfit; expected a multiple of 16"):
        convert("bailian", write(""), block_tokens=24)
    packed = tmp_path / "packed.csv.gz"
    packed.write_bytes(b"\x1f\x8b\x08\x00")
    with pytest.raises(InputError, match=r"gzip-compressed; unpack it first: gunzip packed\.csv.gz"):
        convert("azure", packed)


def test_the_command_writes_a_trace_that_reads_back(write, tmp_path):
    target = tmp_path / "out.jsonl"
    words = ["convert", "azure", str(write(AZURE)), str(target)]
    result = CliRunner().invoke(command, words, catch_exceptions=False)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"{target}: 3 requests in 60 s",
        "left out: 1 of 4 rows, without a prompt or an answer",
        "put in order: 1 rows came before the one that they stood behind",
        "lacks: block ids and sessions: every block is its own, so nothing can be reused",
    ]
    assert columns(read_jsonl(target)) == ([0.0, 0.25, 60.0], [10, 600, 1024], [7, 5, 1])
    told = json.loads(CliRunner().invoke(command, [*words, "--json", "--requests", "2"]).stdout)
    assert (told["requests"], told["rows"], told["skipped"]) == (2, 2, 0)
    assert isinstance(CliRunner().invoke(command, ["convert", "csv", *words[2:]]).exception, InputError)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (bailian(("1" * 400, 16, 1, [1])), "field timestamp"),
        (bailian((10**400, 16, 1, [1])), "field timestamp"),
        (bailian((1e13, 16, 1, [1])), "from 0 to 1e\\+12"),
        (bailian((0, 16, 1, [-1])), "field hash_ids"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_what_no_trace_can_hold_is_refused_where_it_stands(write, line, told):
    with pytest.raises(InputError, match=f"line 1.*{told}"):
        convert("bailian", write(line))


def test_what_is_converted_can_be_read_again_however_far_apart(write, tmp_path):
    rows = "TIMESTAMP,ContextTokens,GeneratedTokens\n0001-01-01,5,1\n9999-12-31,5,1\n"
    write_jsonl(convert("azure", write(rows)).trace, tmp_path / "out.jsonl")
    assert len(read_jsonl(tmp_path / "out.jsonl")) == 2
