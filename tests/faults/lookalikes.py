"""Puts the lookalikes of ``hub`` and ``dbapi`` where the server's modules have the real things."""

from __future__ import annotations

import asyncio
import atexit
import importlib.util
import queue
import secrets
import sqlite3
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

from sqlalchemy import Engine, create_engine

import anarchic.server.sqlite  # noqa: F401  # it is imported late elsewhere
from anarchic.server import pending
from anarchic.server.clock import SYSTEM
from tests.faults import hub as h


class Loop(asyncio.BaseEventLoop):
    """An event loop that is a task of the hub: instead of sockets it waits for the hub."""

    def __init__(self, hub: h.Hub) -> None:
        super().__init__()
        self._hub, self._selector = hub, self
        self._waker: h.Task | None = None
        self._clock_resolution = 1e-6
        self.failures: list[str] = []
        self.set_exception_handler(self._failed)

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.failures.append(f"{context.get('message')}: {context.get('exception')!r}")

    def time(self) -> float:
        return self._hub.now

    def select(self, timeout: float | None) -> tuple[()]:
        if timeout is None or timeout > 0:
            self._waker = self._hub.task
            self._hub.wait(timeout)
            self._waker = None
        return ()

    def _process_events(self, events: object) -> None:
        pass

    def _write_to_self(self) -> None:
        if self._waker is not None:
            self._hub.wake(self._waker)

    def run_in_executor(self, executor: object, func: Callable[..., Any], *args: Any) -> Any:
        future = self.create_future()
        process = self._hub.task.process

        def run() -> None:
            try:
                result = func(*args)
            except Exception as error:
                self._tell(future, partial(future.set_exception, error))
            else:
                self._tell(future, partial(future.set_result, result))

        self._hub.spawn(process, run, "executor")
        return future

    def _tell(self, future: asyncio.Future[Any], told: Callable[[], None]) -> None:
        if not self.is_closed():
            self.call_soon_threadsafe(lambda: None if future.done() else told())


def fake_threading(hub: h.Hub) -> SimpleNamespace:
    return SimpleNamespace(
        Lock=partial(h.Lock, hub),
        RLock=partial(h.Lock, hub, again=True),
        Semaphore=lambda value=1: h.Lock(hub, places=value),
        Condition=partial(h.Condition, hub),
        Event=partial(h.Event, hub),
        Thread=partial(h.Thread, hub),
        local=h.Local,
        get_ident=lambda: id(h.getcurrent()),
        current_thread=lambda: SimpleNamespace(name=getattr(h.getcurrent(), "name", "main")),
    )


def fake_queue(threads: SimpleNamespace, clock: h.Time) -> ModuleType:
    """The module ``queue`` itself, on other locks."""
    spec = importlib.util.spec_from_file_location("queue_of_faults", queue.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    vars(module).update(threading=threads, time=clock.monotonic, Full=queue.Full, Empty=queue.Empty)
    vars(module).update(SimpleQueue=module.Queue)
    return module


def fake_secrets(rng: Random) -> SimpleNamespace:
    return SimpleNamespace(
        token_hex=lambda count=16: rng.randbytes(count).hex(),
        token_bytes=lambda count=32: rng.randbytes(count),
        token_urlsafe=lambda count=32: rng.randbytes(count).hex(),
        compare_digest=secrets.compare_digest,
    )


MOST_QUEUED = 32  # of a server, so that some updates are read back from the store
_first: list[Engine] = []


def sharing_engine(*args: Any, **settings: Any) -> Engine:
    """An engine that takes over the statements compiled for the first one.

    Every start of a server makes an engine; compiling its statements anew would take half of the
    time of a seed.
    """
    engine = create_engine(*args, **settings)
    if "creator" in settings:
        if not _first:
            _first.append(engine)
        engine.dialect, engine._compiled_cache = _first[0].dialect, _first[0]._compiled_cache
    return engine


@contextmanager
def in_place(hub: h.Hub, connect: Callable[..., Any], seed: str) -> Iterator[None]:
    """While it lasts, every module of the server has the lookalikes."""
    rng, clock, threads = Random(seed), h.Time(hub), fake_threading(hub)
    database = SimpleNamespace(**{**vars(sqlite3), "connect": connect})
    ids = SimpleNamespace(uuid4=lambda: uuid.UUID(int=rng.getrandbits(128)))
    fakes: dict[int, Any] = {
        id(time): clock,
        id(time.monotonic): clock.monotonic,
        id(time.perf_counter): clock.perf_counter,
        id(time.time): clock.time,
        id(time.sleep): clock.sleep,
        id(threading): threads,
        id(threading.Thread): threads.Thread,
        id(queue): fake_queue(threads, clock),
        id(secrets): fake_secrets(rng),
        id(uuid): ids,
        id(sqlite3): database,
        id(SYSTEM): clock,
        id(create_engine): sharing_engine,
        id(atexit): SimpleNamespace(register=lambda function: None),
    }
    undo: list[tuple[Any, str, Any]] = [(pending, "MOST_QUEUED", pending.MOST_QUEUED)]
    pending.MOST_QUEUED = MOST_QUEUED
    for name, module in sorted(sys.modules.items()):
        if name.startswith("anarchic.server") and module is not None:
            _replace(module, fakes, undo)
    try:
        yield
    finally:
        for owner, name, value in reversed(undo):
            setattr(owner, name, value)


def _replace(module: ModuleType, fakes: dict[int, Any], undo: list[tuple[Any, str, Any]]) -> None:
    for name, value in list(vars(module).items()):
        if id(value) in fakes:
            undo.append((module, name, value))
            setattr(module, name, fakes[id(value)])
        elif isinstance(value, type) and value.__module__ == module.__name__:
            functions = [f for f in vars(value).values() if isinstance(f, FunctionType)]
            for function in functions:  # a default such as ``clock=time.monotonic``
                _replace_defaults(function, fakes, undo)
        elif isinstance(value, FunctionType) and value.__module__ == module.__name__:
            _replace_defaults(value, fakes, undo)


def _replace_defaults(
    function: FunctionType, fakes: dict[int, Any], undo: list[tuple[Any, str, Any]]
) -> None:
    old, named = function.__defaults__ or (), function.__kwdefaults__ or {}
    if any(id(value) in fakes for value in old):
        undo.append((function, "__defaults__", old))
        function.__defaults__ = tuple(fakes.get(id(value), value) for value in old)
    if any(id(value) in fakes for value in named.values()):
        undo.append((function, "__kwdefaults__", named))
        function.__kwdefaults__ = {key: fakes.get(id(value), value) for key, value in named.items()}
