import socket
import subprocess
import sys
import urllib.request

import pytest
from click.testing import CliRunner

from mooncake_companion.cli import companion
from mooncake_companion.errors import CompanionError
from mooncake_companion.publish import serve


@pytest.fixture
def html(tmp_path):
    (tmp_path / "index.html").write_text("first page")
    (tmp_path / "a.mjs").write_text("export {}")
    (tmp_path / "a.wasm").write_bytes(b"\0asm")
    return tmp_path


def test_the_built_book_is_served_to_this_machine_only(html):
    with serve.serving(html) as address:
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(f"{address}/index.html") as answer:
            assert answer.read() == b"first page"
        for name, kind in (("a.mjs", "text/javascript"), ("a.wasm", "application/wasm")):
            with urllib.request.urlopen(f"{address}/{name}") as answer:
                assert answer.headers["Content-Type"] == kind


def test_a_port_in_use_is_told_with_what_to_do(html):
    with socket.create_server((serve.HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CompanionError, match=rf"port {port} is in use.*--port {port + 1}.*--port 0"):
            serve.server(html, port)


def test_a_book_that_is_not_built_is_told(little_root):
    done = CliRunner().invoke(companion, ["serve", "--root", str(little_root)])
    assert isinstance(done.exception, CompanionError)
    assert "build it first: companion build" in str(done.exception)


def test_the_command_says_the_address_and_ends_quietly(little_root):
    built = little_root / "_build" / "html"
    built.parent.mkdir()
    built.mkdir()
    (built / "index.html").write_text("built")
    code = "from mooncake_companion.cli import main; main()"
    command = [sys.executable, "-c", code, "serve", "--port", "0", "--root", str(little_root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        first = running.stdout.readline().split()[0]
        with urllib.request.urlopen(first) as answer:
            assert answer.read() == b"built"
        running.send_signal(2)
        _, complaints = running.communicate(timeout=20)
    assert running.returncode == 0
    assert complaints == "ended\n"
