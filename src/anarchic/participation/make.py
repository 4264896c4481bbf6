"""Timetables from processes in continuous time, from visits, and from processes of others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from inspect import signature
from typing import Any

import numpy as np
from numpy.random import Generator

from anarchic.core import registry
from anarchic.core.factory import make_part
from anarchic.core.types import Floats, Ints, Rows
from anarchic.errors import ConfigError
from anarchic.participation.timetable import (
    FIRST_ROUNDS,
    Timetable,
    check_end,
    check_length,
    running_numbers,
)
from anarchic.participation.visits import Participation, Visits

_ATTEMPTS = 30
_STRETCH = 1 << 18  # visits drawn at a time; another value gives other long tables for a seed
_IN_VAIN = 1_000_000  # visits without a round, besides 100 per update: the process has ended


def make_timetable(
    process: Participation,
    *,
    workers: int,
    m: int,
    rounds: int | None = None,
    until_s: float | None = None,
    rng: Generator | int,
) -> Timetable:
    """A timetable of exactly ``rounds`` rounds, or of those that end by ``until_s``.

    Of both, that of fewer rounds. A longer one of the same seed begins with it. ``rng`` may be a
    seed.
    """
    parts, rows = [], 0
    for stretch in _stretches(process, workers, m, (rounds, until_s), rng):
        parts.append(stretch)
        rows += len(stretch)
        check_length(rows, until_s)
    return Timetable.join(parts)


def timetable_blocks(
    process: Participation,
    *,
    workers: int,
    m: int,
    rounds: int | None = None,
    until_s: float | None = None,
    rng: Generator | int,
    size: int,
) -> Iterator[Timetable]:
    """The rows of `make_timetable` in blocks of ``size`` updates, in whole rounds.

    Memory grows with the workers and with ``size``, not with the rounds, so a timetable may be
    longer than what fits into memory.
    """
    if not 1 <= m <= size:
        raise ConfigError(f"A block holds at least one round: 1 <= m <= size, got {m} and {size}.")
    most = size // m
    parts: list[Timetable] = []
    for stretch in _stretches(process, workers, m, (rounds, until_s), rng):
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
    process: Participation,
    workers: int,
    m: int,
    end: tuple[int | None, float | None],
    rng: Generator | int,
) -> Iterator[Timetable]:
    """The timetable in stretches of time; at least one, which may be empty.

    What is drawn does not depend on the end, only how much of it.
    """
    rounds, until_s = end
    check_end(rounds, until_s)
    if workers < 1 or m < 1:
        raise ConfigError(f"A timetable needs workers and m >= 1, got {workers} and {m}.")
    rng = np.random.default_rng(rng)
    drawing = _Drawing(process, rng, workers, min(FIRST_ROUNDS * m, _STRETCH))
    folding, made, in_vain = Folding(m, workers), 0, 0
    while True:
        table, horizon_s = folding.fold(drawing.visits, drawing.horizon_s), drawing.horizon_s
        keep, made = table.rounds, made + table.rounds
        in_vain = 0 if table.rounds else in_vain + len(drawing.visits)
        if rounds is not None:
            keep -= max(made - rounds, 0)
        if until_s is not None:
            keep = min(keep, table.rounds_until(until_s))
        end_s = np.inf if until_s is None else until_s
        dry = drawing.ended or in_vain > 100 * m + _IN_VAIN
        if made == rounds or keep < table.rounds or horizon_s > end_s or (dry and end_s < np.inf):
            yield folding.last(table, keep)
            return
        if dry:
            passed_s = horizon_s if horizon_s < np.inf else drawing.since_s
            raise _too_few(made * m, passed_s, (rounds or 0) * m)
        yield table
        drawing.go_on()


class _Drawing:
    """Visits in one stretch of time after the other.

    The first is one of ``wanted`` updates. The next ones grow to `_STRETCH` visits.
    """

    def __init__(self, process: Participation, rng: Generator, workers: int, wanted: int) -> None:
        self.since_s = 0.0
        self._visits, self._visit_s = 0, np.inf  # so far; seconds per visit in the busiest stretch
        self.ended = False
        # Workers begin idle: add one pace for that, and 3 % for chance.
        self.horizon_s = process.pace_s * (1.03 * wanted / workers + 1)
        before, stalls = 0, 0
        # Each attempt draws anew, so that a horizon that was too short leaves no trace.
        for _ in range(_ATTEMPTS):
            self._stream = process.begin(rng, workers)
            self.visits = self._stream.until(self.horizon_s)
            found = int(np.count_nonzero(self.visits.push_s <= self.horizon_s))
            if found >= wanted:
                return
            stalls = stalls + 1 if 0 < found <= 1.02 * before else 0
            # Almost all visits are lost: a longer horizon would fill the memory with more of them.
            if stalls == 3 or len(self.visits) > 100 * wanted + _IN_VAIN:
                break
            before = found
            self.horizon_s *= min(max(1.1 * wanted / max(found, 1), 1.5), 8.0)
        self.ended = True

    def go_on(self) -> None:
        """Draw the next stretch."""
        # Sized for the busiest time so far: a quiet night may be followed by a busy morning.
        drawn = max(len(self.visits), 1)
        self._visit_s = min(self._visit_s, (self.horizon_s - self.since_s) / drawn)
        self._visits += drawn
        length_s = self._visit_s * min(self._visits, _STRETCH)
        self.since_s = self.horizon_s
        next_s = float(np.nextafter(self._stream.next_s, np.inf))
        self.horizon_s = max(self.since_s + length_s, next_s)
        self.visits = self._stream.until(self.horizon_s)
        self.ended = self.horizon_s == np.inf


def _too_few(found: int, horizon_s: float, wanted: int) -> ConfigError:
    return ConfigError(
        f"The process made {found} updates in {horizon_s:.3g} s and seems to have ended, but "
        f"{wanted} are wanted. Ask for fewer rounds, or for workers that come longer."
    )


def from_visits(visits: Visits, m: int, workers: int) -> Timetable:
    """The timetable of a server that steps at every ``m``-th push.

    Pushes at the same time are folded in the order of worker numbers. A pull at the same time as a
    push sees that push folded, except that no update can start from a version that it helps to
    make. Visits that never push are left out.
    """
    visits.check(workers)
    return Folding(m, workers).fold(visits, np.inf)


class Folding:
    """Makes the rows of `from_visits` piece by piece, as time goes on.

    It keeps one number per worker and the visits that have pulled and not yet been folded.
    """

    def __init__(self, m: int, workers: int) -> None:
        if m < 1:
            raise ConfigError(f"The server steps at every m-th push: m must be >= 1, got m={m}.")
        self._m = m
        self._version = 0
        self._seen = np.zeros(workers, np.int32)  # rows of each worker
        self._begun = Visits.join([])
        self._base: Ints = np.zeros(0, np.int32)  # versions that these start from

    def fold(self, visits: Visits, horizon_s: float) -> Timetable:
        """The rounds that end before the horizon; at an infinite one also the unfinished round.

        ``visits`` are those that pull before the horizon and were in no earlier call. A later pull
        also pushes later, so the order of all pushes before the horizon is known, and with it the
        base version of every visit that has pulled.
        """
        lost = visits.lost
        new = visits[~lost] if lost.any() else visits
        begun = Visits.join([self._begun, new])
        rows = np.flatnonzero(begun.push_s < horizon_s)
        rows = rows[_fold_order(begun.push_s[rows], begun.worker[rows])]
        if horizon_s < np.inf:
            rows = rows[: len(rows) // self._m * self._m]
        version_s = begun.push_s[rows[self._m - 1 :: self._m]]
        pulled = self._version + np.searchsorted(version_s, new.pull_s, side="right")
        base = np.concatenate((self._base, pulled.astype(np.int32)))
        table = self._table(begun, rows, base[rows])
        waits = np.ones(len(begun), np.bool_)
        waits[rows] = False
        self._begun, self._base = begun[waits], base[waits]
        self._version += table.rounds
        return table

    def last(self, table: Timetable, rounds: int) -> Timetable:
        """The first rounds of the table that was made last, with the versions still in use.

        Whoever has not been folded by then has pulled one of these, or pulls a later version.
        """
        end, rest = table.before + rounds, table.base_version[rounds * self._m :]
        base = np.concatenate((rest, self._base, np.array([end], np.int32)))
        later = np.flatnonzero(np.bincount(base[base <= end])).astype(np.int32)
        return replace(table.block(0, rounds), later=later)

    def _table(self, visits: Visits, rows: Rows, base: Ints) -> Timetable:
        worker = visits.worker[rows].astype(np.int32, copy=False)
        visit = running_numbers(worker)
        visit += self._seen[worker]
        self._seen += np.bincount(worker, minlength=len(self._seen)).astype(np.int32)
        newest = self._version + np.arange(len(rows), dtype=np.int32) // self._m
        steps = visits.local_steps[rows].astype(np.int32, copy=False)
        columns = worker, visit, np.minimum(base, newest), steps
        times = visits.pull_s[rows], visits.push_s[rows]
        return Timetable(len(self._seen), self._m, *columns, *times, before=self._version)


def _fold_order(push_s: Floats, worker: Ints) -> Rows:
    order = np.argsort(push_s, kind="stable")
    ordered = push_s[order]
    same = ordered[1:] == ordered[:-1]
    if not same.any():
        return order
    # Ties are rare: only they are sorted by the second key.
    tied = np.concatenate((same, [False])) | np.concatenate(([False], same))
    rows = order[tied]
    order[tied] = rows[np.lexsort((worker[rows], push_s[rows]))]
    return order


OF_WORK = {"step_s", "time_distribution", "slow_share", "slow_factor"}  # settings within ``work``
OF_HABITS = OF_WORK | {"lost_share", "timeout_s", "availability"}  # around an idle time


def make_process(name: str, given: Mapping[str, Any], chosen: Iterable[str]) -> Any:
    """The process of that name, made with those settings that its constructor names.

    They are the settings of a run by their names, ``workers``, ``m``, ``steps`` (a ``StepPolicy``)
    and ``work`` (a ``Work``). One of the ``chosen`` that the process does not take is refused. It
    may also be an ``Idle``: when workers visit; ``ContinuousTime`` does the rest.
    """
    kind = registry.find("participation", name)
    wants = set(signature(kind).parameters)
    used = wants | (OF_HABITS if hasattr(kind, "pulls") else OF_WORK if "work" in wants else set())
    for each in chosen:
        if each not in used:
            raise ConfigError(
                f"Participation {name!r} has no use for {each}={given[each]!r}: leave it out."
            )
    return make_part(kind, {each: value for each, value in given.items() if each in wants}, {})


def timetable_of(
    process: Any,
    *,
    workers: int,
    m: int,
    rounds: int | None,
    until_s: float | None = None,
    seed: int,
) -> Timetable:
    """What a process gives by ``timetable(rng, rounds)``, or by its course in continuous time."""
    if hasattr(process, "timetable"):
        if until_s is None:
            table: Timetable = process.timetable(np.random.default_rng(seed), rounds)
            return table
        return _until(process, rounds, until_s, seed)
    if not hasattr(process, "begin"):
        raise ConfigError(
            f"{type(process).__name__} is no participation process: it needs timetable(rng, "
            "rounds), or pace_s and begin(rng, workers), or to be an Idle."
        )
    return make_timetable(process, workers=workers, m=m, rounds=rounds, until_s=until_s, rng=seed)


def _until(process: Any, rounds: int | None, until_s: float, seed: int) -> Timetable:
    """The rounds that end by ``until_s``, of a process that is asked for a number of rounds."""
    asked = FIRST_ROUNDS if rounds is None else rounds
    while True:
        table: Timetable = process.timetable(np.random.default_rng(seed), asked)
        ended = table.rounds_until(until_s)
        if ended < table.rounds or rounds is not None or table.rounds < asked:
            return table.cut(ended)
        asked *= 2
        check_length(asked * table.m, until_s)
