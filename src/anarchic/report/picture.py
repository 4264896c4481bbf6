"""Pictures of recorded runs, for ``anarchic view`` and reports; see ``anarchic.page.picture``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import fields
from math import nan
from pathlib import Path
from typing import Any, final

import numpy as np

from anarchic.core.influence import lengths_of
from anarchic.errors import RunError
from anarchic.page.picture import Record, curves, everyone, head, listed, metrics_first
from anarchic.page.window import COLUMNS, HEAT_COLUMNS, MOST, Window, marks_each
from anarchic.participation.timetable import Timetable
from anarchic.report.again import settings_again, store_again
from anarchic.report.runs import in_store
from anarchic.sim import worker_table
from anarchic.sim.record import MetricsRow, RunDirectory
from anarchic.sim.settings import Settings, make_rule
from anarchic.theory.panel import panel

PACE_BINS = 120
STRIP_ROUNDS = 80  # of a run without a clock
THEORY_ROUNDS = 2_000
UNUSUAL = 4.0  # times the others' median staleness; see ``server/overview.py``

Make = Callable[[], dict[str, Record]]


@contextmanager
def pictures(place: str | os.PathLike[str], *, recorded: bool = False) -> Iterator[Make]:
    """A function that makes pictures of the run in a directory or a store, as it then stands.

    If ``recorded``, the strips of a store end with its last update, although a server is at work.
    """
    if not in_store(place):
        record = RunPictures(Path(place))
        record.make()  # what is not a run is refused now
        yield record.make
        return
    from anarchic.server.history import store_name
    from anarchic.server.picture import StorePictures
    from anarchic.server.store import open_store

    with closing(open_store(str(place), create=False)) as store:
        name = store_name(place)
        made = StorePictures(store, theory=panel, name=name, recorded=recorded)

        def make() -> dict[str, Record]:
            found = made.make()
            found["settings"]["again"] = store_again(str(place), made.rules)
            return found

        make()
        yield make


@final
class RunPictures:
    """Makes pictures of the run in a directory, which may still be going on."""

    def __init__(self, path: Path) -> None:
        self._record, self._name = RunDirectory(path), path.resolve().name
        self._settings = {n: v for n, v in self._record.settings().items() if n != "trace"}
        self._table: Timetable | None = None
        self._seen: object = None
        self._made: dict[str, Record] = {}

    def make(self) -> dict[str, Record]:
        """The same again while nothing was written."""
        path = self._record.path / "metrics.csv"
        seen = (path.stat().st_mtime_ns if path.exists() else 0, self._record.finished)
        if not self._made or seen != self._seen:
            rows = self._record.metrics() if path.exists() else []
            self._made, self._seen = self._picture(rows), seen
        return self._made

    def _picture(self, rows: Sequence[MetricsRow]) -> dict[str, Record]:
        rounds = int(rows[-1]["round"] or 0) if rows else 0
        whole = self._timetable()
        table = whole.cut(min(rounds, whole.rounds))
        clock = table.push_s is not None
        names = self._names(table)
        window, span = _window(table, names)
        axis = "elapsed" if clock else "version"
        workers = self._workers(table, names)
        facts: dict[str, Any] = {"span": span, "axis": axis}
        rates = window.pace(span) if clock else [0.0] * HEAT_COLUMNS
        return {
            "head": self._head(table, rows, span),
            "curves": curves(rows),
            "told": {"rows": []},
            "pace": {"whole": _pace(table), "lately": {"span": span, "rates": rates}},
            "workers": {"axis": axis, **_strip(listed(workers), window, span)},
            "everyone": {
                **everyone(
                    workers, {"workers": whole.workers - len(workers), "share": 0.0, "exact": True}
                ),
                "heat": {**facts, **window.heat(span)},
            },
            "histograms": window.histograms(),
            "theory": self._theory(table),
            "settings": {
                "rows": _settings(self._settings),
                "again": settings_again(self._settings),
            },
        }

    def _timetable(self) -> Timetable:
        """It precedes training, so it is read once; a run that is made longer has a new one."""
        if self._table is None or not self._record.finished:
            self._table = self._record.timetable()
        return self._table

    def _head(
        self, table: Timetable, rows: Sequence[MetricsRow], span: tuple[float, float]
    ) -> Record:
        last = dict(rows[-1]) if rows else {}
        evaluation = {name: last[name] for name in metrics_first(last)}
        facts: Record = {
            "run": str(self._settings["fingerprint"])[:16],
            "state": "finished" if self._record.finished else "running",
            "rule": self._settings.get("rule"),
            "m": table.m,
            "server_lr": self._server_lr(),
            "version": table.rounds,
            "buffered": 0,
            "updates": {"folded": len(table)},
            "refusals": {},
            "commands": [],
            "evaluation": {**evaluation, "version": table.rounds} if evaluation else None,
            "at_s": time.time(),
        }
        return head(facts, name=self._name, span=span, kind="run")

    def _rule(self, workers: int) -> Any:  # Any: rules differ in their states
        names = {f.name for f in fields(Settings)}
        given = {n: v for n, v in self._settings.items() if n in names}
        return make_rule(Settings.from_record(given), workers)

    def _server_lr(self) -> float | None:
        """As it was given, or the rule's own."""
        given = self._settings.get("server_lr")
        if given is not None:
            return float(given)
        rule = self._rule(int(self._settings.get("workers") or 1))
        found = getattr(rule.innermost, "server_lr", None)
        return None if found is None else float(found)

    def _names(self, table: Timetable) -> list[str]:
        """Those of the workers: their roles where these are recorded, otherwise by number."""
        found = worker_table.names(self._record.path / "per_worker.csv")
        if table.workers <= len(found):
            return list(found[: table.workers])
        return [f"worker {number}" for number in range(table.workers)]

    def _workers(self, table: Timetable, known: Sequence[str]) -> list[Record]:
        """What each worker did. Norms are not recorded: its influence is that of equal ones."""
        if not len(table):
            return []
        weight = self._weights(table)
        late = table.staleness
        order = np.argsort(table.worker, kind="stable")
        numbers, starts = np.unique(table.worker[order], return_index=True)
        total = float(weight.sum())
        found = []
        for number, rows in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
            quantiles = np.quantile(late[rows], (0.5, 0.95), method="lower").tolist()
            share = float(weight[rows].sum()) / total
            named = {"worker": known[number], "number": number}
            found.append({**named, **_record(rows, quantiles, share, table)})
        _mark(found)
        return found

    def _weights(self, table: Timetable) -> np.ndarray[Any, np.dtype[np.float64]]:
        """How far each update counts, by its staleness and its local steps alone."""
        lengths = lengths_of(self._rule(table.workers))
        local_lr = self._settings.get("local_lr")
        lr = float(local_lr) if isinstance(local_lr, int | float) else 1.0
        pairs = np.stack([table.local_steps, table.staleness], axis=1)
        kinds, place = np.unique(pairs, axis=0, return_inverse=True)
        each = [lengths(lr, int(K), max(0, int(tau)), lr, 1.0)[1] for K, tau in kinds]
        found: np.ndarray[Any, np.dtype[np.float64]] = np.array(each)[place.reshape(-1)]
        return found

    def _theory(self, table: Timetable) -> Record:
        local_lr, server_lr = self._settings.get("local_lr"), self._server_lr()
        known = isinstance(local_lr, int | float) and server_lr is not None
        if not (known and table.rounds):
            return {}
        newest = table.block(max(0, table.rounds - THEORY_ROUNDS), table.rounds)
        base = newest.base_version - newest.before
        part = Timetable(
            newest.workers, newest.m, newest.worker, newest.visit, base, newest.local_steps
        )
        return panel(part, str(self._settings["rule"]), float(server_lr or 0), float(local_lr or 0))


def _record(rows: Any, quantiles: Sequence[float], share: float, table: Timetable) -> Record:
    seen = table.push_s[rows[-1]] if table.push_s is not None else table.version[rows[-1]]
    return {
        "updates": len(rows),
        "share": share,
        "staleness_p50": quantiles[0],
        "staleness_p95": quantiles[1],
        "norm_last": None,
        "loss_last": None,
        "refused": {},
        "seen_s": float(seen),
        "marks": [],
    }


def _mark(workers: Sequence[Record]) -> None:
    """Say who is much later than the others."""
    late = float(np.median([w["staleness_p95"] for w in workers])) if workers else 0.0
    for worker in workers:
        if worker["staleness_p95"] > max(UNUSUAL * late, UNUSUAL):
            worker["marks"].append("stale")


def _window(table: Timetable, names: Sequence[str]) -> tuple[Window, tuple[float, float]]:
    """The newest updates, and the stretch of time or of versions that strips show."""
    many = min(MOST, len(table))
    newest = slice(len(table) - many, len(table))
    rows = np.zeros(many, COLUMNS)
    version = table.version[newest]
    columns = {
        "worker": table.worker[newest],
        "base": table.base_version[newest],
        "steps": table.local_steps[newest],
        "lr": nan,
        "norm": nan,
        "version": version + 1,
    }
    clock = table.push_s is not None and table.pull_s is not None
    if table.push_s is not None and table.pull_s is not None:
        columns |= {"start_s": table.pull_s[newest], "end_s": table.push_s[newest]}
    else:  # between two versions by the place in the round
        place = (np.arange(len(table))[newest] % table.m + 1) / table.m
        columns |= {"start_s": table.base_version[newest], "end_s": version + place}
    for column, values in columns.items():
        rows[column] = values
    window = Window()
    window.named(names)
    window.extend(rows)
    end = float(rows["end_s"][-1]) if many else 0.0
    if clock:  # from the run's beginning, or that of what is looked at
        first = 0.0 if many == len(table) else float(rows["end_s"][0])
        return window, (first, max(end, first + 1e-9))
    return window, (max(0.0, end - STRIP_ROUNDS), max(end, 1.0))


def _strip(workers: Sequence[Record], window: Window, span: tuple[float, float]) -> Record:
    fitted = window.fitted([worker["worker"] for worker in workers], span)
    most = marks_each(len(workers))
    return {"span": fitted, "rows": [_shown(worker, window, fitted, most) for worker in workers]}


def _shown(worker: Record, window: Window, span: tuple[float, float], most: int) -> Record:
    marks = window.marks(worker["worker"], span, most)
    return {**worker, "pushed": marks, "lost": [], "refusals": [], "working": [None]}


def _pace(table: Timetable) -> Record | None:
    """Updates per second of virtual time."""
    if table.push_s is None or not len(table) or not table.push_s[-1] > 0:
        return None
    length = float(table.push_s[-1])
    counts, _ = np.histogram(table.push_s, PACE_BINS, range=(0, length))
    rates = [round(count * PACE_BINS / length, 4) for count in counts.tolist()]
    return {"length_s": length, "begun_s": 0.0, "rates": rates}


def _settings(settings: dict[str, Any]) -> list[list[str]]:
    found = {n: v for n, v in settings.items() if v not in (None, {}, [], False)}
    return [[name, str(value)[:120]] for name, value in sorted(found.items())][:60]


def picture(place: str | os.PathLike[str]) -> dict[str, Record]:
    """One picture of a recorded run."""
    if not (in_store(place) or Path(place).exists()):
        raise RunError(f"There is no run in {place}: give a run directory or a server's store.")
    with pictures(place, recorded=True) as make:
        return make()
