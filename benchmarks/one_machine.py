"""What one machine does, by senders, by body and by workers: the base of `docs/scaling.md`.

    python -m benchmarks.one_machine [--seconds 2]

The server, the disk and the senders share the machine, so that a collector of its own would do
better. As many senders as a collector has places keep them taken and nobody waiting: the time that
an update holds a place, and how much it varies, are measured there.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys

import numpy as np

from anarchic.server.settings import Limits
from benchmarks.record import Record
from benchmarks.server import (
    LARGE,
    SMALL,
    Tally,
    append_and_sync,
    pull_for,
    push_for,
    serving,
    temporary,
)
from benchmarks.timetable import M, diurnal, measure

REPEATS = 3
SENDERS = (1, 2, 4, 8, 16, 32)
PLACES = Limits().bodies
BODIES = {"40 KB": (SMALL, 64), "4 MB": (LARGE, 8)}  # numbers in a model, m
WORKERS = (10_000, 100_000, 1_000_000)
UPDATES_EACH = 10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0)
    seconds = parser.parse_args().seconds
    record = Record("one_machine", "One machine")
    for body in BODIES:
        pushes(record, body, seconds)
    pulls(record, seconds)
    timetables(record)
    return record.finish()


def pushes(record: Record, body: str, seconds: float) -> None:
    """Rates by number of senders, taking turns with one another and with the bare disk."""
    dim, m = BODIES[body]
    rates: dict[int, list[float]] = {senders: [] for senders in SENDERS}
    tallies = {senders: Tally() for senders in SENDERS}
    disk = []
    with temporary() as folder, serving(folder, dim, "--m", str(m)) as server:
        push_for(server, seconds, senders=32, tally=Tally())  # warm, and into the steady state
        for _ in range(REPEATS):
            disk.append(append_and_sync(folder, seconds / 2) / 1e6)
            for senders in SENDERS:
                tally = tallies[senders]
                rates[senders].append(push_for(server, seconds, senders=senders, tally=tally))
    for senders, values in rates.items():
        facts = latency_facts(tallies[senders])
        name = f"{senders} senders"
        record.measure(name, values, unit="updates/s", group=body, facts=facts)
    if body == "4 MB":
        record.measure("append and sync", disk, unit="MB/s", group="disk")


def latency_facts(tally: Tally) -> dict[str, float]:
    times = np.array(tally.latencies_s)
    return {
        "mean_ms": float(times.mean() * 1e3),
        "p95_ms": float(np.percentile(times, 95) * 1e3),
        "variability": float(times.var() / times.mean() ** 2),
    }


def pulls(record: Record, seconds: float) -> None:
    tally = Tally()
    with temporary() as folder, serving(folder, LARGE, "--m", "8") as server:
        pull_for(server, seconds / 2, senders=8, tally=Tally())
        rates = [pull_for(server, seconds, senders=8, tally=tally) for _ in range(REPEATS)]
    record.measure(
        "8 senders", rates, unit="requests/s", group="conditional GET", facts=latency_facts(tally)
    )


def timetables(record: Record) -> None:
    for workers in WORKERS:
        seconds, peaks = [], []
        for _ in range(REPEATS if workers < max(WORKERS) else 2):
            with multiprocessing.get_context("spawn").Pool(1) as alone:
                rounds = workers * UPDATES_EACH // M
                took, peak, _ = alone.apply(measure, (diurnal, workers, rounds))
            seconds.append(took)
            peaks.append(peak)
        facts = {"updates": float(workers * UPDATES_EACH), "peak_gib": max(peaks)}
        name = f"{workers:,} workers"
        record.measure(name, seconds, unit="s", better="lower", group="timetable", facts=facts)


if __name__ == "__main__":
    sys.exit(main())
