"""Counters of a server, for Prometheus and the status."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from anarchic.server.published import PublishedModels


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
        self._aside = counter("anarchic_updates_set_aside", "Updates that no version will hold")
        version = Gauge("anarchic_version", "The newest version", registry=self._registry)
        version.set_function(lambda: published.newest.version if published.has_one else -1)
        loss = Gauge("anarchic_loss", "Mean loss told with its updates", registry=self._registry)
        loss.set_function(lambda: _or_nan(published.newest.loss if published.has_one else None))
        self._certificate: Gauge | None = None
        self.counts = {"accepted": 0, "duplicate": 0, "refused": 0, "folded": 0, "set_aside": 0}

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

    def set_aside(self, count: int) -> None:
        self._aside.inc(count)
        self.counts["set_aside"] += count

    def certificate_expires(self, seconds: float) -> None:
        """When the server's certificate does, in seconds since 1970; told by servers with TLS."""
        if self._certificate is None:
            name, told = "anarchic_certificate_expires_seconds", "notAfter, seconds since 1970"
            self._certificate = Gauge(name, told, registry=self._registry)
        self._certificate.set(seconds)

    def text(self) -> bytes:
        return generate_latest(self._registry)


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value
