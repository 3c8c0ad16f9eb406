import dataclasses
import hashlib
import http.server
import threading
from pathlib import Path

import numpy as np
import pytest

from mooncake_companion.errors import CompanionError, InputError
from mooncake_companion.traces import (
    Trace,
    fetch,
    generated,
    has_standin,
    load,
    locate,
    registered,
    sources,
    sources_fingerprint,
    standin,
    write_jsonl,
)
from mooncake_companion.traces.generator import generate


@pytest.fixture
def content(tmp_path):
    """Bytes of a small trace, as if they had been released."""
    path = tmp_path / "content.jsonl"
    write_jsonl(Trace.from_requests([(0.0, 600, 1, [0, 1]), (3.0, 700, 2, [0, 2])]), path)
    return path.read_bytes()


@pytest.fixture
def server(content):
    """A web server on this machine; `server.answers` maps paths to bytes, `server.asked` counts."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.server.asked.append(self.path)
            body = self.server.answers.get(self.path)
            self.send_response(200 if body is not None else 404)
            self.send_header("Content-Length", str(len(body or b"") + self.server.missing_bytes))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.answers, running.asked, running.missing_bytes = {"/c.jsonl": content}, [], 0
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture(params=["sha256", "git_blob"])
def conversation(request, nowhere, server, content, monkeypatch):
    """The registry's conversation trace, replaced by the small one that the server has."""
    checksums = {
        "sha256": hashlib.sha256(content).hexdigest(),
        "git_blob": hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest(),
    }
    changed = dataclasses.replace(
        registered()["conversation"],
        url=f"http://127.0.0.1:{server.server_port}/c.jsonl",
        **{"sha256": "", "git_blob": "", request.param: checksums[request.param]},
    )
    monkeypatch.setattr(sources, "registered", lambda: {**registered(), "conversation": changed})
    monkeypatch.setattr(sources, "_failures", {})
    monkeypatch.delenv("MOONCAKE_OFFLINE")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return changed


def test_a_download_is_checked_kept_and_not_repeated(conversation, nowhere, server, content):
    assert locate("conversation") is None
    path = fetch("conversation")
    assert path == nowhere / "traces" / conversation.file == locate("conversation")
    assert path.read_bytes() == content
    assert fetch("conversation") == path
    assert len(server.asked) == 1
    trace = load("conversation")
    digest = hashlib.sha256(content).hexdigest()
    assert (trace.name, trace.origin, trace.sha256) == ("conversation", "released", digest)
    assert trace.source == f"conversation trace (released, SHA-256 {digest[:12]}…)"


def test_a_named_folder_comes_before_the_cache_and_the_network(
    conversation, server, content, tmp_path, monkeypatch
):
    (tmp_path / conversation.file).write_bytes(content)
    assert locate("conversation", folder=tmp_path) == tmp_path / conversation.file
    monkeypatch.setenv("MOONCAKE_TRACES", str(tmp_path))
    assert fetch("conversation") == tmp_path / conversation.file
    assert server.asked == []


def test_a_folder_without_the_file_does_not_hide_the_cache(conversation, nowhere, tmp_path):
    kept = fetch("conversation")
    (tmp_path / "empty").mkdir()
    assert locate("conversation", folder=tmp_path / "empty") == kept


def test_a_wrong_file_in_the_named_folder_is_refused_not_skipped(conversation, content, tmp_path):
    (tmp_path / conversation.file).write_bytes(content[:-5])
    for call in (locate, fetch, load):
        with pytest.raises(InputError, match="is not the released conversation trace: expected") as caught:
            call("conversation", folder=tmp_path)
        assert conversation.checksum in str(caught.value)
        assert f"({len(content) - 5} bytes); it may be cut off, edited" in str(caught.value)


def test_a_folder_that_is_none_is_refused(nowhere, tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"the folder names .*, which is not a folder"):
        locate("conversation", folder=tmp_path / "none")
    monkeypatch.setenv("MOONCAKE_TRACES", str(tmp_path / "none"))
    with pytest.raises(InputError, match=r"MOONCAKE_TRACES names .*, which is not a folder"):
        locate("conversation")


def test_a_damaged_file_in_the_cache_is_downloaded_anew(conversation, content):
    path = fetch("conversation")
    path.write_bytes(b"damaged")
    assert locate("conversation") is None
    assert fetch("conversation").read_bytes() == content


def test_a_link_in_the_cache_is_replaced_and_not_written_through(conversation, content, tmp_path):
    (tmp_path / "thesis").write_text("years of work")
    target = sources.cache_folder() / conversation.file
    target.parent.mkdir(parents=True, exist_ok=True)
    target.symlink_to(tmp_path / "thesis")
    assert fetch("conversation").read_bytes() == content
    assert not target.is_symlink()
    assert (tmp_path / "thesis").read_text() == "years of work"
    assert [path.name for path in target.parent.iterdir()] == [conversation.file]


def test_no_registered_file_lies_outside_its_folder():
    assert all(Path(trace.file).name == trace.file for trace in registered().values())
    assert all(trace.url.startswith("https://") for trace in registered().values())


def test_what_is_not_the_released_file_is_not_kept(conversation, nowhere, server, content):
    server.answers["/c.jsonl"] = b"<html>please log in</html>"
    with pytest.raises(CompanionError, match=r"what came is not the released file .*suspect a proxy's page"):
        fetch("conversation")
    assert list((nowhere / "traces").iterdir()) == []


def test_a_transfer_cut_short_is_not_kept(conversation, nowhere, server):
    server.missing_bytes = 10
    with pytest.raises(CompanionError, match="cannot download the conversation trace from http"):
        fetch("conversation")
    assert list((nowhere / "traces").iterdir()) == []


def test_a_failed_download_gives_the_stand_in_and_is_not_tried_at_once_again(conversation, server):
    server.answers.clear()
    for _ in range(3):
        trace = load("conversation")
        assert (trace.name, trace.origin) == ("conversation-standin", "standin")
        assert trace.source == (
            "conversation-standin: a generated stand-in for the conversation trace (seed 0); "
            "the released trace could not be had"
        )
    assert len(server.asked) == 1
    with pytest.raises(CompanionError, match=r"404.*companion traces fetch conversation"):
        fetch("conversation")


def test_offline_asks_nobody(conversation, server, monkeypatch):
    monkeypatch.setenv("MOONCAKE_OFFLINE", "1")
    assert load("conversation").origin == "standin"
    with pytest.raises(CompanionError, match="MOONCAKE_OFFLINE is set"):
        fetch("conversation")
    monkeypatch.delenv("MOONCAKE_OFFLINE")
    assert load("conversation", download=False).origin == "standin"
    assert server.asked == []


def test_a_trace_without_stand_in_says_how_to_get_it(nowhere, monkeypatch):
    def nothing(name):
        raise CompanionError(f"there is no stand-in for the {name} trace")

    for function in ("load_workload", "workload_path"):
        monkeypatch.setattr(sources, function, nothing)
    sources._standin.cache_clear()
    with pytest.raises(CompanionError, match=r"companion traces fetch arxiv.*MOONCAKE_TRACES") as caught:
        load("arxiv")
    assert caught.value.exit_code == 1
    with pytest.raises(CompanionError, match=r"no stand-in for the arxiv trace.*MOONCAKE_TRACES"):
        load("arxiv-standin")


def test_what_was_never_released_is_generated_under_either_name(nowhere):
    made = load("l-eval")
    assert made is load("l-eval-standin")
    assert (made.name, made.origin) == ("l-eval-standin", "standin")
    assert made.source == "l-eval-standin: a generated stand-in for the l-eval workload (seed 0)"
    assert not set(generated()) & set(registered())
    assert all(has_standin(name) for name in [*generated(), *registered()])
    assert not has_standin("../workloads/l-eval")


def test_a_stand_in_is_generated_once_on_a_machine(nowhere, monkeypatch, tmp_path):
    calls = []

    def counting(*given, **named):
        calls.append(named["name"])
        return generate(*given, **named)

    monkeypatch.setattr(sources, "generate", counting)

    def loaded():
        sources._standin.cache_clear()
        return standin("l-eval")

    made, again = loaded(), loaded()
    assert calls == ["l-eval-standin"]
    assert again == made
    assert (again.name, again.origin, again.source) == (made.name, made.origin, made.source)
    for column in sources._COLUMNS:
        assert np.array_equal(getattr(again, column), getattr(made, column))

    (kept,) = (tmp_path / "cache" / "standins").iterdir()
    whole = kept.read_bytes()
    middle = len(whole) // 2
    for damaged in (whole[:middle], b"", whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]):
        kept.write_bytes(damaged)
        assert loaded() == made
        assert kept.read_bytes() == whole
    assert len(calls) == 4


def test_a_cache_that_cannot_be_written_costs_time_only(nowhere, monkeypatch, tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "standins").touch()
    sources._standin.cache_clear()
    assert standin("l-eval").origin == "standin"


def test_a_stand_in_asked_for_by_name_needs_no_excuse(conversation, content, tmp_path):
    (tmp_path / conversation.file).write_bytes(content)
    trace = load("conversation-standin", folder=tmp_path)
    assert trace.source == "conversation-standin: a generated stand-in for the conversation trace (seed 0)"
    assert trace == standin("conversation")


def test_a_file_is_loaded_by_its_path_and_known_by_its_content(conversation, content, tmp_path):
    other = tmp_path / "mine.jsonl"
    other.write_bytes(content)
    assert load(str(other)).name == "conversation"
    other.write_bytes(content + content.splitlines(keepends=True)[-1])
    assert (load(other).name, load(other).origin, len(load(other))) == ("mine", "file", 3)


def test_unknown_names_are_answered_with_the_known_ones(nowhere):
    for call in (load, locate, fetch):
        with pytest.raises(InputError, match=r"no trace is called 'conversion'.*conversation, toolagent"):
            call("conversion")
    with pytest.raises(InputError, match=r"cannot read none\.jsonl"):
        load("none.jsonl")


def test_the_fingerprint_follows_what_would_be_loaded(conversation, content):
    before = sources_fingerprint()
    assert before == sources_fingerprint()
    assert before.startswith("conversation:standin-")
    assert "arxiv:standin-" in before
    assert "l-eval:standin-" in before
    fetch("conversation")
    assert sources_fingerprint().startswith(f"conversation:{hashlib.sha256(content).hexdigest()[:12]} ")


def test_each_registered_trace_is_pinned_and_credited():
    for trace in registered().values():
        assert trace.url.startswith(
            "https://raw.githubusercontent.com/kvcache-ai/Mooncake/3b5a594133958449a1fe"
        )
        assert trace.url.endswith(f"/{trace.file}")
        assert (len(trace.sha256), len(trace.git_blob)) in {(64, 0), (0, 40)}
        assert trace.licence == "Apache-2.0"


def test_the_released_files_have_the_requests_they_are_said_to_have(released):
    assert (released.origin, len(released)) == ("released", registered()[released.name].requests)
