"""Callbacks of a live run, in a process of their own: nothing they do delays or breaks a step.

While they are busy, newer versions replace the one that waits; evaluations wait in line.
"""

from __future__ import annotations

import json
import multiprocessing
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from math import isfinite
from multiprocessing.connection import Connection
from typing import Any

from anarchic import wire
from anarchic.callbacks.callback import EVENTS, RunInfo, VersionInfo
from anarchic.core import registry
from anarchic.core.types import Vector
from anarchic.errors import RunError, Stop, StoreError
from anarchic.server.log import Log
from anarchic.server.published import PublishedModel

MOST_WAITING = 1_000  # evaluations
END_S = 5.0  # how long callbacks may take to end

Event = dict[str, Any]


def callback_names(given: str) -> list[str]:
    """Names of callbacks, separated by commas; those that there are not are refused."""
    found = [name.strip() for name in given.split(",")]
    for name in found:
        registry.find("callbacks", name)
    return found


class Callbacks:
    """Tells the process what happens, one event at a time."""

    def __init__(self, names: str, log: Log) -> None:
        self._names, self._log = callback_names(names), log
        self._newest: Event | None = None
        self._evaluations: deque[Event] = deque(maxlen=MOST_WAITING)
        self._wake = threading.Condition()
        self._stop_by: float | None = None  # when the process is ended, once the server stops
        self._thread: threading.Thread | None = None

    def start(self, run: RunInfo, read: Callable[[int], bytes | None]) -> None:
        """Begin; ``read`` gives the bytes of a version that is still kept."""
        self._thread = threading.Thread(
            target=self._run, args=(run, read), name="callbacks", daemon=True
        )
        self._thread.start()

    def offer(self, model: PublishedModel) -> None:
        found = {} if model.loss is None else {"reported_loss": model.loss}
        with self._wake:
            self._newest = {"event": "version", "version": model.version, "metrics": found}
            self._wake.notify()

    def evaluated(self, version: int, metrics: Mapping[str, float]) -> None:
        with self._wake:
            found = {name: value if isfinite(value) else None for name, value in metrics.items()}
            self._evaluations.append({"event": "evaluation", "version": version, "metrics": found})
            self._wake.notify()

    def stop(self) -> None:
        with self._wake:
            self._stop_by = time.monotonic() + END_S
            self._wake.notify()
        if self._thread is not None:
            self._thread.join(2 * END_S)

    def _run(self, run: RunInfo, read: Callable[[int], bytes | None]) -> None:
        try:
            self._serve_process(run, read)
        except Exception as error:  # the process died, or none could be started
            self._log("callbacks_died", reason=repr(error))

    def _serve_process(self, run: RunInfo, read: Callable[[int], bytes | None]) -> None:
        spawn = multiprocessing.get_context("spawn")
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=_serve, args=(self._names, run, theirs), daemon=True)
        try:
            with theirs:
                process.start()
            going = self._answered(ours, read)  # that they have begun
            while going:
                event = self._take()
                ours.send_bytes(json.dumps(event).encode())
                going = self._answered(ours, read) and event["event"] != "end"
        finally:
            ours.close()
            if process.pid is not None:
                process.join(1)
                process.terminate()
                process.join(END_S)

    def _answered(self, pipe: Connection, read: Callable[[int], bytes | None]) -> bool:
        """Wait until all have heard of an event; whether any callback is left."""
        while True:
            while not pipe.poll(0.2):
                if self._stop_by is not None and time.monotonic() > self._stop_by:
                    return False
            answer = json.loads(pipe.recv_bytes())
            if "want" in answer:
                pipe.send_bytes(_body(read, answer["want"]))
            elif "left" in answer:
                return bool(answer["left"])
            else:
                self._log(answer.pop("event"), **answer)

    def _take(self) -> Event:
        with self._wake:
            self._wake.wait_for(
                lambda: self._evaluations or self._newest or self._stop_by is not None
            )
            if self._newest is not None:
                event, self._newest = self._newest, None
                return event
            if self._evaluations:
                return self._evaluations.popleft()
            return {"event": "end"}


def _body(read: Callable[[int], bytes | None], version: int) -> bytes:
    """The bytes of a version; none where it is no longer kept, or cannot be read now."""
    try:
        return read(version) or b""
    except StoreError:
        return b""


class _Gone(RunError):
    """A version is no longer kept."""


def _serve(names: list[str], run: RunInfo, pipe: Connection) -> None:
    """What the process does: make the callbacks and tell them what comes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's, which says when to end
    callbacks: dict[str, Any] = {}
    for name in names:
        going, made = _heard(pipe, name, registry.find("callbacks", name))
        if going:
            callbacks[name] = made
    _tell(pipe, callbacks, "begin", run)
    latest: dict[str, Any] = {}
    while callbacks:
        try:
            event = json.loads(pipe.recv_bytes())
        except EOFError:  # the server was killed
            return
        kind = event["event"]
        assert kind in EVENTS
        if kind == "end":
            _tell(pipe, callbacks, kind, latest)
            return
        if kind == "evaluation":
            latest = {"version": event["version"], **event["metrics"]}
        _tell(pipe, callbacks, kind, _version(run, event, pipe))


def _tell(pipe: Connection, callbacks: dict[str, Any], event: str, about: object) -> None:
    for name, callback in list(callbacks.items()):
        method = getattr(callback, event, None)
        if method is not None and not _heard(pipe, name, method, about)[0]:
            del callbacks[name]
    pipe.send_bytes(json.dumps({"left": len(callbacks)}).encode())


def _heard(
    pipe: Connection, name: str, call: Callable[..., Any], *about: object
) -> tuple[bool, Any]:
    """Call it, and say what went wrong; whether the callback goes on, and what it returned."""
    try:
        return True, call(*about)
    except _Gone as error:
        word, reason = "callback_skipped", str(error)
    except Stop as stop:
        word, reason = "callback_stop", f"{stop}; the run goes on"
    except BaseException as error:  # a callback may do anything
        word, reason = "callback_failed", repr(error)[:1000]
    pipe.send_bytes(json.dumps({"event": word, "callback": name, "reason": reason}).encode())
    return word == "callback_skipped", None


def _version(run: RunInfo, event: Event, pipe: Connection) -> VersionInfo:
    version: int = event["version"]

    def read() -> Vector:
        pipe.send_bytes(json.dumps({"want": version}).encode())
        body = pipe.recv_bytes()
        if not body:
            raise _Gone(
                f"Version {version} cannot be read any more: serve with a longer --history."
            )
        return wire.decode_snapshot(body)[1].params

    return VersionInfo(run, version, event["metrics"], read)
