"""What each worker did, as numbers: counted one update at a time, in memory that is bounded.

The busiest workers are kept one by one; the others are added up in one tally. So open enrolment,
under which anybody can invent names, costs no more than the workers that an operator can look at.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from math import exp2, inf, log2
from typing import Any, NamedTuple, Self, final

SUMS = ("updates", "set_aside", "rolled_back", "clipped", "influence", "losses", "loss_sum")
MOST = 1000  # workers that are kept one by one; up to twice as many before the others are added up
OTHERS = 64  # workers heard last, with whose lengths an update is compared
EXACT = 16  # values of staleness below it have a bucket of their own
PER_DOUBLING = 8  # buckets: a value is known to 4.5 %

Histogram = dict[int, int]  # counts by bucket


class Row(NamedTuple):
    """A row of the trace: what is counted of a folded update. See ``records.Folded``."""

    seq: int
    worker: str
    base_version: int
    local_steps: int
    local_lr: float
    norm: float
    received_s: float
    order: int
    version: int


def staleness_bucket(staleness: int) -> int:
    """Of a staleness: exact while it is small, then log-spaced."""
    if staleness < EXACT:
        return max(0, staleness)
    return EXACT + int(PER_DOUBLING * log2(staleness / EXACT))


def staleness_in(bucket: int) -> int:
    """The staleness that stands for a bucket."""
    if bucket < EXACT:
        return bucket
    return round(EXACT * exp2((bucket - EXACT + 0.5) / PER_DOUBLING))


def ratio_bucket(ratio: float) -> int:
    """Of a ratio of lengths, from a millionth to a million."""
    if not 1e-6 < ratio < 1e6:
        ratio = min(max(ratio, 1e-6), 1e6)
    return round(PER_DOUBLING * log2(ratio))


def ratio_in(bucket: int) -> float:
    """The ratio that stands for a bucket."""
    return exp2(bucket / PER_DOUBLING)


def quantile(histogram: Histogram, share: float) -> int | None:
    """The bucket below or in which this share of the values lies."""
    wanted, seen = share * sum(histogram.values()), 0
    for bucket in sorted(histogram):
        seen += histogram[bucket]
        if seen >= wanted:
            return bucket
    return None


@final
@dataclass(slots=True)
class Tally:
    """What was counted of one worker, or of several together."""

    updates: int = 0  # folded into a version
    set_aside: int = 0
    rolled_back: int = 0  # of them, because a rollback withdrew what they build on
    clipped: int = 0  # by the guard
    influence: float = 0.0  # sum of the lengths with which its updates were folded
    staleness: Histogram = field(default_factory=dict)
    norms: Histogram = field(default_factory=dict)  # lengths against the median of the others'
    norm_last: float | None = None  # the last of them
    losses: int = 0  # updates that told one
    loss_sum: float = 0.0
    loss_last: float | None = None
    first_s: float = inf  # when its first update came, that is counted here; wall clock
    seen_s: float = -inf  # when its last one did
    workers: int = 1  # that are added up here; one that comes again is counted again

    def add(self, other: Tally) -> None:
        """Count everything that another has counted."""
        for name in SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for mine, theirs in ((self.staleness, other.staleness), (self.norms, other.norms)):
            for bucket, count in theirs.items():
                mine[bucket] = mine.get(bucket, 0) + count
        self.first_s = min(self.first_s, other.first_s)
        self.seen_s = max(self.seen_s, other.seen_s)
        self.workers += other.workers

    def to_json(self) -> dict[str, Any]:
        """Without what is still at its default."""
        empty = Tally()
        values = ((f.name, getattr(self, f.name)) for f in fields(self))
        return {name: value for name, value in values if value != getattr(empty, name)}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        # A later version may write more.
        values = {name: value for name, value in found.items() if name in _FIELDS}
        for name in ("staleness", "norms"):  # JSON has only texts as keys
            values[name] = {int(b): int(n) for b, n in values.get(name, {}).items()}
        return cls(**values)


_FIELDS = frozenset(f.name for f in fields(Tally))


@final
class Lately:
    """The lengths that the workers heard last have sent last."""

    def __init__(self, known: Iterable[tuple[str, float]] = ()) -> None:
        self.known = dict(known)  # the last heard last
        self._ordered = sorted(self.known.values())

    def against(self, worker: str, length: float) -> float | None:
        """A length divided by the lower median of the others'; None where there is none."""
        before = self.known.pop(worker, None)
        if before is not None:
            del self._ordered[bisect_left(self._ordered, before)]
        median = self._ordered[(len(self._ordered) - 1) // 2] if self._ordered else 0.0
        self.known[worker] = length
        insort(self._ordered, length)
        if len(self.known) > OTHERS:
            dropped = self.known.pop(next(iter(self.known)))
            del self._ordered[bisect_left(self._ordered, dropped)]
        return length / median if median > 0 else None


@final
class Tallies:
    """All workers: the busiest one by one, the others added up."""

    def __init__(self, most: int | None = None) -> None:
        self._most = MOST if most is None else most
        self.counted = 0  # rows of the trace, which is the order of the next one
        self.workers: dict[str, Tally] = {}
        self.rest = Tally(workers=0)
        self.lately = Lately()
        self.changed: set[str] = set()  # workers whose tallies were not stored since
        self.dropped: set[str] = set()  # workers that were added up since

    def fold(
        self, row: Row, came: float, length: float, *, clipped: bool, loss: float | None,
        rolled_back: bool = False,
    ) -> None:  # fmt: skip
        """Count one update, which came with one length and was folded with another."""
        self.counted = row.order + 1
        tally = self.workers.get(row.worker)
        if tally is None:
            tally = self.workers[row.worker] = Tally()
        self.changed.add(row.worker)
        if row.received_s < tally.first_s:  # comparing is faster than min and max, for each update
            tally.first_s = row.received_s
        if row.received_s > tally.seen_s:
            tally.seen_s = row.received_s
        if loss is not None:
            tally.losses, tally.loss_last = tally.losses + 1, loss
            tally.loss_sum += loss
        if not row.version:
            tally.set_aside += 1
            tally.rolled_back += rolled_back
            return
        tally.updates += 1
        tally.clipped += clipped
        tally.influence += length
        bucket = staleness_bucket(row.version - 1 - row.base_version)
        tally.staleness[bucket] = tally.staleness.get(bucket, 0) + 1
        ratio = self.lately.against(row.worker, came)
        if ratio is not None:
            tally.norm_last = ratio
            bucket = ratio_bucket(ratio)
            tally.norms[bucket] = tally.norms.get(bucket, 0) + 1
        if len(self.workers) > 2 * self._most:
            self._add_up()

    def _add_up(self) -> None:
        """Keep the busiest, of equally busy ones those seen last."""

        def busy(worker: str) -> tuple[int, float]:
            tally = self.workers[worker]
            return tally.updates + tally.set_aside, tally.seen_s

        for worker in sorted(self.workers, key=busy)[: -self._most]:
            self.rest.add(self.workers.pop(worker))
            self.changed.discard(worker)
            self.dropped.add(worker)

    @property
    def influence(self) -> float:
        """Of all workers together."""
        return sum(tally.influence for tally in self.workers.values()) + self.rest.influence
