"""A day of traffic in minutes, with everything that goes wrong: ``make soak``.

The simulator of faults runs one long plan instead of many short ones: workers that visit around the
clock, and a fault every few minutes. The server compacts its trace and thins its versions. Besides
the invariants, the numbers must balance in the end, and neither the file nor the memory may grow.

    python -m tests.faults.soak --hours 24
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from tests.faults.hub import Process
from tests.faults.invariants import SET_ASIDE, Invariants, Violation
from tests.faults.plan import KINDS, WORKERS, Event, Plan, args_of
from tests.faults.reading import Rows
from tests.faults.server import Server
from tests.faults.world import Outcome, World

VISIT_S = 9.0  # between two visits
FAULT_S = 240.0  # between two faults
NEVER = ("hostile",)  # kinds of faults that have their own rate
HOSTILE_S = 400.0
STALENESS = 50
KEPT_SENT = 300  # updates per worker that somebody may send once more


def soak_plan(seed: int, hours: float) -> Plan:
    """Visits and faults at random times."""
    rng, end = Random(f"{seed} soak"), hours * 3600
    drawn: list[tuple[float, str, dict[str, Any]]] = []
    kinds = [kind for kind in KINDS if kind not in NEVER]
    for kind, every in (("visit", VISIT_S), ("fault", FAULT_S), ("hostile", HOSTILE_S)):
        at = rng.expovariate(1 / every)
        while at < end:
            what = rng.choice(kinds) if kind == "fault" else kind
            args = {"who": rng.choice(WORKERS)} if kind == "visit" else args_of(what, rng)
            if what == "token_revoke":  # and the operator gives it another one later
                drawn.append((at + 60, "token_add", args))
            drawn.append((at, what, args))
            at += rng.expovariate(1 / every)
    drawn.sort(key=lambda event: event[0])
    return Plan(
        seed=seed, rule="afa-cs", m=2, guard=10.0, step_after_s=None, keep_payloads=False,
        switching=0.02,
        events=tuple(
            Event(number, round(at, 3), kind, tuple(args.items()))
            for number, (at, kind, args) in enumerate(drawn)
        ),
        run_options={
            "history": 8, "history_bytes": 40_000, "keep_every": 500, "compact_after": "20m",
        },
        limits={"max_staleness": STALENESS},
    )  # fmt: skip


@dataclass
class Sample:
    """The size of things at one moment."""

    hour: float
    rss: int  # bytes, of the simulator too
    file: int
    journal: int
    trace: int  # rows
    folded: int  # updates since the beginning

    def __str__(self) -> str:
        sizes = f"{self.rss / 1e6:6.1f} MB of memory, {self.file / 1e6:5.2f} MB file"
        return (
            f"hour {self.hour:5.2f}: {sizes}, {self.journal / 1e6:5.2f} MB journal, "
            f"{self.trace:5} rows of {self.folded:6} updates folded"
        )


@dataclass
class Soaked:
    """What became of it."""

    outcome: Outcome
    samples: list[Sample] = field(default_factory=list)
    accepted: int = 0
    took_s: float = 0.0

    def growth(self, what: str) -> float:
        """The most in the last third, relative to the most in the third before."""
        values = [getattr(sample, what) for sample in self.samples]
        third = len(values) // 3
        return float(max(values[-third:]) / max(1, max(values[-2 * third : -third])))

    @property
    def is_flat(self) -> bool:
        """Whether neither file, trace nor memory grew; the memory is the simulator's too."""
        return (
            self.growth("file") <= 1.1 and self.growth("trace") < 1.5 and self.growth("rss") < 1.2
        )

    def text(self) -> str:
        found = self.outcome
        lines = [str(sample) for sample in self.samples]
        lines.append(
            f"{self.accepted} updates accepted, {found.versions} versions, "
            f"{found.happened.total()} faults and commands, {found.checks.total()} checks, in "
            f"{self.took_s:.0f} s."
        )
        faults = ", ".join(f"{count} {name}" for name, count in sorted(found.happened.items()))
        lines.append(f"Faults: {faults}.")
        grown = ", ".join(f"{what} {self.growth(what):.2f}" for what in ("rss", "file", "trace"))
        lines.append(f"Last third of the time against the one before: {grown}.")
        lines.append(str(found.violation or "Every invariant held: nothing lost, nothing twice."))
        return "\n".join(lines)


class SoakInvariants(Invariants):
    """As for a short run, but rows of the trace go, in order, and what is settled is forgotten."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        # Places and digests of those in the trace, when last seen.
        self._keys: dict[tuple[str, str], tuple[int, bytes]] = {}
        # Digests of updates that were compacted. An id that is used again, for other bytes, is a
        # new update: nobody remembers the old one.
        self.gone: dict[tuple[str, str], bytes] = {}
        self.compacted = 0
        self._trace_from = 0
        self.last_rows: Rows | None = None

    def restored(self) -> None:
        super().restored()
        rows = self.store.rows
        assert rows is not None
        self.compacted -= self._trace_from - rows.trace_from
        self._trace_from = rows.trace_from
        for key in rows.updates:
            self.gone.pop(key, None)
        self._keys = {k: (row[1], row[0]) for k, row in rows.updates.items() if row[1] is not None}

    def _counted_once(self, rows: Rows) -> None:
        self._compacted(rows)
        for key in self.gone.keys() & rows.updates.keys():
            if self.gone.pop(key) == rows.updates[key][0]:
                raise Violation("counted once", f"{key} left the trace and came again")
        for key in self.gone.keys() & self.entries.keys():
            self.entries[key].acked = None  # it need not be there any more
        super()._counted_once(rows)

    def _compacted(self, rows: Rows) -> None:
        """Whatever has left the trace was the oldest, was folded, and is not counted again."""
        left = {key: seen for key, seen in self._keys.items() if key not in rows.updates}
        orders = sorted(order for order, _ in left.values())
        if orders != list(range(self._trace_from, rows.trace_from)):
            raise Violation("order", f"{orders} left the trace, not the oldest")
        self.checks["compacted"] += len(left)
        self.compacted += len(left)
        self.gone |= {key: digest for key, (_, digest) in left.items()}
        self._trace_from = rows.trace_from
        for key, (order, _) in left.items():
            self._places.pop(order, None)
            del self._keys[key]
            self.entries[key].sent += 1
        for key, row in rows.updates.items():
            if row[1] is not None:
                self._keys[key] = row[1], row[0]
        if left:
            self._forget_settled(rows)

    def _forget_settled(self, rows: Rows) -> None:
        """What nobody will send again takes no memory."""
        again = {(w.name, p.id) for w in self._world.workers.values() for p in (*w.sent, *w.spool)}
        busy = {key for key, entry in self.entries.items() if entry.acked is not None}
        for key in self.entries.keys() - again - busy - rows.updates.keys():
            del self.entries[key]
        for name in list(self._models)[:-1000]:
            del self._models[name]

    def _order(self, rows: Rows) -> None:
        """Places and versions go on from where the trace begins."""
        self.checks["order"] += 1
        self.last_rows = rows
        placed = {row[1]: (key, row[2]) for key, row in rows.updates.items() if row[1] is not None}
        if sorted(placed) != list(range(rows.trace_from, rows.folded)):
            raise Violation("order", f"{rows.folded} are folded, from {rows.trace_from}")
        for order, (key, _) in placed.items():
            if self._places.setdefault(order, key) != key:
                raise Violation("order", f"place {order} went from {self._places[order]} to {key}")
        versions = [placed[order][1] for order in sorted(placed)]
        self._aside = versions.count(SET_ASIDE)
        versions = [version for version in versions if version != SET_ASIDE]
        if versions != sorted(versions) or versions[-1:] not in ([], [rows.version]):
            raise Violation("order", f"versions of the folded updates end with {versions[-9:]}")
        inner = [v for v in versions if versions[0] < v]
        if any(inner.count(v) != self._world.plan.m for v in {*inner[-20:]}):
            raise Violation("order", f"versions of the folded updates end with {versions[-9:]}")


class SoakWorld(World):
    """A world that goes on for long, and is measured."""

    def __init__(self, plan: Plan, samples: int) -> None:
        super().__init__(plan)
        self.invariants: SoakInvariants = SoakInvariants(self)
        self.history = deque(maxlen=400)  # type: ignore[assignment]
        for worker in self.workers.values():
            worker.sent = deque(maxlen=KEPT_SENT)  # type: ignore[assignment]
        self.samples: list[Sample] = []
        self._every = plan.events[-1].at / samples

    def kill(self, process: Process) -> None:
        """A dead process gives its memory back; SQLAlchemy would keep what its connection holds."""
        super().kill(process)
        if isinstance(process, Server) and process._store is not None:
            connection = process._store._database._connection  # type: ignore[attr-defined]
            if connection is not None:
                with suppress(Exception):
                    connection.invalidate()
                    connection.close()

    def _happen(self, event: Event) -> None:
        if event.at >= self._every * (len(self.samples) + 1):
            self._measure(event.at / 3600)
        super()._happen(event)

    def _measure(self, hour: float) -> None:
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        journal = Path(f"{self.path}-journal")
        rows = self.invariants.store.rows
        self.samples.append(
            Sample(
                hour, pages * 4096, self.path.stat().st_size,
                journal.stat().st_size if journal.exists() else 0,
                0 if rows is None else len(rows.updates), 0 if rows is None else rows.folded,
            )
        )  # fmt: skip


def soak(seed: int = 0, hours: float = 24.0, samples: int = 24) -> Soaked:
    """Run it; the outcome says which invariant broke, if any."""
    began, world = time.monotonic(), SoakWorld(soak_plan(seed, hours), samples)
    outcome = world.run()
    rows, counted = world.invariants.last_rows, world.invariants.compacted
    if outcome.violation is None and rows is not None:
        there = sum(row[1] is not None for row in rows.updates.values())
        if rows.folded != counted + there:
            told = f"{rows.folded} were folded, {counted} + {there} were seen"
            outcome = replace(outcome, violation=Violation("balance", told))
    folded = 0 if rows is None else rows.folded
    return Soaked(outcome, world.samples, folded, time.monotonic() - began)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0, help="of virtual time")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    found = soak(args.seed, args.hours)
    print(found.text())  # noqa: T201
    if found.outcome.violation is not None:
        print("\n".join(list(found.outcome.history)[-60:]))  # noqa: T201
    return 0 if found.outcome.violation is None and found.is_flat else 1


if __name__ == "__main__":
    sys.exit(main())
