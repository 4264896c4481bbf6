"""Refusals: what the worker is told, and the one table from our errors to HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from anarchic.errors import (
    AnarchicError,
    MalformedUpdate,
    NotFinite,
    StaleUpdate,
    StoreCorrupt,
    StoreError,
    StoreFull,
    UpdateRefused,
)
from anarchic.page.assets import HEADERS
from anarchic.server.log import Log, Seldom

LINES = 5  # of the log, per code and minute


@dataclass
class Refusal(Exception):
    """A request that is not granted: status, code, message and what to do."""

    status: int
    code: str
    message: str
    remedy: str
    retry_after_s: float | None = None
    worker: str | None = None  # who sent it, as the update says, where no token does
    facts: Mapping[str, str] = field(default_factory=dict)  # for the log

    @property
    def headers(self) -> dict[str, str]:
        """Those of the page too: a browser may show what is refused."""
        headers = {"content-type": "application/json", **HEADERS}
        if self.retry_after_s is not None:
            headers["retry-after"] = str(max(1, round(self.retry_after_s)))
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        return headers

    def body(self) -> bytes:
        told = {"error": self.code, "message": self.message, "remedy": self.remedy}
        return json.dumps(told).encode()


# Codes that say: come again later, with the same update. They are ordinary and nobody's fault.
LATER = frozenset(
    {"too_many_updates", "slow_down", "busy", "paused", "store_unavailable", "store_full"}
)

# The first match counts, so narrow types stand before wide ones.
_TABLE: tuple[tuple[type[AnarchicError], int, str, str, float | None], ...] = (
    (NotFinite, 422, "not_finite", "Lower the local learning rate or clip the gradients.", None),
    (MalformedUpdate, 422, "malformed", "Send what docs/protocol.md describes.", None),
    (StaleUpdate, 409, "stale", "Pull the model again and train from there.", None),
    (StoreFull, 507, "store_full", "Keep the update and send it again later.", 30.0),
    (StoreCorrupt, 503, "store_unavailable", "The operator must restore the store.", 60.0),
    (StoreError, 503, "store_unavailable", "Keep the update and send it again later.", 5.0),
)


def refusal_of(error: AnarchicError) -> Refusal:
    """The refusal for an error; details of the store are only in the log."""
    for kind, status, code, remedy, retry in _TABLE:
        if isinstance(error, kind):
            message = "The server cannot store updates now."
            if status < 500:  # the remedy follows, once
                message = error.told if isinstance(error, UpdateRefused) else str(error)
            worker = getattr(error, "worker", None)
            return Refusal(status, code, message, remedy, retry, worker)
    return Refusal(422, "malformed", str(error), "Send what docs/protocol.md describes.")


def length_required() -> Refusal:
    return Refusal(
        411, "length_required", "The request has no Content-Length.", "Send the body's length."
    )


def busy(retry_after_s: float, message: str = "Too many bodies are being sent.") -> Refusal:
    return Refusal(503, "busy", message, "Try again later.", retry_after_s)


class RefusalLog:
    """Logs who is refused, a few lines per code and minute; what was sent is not in them.

    Whoever floods the server with refused requests costs it a look into a table for each.
    """

    def __init__(
        self, log: Log, named: Callable[[str | None], Mapping[str, str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._log, self._named = log, named
        self._seldom = Seldom(LINES, 60.0, clock)

    def add(self, refusal: Refusal, address: str, authorization: str | None = None) -> None:
        left_out = self._seldom.take((refusal.status, refusal.code))
        if left_out is not None:
            facts = {"status": refusal.status, "code": refusal.code, "address": address}
            named = {**self._named(authorization), **refusal.facts}
            self._log("refused", **facts, **named, **({"left_out": left_out} if left_out else {}))
