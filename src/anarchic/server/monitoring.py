"""What the operator sees: log lines, one JSON object each, and counters for Prometheus."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from anarchic.server.published import PublishedModels

Log = Callable[..., None]  # writes one event: its name, and facts by their names
# Facts with one of these words in their name may be secrets: their values are not written.
_SECRET = ("token", "authorization", "secret", "password", "cookie")


class JsonLog:
    """Writes one line per event to a stream, from any thread."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def __call__(self, event: str, **facts: Any) -> None:
        safe = {
            name: "***" if any(word in name.lower() for word in _SECRET) else value
            for name, value in facts.items()
        }
        line = json.dumps({"time": round(time.time(), 3), "event": event, **safe}, default=str)
        with self._lock:
            print(line, file=self._stream or sys.stderr, flush=True)


class ServerMetrics:
    """Counters of one server. Each has its own registry: one process may run several servers."""

    def __init__(self, published: PublishedModels) -> None:
        self._registry = CollectorRegistry()
        counter = partial(Counter, registry=self._registry)
        self._updates = counter("anarchic_updates", "Updates by outcome", ["outcome"])
        self._bytes = counter("anarchic_update_bytes", "Bytes of updates")
        self._refusals = counter("anarchic_refusals", "Refused requests by code", ["code"])
        self._folds = counter("anarchic_updates_folded", "Updates in published versions")
        self._clipped = counter("anarchic_updates_clipped", "Folded updates that the guard clipped")
        version = Gauge("anarchic_version", "The newest version", registry=self._registry)
        version.set_function(lambda: published.newest.version if published.has_one else -1)
        loss = Gauge("anarchic_loss", "Mean loss told with its updates", registry=self._registry)
        loss.set_function(lambda: _or_nan(published.newest.loss if published.has_one else None))
        self.counts = {"accepted": 0, "duplicate": 0, "refused": 0, "folded": 0}

    def received(self, outcome: str, length: int) -> None:
        self._updates.labels(outcome).inc()
        self._bytes.inc(length)
        self.counts[outcome] += 1

    def refused(self, code: str) -> None:
        self._refusals.labels(code).inc()
        self.counts["refused"] += 1

    def folded(self, count: int, clipped: int = 0) -> None:
        self._folds.inc(count)
        self._clipped.inc(clipped)
        self.counts["folded"] += count

    def text(self) -> bytes:
        return generate_latest(self._registry)


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value
