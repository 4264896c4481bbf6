"""A timetable of so many rounds from a process in continuous time."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from anarchic.errors import ConfigError
from anarchic.participation.timetable import Timetable, check_rounds, from_visits
from anarchic.participation.visits import Participation, Visits

_ATTEMPTS = 30


def make_timetable(
    process: Participation, *, workers: int, m: int, rounds: int, rng: Generator | int
) -> Timetable:
    """A timetable of exactly ``rounds`` rounds; ``rng`` may be a seed.

    The horizon is guessed from the process's pace and extended until enough updates are in. Each
    attempt draws afresh, so that an early end is not carried over into the table.
    """
    check_rounds(rounds)
    if workers < 1 or m < 1:
        raise ConfigError(f"A timetable needs workers and m >= 1, got {workers} and {m}.")
    visits = _enough_visits(process, np.random.default_rng(rng), workers, rounds * m)
    return from_visits(visits, m, workers).cut(rounds)


def _enough_visits(process: Participation, rng: Generator, workers: int, wanted: int) -> Visits:
    # Workers begin idle: one pace for that, and a little over for the luck of the draw.
    horizon_s = process.pace_s * (1.03 * wanted / workers + 1)
    before, stalls = 0, 0
    for _ in range(_ATTEMPTS):
        visits = process.visits(rng, workers, horizon_s)
        found = visits.pushes
        if found >= wanted:
            return visits
        stalls = stalls + 1 if 0 < found <= 1.02 * before else 0
        # Almost only lost visits: a longer horizon would fill the memory with more of them.
        if stalls == 3 or len(visits) > 100 * wanted + 1_000_000:
            break
        before = found
        horizon_s *= min(max(1.1 * wanted / max(found, 1), 1.5), 8.0)
    raise ConfigError(
        f"The process made {found} updates in {horizon_s:.3g} s and no more seem to come, but "
        f"{wanted} are wanted. Ask for fewer rounds, or for workers that come longer."
    )
