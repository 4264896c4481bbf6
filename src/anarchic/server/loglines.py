"""How an event becomes a line of the log, as JSON or as text, and how much each event matters."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Any

# Facts with one of these words in their name may be secrets: their values are not written.
_SECRET = ("token", "authorization", "secret", "password", "cookie")
LONGEST = 8000  # characters of a text in a line
LEVELS = ("debug", "info", "warning", "error")  # the least important first
FORMATS = ("json", "text")
_LEVEL = {
    "folded": "debug",
    **dict.fromkeys(
        ("callback_skipped", "certificate_expires_soon", "certificate_not_valid_yet", "clipped",
         "deposed", "evaluation_failed", "handshake_failed", "log_dropped", "log_limited",
         "metric_missing", "model_warning", "refused", "refused_late", "rule_waits", "same_run",
         "set_aside", "store_has_other_names"),
        "warning",
    ),
    **dict.fromkeys(
        ("aggregator_failed", "callback_failed", "callbacks_died", "cannot_publish",
         "certificate_expired", "certificate_not_loaded", "error", "evaluator_died",
         "store_corrupt", "store_error", "thread_died"),
        "error",
    ),
}  # fmt: skip
_PLAIN = re.compile(r"[!#-<>-~]+")  # neither a space, '"' nor '='


def level_of(event: str, facts: Mapping[str, Any]) -> str:
    """How much an event matters; one that says so itself, as those of others do, is believed."""
    told = str(facts.get("level", "")).lower()
    told = "error" if told == "critical" else told
    return told if told in LEVELS else _LEVEL.get(event, "info")


def json_line(event: str, facts: Mapping[str, Any]) -> str:
    now = round(time.time(), 3)
    level = level_of(event, facts)
    known = {"time": now, "event": event} | ({} if level == "info" else {"level": level})
    try:
        safe = {name: _safe(name, value) for name, value in facts.items()}
        text = json.dumps({**known, **safe}, default=_text, allow_nan=False)
    except Exception as error:  # a value that cannot be shown: tell what can be
        found = {**known, "unprintable": type(error).__name__}
        text = json.dumps(found, default=repr)
    return text + "\n"


def text_line(event: str, facts: Mapping[str, Any]) -> str:
    """When, how much it matters, what happened, and facts as name=value."""
    when = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}Z"
    level = level_of(event, facts).upper()
    try:
        each = {n: _safe(n, v) for n, v in facts.items() if n != "level" and v is not None}
        words = [f"{name}={_word(value)}" for name, value in each.items()]
    except Exception as error:  # as above
        words = [f"unprintable={type(error).__name__}"]
    return " ".join([f"{when} {level:7} {event}", *words]) + "\n"


def _word(value: Any) -> str:
    """A value on one line, in quotes where it would not end with the next space."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping) and all(isinstance(n, int | float) for n in value.values()):
        value = ",".join(f"{name}:{number}" for name, number in value.items())
    text = value if isinstance(value, str) else json.dumps(value, default=_text)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def _safe(name: str, value: Any) -> Any:
    if any(word in name.lower() for word in _SECRET):
        return "***"
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _safe(str(key), inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_safe("", inner) for inner in value]
    return _text(value) if isinstance(value, str) else value


def _text(value: object) -> str:
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text)} characters)"
