"""Where a trace comes from: a named folder, the download cache, a download, or a stand-in."""

import contextlib
import dataclasses
import hashlib
import math
import os
import sys
import time
import tomllib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType

import numpy as np

from mooncake_companion.datafiles import cache_path, data_path, replacing
from mooncake_companion.errors import CompanionError, InputError
from mooncake_companion.traces.generator import generate
from mooncake_companion.traces.read import read_jsonl
from mooncake_companion.traces.trace import BLOCK_TOKENS, Trace
from mooncake_companion.traces.workload import load_workload, workload_path

FOLDER_VARIABLE = "MOONCAKE_TRACES"
OFFLINE_VARIABLE = "MOONCAKE_OFFLINE"
STANDIN = "-standin"
STANDIN_SEED = 0

_TIMEOUT_S = 10
_RETRY_AFTER_S = 60.0
_CHUNK_BYTES = 1 << 16
_DIGITS = 12
_REASON_CHARACTERS = 120
_COLUMNS = ("arrival_s", "input_tokens", "output_tokens", "block_ids", "block_offsets")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredTrace:
    """A trace known by name, as `data/traces.toml` has it.

    Parameters
    ----------
    name, title : str
    file : str
        The released file's name.
    url : str
        Where it can be downloaded, at a pinned commit.
    sha256, git_blob : str
        Checksums, hexadecimal; one of them may be empty.
    requests : int
    licence, citation, note : str
    """

    name: str
    title: str
    file: str
    url: str
    sha256: str = ""
    git_blob: str = ""
    requests: int
    licence: str
    citation: str
    note: str

    @property
    def checksum(self) -> str:
        """The checksum that is known, with its kind: ``"sha256 b8cb…"``."""
        return f"sha256 {self.sha256}" if self.sha256 else f"git blob {self.git_blob}"

    def matches(self, path: Path) -> bool:
        """Tell whether a file has this trace's content."""
        sha256, git_blob = _digests(path)
        return sha256 == self.sha256 if self.sha256 else git_blob == self.git_blob


@cache
def registered() -> Mapping[str, RegisteredTrace]:
    """Give all traces known by name."""
    table = tomllib.loads(data_path("traces.toml").read_text("utf-8"))
    return MappingProxyType({name: RegisteredTrace(name=name, **fields) for name, fields in table.items()})


@cache
def generated() -> tuple[str, ...]:
    """Give the names of the workloads of which no trace was ever released, only a stand-in can be had."""
    files = workload_path("conversation").parent.glob("*.toml")
    return tuple(sorted(file.stem for file in files if file.stem not in registered()))


def has_standin(name: str) -> bool:
    """Tell whether a stand-in can be generated under this name."""
    if name in generated():
        return True
    try:
        return name in registered() and workload_path(name).exists()
    except CompanionError:
        return False


def cache_folder() -> Path:
    """Where downloaded traces are kept."""
    return cache_path("traces")


def locate(name: str, *, folder: Path | None = None) -> Path | None:
    """Find the checked file of a registered trace on this machine, without the network.

    Parameters
    ----------
    name : str
    folder : Path, optional
        Where to look first; the variable MOONCAKE_TRACES, if not given.

    Returns
    -------
    Path or None
        None if neither the folder nor the download cache has it. A file in the cache with a wrong
        checksum counts as not there: the next download replaces it.

    Raises
    ------
    InputError
        If the name is not registered, the folder does not exist, or the folder's file is another
        than the released one.
    """
    trace = _registered(name)
    if found := _in_folder(trace, folder):
        return found
    cached = cache_folder() / trace.file
    return cached if cached.is_file() and trace.matches(cached) else None


def fetch(name: str, *, folder: Path | None = None) -> Path:
    """Give the checked file of a registered trace; download it if it is not on this machine.

    Raises
    ------
    InputError
        As `locate`.
    CompanionError
        If it cannot be downloaded, or what came is not the released file; nothing is kept then.
    """
    return locate(name, folder=folder) or _download(_registered(name), cache_folder())


def load(
    trace: str | Path,
    *,
    download: bool = True,
    folder: Path | None = None,
    block_tokens: int = BLOCK_TOKENS,
) -> Trace:
    """Load a trace by its name, or from a file.

    Parameters
    ----------
    trace : str or Path
        A registered name, such as ``"conversation"``; a stand-in's, such as
        ``"conversation-standin"``; a workload of which none was released, such as ``"l-eval"``; or a
        path of a JSONL file.
    download : bool
        Whether a registered trace may be downloaded.
    folder : Path, optional
        Where to look first for a registered trace.
    block_tokens : int
        Tokens in a hashed block of a file; what has a name has blocks of `BLOCK_TOKENS`.

    Returns
    -------
    Trace
        If the released trace cannot be had, its stand-in where there is one; `Trace.name`,
        `Trace.origin` and `Trace.source` say so.

    Raises
    ------
    InputError
        For an unknown name, a file that is not a valid trace, a wrong file in the folder, or a name
        with other blocks than it has.
    CompanionError
        If the trace cannot be had and has no stand-in.
    """
    if isinstance(trace, str) and trace.removesuffix(STANDIN) in registered():
        _require_own_blocks(trace, block_tokens)
        return _load_registered(trace, download=download, folder=folder)
    path = Path(trace).expanduser()
    if isinstance(trace, str) and not path.exists() and not path.suffix and path.name == trace:
        if trace.removesuffix(STANDIN) in generated():
            _require_own_blocks(trace, block_tokens)
            return standin(trace.removesuffix(STANDIN))
        known = ", ".join([*registered(), *generated()])
        raise InputError(f"no trace is called {trace!r}, and no file either; known are {known}")
    return _read(path, block_tokens)


def _require_own_blocks(name: str, block_tokens: int) -> None:
    if block_tokens != BLOCK_TOKENS:
        raise InputError(
            f"parameter block_tokens: {block_tokens} is for a file of one's own; {name!r} has blocks of "
            f"{BLOCK_TOKENS} tokens"
        )


def standin(name: str, *, why: str = "") -> Trace:
    """Generate a stand-in, always the same one.

    Parameters
    ----------
    name : str
        Of a registered trace, or of a workload that was never released.
    why : str
        What the trace's source says after a semicolon.

    Raises
    ------
    CompanionError
        If there is no stand-in for it.
    """
    made = _standin(name)
    return dataclasses.replace(made, source=f"{made.source}; {why}") if why else made


def sources_fingerprint(*, folder: Path | None = None) -> str:
    """Say in one stable line where each registered trace would come from now, without the network.

    Returns
    -------
    str
        Such as ``"conversation:b8cbb061a852 toolagent:absent synthetic:standin-c0ffee012345"``: the
        file's SHA-256, a digest of the stand-in's statistics and generator, or neither.
    """
    return " ".join(f"{name}:{_fingerprint(name, folder)}" for name in [*registered(), *generated()])


def _fingerprint(name: str, folder: Path | None) -> str:
    if name in registered() and (path := locate(name, folder=folder)):
        return _digests(path)[0][:_DIGITS]
    if not has_standin(name):
        return "absent"
    return f"standin-{_made_by(name)}"


def _made_by(name: str) -> str:
    """Digest of what a stand-in is generated by and from."""
    here = Path(__file__)
    made_by = (workload_path(name), here.with_name("generator.py"), here.with_name("workload.py"))
    all_of_it = "".join(_digests(path)[0] for path in made_by)
    return hashlib.sha256(all_of_it.encode()).hexdigest()[:_DIGITS]


def _load_registered(name: str, *, download: bool, folder: Path | None) -> Trace:
    if name.endswith(STANDIN):
        return standin(name.removesuffix(STANDIN))
    path = locate(name, folder=folder)
    if path is None and download:
        try:
            path = fetch(name, folder=folder)
        except CompanionError:
            if not has_standin(name):
                raise
    if path is not None:
        return _read(path)
    if has_standin(name):
        return standin(name, why="the released trace could not be had")
    raise CompanionError(f"the {name} trace is not on this machine; {_remedy(registered()[name])}")


def _registered(name: str) -> RegisteredTrace:
    try:
        return registered()[name]
    except KeyError:
        raise InputError(f"no trace is called {name!r}; known are {', '.join(registered())}") from None


def _in_folder(trace: RegisteredTrace, folder: Path | None) -> Path | None:
    named = os.environ.get(FOLDER_VARIABLE)
    if folder is None and not named:
        return None
    where = "the folder" if folder is not None else FOLDER_VARIABLE
    folder = (folder or Path(named or "")).expanduser()
    if not os.access(folder, os.R_OK | os.X_OK) or not folder.is_dir():
        raise InputError(f"{where} names {folder}, which is not a folder that can be read")
    path = folder / trace.file
    if not path.exists():
        return None
    if not path.is_file():
        raise InputError(f"{path} is not a plain file; it should be the {trace.name} trace")
    if not trace.matches(path):
        raise InputError(
            f"{path} is not the released {trace.name} trace: expected {trace.checksum}, "
            f"got {_got(trace, path)}; it may be cut off, edited or of another release. "
            "Replace it, or give it another name and load it by its path"
        )
    return path


def _got(trace: RegisteredTrace, path: Path) -> str:
    sha256, git_blob = _digests(path)
    return f"{sha256 if trace.sha256 else git_blob} ({path.stat().st_size} bytes)"


def _digests(path: Path) -> tuple[str, str]:
    """SHA-256 and git blob id of a file."""
    try:
        status = path.stat()
        return _digests_of(path, status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


@lru_cache(maxsize=64)
def _digests_of(path: Path, size: int, modified_ns: int) -> tuple[str, str]:  # noqa: ARG001 - a key
    sha256, git_blob = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            sha256.update(chunk)
            git_blob.update(chunk)
    return sha256.hexdigest(), git_blob.hexdigest()


def _read(path: Path, block_tokens: int = BLOCK_TOKENS) -> Trace:
    try:
        status = path.stat()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    return _read_once(path, block_tokens, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=8)
def _read_once(path: Path, block_tokens: int, size: int, modified_ns: int) -> Trace:  # noqa: ARG001 - a key
    """Read a file; if its content is a released trace, whatever its name, it becomes that."""
    trace = read_jsonl(path, block_tokens=block_tokens)
    for known in registered().values():
        if known.matches(path):
            source = f"{known.name} trace (released, SHA-256 {trace.sha256[:_DIGITS]}…)"
            return dataclasses.replace(trace, name=known.name, origin="released", source=source)
    return trace


@cache
def _standin(name: str) -> Trace:
    try:
        workload = load_workload(name)
    except CompanionError as error:
        remedy = f"; {_remedy(registered()[name])}" if name in registered() else ""
        raise CompanionError(f"{error}{remedy}") from None
    called = f"{name}{STANDIN}"
    what = "trace" if name in registered() else "workload"
    source = f"{called}: a generated stand-in for the {name} {what} (seed {STANDIN_SEED})"
    kept = cache_path("standins", f"{name}-{_made_by(name)}-numpy-{np.__version__}.npz")
    return _kept(kept, called, source) or _keep(
        kept, generate(workload, np.random.default_rng(STANDIN_SEED), name=called, source=source)
    )


def _kept(path: Path, name: str, source: str) -> Trace | None:
    """What `_keep` wrote; None if it is not there, or damaged (the format has checksums)."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as columns:
            return Trace(
                name=name,
                origin="standin",
                source=source,
                sha256=str(columns["sha256"]),
                **{column: columns[column] for column in _COLUMNS},
            )
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, CompanionError):
        return None


def _keep(path: Path, trace: Trace) -> Trace:
    """Keep a generated trace, which takes some seconds to make, for other processes."""
    columns = {column: getattr(trace, column) for column in _COLUMNS}
    # A cache that cannot be written costs time and nothing else.
    with contextlib.suppress(OSError), replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, sha256=np.array(trace.sha256), **columns)
    return trace


_failures: dict[str, tuple[float, str]] = {}
"""When and why a download failed: so that each load of a run without network does not wait anew."""


def _download(trace: RegisteredTrace, folder: Path) -> Path:
    """Download to a temporary name, check, then rename."""
    if os.environ.get(OFFLINE_VARIABLE, "") not in ("", "0"):
        raise CompanionError(
            f"the {trace.name} trace is not on this machine, and {OFFLINE_VARIABLE} is set; {_remedy(trace)}"
        )
    failed_s, reason = _failures.get(trace.url, (-math.inf, ""))
    if time.monotonic() - failed_s >= _RETRY_AFTER_S:
        reason = _try_download(trace, folder / trace.file)
        _failures[trace.url] = (time.monotonic() if reason else -math.inf, reason)
    if reason:
        raise CompanionError(
            f"cannot download the {trace.name} trace from {trace.url}: {reason}; {_remedy(trace)}"
        )
    return folder / trace.file


def _try_download(trace: RegisteredTrace, target: Path) -> str:
    """Download a file; returns why it failed, or nothing."""
    import pooch

    get = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), chunk_size=_CHUNK_BYTES, timeout=_TIMEOUT_S)
    try:
        with replacing(target) as temporary:
            get(trace.url, str(temporary), None)
            if not trace.matches(temporary):
                raise CompanionError(
                    f"what came is not the released file (expected {trace.checksum}, "
                    f"got {_got(trace, temporary)}); suspect a proxy's page or a cut transfer"
                )
    except OSError as error:  # covers what the HTTP client raises
        return f"{type(error).__name__}: {error}"[:_REASON_CHARACTERS]
    except CompanionError as error:
        return str(error)
    return ""


def _remedy(trace: RegisteredTrace) -> str:
    return (
        f"run `companion traces fetch {trace.name}` with a network, or put {trace.file} into a folder "
        f"and name it by {FOLDER_VARIABLE}"
    )
