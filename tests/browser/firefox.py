"""Firefox as it is installed, driven by WebDriver BiDi: just enough of it to open pages and ask them."""

import itertools
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from websockets.sync.client import ClientConnection, connect

_STARTED = "WebDriver BiDi listening on "
_EVENTS = ["log.entryAdded", "network.beforeRequestSent", "network.fetchError"]
_PATIENCE_S = 120


@contextmanager
def started(program: str, profile: Path) -> Iterator["Tab"]:
    """A headless Firefox with a new profile, as long as it is asked."""
    log = profile / "firefox.log"
    options = ["--headless", "--no-remote", "--remote-debugging-port", "0", "--profile", str(profile)]
    with log.open("wb") as stderr:
        process = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL, stderr=stderr)
    try:
        with connect(f"{_address(process, log)}/session", max_size=None, proxy=None) as socket:
            yield Tab(socket)
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(process: subprocess.Popen, log: Path) -> str:
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until and process.poll() is None:
        told = log.read_text("utf-8", errors="replace")
        if _STARTED in told:
            return told.partition(_STARTED)[2].split()[0]
        time.sleep(0.1)
    raise TimeoutError(f"Firefox did not say where it listens; it said: {log.read_text('utf-8')}")


class Tab:
    """A tab; `complaints` are its errors and its requests to elsewhere than `at_home`."""

    def __init__(self, socket: ClientConnection):
        self.complaints: list[str] = []
        self.at_home: tuple[str, ...] = ("about:",)
        self._socket = socket
        self._numbers = itertools.count(1)
        self._call("session.new", capabilities={})
        self._call("session.subscribe", events=_EVENTS)
        self._tab = self._call("browsingContext.getTree")["contexts"][0]["context"]

    def _call(self, method: str, **params):
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=_PATIENCE_S))
            if message.get("id") != number:
                self._note(message.get("method"), message.get("params", {}))
            elif message["type"] == "error":
                raise RuntimeError(f"{method}: {message['message']}")
            else:
                return message["result"]

    def _note(self, event, params):
        if event == "log.entryAdded" and params["level"] == "error":
            self.complaints.append(f"console: {params['text']}")
        if event == "network.fetchError":
            self.complaints.append(f"failed request: {params['request']['url']}")
        if event == "network.beforeRequestSent" and not params["request"]["url"].startswith(
            ("data:", "blob:", *self.at_home)
        ):
            self.complaints.append(f"outside request: {params['request']['url']}")

    def open(self, url: str, *, width: int = 1280) -> None:
        """Load a page, with all that it names."""
        viewport = {"width": width, "height": 900}
        self._call("browsingContext.setViewport", context=self._tab, viewport=viewport)
        self._call("browsingContext.navigate", context=self._tab, url=url, wait="complete")

    def ask(self, expression: str):
        """What an expression, or the promise that it is, comes to in the page."""
        got = self._call(
            "script.evaluate",
            expression=f"Promise.resolve({expression}).then(JSON.stringify)",
            target={"context": self._tab},
            awaitPromise=True,
        )
        if got["type"] == "exception":
            raise RuntimeError(got["exceptionDetails"]["text"])
        value = got["result"].get("value")
        return None if value is None else json.loads(value)

    def press(self, key: str) -> None:
        """Press a key and let it go."""
        actions = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        keyboard = {"type": "key", "id": "keyboard", "actions": actions}
        self._call("input.performActions", context=self._tab, actions=[keyboard])
