"""Compile with Numba, and keep the machine code on disk as long as no source changes.

Numba's own cache looks only at the file of the function that it compiles, not at those that the
function calls; a changed cost formula would go unnoticed. So the code is kept in a folder named
after a hash of every source that takes part.

Nothing that is compiled here makes or returns an array, so none needs Numba's reference counts;
without them the engine is three times as fast.
"""

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import config

from mooncake_companion import costs
from mooncake_companion.datafiles import cache_path

_OPTIONS: dict[str, Any] = {"cache": True, "error_model": "numpy", "_nrt": False}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function to be compiled at its first call, or read from disk if it was before."""
    return _decorated(function, _OPTIONS)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a small function that is called for every block: its code goes into its callers'.

    A call hands over every field of every array of a state, which can cost more than what it does.
    """
    return _decorated(function, _OPTIONS | {"forceinline": True})


def _decorated(function: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
    settings: Any = config
    before = settings.CACHE_DIR
    settings.CACHE_DIR = code_folder()
    try:
        return numba.njit(**options)(function)
    finally:
        settings.CACHE_DIR = before


@cache
def code_folder() -> str:
    """Where machine code for these very sources is kept."""
    sources = [Path(costs.__file__), *sorted(Path(__file__).parents[1].rglob("*.py"))]
    digest = hashlib.sha256(numba.__version__.encode())
    for source in sources:
        digest.update(source.read_bytes())
    return str(cache_path("compiled", digest.hexdigest()[:16]))
