"""Pictures of the run in a store, for the live page and for reports.

The whole run is known from what servers count (``overview``) and from evaluations. Of the trace
only the newest updates are read, each once, and a few hundred spread over the run, for the time at
which versions were made. So a picture costs the same however long the run has become.
"""

from __future__ import annotations

import time
from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from math import isfinite, nan
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from anarchic.core.factory import RuleSettings
from anarchic.errors import ConfigError
from anarchic.page.picture import (
    Record,
    curves,
    everyone,
    head,
    listed,
    metrics_first,
    rounded,
    thinned,
)
from anarchic.page.stream import LONGEST_S
from anarchic.page.window import MOST, Window, WindowRow, marks_each
from anarchic.participation.timetable import Timetable, running_numbers
from anarchic.server import records
from anarchic.server import tables as t
from anarchic.server.activity import ALIVE_S
from anarchic.server.commands import Command, is_withdrawn, read_all, rules_after, withdrawn
from anarchic.server.overview import overview
from anarchic.server.records import read_json
from anarchic.server.runs import stored_rules
from anarchic.server.store import Store
from anarchic.server.visits import RecentRequests, with_visits

SAMPLES = 512  # updates whose times stand for those of all
MOST_EVALUATIONS = 1_000_000
MOST_VERSIONS = 200  # offered to go back to
KEPT_EVALUATIONS = 4_800  # beyond which every second one is dropped
PACE_BINS = 120
MOST_SETTLED = 5
GAP_S = 2 * LONGEST_S  # without a picture: nobody looked
THEORY_S, THEORY_UPDATES = 30.0, 5_000
LAYOUT = ("run", "names", "dtypes", "shapes")  # of the settings, and not worth a row
_U, _E = t.updates.c, t.evaluations.c
_ROW = (
    *(_U.order, _U.worker, _U.received_s, _U.base_version, _U.local_steps, _U.local_lr),
    *(_U.norm, _U.version),
)

# What theorems say of arrivals, at the rates (eta, eta_L) of a rule of that name.
Theory = Callable[[Timetable, str, float, float], Mapping[str, Any]]


@final
class StorePictures:
    """Makes pictures of the run in a store, each from where the last one stood.

    One thread at a time may call it. ``visits`` and ``told`` are a running server's: who has
    pulled, and (version, mean loss that its workers told). Strips end now while a server leads,
    otherwise with the last update, as they always do if ``recorded``.
    """

    def __init__(
        self, store: Store, *, theory: Theory | None = None, visits: RecentRequests | None = None,
        told: Callable[[], tuple[int, float | None]] | None = None,
        here: Callable[[], Mapping[str, Any]] = lambda: {"kind": "store"}, name: str = "",
        recorded: bool = False,
    ) -> None:  # fmt: skip
        self._store, self._theory, self._visits, self._told = store, theory, visits, told
        self._here, self._name, self._recorded = here, name, recorded
        self.rules = RuleSettings()  # that held when the last picture was made
        self._window = Window()
        self._next = -1  # the order of the first update that is not in the window
        self._clock: list[tuple[int, int, float]] = []  # (order, version, when)
        self._evaluations: list[tuple[int, dict[str, Any]]] = []
        self._losses: list[tuple[int, float, float, int]] = []  # (version, when, loss, watch)
        self._watch, self._noted_s = 0, 0.0  # times that somebody has begun to look
        self._judged: tuple[float, Any] = (0.0, None)

    def make(self) -> dict[str, Record]:
        """A picture of now."""
        now_s = time.time()
        found = overview(self._store, now_s)
        with self._store.reading() as connection:
            run = records.find_run(connection)
            assert run is not None, "the overview found it"
            known = read_all(connection)
            self.rules = rules = rules_after(stored_rules(run), known)
            self._read(connection, run.trace_from, run.folded)
            self._read_evaluations(connection)
            versions = self._versions(connection, run.version, withdrawn(known))
        workers = found["workers"]
        self._note_loss(now_s)
        here = self._here()
        served = here["kind"] == "server" or _leads(found["leader"], now_s)
        span, facts = self._span(now_s, served=served)
        more = {"served": served, "last_s": self._window.last_s(), "settled": _settled(known)}
        return {
            "head": head(found, name=self._name, span=span, **more, **here),
            "versions": versions,
            "curves": curves(self._timed()),
            "told": {"rows": self._told_rows()},
            "pace": self._pace(span),
            "workers": {**facts, **self._strip(listed(workers), span)},
            "everyone": {
                **everyone(workers, found["others"]),
                "heat": {**facts, "span": span, **self._window.heat(span)},
            },
            "histograms": self._window.histograms(),
            "theory": self._theory_of(rules, found["m"], now_s),
            "settings": {"rows": _settings(rules, run.settings)},
        }

    def _read(self, connection: Connection, first: int, folded: int) -> None:
        """The updates that are new since the last picture."""
        # At the start, for a store that was restored, and when nobody has looked for long.
        if not max(first, folded - MOST) <= self._next <= folded:
            self._window, self._clock = Window(), []
            self._next = max(first, folded - MOST)
            self._sample(connection, first, self._next)
        while self._next < folded:
            upto = min(folded, self._next + 2_000)
            query = select(*_ROW).where(_U.order >= self._next, _U.order < upto)
            rows = connection.execute(query.order_by(_U.order)).all()
            self._window.add(
                WindowRow(r[1], nan, float(r[2]), r[3], r[4], r[5], r[6], r[7] or 0) for r in rows
            )
            self._clock += [(r[0], r[7], r[2]) for r in thinned(rows, 64) if r[7]]
            self._next = upto
        if len(self._clock) > 4 * SAMPLES:
            self._clock = thinned(self._clock, SAMPLES)

    def _sample(self, connection: Connection, first: int, last: int) -> None:
        """A few updates of a long trace, found by their places in it."""
        places = np.unique(np.linspace(first, last, SAMPLES).astype(int)).tolist()
        query = select(_U.order, _U.version, _U.received_s).where(_U.order.in_(places))
        rows = connection.execute(query.order_by(_U.order)).all()
        self._clock = [(row[0], row[1], row[2]) for row in rows if row[1]]

    def _read_evaluations(self, connection: Connection) -> None:
        """Those of newer versions, and those of versions in between that came late."""
        known = {version for version, _ in self._evaluations}
        last = self._evaluations[-1][0] if self._evaluations else -1
        query = select(_E.version, _E.metrics).where(_E.version > last - 100)
        for row in connection.execute(query.order_by(_E.version).limit(MOST_EVALUATIONS)):
            if row.version not in known:
                insort(self._evaluations, (row.version, read_json(row.metrics, "evaluation")),
                       key=lambda found: found[0])  # fmt: skip
        while len(self._evaluations) > KEPT_EVALUATIONS:
            self._evaluations = [*self._evaluations[:-1:2], self._evaluations[-1]]

    def _versions(
        self, connection: Connection, newest: int, gone: Sequence[tuple[int, int]]
    ) -> Record:
        """What can be gone back to: kept versions, the newest first, their times and a metric."""
        column = t.models.c.version
        query = select(column).where(column < newest).order_by(column.desc()).limit(MOST_VERSIONS)
        kept = [v for v in connection.execute(query).scalars() if not is_withdrawn(gone, v)]
        judged = connection.execute(select(_E.version, _E.metrics).where(_E.version.in_(kept)))
        metrics = {row.version: read_json(row.metrics, "evaluation") for row in judged}
        name = next(iter(metrics_first(n for found in metrics.values() for n in found)), "")
        times = np.round(self._made_s(kept), 1).tolist() if self._clock else [None] * len(kept)
        rows = [
            [version, when, rounded(metrics.get(version, {}).get(name))]
            for version, when in zip(kept, times, strict=True)
        ]
        return {"metric": name, "rows": rows}

    def _note_loss(self, now_s: float) -> None:
        """The loss of the newest version; after a time without pictures a line begins anew."""
        self._watch += now_s - self._noted_s > GAP_S
        self._noted_s = now_s
        version, loss = (0, None) if self._told is None else self._told()
        fresh = not self._losses or self._losses[-1][0] != version
        if loss is not None and isfinite(loss) and fresh:
            self._losses.append((version, now_s, loss, self._watch))
        if len(self._losses) > KEPT_EVALUATIONS:
            self._losses = [*self._losses[:-1:2], self._losses[-1]]

    def _begun_s(self) -> float:
        return min((when for _, _, when in self._clock), default=0.0)

    def _when(self, versions: Sequence[int]) -> list[float | None]:
        """When versions were made, in seconds since the first update that is known."""
        if not self._clock:
            return [0.0 if version == 0 else None for version in versions]
        found: list[float | None] = (self._made_s(versions) - self._begun_s()).tolist()
        return found

    def _made_s(self, versions: Sequence[int]) -> NDArray[np.float64]:
        """When versions were made, by the wall clock."""
        known = [version for _, version, _ in self._clock]
        times = np.maximum.accumulate([when for _, _, when in self._clock])
        return np.interp(versions, known, times)

    def _timed(self) -> list[dict[str, Any]]:
        """Evaluations with their times, all at once: there may be thousands of them."""
        times = self._when([version for version, _ in self._evaluations])
        rows = zip(self._evaluations, times, strict=True)
        return [{"round": v, "virtual_s": when, **metrics} for (v, metrics), when in rows]

    def _told_rows(self) -> list[list[float | None]]:
        """(version, seconds, loss); None is a loss where nobody looked before that row."""
        found: list[list[float | None]] = []
        begun_s, last = self._begun_s(), None
        for version, when, loss, watch in thinned(self._losses):
            place = [version, round(max(0.0, when - (begun_s or when)), 3)]
            if last not in (None, watch):
                found.append([*place, None])
            found.append([*place, float(f"{loss:.6g}")])
            last = watch
        return found

    def _span(self, now_s: float, *, served: bool) -> tuple[tuple[float, float], Record]:
        """What strips show, and how its ends are told: up to now, or all that is known."""
        last_s = self._window.last_s()
        if last_s is None or (served and not self._recorded):
            return self._window.span(now_s), {}
        first_s = float(self._window.rows["end_s"][0])
        facts = {"axis": "elapsed", "begun_s": min(self._begun_s() or first_s, first_s)}
        return (first_s, max(last_s, first_s + 1e-3)), facts

    def _pace(self, span: tuple[float, float]) -> Record:
        """Updates per second: of the whole run by its samples, and lately."""
        lately = {"span": span, "rates": self._window.pace(span)}
        if len(self._clock) < 2:
            return {"whole": None, "lately": lately}
        orders = [order for order, _, _ in self._clock]
        times = np.maximum.accumulate([when for _, _, when in self._clock])
        many = min(PACE_BINS, max(12, (orders[-1] - orders[0]) // 10))
        edges = np.linspace(times[0], max(times[-1], times[0] + 1e-6), many + 1)
        rates = np.diff(np.interp(edges, times, orders)) / np.diff(edges)
        whole = {"length_s": float(edges[-1] - edges[0]), "begun_s": float(edges[0])}
        return {
            "whole": {**whole, "rates": [round(r, 3) for r in rates.tolist()]},
            "lately": lately,
        }

    def _strip(self, workers: Sequence[Record], span: tuple[float, float]) -> Record:
        fitted = self._window.fitted([one["worker"] for one in workers], span)
        most = marks_each(len(workers))
        return {"span": fitted, "rows": [self._worker(one, fitted, most) for one in workers]}

    def _worker(self, one: Record, span: tuple[float, float], most: int) -> Record:
        marks = self._window.marks(one["worker"], span, most)
        seen = [] if self._visits is None else self._visits.of(one["worker"])
        return {**one, **with_visits(marks, seen, span[0])}

    def _theory_of(self, rules: RuleSettings, m: int, now_s: float) -> Record:
        if now_s - self._judged[0] > THEORY_S or not self._judged[1]:
            table, found = arrivals(self._window, m), {}
            if table is not None and self._theory is not None and rules.server_lr is not None:
                local_lr = float(self._window.rows["lr"][-len(table) :].max())
                with suppress(ConfigError):  # a worker's rate may be one that no theorem takes
                    found = dict(self._theory(table, rules.rule, rules.server_lr, local_lr))
            self._judged = (now_s, found)
        judged: Record = self._judged[1]
        return judged


def arrivals(window: Window, m: int, most: int = THEORY_UPDATES) -> Timetable | None:
    """The newest full rounds of a window as a timetable, if each has ``m`` updates."""
    rows = window.rows[window.rows["version"] > 0]
    versions, counts = np.unique(rows["version"], return_counts=True)
    whole = versions[counts == m]
    broken = versions[(counts != m) & (versions != versions[:1])]
    since = max([*broken.tolist(), 0])
    rows = rows[np.isin(rows["version"], whole[whole > since])][-(most // m * m) :]
    if len(rows) < m:
        return None
    names, numbers = np.unique(rows["worker"], return_inverse=True)
    worker = numbers.astype(np.int32)
    first = int(rows["version"].min()) - 1
    return Timetable(
        workers=len(names),
        m=m,
        worker=worker,
        visit=running_numbers(worker),
        base_version=(rows["base"] - first).astype(np.int32),  # below 0: pulled before these rounds
        local_steps=rows["steps"].astype(np.int32),
    )


def _leads(leader: Mapping[str, Any] | None, now_s: float) -> bool:
    """Whether a server has been heard lately: one that was killed took no leave."""
    return leader is not None and now_s - float(leader["seen_s"]) < 2 * ALIVE_S


def _settled(known: Sequence[Command]) -> list[Record]:
    """What became of the newest commands."""
    done = [command for command in known if command.outcome != "waiting"]
    return [command.told() for command in done[-MOST_SETTLED:]]


def _settings(rules: RuleSettings, settings: Mapping[str, Any]) -> list[list[str]]:
    """Names and values of what the run was started with, as text."""
    found = {n: v for n, v in {**settings, **asdict(rules)}.items() if n not in LAYOUT}
    rows = [
        [name, str(value)[:120]]
        for name, value in sorted(found.items())
        if value not in (None, {}, ())
    ]
    return rows[:60]
