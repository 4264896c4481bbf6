"""Log lines of a worker: one JSON object each, as the server writes them, and never a secret."""

from __future__ import annotations

import json
import logging
import math
import time

LOGGER = logging.getLogger("anarchic.worker")


def log_event(event: str, level: int = logging.INFO, **facts: object) -> None:
    """Log one event; facts that are None are left out, and numbers that JSON lacks are null."""
    if LOGGER.isEnabledFor(level):
        known = {name: _short(fact) for name, fact in facts.items() if fact is not None}
        line = {"time": round(time.time(), 3), "event": event, **known}
        LOGGER.log(level, "%s", json.dumps(line, default=str))


def _short(fact: object) -> object:
    if isinstance(fact, float):
        return float(f"{fact:.6g}") if math.isfinite(fact) else None
    return fact
