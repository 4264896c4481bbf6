"""Adds up what many seeds found, and shows how far they are."""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict

from tests.faults.world import Outcome

WIDTH = 24
SHOW_S = 0.5  # between two lines of progress


class Report:
    """Counts of all seeds that were run."""

    def __init__(self, total: int) -> None:
        self.total, self.seeds, self.updates, self.versions = total, 0, 0, 0
        self.faults: Counter[str] = Counter()
        self.checks: Counter[str] = Counter()
        self.failed: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
        self._began, self._shown = time.monotonic(), 0.0

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.updates += outcome.updates
        self.versions += outcome.versions
        self.faults += outcome.happened
        self.checks += outcome.checks
        if outcome.violation is not None:
            self.failed[outcome.violation.name].append((outcome.seed, str(outcome.violation)))

    def show_progress(self) -> None:
        """One line that is written over itself: a bar, the rate, the time left."""
        now = time.monotonic()
        if now - self._shown < SHOW_S and self.seeds < self.total:
            return
        self._shown, took = now, max(1e-9, now - self._began)
        rate = self.seeds / took
        left = (self.total - self.seeds) / rate
        done = WIDTH * self.seeds // self.total
        failed = sum(map(len, self.failed.values()))
        line = (
            f"[{'#' * done}{'.' * (WIDTH - done)}] {self.seeds}/{self.total} seeds, "
            f"{rate:.1f} per second, {left / 60:.1f} min left, {failed} failed"
        )
        sys.stderr.write(f"\r{line:<100}")
        if self.seeds == self.total:
            sys.stderr.write("\n")
        sys.stderr.flush()

    def text(self) -> str:
        """What was run, what went wrong on purpose, what was checked, what was found."""
        lines = [
            f"{self.seeds} seeds: {self.updates} updates, {self.versions} versions, "
            f"{self.faults.total()} faults, {self.checks.total()} checks.",
            "",
            "Faults and commands:",
            *(f"  {count:8}  {name.replace('_', ' ')}" for name, count in _sorted(self.faults)),
            "",
            "Invariants checked:",
            *(f"  {count:8}  {name}" for name, count in _sorted(self.checks)),
            "",
        ]
        if not self.failed:
            return "\n".join([*lines, "Every invariant held."])
        lines.append("Broken invariants:")
        for name, found in sorted(self.failed.items()):
            seed, told = min(found)
            lines.append(f"  {len(found):8}  {told}")
            lines.append(f"{'':12}python -m tests.faults --seed {seed} --shrink    # {name}")
        return "\n".join(lines)


def _sorted(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
