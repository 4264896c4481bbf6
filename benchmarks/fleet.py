"""What a hundred million devices would need, and what it would cost: a plan on paper.

Everything that is assumed stands in one record, `Assumptions`; what was measured, on one small
machine, comes in as a `Collector`. The rest is arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from benchmarks.queueing import Queue

DAY_S, MONTH_D = 86_400.0, 30.0
GB = 1e9


def assumed(value: float, says: str) -> Any:
    """A field of `Assumptions`: its value, and what it is in words."""
    return field(default=value, metadata={"says": says})


@dataclass(frozen=True)
class Assumptions:
    """Round numbers of no particular vendor; prices in US dollars."""

    devices: float = assumed(1e8, "devices")
    visits_a_day: float = assumed(1.0, "visits per day and device")
    peak: float = assumed(3.0, "busiest hour over mean hour")
    visit_s: float = assumed(300.0, "seconds from pull to push, mean")
    uplink: float = assumed(0.625e6, "bytes per second that a device sends (5 Mbit/s)")
    staleness: float = assumed(5.0, "mean staleness wanted at the peak; m follows")
    utilisation: float = assumed(
        0.6, "utilisation of a collector, and of a disk of the log, at the peak"
    )
    line: float = assumed(1.25e9, "bytes per second between machines (10 Gbit/s)")
    root_s: float = assumed(1.0, "seconds in which the root takes in all partial sums")
    edges: float = assumed(200, "edges of the CDN, each fetches a version once")
    pointer_s: float = assumed(10.0, "seconds that an edge may cache the newest version number")
    copies: float = assumed(3, "copies of the log")
    kept_h: float = assumed(1.0, "hours that bodies stay in the log (a version is made in minutes)")
    collector_h: float = assumed(
        0.10, "$ per hour for a collector, or a machine of the log: two cores, a fast disk"
    )
    root_h: float = assumed(0.20, "$ per hour for a machine of the root")
    log_gb: float = assumed(0.08, "$ per GB and month of log")
    memory_gb: float = assumed(3.0, "$ per GB and month of memory")
    egress_gb: float = assumed(0.02, "$ per GB from the CDN to devices")
    origin_gb: float = assumed(0.05, "$ per GB from the origin to the CDN")
    requests: float = assumed(0.50, "$ per million requests at the CDN")
    ingress_gb: float = assumed(0.0, "$ per GB from devices to collectors")

    def rows(self) -> list[tuple[str, float]]:
        return [(f.metadata["says"], getattr(self, f.name)) for f in fields(self)]


@dataclass(frozen=True)
class Collector:
    """One machine: an update of ``s`` bytes costs it ``update_s + s * byte_s`` seconds.

    The line runs through the rates measured at two sizes; beyond the larger one it is a guess.
    ``disk`` is what its disk alone takes, in bytes per second.
    """

    update_s: float
    byte_s: float
    disk: float
    places: int
    room: int
    variability: float

    @staticmethod
    def through(
        small: tuple[float, float],
        large: tuple[float, float],
        *,
        disk: float,
        places: int,
        room: int,
        variability: float,
    ) -> Collector:
        """From two pairs of bytes and updates per second."""
        (s, at_s), (t, at_t) = small, large
        byte_s = (1 / at_t - 1 / at_s) / (t - s)
        return Collector(1 / at_s - s * byte_s, byte_s, disk, places, room, variability)

    def rate(self, size: float) -> float:
        return 1 / (self.update_s + size * self.byte_s)

    def queue(self, size: float) -> Queue:
        return Queue(self.places, self.room, self.places / self.rate(size), self.variability)


@dataclass(frozen=True)
class Plan:
    """What follows for a model of ``size`` bytes, if updates are as large as the model."""

    assumptions: Assumptions
    collector: Collector
    size: float

    @property
    def pushes(self) -> float:
        """A second, over the day."""
        return self.assumptions.devices * self.assumptions.visits_a_day / DAY_S

    @property
    def peak_pushes(self) -> float:
        return self.pushes * self.assumptions.peak

    @property
    def collectors(self) -> int:
        each = self.assumptions.utilisation * self.collector.rate(self.size)
        return math.ceil(self.peak_pushes / each)

    @property
    def queue(self) -> Queue:
        return self.collector.queue(self.size)

    @property
    def each(self) -> float:
        """Pushes per second to one collector at the peak."""
        return self.peak_pushes / self.collectors

    @property
    def wait_s(self) -> float:
        return self.queue.wait_s(self.each)

    @property
    def refused(self) -> float:
        return self.queue.refused(self.each)

    @property
    def uploads(self) -> float:
        """In progress at a collector at the peak (Little's law), and four deviations more."""
        mean = self.each * self.size / self.assumptions.uplink
        return mean + 4 * math.sqrt(mean)

    @property
    def upload_memory(self) -> float:
        """Bytes that hold them at a collector."""
        return self.uploads * self.size

    @property
    def log_rate(self) -> float:
        """Bytes per second written at the peak, all copies."""
        return self.peak_pushes * self.size * self.assumptions.copies

    @property
    def log_machines(self) -> int:
        """Machines whose disks take the copies beyond the collector's own."""
        a = self.assumptions
        beyond = self.log_rate * (a.copies - 1) / a.copies
        return math.ceil(beyond / (a.utilisation * self.collector.disk))

    @property
    def log_held(self) -> float:
        day = self.pushes * DAY_S * self.size
        return day * self.assumptions.kept_h / 24 * self.assumptions.copies

    @property
    def m(self) -> float:
        """Updates a version, so that the mean staleness at the peak is the one wanted."""
        a = self.assumptions
        seen_s = a.visit_s + self.wait_s + a.pointer_s / 2 + self.publication_s
        return math.ceil(self.peak_pushes * seen_s / a.staleness)

    @property
    def versions_a_day(self) -> float:
        return self.pushes * DAY_S / self.m

    @property
    def roots(self) -> int:
        """Machines of the root, each adding one range of the parameters over all collectors."""
        a = self.assumptions
        return math.ceil(self.collectors * self.size / (a.line * a.root_s))

    @property
    def publication_s(self) -> float:
        """From the last update of a version to its first reader: sums in, model out to an edge."""
        line = self.assumptions.line
        return self.collectors * self.size / self.roots / line + 2 * self.size / line

    @property
    def pulls_a_day(self) -> float:
        return self.assumptions.devices * self.assumptions.visits_a_day

    @property
    def hits(self) -> float:
        """Share of pulls that the CDN answers alone: an edge asks once for every version."""
        return 1 - self.assumptions.edges * self.versions_a_day / self.pulls_a_day

    @property
    def egress(self) -> float:
        """Bytes a month to devices."""
        return self.pulls_a_day * self.size * MONTH_D

    def rows_memory(self, number: float = 1.0) -> float:
        """Bytes of AFA-CS's rows: a direction of every device, in so much of float32."""
        return self.assumptions.devices * self.size * number

    def costs(self) -> dict[str, float]:
        """Dollars a month."""
        a, hours = self.assumptions, 24 * MONTH_D
        return {
            "collectors, as many as the peak needs": self.collectors * a.collector_h * hours,
            "machines of the log": self.log_machines * a.collector_h * hours,
            "root": self.roots * a.root_h * hours,
            "log held": self.log_held / GB * a.log_gb,
            "CDN to devices": self.egress / GB * a.egress_gb,
            "CDN requests": self.pulls_a_day * MONTH_D / 1e6 * a.requests,
            "origin to CDN": self.egress * (1 - self.hits) / GB * a.origin_gb,
            "devices to collectors": self.egress / GB * a.ingress_gb,
        }

    @property
    def cost(self) -> float:
        return sum(self.costs().values())

    def outputs(self) -> dict[str, Any]:
        """Everything that follows, for a file."""
        names = [name for name, kind in vars(Plan).items() if isinstance(kind, property)]
        found = {name: getattr(self, name) for name in names} | {"costs": self.costs()}
        return found | {"queue": asdict(self.queue)}
