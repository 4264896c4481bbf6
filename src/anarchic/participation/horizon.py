"""A timetable of a given number of rounds from a process in continuous time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.random import Generator

from anarchic.errors import ConfigError
from anarchic.participation.folding import Folding
from anarchic.participation.timetable import Timetable, check_rounds
from anarchic.participation.visits import Participation, Visits, VisitStream

_ATTEMPTS = 30
_STRETCH = 1 << 18  # visits drawn at a time; another value gives other long tables for a seed


def make_timetable(
    process: Participation, *, workers: int, m: int, rounds: int, rng: Generator | int
) -> Timetable:
    """A timetable of exactly ``rounds`` rounds; ``rng`` may be a seed."""
    return Timetable.join(list(_stretches(process, workers, m, rounds, rng)))


def timetable_blocks(
    process: Participation, *, workers: int, m: int, rounds: int, rng: Generator | int, size: int
) -> Iterator[Timetable]:
    """The rows of `make_timetable` in blocks of ``size`` updates, in whole rounds.

    Memory grows with the workers and with ``size``, not with the rounds, so a timetable may be
    longer than what fits into memory.
    """
    if not 1 <= m <= size:
        raise ConfigError(f"A block holds at least one round: 1 <= m <= size, got {m} and {size}.")
    most = size // m
    parts: list[Timetable] = []
    for stretch in _stretches(process, workers, m, rounds, rng):
        parts.append(stretch)
        if sum(part.rounds for part in parts) < most:
            continue
        table = Timetable.join(parts)
        whole = table.rounds // most * most
        for first in range(0, whole, most):
            yield table.block(first, first + most)
        parts = [table.block(whole, table.rounds)]
    if any(map(len, parts)):
        yield Timetable.join(parts)


def _stretches(
    process: Participation, workers: int, m: int, rounds: int, rng: Generator | int
) -> Iterator[Timetable]:
    """The timetable in stretches of time; at least one, which may be empty."""
    check_rounds(rounds)
    if workers < 1 or m < 1:
        raise ConfigError(f"A timetable needs workers and m >= 1, got {workers} and {m}.")
    rng = np.random.default_rng(rng)
    stream, horizon_s, visits = _begin(process, rng, workers, min(rounds * m, _STRETCH))
    folding = Folding(m, workers)
    missing, length_s, since_s = rounds, np.inf, 0.0
    while True:
        table = folding.fold(visits, horizon_s)
        yield table if len(table) <= missing * m else table.cut(missing)
        missing -= table.rounds
        if missing <= 0:
            return
        if horizon_s == np.inf:
            raise _too_few((rounds - missing) * m, since_s, rounds * m)
        # Sized for the busiest time so far: a quiet night may be followed by a busy morning.
        length_s = min(length_s, (horizon_s - since_s) * _STRETCH / max(len(visits), 1))
        since_s = horizon_s
        horizon_s = max(since_s + length_s, float(np.nextafter(stream.next_s, np.inf)))
        visits = stream.until(horizon_s)


def _begin(
    process: Participation, rng: Generator, workers: int, wanted: int
) -> tuple[VisitStream, float, Visits]:
    """A first stretch of ``wanted`` updates, and the stream of visits after it.

    The horizon is guessed from the pace of the process and extended until there are enough updates.
    Each attempt draws anew, so that a horizon that was too short leaves no trace in the table.
    """
    # Workers begin idle: add one pace for that, and 3 % for chance.
    horizon_s = process.pace_s * (1.03 * wanted / workers + 1)
    before, stalls = 0, 0
    for _ in range(_ATTEMPTS):
        stream = process.begin(rng, workers)
        visits = stream.until(horizon_s)
        found = int(np.count_nonzero(visits.push_s <= horizon_s))
        if found >= wanted:
            return stream, horizon_s, visits
        stalls = stalls + 1 if 0 < found <= 1.02 * before else 0
        # Almost all visits are lost: a longer horizon would fill the memory with more of them.
        if stalls == 3 or len(visits) > 100 * wanted + 1_000_000:
            break
        before = found
        horizon_s *= min(max(1.1 * wanted / max(found, 1), 1.5), 8.0)
    raise _too_few(found, horizon_s, wanted)


def _too_few(found: int, horizon_s: float, wanted: int) -> ConfigError:
    return ConfigError(
        f"The process made {found} updates in {horizon_s:.3g} s and seems to have ended, but "
        f"{wanted} are wanted. Ask for fewer rounds, or for workers that come longer."
    )
