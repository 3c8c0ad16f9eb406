"""Serve the built book on this machine, to this machine only."""

import errno
import functools
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mooncake_companion.errors import CompanionError

HOST = "127.0.0.1"


class _Handler(http.server.SimpleHTTPRequestHandler):
    extensions_map = {  # noqa: RUF012 - as the standard library has it
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".js": "text/javascript",  # what the machine's own registry says differs
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
    }

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Say nothing of every request."""


class _Server(http.server.ThreadingHTTPServer):
    allow_reuse_address = True  # of a server that has just ended, not of one that runs
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a reader who turned the page while it was loading."""


def server(folder: Path, port: int = 0) -> http.server.ThreadingHTTPServer:
    """Make a server of a built book; it serves when its ``serve_forever`` is called.

    Parameters
    ----------
    folder : Path
        The built book.
    port : int
        0 for any that is free.

    Raises
    ------
    CompanionError
        If the book is not built, or the port cannot be had; the message says what to do.
    """
    if not (folder / "index.html").exists():
        raise CompanionError(f"no book in {folder}; build it first: companion build")
    try:
        return _Server((HOST, port), functools.partial(_Handler, directory=str(folder)))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise CompanionError(
                f"port {port} is in use by another program; choose another: "
                f"companion serve --port {port + 1}, or --port 0 for any that is free"
            ) from error
        if error.errno == errno.EACCES:
            raise CompanionError(
                f"port {port} is not open to you: those below 1024 belong to the system; "
                "leave --port out, or choose one above"
            ) from error
        raise


def url(serving: http.server.ThreadingHTTPServer) -> str:
    """Address of a server, without a slash at its end."""
    return f"http://{HOST}:{serving.server_port}"


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve a built book on a free port while the block runs; give its address."""
    with server(folder) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        try:
            yield url(running)
        finally:
            running.shutdown()
