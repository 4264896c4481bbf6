"""What Prometheus is told of a server: counters, gauges and histograms."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any, final

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from anarchic.server.activity import Activity
from anarchic.server.clock import SYSTEM, Clock
from anarchic.server.histogram import LOCAL_STEPS, NORM, SECONDS, STALENESS, Histogram
from anarchic.server.published import PublishedModels
from anarchic.server.records import NewUpdate

ACTIVE_S = 600.0  # a worker counts as active for this long after its last accepted update
MOST_ACTIVE = 16_384  # workers that are remembered; 3 MB. Strangers may invent names
MOST_EVALUATIONS = 64  # metrics of an evaluation that are shown


class ServerMetrics:
    """Metrics of one server. Each has its own registry: one process may run several servers.

    Of what is called with every update each method is for one thread: ``stored`` for the one that
    collects, ``folds`` and ``published`` for the one that aggregates.
    """

    def __init__(self, published: PublishedModels, clock: Clock = SYSTEM) -> None:
        self._registry = CollectorRegistry()
        counter = partial(Counter, registry=self._registry)
        self._updates = counter("anarchic_updates", "Updates by outcome", ["outcome"])
        self._bytes = counter("anarchic_update_bytes", "Bytes of updates")
        self._refusals = counter("anarchic_refusals", "Refused requests by code", ["code"])
        self._folds = counter("anarchic_updates_folded", "Updates in published versions")
        self._clipped = counter("anarchic_updates_clipped", "Folded updates that the guard clipped")
        self._aside = counter("anarchic_updates_set_aside", "Updates that no version will hold")
        # A rate needs the zero before the first one.
        self._outcomes = {name: self._updates.labels(name) for name in ("accepted", "duplicate")}
        self._told = dict.fromkeys(self._outcomes, 0)  # what these counters know
        self._length = 0  # bytes of updates that the counter has not been told of
        self._staleness, self._norm = Histogram(STALENESS), Histogram(NORM)
        self._steps = Histogram(LOCAL_STEPS)
        self._append, self._publish = Histogram(SECONDS), Histogram(SECONDS)
        self._active = _Active(clock)
        self._registry.register(_Collected(self._histograms))
        ProcessCollector(registry=self._registry)  # memory, CPU, open files
        self.gauge(
            "anarchic_version",
            "The newest version",
            lambda: published.newest.version if published.has_one else -1,
        )
        self.gauge(
            "anarchic_loss",
            "Mean loss told with its updates",
            lambda: published.newest.loss if published.has_one else None,
        )
        told = f"Workers with an accepted update in the last {ACTIVE_S / 60:g} minutes"
        self.gauge("anarchic_active_workers", told, self._active.count)
        self._certificate: Gauge | None = None
        self.counts = {"accepted": 0, "duplicate": 0, "refused": 0, "folded": 0, "set_aside": 0}

    def gauge(self, name: str, told: str, value: Callable[[], float | None]) -> None:
        """Show a number of another part, asked for whenever the metrics are read.

        None is shown as NaN. It must answer at once: it is asked in the event loop.
        """
        Gauge(name, told, registry=self._registry).set_function(lambda: _or_nan(value()))

    def evaluations(self, latest: Callable[[], Mapping[str, Any] | None]) -> None:
        """Show the latest evaluation: a dictionary of numbers, and the version that has them."""
        self._registry.register(_Collected(lambda: _evaluation(latest())))

    def received(self, outcome: str, length: int) -> None:
        self.counts[outcome] += 1
        self._length += length

    def stored(self, accepted: Iterable[NewUpdate], seconds: float) -> None:
        """One transaction made these updates durable."""
        self._append.add(seconds)
        for new in accepted:
            self._norm.add(new.norm)
            self._steps.add(new.local_steps)
            self._active.saw(new.worker)

    def refused(self, code: str) -> None:
        self._refusals.labels(code).inc()
        self.counts["refused"] += 1

    def folds(self, staleness: int) -> None:
        """An update is folded. One that is folded again, after a failure, is counted again."""
        self._staleness.add(staleness)

    def published(self, seconds: float) -> None:
        """One transaction made a version durable."""
        self._publish.add(seconds)

    def folded(self, count: int, clipped: int = 0) -> None:
        self._folds.inc(count)
        self._clipped.inc(clipped)
        self.counts["folded"] += count

    def set_aside(self, count: int) -> None:
        self._aside.inc(count)
        self.counts["set_aside"] += count

    def show(self, activity: Activity) -> None:
        """Show what the run came to, over all restarts and servers."""
        self._registry.register(_RunTotals(activity))

    def certificate_expires(self, seconds: float) -> None:
        """When the server's certificate does, in seconds since 1970; told by servers with TLS."""
        if self._certificate is None:
            name, told = "anarchic_certificate_expires_seconds", "notAfter, seconds since 1970"
            self._certificate = Gauge(name, told, registry=self._registry)
        self._certificate.set(seconds)

    def collect(self) -> Iterable[Metric]:
        self._tell()
        return self._registry.collect()

    def text(self) -> bytes:
        self._tell()
        return generate_latest(self._registry)

    def _tell(self) -> None:
        """Bring the counters of updates up to date: a counter takes a lock, too much per update.

        Called where ``received`` is called, in the event loop.
        """
        for outcome, counter in self._outcomes.items():
            counter.inc(self.counts[outcome] - self._told[outcome])
            self._told[outcome] = self.counts[outcome]
        self._bytes.inc(self._length)
        self._length = 0

    def _histograms(self) -> Iterator[Metric]:
        told = "Versions published between the pull and the folding of an update"
        yield _family("anarchic_staleness", told, {"": self._staleness})
        yield _family("anarchic_norm", "eta_L * ||G|| of accepted updates", {"": self._norm})
        yield _family("anarchic_local_steps", "Local steps of accepted updates", {"": self._steps})
        told = "Seconds of a transaction: append (updates) or publish (a version)"
        each = {"append": self._append, "publish": self._publish}
        yield _family("anarchic_store_seconds", told, each, label="operation")


@final
class _Collected:
    """What the registry asks for metrics that are made when they are read."""

    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self.collect = collect


@final
class _Active:
    """Who has sent an update lately, the longest silent first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, float] = {}  # when a worker was last seen

    def saw(self, worker: str) -> None:
        self._seen.pop(worker, None)
        self._seen[worker] = self._clock.monotonic()
        if len(self._seen) > MOST_ACTIVE:
            del self._seen[next(iter(self._seen))]

    def count(self) -> int:
        since = self._clock.monotonic() - ACTIVE_S
        return sum(seen > since for seen in tuple(self._seen.values()))


def _family(
    name: str, told: str, histograms: Mapping[str, Histogram], *, label: str | None = None
) -> Metric:
    family = HistogramMetricFamily(name, told, labels=[] if label is None else [label])
    for value, histogram in histograms.items():
        counts = histogram.cumulative()
        buckets: Sequence[Any] = [("+Inf" if b == inf else f"{b:g}", n) for b, n in counts]
        family.add_metric([] if label is None else [value], buckets, histogram.total)
    return family


def _evaluation(found: Mapping[str, Any] | None) -> Iterator[Metric]:
    told = "The latest evaluation, by metric"
    family = GaugeMetricFamily("anarchic_evaluation", told, labels=["metric"])
    numbers = dict(found or {})
    version = numbers.pop("version", None)
    shown: dict[str, float] = {}
    for name, value in list(numbers.items())[:MOST_EVALUATIONS]:
        # Two names that become one are shown once: Prometheus would refuse everything otherwise.
        shown.setdefault(re.sub(r"[^A-Za-z0-9_]", "_", name)[:64], _or_nan(value))
    for name, value in shown.items():
        family.add_metric([name], value)
    yield family
    told = "The version that was evaluated last"
    yield GaugeMetricFamily("anarchic_evaluation_version", told, value=_or_nan(version))


@final
class _RunTotals:
    """Counters of the run. Every server shows the same: do not add them up over servers."""

    def __init__(self, activity: Activity) -> None:
        self._activity = activity

    def collect(self) -> Iterator[CounterMetricFamily]:
        told = "Updates of the run by outcome, over restarts; every server shows all of them"
        family = CounterMetricFamily("anarchic_run_updates", told, labels=["outcome"])
        for outcome, count in self._activity.totals().items():
            family.add_metric([outcome], count)
        yield family
        told = "Refused requests of the run by code, over restarts; every server shows all of them"
        family = CounterMetricFamily("anarchic_run_refusals", told, labels=["code"])
        for code, count in sorted(self._activity.codes().items()):
            family.add_metric([code], count)
        yield family


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else float(value)
