"""Visits drawn in one stretch of time after the other."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from anarchic.errors import ConfigError
from anarchic.participation.timetable import FIRST_ROUNDS
from anarchic.participation.visits import Participation

ATTEMPTS = 30
STRETCH = 1 << 18  # visits drawn at a time; another value gives other long tables for a seed
IN_VAIN = 1_000_000  # visits without a round, besides 100 per update: the process has ended


class Drawing:
    """Visits in one stretch of time after the other.

    The first has the updates of `FIRST_ROUNDS` rounds. The next ones grow to `STRETCH` visits.
    """

    def __init__(self, process: Participation, rng: Generator, workers: int, m: int) -> None:
        wanted = min(FIRST_ROUNDS * m, STRETCH)
        self.since_s = 0.0  # when the stretch begins; times when nobody comes are passed over
        self._visits, self._visit_s = 0, np.inf  # so far; seconds per visit in the busiest stretch
        self.ended = False
        # Workers begin idle: add one pace for that, and 3 % for chance.
        first_s = length_s = process.pace_s * (1.03 * wanted / workers + 1)
        before, stalls = 0, 0
        # Each attempt draws anew, so that a horizon that was too short leaves no trace.
        for _ in range(ATTEMPTS):
            self.horizon_s = self.since_s + length_s
            self.stream = process.begin(rng, workers)
            self.visits = self.stream.until(self.horizon_s)
            found = int(np.count_nonzero(self.visits.push_s <= self.horizon_s))
            if found >= wanted:
                return
            stalls = stalls + 1 if 0 < found <= 1.02 * before else 0
            # Almost all visits are lost: a longer horizon would fill the memory with more of them.
            if stalls == 3 or len(self.visits) > 100 * wanted + IN_VAIN:
                break
            before = found
            length_s *= min(max(1.1 * wanted / max(found, 1), 1.5), 8.0)
            if self.since_s + length_s < (next_s := self.stream.next_s) < np.inf:
                self.since_s, length_s = next_s, first_s  # nobody comes before
        self.ended = True

    def go_on(self) -> None:
        """Draw the next stretch."""
        # Sized for the busiest time so far: a quiet night may be followed by a busy morning.
        drawn = max(len(self.visits), 1)
        self._visit_s = min(self._visit_s, (self.horizon_s - self.since_s) / drawn)
        self._visits += drawn
        length_s = self._visit_s * min(self._visits, STRETCH)
        self.since_s = self.horizon_s
        next_s = float(np.nextafter(self.stream.next_s, np.inf))
        self.horizon_s = max(self.since_s + length_s, next_s)
        self.visits = self.stream.until(self.horizon_s)
        self.ended = self.horizon_s == np.inf

    def is_dry(self, in_vain: int, m: int) -> bool:
        """Whether there is nothing more, after N visits without a round."""
        return self.ended or in_vain > 100 * m + IN_VAIN


def too_few(found: int, horizon_s: float, wanted: int) -> ConfigError:
    """The error of a process that ends before it has made the updates that are wanted."""
    return ConfigError(
        f"The process made {found} updates in {horizon_s:.3g} s and seems to have ended, but "
        f"{wanted} are wanted. Ask for fewer rounds, or for workers that come longer."
    )
