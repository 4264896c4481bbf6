"""Log lines: one JSON object each, and never a secret."""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any, Protocol, TextIO

# Facts with one of these words in their name may be secrets: their values are not written.
_SECRET = ("token", "authorization", "secret", "password", "cookie")


class Log(Protocol):
    """Writes one event."""

    def __call__(self, event: str, **facts: Any) -> None: ...


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
