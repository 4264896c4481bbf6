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
from anarchic.participation.coupling import Coupling
from anarchic.participation.drawing import Drawing, too_few
from anarchic.participation.plans import Plans, ProcessSource, RecordedSource
from anarchic.participation.queue import coupled_tables
from anarchic.participation.timetable import (
    FIRST_ROUNDS,
    Timetable,
    check_end,
    check_length,
    running_numbers,
)
from anarchic.participation.visits import Participation, Visits

LAST_S = float(np.finfo(np.float64).max)


def make_timetable(
    process: Participation,
    *,
    workers: int,
    m: int,
    rounds: int | None = None,
    until_s: float | None = None,
    rng: Generator | int,
    coupling: Coupling | None = None,
) -> Timetable:
    """A timetable of exactly ``rounds`` rounds, or of those that end by ``until_s``.

    Of both, that of fewer rounds. A longer one of the same seed begins with it. ``rng`` may be a
    seed. ``coupling`` says how arrivals depend on the server.
    """
    return _joined(_stretches(process, workers, m, (rounds, until_s), rng, coupling), until_s)


def _joined(stretches: Iterable[Timetable], until_s: float | None) -> Timetable:
    parts, rows = [], 0
    for stretch in stretches:
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
    coupling: Coupling | None = None,
) -> Iterator[Timetable]:
    """The rows of `make_timetable` in blocks of ``size`` updates, in whole rounds.

    Memory grows with the workers and with ``size``, not with the rounds, so a timetable may be
    longer than what fits into memory. With a ``coupling`` it grows also with the visits that were
    drawn for workers whom the server delays more than others.
    """
    if not 1 <= m <= size:
        raise ConfigError(f"A block holds at least one round: 1 <= m <= size, got {m} and {size}.")
    most = size // m
    parts: list[Timetable] = []
    for stretch in _stretches(process, workers, m, (rounds, until_s), rng, coupling):
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
    coupling: Coupling | None,
) -> Iterator[Timetable]:
    """The timetable in stretches of time; at least one, which may be empty.

    What is drawn does not depend on the end, only how much of it.
    """
    rounds, until_s = end
    check_end(rounds, until_s)
    if workers < 1 or m < 1:
        raise ConfigError(f"A timetable needs workers and m >= 1, got {workers} and {m}.")
    rng = np.random.default_rng(rng)
    if coupling is not None and coupling.depends:
        yield from _coupled(process, workers, m, end, rng, coupling)
        return
    drawing = Drawing(process, rng, workers, m)
    folding, made, in_vain = VisitFolding(m, workers), 0, 0
    while True:
        table, horizon_s = folding.fold(drawing.visits, drawing.horizon_s), drawing.horizon_s
        keep, made = table.rounds, made + table.rounds
        in_vain = 0 if table.rounds else in_vain + len(drawing.visits)
        if rounds is not None:
            keep -= max(made - rounds, 0)
        if until_s is not None:
            keep = min(keep, table.rounds_until(until_s))
        end_s = np.inf if until_s is None else until_s
        dry = drawing.is_dry(in_vain, m)
        if made == rounds or keep < table.rounds or horizon_s > end_s or (dry and end_s < np.inf):
            yield folding.last(table, keep)
            return
        if dry:
            passed_s = horizon_s if horizon_s < np.inf else drawing.since_s
            raise too_few(made * m, passed_s, (rounds or 0) * m)
        yield table
        drawing.go_on()


def _coupled(
    process: Participation,
    workers: int,
    m: int,
    end: tuple[int | None, float | None],
    rng: Generator,
    coupling: Coupling,
) -> Iterator[Timetable]:
    if coupling.server_picks and getattr(process, "availability", None) is not None:
        raise ConfigError(
            f"With server_picks={coupling.server_picks!r} the server picks any worker at any time: "
            "leave out availability, join and leave."
        )
    picks = rng.spawn(1)[0]  # does not change what rng draws
    plans = Plans(ProcessSource(process, rng, workers, m), workers)
    return coupled_tables(plans, coupling, workers=workers, m=m, end=end, rng=picks)


def from_visits(
    visits: Visits, m: int, workers: int, *, coupling: Coupling | None = None, seed: int = 0
) -> Timetable:
    """The timetable of a server that steps at every ``m``-th push.

    Pushes at the same time are folded in the order of worker numbers. A pull at the same time as a
    push sees that push folded, except that no update can start from a version that it helps to
    make. Visits that never push are left out.

    With a ``coupling`` a visit begins later where the server makes its worker late, and as long
    after the end of the visit before as it was recorded; the rounds that are not full are left out.
    ``seed`` is for what the server picks.
    """
    visits.check(workers)
    if coupling is not None and coupling.depends:
        plans, rng = Plans(RecordedSource(visits), workers), np.random.default_rng(seed)
        ends = None, LAST_S
        return Timetable.join(
            list(coupled_tables(plans, coupling, workers=workers, m=m, end=ends, rng=rng))
        )
    return VisitFolding(m, workers).fold(visits, np.inf)


class VisitFolding:
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


OF_WORK = {
    "step_s",
    "time_distribution",
    "slow_share",
    "slow_factor",
    "speeds",
}  # settings within ``work``
OF_HABITS = OF_WORK | {
    "lost_share",
    "timeout_s",
    "availability",
    "join",
    "leave",
}  # around an idle time


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
    end: tuple[int | None, float | None],
    seed: int,
    coupling: Coupling | None = None,
) -> Timetable:
    """What a process gives by ``timetable(rng, rounds)``, or by its course in continuous time.

    It ends after the rounds or at the time in ``end``.
    """
    rounds, until_s = end
    if hasattr(process, "timetable"):
        if coupling is not None and coupling.depends:
            raise ConfigError(
                f"{type(process).__name__} makes its own rounds, which cannot depend on the "
                "server: use a process in continuous time."
            )
        if until_s is None:
            table: Timetable = process.timetable(np.random.default_rng(seed), rounds)
            return table
        return _until(process, rounds, until_s, seed)
    if not hasattr(process, "begin"):
        raise ConfigError(
            f"{type(process).__name__} is no participation process: it needs timetable(rng, "
            "rounds), or pace_s and begin(rng, workers), or to be an Idle."
        )
    stretches = _stretches(process, workers, m, (rounds, until_s), seed, coupling)
    return _joined(stretches, until_s)


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
