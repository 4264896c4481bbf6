"""A day of a million workers, simulated, and held against the formulas.

The workers keep hours (the package's own participation). Their pushes go through collectors, made
durable updates make versions, and pulls go through the edges of a cache; waiting, refusals,
staleness and cache hits are compared with what the model of `docs/scaling.md` says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from anarchic import AfaCd
from anarchic.core.types import Updates
from anarchic.participation import ContinuousTime, Diurnal, LogNormalTime, UniformSteps, Work
from anarchic.worker import Retry
from benchmarks.fleet import DAY_S, Collector
from benchmarks.queueing import Floats, Queue, serve

SEED = 1
IDLE = Diurnal(2_600.0, awake_h=7.2, asleep=0.05, wakes_h=(9.0, 12.0))
WORK = Work(UniformSteps(1, 10), step_s=55.0, time_distribution=LogNormalTime(0.8))
VISIT_S = WORK.steps.mean * WORK.step_s
PLATEAU_H = (12.5, 16.0)  # everybody is awake, and has been for more than a visit
BODY = 4e6
LOAD = 0.6  # of the collectors, at the peak
STALENESS = 5.0  # wanted at the peak
PUBLICATION_S = 5.0  # until a version can be pulled
POINTER_S = 10.0  # how old an edge's knowledge of the newest version may be
EDGES = 200
RETRY_AFTER_S = 1.0  # what the server says to those who find no room
LOADS = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
SWEPT = 300_000  # updates behind each dot of the sweep
SUMMED = 10_000  # updates of the version that is made of partial sums
TIGHT_ROOM = 8  # so small that it refuses now and then


@dataclass(frozen=True)
class Compared:
    """A number of the model beside the simulation's; ``most`` bounds their relative difference."""

    name: str
    unit: str
    model: float
    simulated: float
    most: float | None = None

    @property
    def difference(self) -> float:
        return self.simulated / self.model - 1 if self.model else 0.0

    @property
    def met(self) -> bool:
        return self.most is None or abs(self.difference) <= self.most


@dataclass(frozen=True)
class Simulated:
    """What is shown of a simulated day."""

    rows: list[Compared]
    day: dict[str, list[float]]  # hour, model, simulated: pushes per second
    sweep: list[dict[str, float]]  # load, variability, model and simulated wait
    staleness: dict[str, list[float]]  # tau, model, simulated: shares
    facts: dict[str, float]


def simulate(collector: Collector, workers: int) -> Simulated:
    rng = np.random.default_rng(SEED)
    visits = ContinuousTime(IDLE, WORK).visits(rng, workers, DAY_S)
    order = np.argsort(visits.push_s, kind="stable")
    pull_s, push_s = visits.pull_s[order], visits.push_s[order]
    who = visits.worker[order]
    del visits, order
    peak = workers * rate_of(1.0)
    queue = collector.queue(BODY)
    count = math.ceil(peak / (LOAD * queue.capacity))
    rows, day = arrivals(push_s, workers)
    done_s, waits = through_collectors(queue, count, push_s, rng)
    rows += waiting(queue, peak / count, push_s, waits)
    sweep, swept = swept_loads(queue, push_s, rng)
    rows += swept + refusals(queue, push_s, rng)
    late, staleness, version_s = stale(pull_s, push_s, done_s, peak)
    rows += late
    rows += cached(pull_s, who, version_s)
    facts = {
        "workers": workers,
        "updates": len(push_s),
        "collectors": count,
        "capacity": queue.capacity,
        "variability": queue.variability,
        "m": m_for(peak),
        "versions": len(version_s),
        "presum_difference": presummed(rng, count),
    }
    return Simulated(rows, day, sweep, staleness, facts)


def rate_of(awake: float) -> float:
    """Pushes per second of a worker when such a share of all are awake: one over idle and work."""
    asleep_s = IDLE.mean_idle_s / IDLE.asleep
    return awake / (IDLE.mean_idle_s + VISIT_S) + (1 - awake) / (asleep_s + VISIT_S)


def share_awake(hour: Floats) -> Floats:
    """Of workers whose hour of waking is uniform: how much of the last hours it overlaps."""
    (first, last), span = IDLE.wakes_h, IDLE.awake_h
    # The hours of being awake may have begun on the day before.
    hours = np.stack([hour, hour + 24.0])
    overlap = np.minimum(hours, last) - np.maximum(hours - span, first)
    share: Floats = np.clip(overlap, 0, None).sum(axis=0)
    return share / (last - first)


def arrivals(push_s: Floats, workers: int) -> tuple[list[Compared], dict[str, list[float]]]:
    """The day's curve, and whether the pushes of a busy hour look like a Poisson process."""
    edges = np.arange(0, DAY_S + 1, 600.0)
    seen = np.diff(np.searchsorted(push_s, edges)) / 600.0
    hours = (edges[:-1] + 300.0) / 3600
    awake = share_awake(hours - VISIT_S / 3600)  # whoever pushes now turned up a visit ago
    model = workers * np.array([rate_of(float(share)) for share in awake])
    busy = within(push_s, push_s)
    a_second = np.bincount((busy - busy[0]).astype(np.int64))[:-1]
    gaps = np.diff(busy)
    peak = workers * rate_of(1.0)
    rows = [
        Compared("updates in a day", "", float(model.sum() * 600), float(len(push_s)), 0.02),
        Compared("updates per second at the peak", "/s", peak, 1 / float(gaps.mean()), 0.02),
        Compared(
            "variance over mean of their number per second (Poisson: 1)", "",
            1.0, float(a_second.var() / a_second.mean()), 0.05,
        ),
        Compared(
            "squared variation of their gaps (Poisson: 1)", "",
            1.0, float(gaps.var() / gaps.mean() ** 2), 0.05,
        ),
    ]  # fmt: skip
    day = {"hour": hours.tolist(), "model": model.tolist(), "simulated": seen.tolist()}
    return rows, day


def within(times_s: Floats, values: NDArray[Any]) -> NDArray[Any]:
    """The values of the plateau; ``times_s`` is sorted."""
    low, high = np.searchsorted(times_s, [3600 * hour for hour in PLATEAU_H])
    return values[low:high]


def through_collectors(
    queue: Queue, count: int, push_s: Floats, rng: Generator
) -> tuple[Floats, Floats]:
    """When each update is durable, and how long it waited; each goes to a collector at random."""
    collector = rng.integers(0, count, len(push_s), dtype=np.int16)
    done_s, waits = np.empty(len(push_s)), np.empty(len(push_s))
    for number in range(count):
        mine = np.flatnonzero(collector == number)
        served = serve(queue, push_s[mine], rng, again_s=backoff())
        done_s[mine], waits[mine] = served.done_s, served.wait_s
    return done_s, waits


def backoff() -> Callable[[int], float]:
    """As the worker's link waits after a 503."""
    retry, chance = Retry(tries=None), Random(SEED)
    return lambda failures: retry.wait_s(failures, RETRY_AFTER_S, chance)


def waiting(queue: Queue, rate: float, push_s: Floats, waits: Floats) -> list[Compared]:
    busy = within(push_s, waits)
    load = f"at the peak, load {queue.utilisation(rate):.2f}"
    return [
        Compared(
            f"mean wait {load}", "ms", queue.wait_s(rate) * 1e3, float(busy.mean()) * 1e3, 0.15
        ),
        Compared(
            f"share that waits {load}", "",
            queue.share_waiting(rate), float((busy > 0).mean()), 0.15,
        ),
    ]  # fmt: skip


def thinned(queue: Queue, load: float, push_s: Floats, rng: Generator) -> Floats:
    """The plateau's pushes to one collector, as many as give it this load."""
    busy = within(push_s, push_s)
    rate = len(busy) / (3600 * (PLATEAU_H[1] - PLATEAU_H[0]))
    kept = busy[rng.random(len(busy)) < load * queue.capacity / rate]
    return kept[:SWEPT]


def swept_loads(
    queue: Queue, push_s: Floats, rng: Generator
) -> tuple[list[dict[str, float]], list[Compared]]:
    """Mean wait by load, for service times that vary as measured and for exponential ones."""
    dots, rows = [], []
    for variability in (queue.variability, 1.0):
        varied = Queue(queue.places, 10**9, queue.service_s, variability)
        for load in LOADS:
            came = thinned(varied, load, push_s, rng)
            rate = (len(came) - 1) / (came[-1] - came[0])
            seen = float(serve(varied, came, rng).wait_s.mean())
            model = varied.wait_s(rate)
            dots.append(
                {"load": varied.utilisation(rate), "variability": variability, "model_s": model,
                 "simulated_s": seen}
            )  # fmt: skip
            if load in (0.7, 0.9):
                kind = "exponential service" if variability == 1 else "service as measured"
                name = f"mean wait, load {load}, {kind}"
                rows.append(Compared(name, "ms", model * 1e3, seen * 1e3, 0.15))
    return dots, rows


def refusals(queue: Queue, push_s: Floats, rng: Generator) -> list[Compared]:
    """With a room so small that refusals happen; and what coming again makes of them."""
    rows = []
    for variability, most in ((1.0, 0.1), (queue.variability, 0.3)):
        tight = Queue(queue.places, TIGHT_ROOM, queue.service_s, variability)
        came = thinned(tight, 0.9, push_s, rng)
        rate = (len(came) - 1) / (came[-1] - came[0])
        kind = "exponential service" if variability == 1 else "service as measured"
        where = f"room {TIGHT_ROOM}, load 0.9, {kind}"
        lost = serve(tight, came, rng).refusals / len(came)
        rows.append(Compared(f"share refused, {where}", "", tight.refused(rate), lost, most))
        again = serve(tight, came, rng, again_s=backoff())
        tries = 1 + again.refusals / len(came)
        rows.append(Compared(f"tries per update, {where}", "", tight.tries(rate), tries, most))
    return rows


def m_for(peak: float) -> int:
    """Updates a version, so that the mean staleness at the peak is the one wanted."""
    return round(peak * seen_s() / STALENESS)


def seen_s() -> float:
    """From the making of the version that a worker pulls to its push, mean, less the queue."""
    return VISIT_S + PUBLICATION_S + POINTER_S / 2


def stale(
    pull_s: Floats, push_s: Floats, done_s: Floats, peak: float
) -> tuple[list[Compared], dict[str, list[float]], Floats]:
    """Staleness as the timetable defines it, of durable updates in the order of the log."""
    m = m_for(peak)
    order = np.argsort(done_s, kind="stable")
    version_s = done_s[order][m - 1 :: m] + PUBLICATION_S
    # An edge asks for the newest version every POINTER_S, each at moments of its own.
    asked = pull_s - np.random.default_rng(SEED).uniform(0, POINTER_S, len(pull_s))
    base = np.searchsorted(version_s, asked, side="right")
    tau = np.empty(len(order), np.int64)
    tau[order] = np.arange(len(order)) // m - base[order]
    busy = within(push_s, tau)
    visit_s = within(push_s, push_s - pull_s)
    passed = peak / m * (visit_s + PUBLICATION_S + POINTER_S / 2 + (done_s - push_s).mean())
    shares = staleness_shares(passed)
    seen = np.bincount(busy, minlength=len(shares)) / len(busy)
    rows = [
        Compared(
            f"mean staleness at the peak, m = {m:,}", "versions",
            peak / m * (seen_s() + float((done_s - push_s).mean())), float(busy.mean()), 0.03,
        ),
        Compared(
            "its 95th percentile", "versions",
            quantile(shares, 0.95), float(np.percentile(busy, 95)), 0.1,
        ),
        Compared(
            "versions in a day", "", len(push_s) / m, float(len(version_s)), 0.02,
        ),
    ]  # fmt: skip
    most = quantile(shares, 0.999)
    staleness = {
        "tau": [float(k) for k in range(most + 1)],
        "model": shares[: most + 1].tolist(),
        "simulated": seen[: most + 1].tolist(),
    }
    return rows, staleness, version_s


def staleness_shares(passed: Floats) -> Floats:
    """Shares of tau = 0, 1, ... if ``passed`` versions' worth of updates arrived meanwhile.

    A visit begins anywhere within a round, so x versions' worth end floor(x) rounds or one more,
    the latter with the probability of the fraction.
    """
    whole = np.floor(passed).astype(np.int64)
    part = passed - whole
    size = int(whole.max()) + 2
    shares = np.bincount(whole, weights=1 - part, minlength=size)
    return (shares + np.bincount(whole + 1, weights=part, minlength=size)) / len(passed)


def quantile(shares: Floats, at: float) -> int:
    return int(np.searchsorted(np.cumsum(shares), at))


def cached(pull_s: Floats, who: NDArray[np.int32], version_s: Floats) -> list[Compared]:
    """Pulls through edges of a cache: an edge fetches a version when it is first asked for it."""
    version = np.searchsorted(version_s, pull_s, side="right")
    asked = np.unique(version * EDGES + who % EDGES)
    versions = len(version_s) + 1
    return [
        Compared(
            f"pulls that reach the origin, {EDGES} edges", "",
            EDGES * versions / len(pull_s), len(asked) / len(pull_s), 0.1,
        )
    ]  # fmt: skip


def presummed(rng: Generator, collectors: int, *, dim: int = 1_000, m: int = SUMMED) -> float:
    """How far a version made of the collectors' partial sums is from one made in one sequence.

    Partial sums are those of AFA-CD itself, with a rule that does not get to its step; the root
    adds them in the order of the collectors. The largest difference, as a share of the largest
    change of a parameter.
    """
    block = Updates(
        workers=[str(number) for number in range(m)],
        base_versions=np.zeros(m, np.int64),
        local_steps=np.ones(m, np.int64),
        local_lrs=rng.uniform(0.01, 0.1, m),
        directions=rng.standard_normal((m, dim), dtype=np.float32),
        samples=np.zeros(m, np.int64),
    )
    start = np.zeros(dim, np.float32)
    rule, leaf = AfaCd(m), AfaCd(m + 1)
    whole = rule.receive_many(rule.init(start), block).params
    total = np.zeros(dim, np.float32)
    for rows in np.array_split(np.arange(m), collectors):
        part = block[slice(int(rows[0]), int(rows[-1]) + 1)]
        total += leaf.receive_many(leaf.init(start), part).total
    return float(np.abs(start - total / np.float32(m) - whole).max() / np.abs(whole).max())
