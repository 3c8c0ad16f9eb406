"""The cache model beside the real Mooncake Store: `python -m benchmarks.real_store`.

Needs the optional extra ``real-store`` (Linux) and the system library libibverbs1. A master and one
client are started on this machine, over TCP. The same start of a trace goes through the store and through
`simulator.eviction.BatchEviction`, and ``data/recorded/real_store.json`` keeps both hit ratios.
"""

import hashlib
import importlib.util
import json
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from tqdm import tqdm

from mooncake_companion import traces
from mooncake_companion.datafiles import replacing
from mooncake_companion.simulator.eviction import BatchEviction, Lru, replay_store
from mooncake_companion.traces import Trace

from .records import machine

RECORDED = Path("data/recorded/real_store.json")
COMMAND = "python -m benchmarks.real_store"
PACKAGE = "mooncake-transfer-engine-non-cuda"

TRACE = "conversation"
REQUESTS = 2_000
CAPACITIES = (1_024, 2_048, 4_096, 8_192, 16_384, 32_768)
"""In blocks; powers of two, as the store's allocator rounds."""

SEGMENT_BYTES = 16 * 2**20
"""The least that the store takes; a block gets its share of it."""
WATERMARK = 0.9
SETTLED_S = 0.015
"""The store's evictor wakes every 10 ms."""
PATIENCE_S = 5.0

PARTS_THAT_MATTER = (
    "benchmarks/real_store.py",
    "src/mooncake_companion/simulator/eviction.py",
)
"""Files whose change can move what is recorded."""


def sources_sha256(root: Path) -> str:
    """SHA-256 over the files that matter, in the order of their names."""
    digest = hashlib.sha256()
    for name in sorted(PARTS_THAT_MATTER):
        content = (root / name).read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def why_not() -> str:
    """Why the real store cannot run here; empty if it can."""
    if not sys.platform.startswith("linux"):
        return "the store's package is built for Linux only"
    if importlib.util.find_spec("mooncake") is None:
        return f"{PACKAGE} is not installed (pip install 'mooncake-companion[real-store]')"
    tried = subprocess.run(
        [sys.executable, "-c", "import mooncake.store"], capture_output=True, text=True, check=False
    )
    told = tried.stderr.strip().splitlines()
    return (
        "" if tried.returncode == 0 else f"{PACKAGE} does not load: {told[-1] if told else tried.returncode}"
    )


def requests_of(trace: Trace) -> list[tuple[float, list[int]]]:
    """Arrival, in seconds, and block ids of each request."""
    return [(arrival_s, trace.blocks_of(k).tolist()) for k, arrival_s in enumerate(trace.arrival_s.tolist())]


# The real store


class RealStore:
    """One client of a real store whose segment holds so many blocks, with a lease TTL of 0.

    Every operation waits for the one before, and a put for the evictor where the watermark may be
    passed: a replay then has one outcome. Where the store stands is read from its master's metrics.
    """

    def __init__(self, capacity_blocks: int, ports: tuple[int, int]) -> None:
        from mooncake.store import MooncakeDistributedStore  # only where it is installed

        port, self._metrics_port = ports
        self.capacity_blocks = capacity_blocks
        self._most_held = 0
        self._value = bytes(SEGMENT_BYTES // capacity_blocks)
        self._client = MooncakeDistributedStore()
        code = self._client.setup(
            "127.0.0.1", "P2PHANDSHAKE", SEGMENT_BYTES, SEGMENT_BYTES, "tcp", "", f"127.0.0.1:{port}"
        )
        if code:
            raise RuntimeError(f"the store's client could not be set up: code {code}")

    def __contains__(self, block: int) -> bool:
        return bool(self._client.is_exist(str(block)) == 1)

    def put(self, block: int) -> None:
        """Store a block, held already or not, then wait for the evictor if it has work."""
        code = self._client.put(str(block), self._value)
        if code:
            raise RuntimeError(f"the store refused a put: code {code}")
        self._most_held += 1
        limit = WATERMARK * self.capacity_blocks
        if self._most_held <= limit:
            return
        self._most_held = self.metric("master_key_count")
        if self._most_held <= limit:  # some of the puts found their block there
            return
        deadline_s = time.monotonic() + PATIENCE_S
        while self.metric("master_key_count") > limit:
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"the store has not evicted within {PATIENCE_S} s")
        time.sleep(SETTLED_S)  # the batch may not be through yet
        self._most_held = self.metric("master_key_count")

    def metric(self, name: str) -> int:
        """One count of the master's metrics."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics_port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        (found,) = (line for line in lines if line.startswith(f"{name} "))
        return int(float(found.split()[1]))

    def close(self) -> None:
        """Leave the store."""
        self._client.close()


@contextmanager
def running_master() -> Iterator[tuple[int, int]]:
    """Start the store's master on this machine; gives its port and that of its metrics."""
    found = importlib.util.find_spec("mooncake")
    assert found is not None
    assert found.origin is not None
    ports = _free_port(), _free_port()
    settings = {
        "rpc_address": "127.0.0.1",
        "rpc_port": ports[0],
        "metrics_host": "127.0.0.1",
        "metrics_port": ports[1],
        "default_kv_lease_ttl": 0,
        "client_ttl": 120,
    }
    command = [
        str(Path(found.origin).parent / "mooncake_master"),
        *(f"--{k}={v}" for k, v in settings.items()),
    ]
    with tempfile.TemporaryFile() as log:
        master = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            for port in ports:
                _wait_for(port, master)
            yield ports
        finally:
            master.terminate()
            master.wait(timeout=30)


def replay_real(store: RealStore, requests: Iterable[tuple[float, Sequence[int]]]) -> list[int]:
    """Leading hits of each request; as `simulator.eviction.replay_store` has a request use a store."""
    hits = []
    for _, blocks in requests:
        hits.append(next((depth for depth, block in enumerate(blocks) if block not in store), len(blocks)))
        for block in blocks:
            store.put(block)
    return hits


# The models


def replay_model(capacity_blocks: int, requests: Iterable[tuple[float, Sequence[int]]]) -> list[int]:
    """Leading hits of each request under the model of the store's rule."""
    store = BatchEviction(capacity_blocks, watermark=WATERMARK, lease_ttl_s=0.0)
    return [replay_store(store, [request]) for request in requests]


def replay_lru(capacity_blocks: int, requests: Iterable[tuple[float, Sequence[int]]]) -> int:
    """Leading hits, over all requests, of a cache that is used alike and evicts one block by LRU."""
    cache, hits = Lru(capacity_blocks), 0
    for _, blocks in requests:
        for block in blocks:
            if block not in cache:
                break
            cache.touch(block)
            hits += 1
        for block in blocks:
            if block not in cache:
                if len(cache) >= capacity_blocks:
                    cache.evict()
                cache.admit(block)
    return hits


# One comparison, and all of them


def compare(capacity_blocks: int, requests: int, trace_name: str = TRACE) -> dict[str, Any]:
    """Replay the start of a trace into a real store, just started, and into the models."""
    used = requests_of(traces.load(trace_name).head(requests))
    start_s = time.perf_counter()
    with running_master() as ports:
        store = RealStore(capacity_blocks, ports)
        try:
            real = replay_real(store, used)
            evicted = store.metric("master_evicted_key_count")
        finally:
            store.close()
    seconds = time.perf_counter() - start_s
    model = replay_model(capacity_blocks, used)
    return {
        "capacity_blocks": capacity_blocks,
        "requests": len(used),
        "blocks": sum(len(blocks) for _, blocks in used),
        "real_hits": sum(real),
        "real_evictions": evicted,
        "store_rule_hits": sum(model),
        "requests_alike": sum(one == other for one, other in zip(real, model, strict=True)),
        "lru_hits": replay_lru(capacity_blocks, used),
        "lru_at_watermark_hits": replay_lru(int(WATERMARK * capacity_blocks), used),
        "seconds": round(seconds, 1),
    }


def compare_apart(capacity_blocks: int, requests: int, root: Path) -> dict[str, Any]:
    """`compare` in a process with a network of its own, where the system allows that.

    The store's clients listen on all addresses of the machine, whatever host they are told. The
    result's ``own_network`` says whether they could be kept apart.
    """
    inside = [sys.executable, "-m", "benchmarks.real_store", "--one", str(capacity_blocks), str(requests)]
    apart = _own_network()
    run = subprocess.run([*apart, *inside], cwd=root, capture_output=True, text=True, check=False)
    if run.returncode:
        raise RuntimeError(f"capacity {capacity_blocks}: {run.stderr[-2000:]}")
    return json.loads(run.stdout.splitlines()[-1]) | {"own_network": bool(apart)}


def recording(root: Path, capacities: Sequence[int] = CAPACITIES, requests: int = REQUESTS) -> dict[str, Any]:
    """What is written to `RECORDED`.

    Raises
    ------
    RuntimeError
        If the sources change meanwhile, or the released trace is not to be had.
    """
    before, trace = sources_sha256(root), traces.load(TRACE)
    if trace.origin != "released":
        raise RuntimeError(f"the released {TRACE} trace is needed; set MOONCAKE_TRACES to its folder")
    rows = [
        compare_apart(capacity, requests, root) for capacity in tqdm(capacities, desc="store", disable=None)
    ]
    if sources_sha256(root) != before:
        raise RuntimeError("the sources changed during the run; record again")
    return {
        "made_by": COMMAND,
        "sources_sha256": before,
        "sources": list(PARTS_THAT_MATTER),
        "machine": machine(),
        "packages": {PACKAGE: metadata.version(PACKAGE)},
        "traces": {trace.name: trace.sha256},
        "parameters": {"requests": requests, "watermark": WATERMARK, "lease_ttl_s": 0.0},
        "infinite_hits": replay_lru(10**9, requests_of(trace.head(requests))),
        "rows": rows,
    }


def main(arguments: Sequence[str], root: Path) -> None:
    """Record, or with ``--one CAPACITY REQUESTS`` print one comparison."""
    if reason := why_not():
        sys.exit(reason)
    if arguments[:1] == ["--one"]:
        _raise_loopback()
        sys.stdout.write("\n" + json.dumps(compare(int(arguments[1]), int(arguments[2]))) + "\n")
        return
    text = json.dumps(recording(root), indent=1) + "\n"
    with replacing(root / RECORDED) as part:
        part.write_text(text, "utf-8")
    sys.stdout.write(text)


def _own_network() -> list[str]:
    """The words before a command that give it a network of its own; none where that is not allowed."""
    if shutil.which("unshare"):
        for words in (["unshare", "--net"], ["unshare", "--net", "--map-root-user"]):
            if not subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
                return words
    return []


def _raise_loopback() -> None:
    """Bring the loopback device up, which a new network has down; without effect where it is up."""
    import fcntl  # Linux only, as the store

    up_and_running, set_flags = 0x41, 0x8914
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket, suppress(PermissionError):
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sh", b"lo", up_and_running))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError("the store's master does not answer") from None
            time.sleep(0.05)
        else:
            return


if __name__ == "__main__":
    main(sys.argv[1:], Path(__file__).parents[1])
