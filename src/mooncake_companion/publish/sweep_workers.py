"""Where the points of a sweep are worked out: processes of this machine, or a Dask cluster."""

import asyncio
import functools
import importlib
import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any

import pandas as pd

from mooncake_companion import traces
from mooncake_companion.errors import CompanionError
from mooncake_companion.publish.sweep_plan import Plan, model_sha256, replayed

_CONNECT_S = 20
_DIED = "its process died; the system kills what asks for more memory than there is"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of one point.

    Parameters
    ----------
    table : DataFrame or None
        What was measured; None if it failed.
    error, details : str
        Why it failed, in one line and as a stack trace.
    """

    table: pd.DataFrame | None = None
    error: str = ""
    details: str = ""


Expected = tuple[str, int, str]
"""A trace by its name or path, the tokens in its blocks, and its SHA-256."""
Call = Callable[[], Result]
Workers = Callable[[Mapping[int, Call]], Iterator[tuple[int, Result]]]
"""Works out numbered calls and gives their results as they come, each exactly once."""


def calls(plan: Plan, numbers: list[int]) -> dict[int, Call]:
    """What is to be called for the points of these numbers, ready to be sent to another process."""
    model = model_sha256()
    made: dict[int, Call] = {}
    for number in numbers:
        params = plan.chapter.params(**plan.points[number])
        names = [declared.name for declared in plan.chapter.parameters]
        used = replayed({name: getattr(params, name) for name in names})
        expected = tuple((name, block_tokens, plan.traces[name]) for name, block_tokens in used)
        made[number] = functools.partial(_work, plan.chapter.measure, params, model, expected)
    return made


def traces_of(plan: Plan) -> tuple[Expected, ...]:
    """The traces of all points: name or path, tokens in a block, SHA-256."""
    defaults = {declared.name: declared.default for declared in plan.chapter.parameters}
    wanted = dict.fromkeys(each for point in plan.points for each in replayed({**defaults, **point}))
    return tuple((name, block_tokens, plan.traces[name]) for name, block_tokens in wanted)


def _work(
    measure: Callable[[Any], pd.DataFrame], params: Any, model: str, expected: tuple[Expected, ...]
) -> Result:
    try:
        require_same(model, expected)
        table = measure(params)
    except Exception as error:  # one point's failure must not end the others
        return _failed(error)
    table.attrs = {}
    return Result(table=table)


def _failed(error: BaseException) -> Result:
    lines = str(error).strip().splitlines() or [""]
    return Result(
        error=f"{type(error).__name__}: {lines[0]}", details="".join(traceback.format_exception(error))
    )


@functools.cache
def require_same(model: str, expected: tuple[Expected, ...]) -> None:
    """See once in each process that it has the model and the traces of the one that started the sweep.

    Raises
    ------
    CompanionError
        If it has others: its numbers would not belong beside those of the others.
    """
    if model_sha256() != model:
        raise CompanionError("this worker has another version of the model; install the same one everywhere")
    for name, block_tokens, sha256 in expected:
        if traces.load(name, block_tokens=block_tokens).sha256 != sha256:
            raise CompanionError(
                f"this worker has another trace for {name!r}, perhaps a stand-in; set MOONCAKE_TRACES there"
            )


# --- processes of this machine ----------------------------------------------------------------


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def local(workers: int) -> Workers:
    """Work with so many processes of this machine."""
    return functools.partial(_in_processes, workers)


def _in_processes(workers: int, todo: Mapping[int, Call]) -> Iterator[tuple[int, Result]]:
    waiting = deque(todo.items())
    while waiting:
        suspects: list[tuple[int, Call]] = []
        with _pool(min(workers, len(waiting))) as pool:
            running: dict[Future[Result], tuple[int, Call]] = {}
            while (waiting or running) and not suspects:
                while waiting and len(running) < workers and _submitted(pool, waiting[0], running):
                    waiting.popleft()
                if not running:
                    break  # the pool broke while it was idle: another one
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                if any(isinstance(future.exception(), BrokenProcessPool) for future in done):
                    done = set(wait(running).done)
                for future in done:
                    number, call = running.pop(future)
                    error = future.exception()
                    if isinstance(error, BrokenProcessPool):
                        suspects.append((number, call))
                    else:
                        yield number, _failed(error) if error else future.result()
        # A process died and took the pool with it. Alone, a point that kills its process is found out.
        for number, call in suspects:
            yield number, _alone(call)


def _submitted(
    pool: ProcessPoolExecutor, item: tuple[int, Call], running: dict[Future[Result], tuple[int, Call]]
) -> bool:
    try:
        running[pool.submit(item[1])] = item
    except BrokenProcessPool:
        return False  # what is running will tell
    return True


def _alone(call: Call) -> Result:
    with _pool(1) as pool:
        try:
            return pool.submit(call).result()
        except BrokenProcessPool:
            return Result(error=_DIED)


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that end with the block, at once if it ends early."""
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(
        workers, mp_context=multiprocessing.get_context("spawn"), initializer=_end_with_parent
    )
    try:
        yield pool
    except BaseException:
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """Leave quietly at Ctrl-C, and when the parent is killed, which has no time to say so."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


# --- a Dask cluster ---------------------------------------------------------------------------


def dask(address: str, plan: Plan) -> Workers:
    """Work on the cluster whose scheduler has this address, such as ``tcp://10.0.0.1:8786``.

    Raises
    ------
    CompanionError
        If Dask is not installed here, nobody answers, or a worker is not fit for the sweep.
    """
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError:
        raise CompanionError(
            "--dask needs the package distributed: pip install 'mooncake-companion[dask]'"
        ) from None
    try:
        client = distributed.Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise CompanionError(f"--dask {address}: no scheduler answers there ({error})") from None
    try:
        client.wait_for_workers(1, timeout=_CONNECT_S)
        client.run(require_same, model_sha256(), traces_of(plan))
    except TimeoutError:
        client.close()
        raise CompanionError(f"--dask {address}: the scheduler has no workers; start some") from None
    except Exception as error:
        client.close()
        raise CompanionError(f"--dask {address}: a worker cannot take part: {error}") from None
    return functools.partial(_on_dask, client)


def _on_dask(client: Any, todo: Mapping[int, Call]) -> Iterator[tuple[int, Result]]:
    """Hand all over: what a lost worker had, done or not, the scheduler gives to another one."""
    distributed: Any = importlib.import_module("distributed")
    with client:
        running = {client.submit(call, pure=False): number for number, call in todo.items()}
        for future in distributed.as_completed(list(running), loop=client.loop):
            try:
                error = future.exception()
                result = _failed(error) if error else future.result()
            except (OSError, asyncio.CancelledError, CancelledError):
                raise CompanionError(
                    "the Dask scheduler is gone; what was done is kept, and the same command does the others"
                ) from None
            yield running.pop(future), result
            future.release()
