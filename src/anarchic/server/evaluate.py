"""Evaluation of new versions by a user's function, in a process of its own.

Aggregation never waits for it. While it is busy, newer versions replace the one that waits.
"""

from __future__ import annotations

import json
import multiprocessing
import threading
from collections.abc import Callable, Mapping
from math import isfinite
from multiprocessing.connection import Connection
from typing import Any

from anarchic import wire
from anarchic.core.registry import load
from anarchic.errors import StoreError
from anarchic.server.log import Log
from anarchic.server.published import PublishedModel
from anarchic.server.store import Store


def shown(version: int, metrics: Mapping[str, float]) -> dict[str, Any]:
    """An evaluation as JSON: numbers that are not finite become null."""
    numbers = {name: value if isfinite(value) else None for name, value in metrics.items()}
    return {**numbers, "version": version}


class Evaluator:
    """Hands the newest version to the process, one at a time."""

    def __init__(self, name: str, store: Store, log: Log) -> None:
        load(name)  # a wrong name fails now, not after the first version
        self._name, self._store, self._log = name, store, log
        self._next: PublishedModel | None = None
        self._wake = threading.Condition()
        self._stopping = False
        self.told: Callable[[int, Mapping[str, float]], object] = lambda version, found: None
        before = [shown(*evaluation) for evaluation in store.evaluations(limit=1)]
        self.latest: dict[str, Any] | None = before[0] if before else None
        self._thread = threading.Thread(target=self._run, name="evaluate", daemon=True)
        self._thread.start()

    def offer(self, model: PublishedModel) -> None:
        with self._wake:
            self._next = model
            self._wake.notify()

    def stop(self) -> None:
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(5)

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._serve_one_process()
            except Exception as error:  # it died, or none could be started: try again
                self._log("evaluator_died", reason=repr(error))
            with self._wake:  # a process that dies at once is not restarted at full speed
                self._wake.wait_for(lambda: self._stopping, 1.0)

    def _serve_one_process(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=_serve, args=(self._name, theirs), daemon=True)
        try:
            with theirs:
                process.start()
            self._feed(ours)
        finally:
            ours.close()
            if process.pid is not None:
                process.terminate()
                process.join(5)

    def _feed(self, pipe: Connection) -> None:
        while (model := self._take()) is not None:
            pipe.send_bytes(model.body)
            while not pipe.poll(0.2):
                if self._stopping:
                    return
            answer = json.loads(pipe.recv_bytes())
            if "failed" in answer:
                self._log("evaluation_failed", version=model.version, reason=answer["failed"])
                continue
            found = answer["found"]
            self.latest = shown(model.version, found)
            self.told(model.version, found)
            try:
                self._store.add_evaluation(model.version, found)
            except StoreError as error:
                self._log("store_error", reason=str(error))

    def _take(self) -> PublishedModel | None:
        with self._wake:
            self._wake.wait_for(lambda: self._stopping or self._next is not None)
            model, self._next = self._next, None
            return None if self._stopping else model


def _serve(name: str, pipe: Connection) -> None:
    evaluate = load(name)  # of a snapshot: numbers by their names
    while True:
        try:
            _, snapshot, _ = wire.decode_snapshot(pipe.recv_bytes())
        except EOFError:
            return
        try:
            answer: dict[str, Any] = {"found": _numbers(evaluate(snapshot))}
        except Exception as error:  # the user's function may do anything
            answer = {"failed": repr(error)}
        pipe.send_bytes(json.dumps(answer).encode())


def _numbers(found: object) -> dict[str, float]:
    if not isinstance(found, Mapping):
        raise TypeError(f"it returned {found!r:.80}, not a dict of numbers such as accuracy")
    return {str(key): float(value) for key, value in found.items()}
