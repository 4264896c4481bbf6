"""Which versions stay in a store, so that there is something to go back to.

The newest ones stay, then every 2nd, 4th, 8th and so on back in time, within a number of bytes. A
version with a reason in ``models.kept`` stays for ever: every Nth, and the best by an evaluation.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple, final

from sqlalchemy import Connection, func, select, update

from anarchic.core.validation import did_you_mean
from anarchic.errors import ConfigError, StoreError
from anarchic.server import tables as t
from anarchic.server.commands import commands, is_withdrawn, issue, withdrawn
from anarchic.server.goals import EvaluationMetric, Target
from anarchic.server.log import Log
from anarchic.server.published import PublishedModel
from anarchic.server.records import epoch_of, find_run, read_epochs, sealed
from anarchic.server.store import Store

_M = t.models.c
_Ranges = list[tuple[int, int]]  # of versions, first and last
_ALL = 1_000_000  # evaluations that are looked at when a server starts


def near(store: Store, version: int) -> list[int]:
    """The versions that are stored next to one that is not: the one before, the one after."""
    with store.reading() as connection:
        before = connection.execute(select(func.max(_M.version)).where(_M.version < version))
        after = connection.execute(select(func.min(_M.version)).where(_M.version > version))
        return [found for found in (before.scalar(), after.scalar()) if found is not None]


def end_run(store: Store, reason: str) -> bool:
    """Ask for the end of the run, as ``anarchic end`` does; False if somebody has asked before."""
    if any(each.kind == "end" and each.outcome != "refused" for each in commands(store)):
        return False
    issue(store, "end", {"reason": reason}, by="server", now_s=time.time())
    return True


def missing(option: str, name: str, found: Iterable[str]) -> str:
    """What to say of a metric that an evaluation does not have."""
    names = [*found]
    has = f"has {', '.join(names)}" if names else "is empty"
    return (
        f"{option} {name} has no effect: the evaluation {has}.{did_you_mean(name, names)} Name "
        "one of these instead."
    )


def check_metrics(
    best: EvaluationMetric | None, target: Target | None, found: Iterable[str]
) -> None:
    """Refuse metrics that were asked for and that an evaluation does not have."""
    names, goal = [*found], None if target is None else target.metric
    for option, wanted in {"--keep-best": best, "--target": goal}.items():
        if wanted is not None and wanted.name not in names:
            raise ConfigError(missing(option, wanted.name, names))


class _Best(NamedTuple):
    version: int
    value: float  # larger is better


@final
class Keeper:
    """Keeps the best version for ever, and asks for the end of a run that has reached its goal.

    ``evaluated`` hears of evaluations, in the thread of whoever tells it. Nothing is raised: what
    could not be written now is written with the next one.
    """

    def __init__(
        self,
        store: Store,
        log: Log,
        *,
        best: EvaluationMetric | None = None,
        target: Target | None = None,
    ) -> None:
        self._store, self._log = store, log
        self._metric, self._target = best, target
        self._missing: dict[str, str] = {}  # by option: metrics that the last evaluation has not
        self._best: _Best | None = None
        self._marked: int | None = None  # the version that is kept as the best
        self._is_known = False  # whether these two are what the store says

    def notes(self) -> list[str]:
        """What an operator should know: metrics that were asked for, and that there are not."""
        return list(self._missing.values())

    def _look_for(self, found: Mapping[str, float]) -> None:
        """Say of each metric that was asked for whether an evaluation has it."""
        target = None if self._target is None else self._target.metric
        for option, wanted in {"--keep-best": self._metric, "--target": target}.items():
            if wanted is None or wanted.name in found:
                self._missing.pop(option, None)
            elif option not in self._missing:
                self._missing[option] = told = missing(option, wanted.name, found)
                self._log("metric_missing", reason=told)

    def evaluated(self, model: PublishedModel, found: Mapping[str, float]) -> None:
        """What the judge said of a version. The evaluator still holds the model."""
        self._look_for(found)
        if self._metric is not None:
            try:
                self._compare(self._metric, model, found)
            except StoreError as error:
                self._is_known = False
                self._log("store_error", reason=str(error))
        target = self._target
        number = None if target is None else found.get(target.metric.name)
        if target is not None and number is not None and target.reached(number):
            name = target.metric.name
            told = (
                f"Version {model.version} has {name} {number:g}, and --target is {target.goal:g}."
            )
            self._end(told, version=model.version, **{name: number})

    def _end(self, told: str, **facts: object) -> None:
        try:
            if end_run(self._store, told):
                self._log("target_reached", reason=told, **facts)
        except StoreError as error:
            self._log("store_error", reason=str(error))

    def _compare(
        self, metric: EvaluationMetric, model: PublishedModel, found: Mapping[str, float]
    ) -> None:
        gone = withdrawn(commands(self._store))
        lost = self._best is not None and is_withdrawn(gone, self._best.version)
        if self._store.shared or lost or not self._is_known:
            self._best = self._recalled(metric, gone)
            self._is_known = True
        number = found.get(metric.name)
        if number is None or number != number or is_withdrawn(gone, model.version):
            return
        now, before = _Best(model.version, metric.value(number)), self._best
        if before is not None and now.value <= before.value and now.version != before.version:
            return
        self._keep(metric, model, number)
        self._best = now

    def _recalled(self, metric: EvaluationMetric, gone: _Ranges) -> _Best | None:
        """The best version that is stored, by its evaluation; it is marked if it was not yet."""
        best, self._marked = _stored_best(self._store, metric, gone)
        if best is not None:
            self._keep(metric, best.version, metric.value(best.value))
        return best

    def _keep(self, metric: EvaluationMetric, model: PublishedModel | int, number: float) -> None:
        changed = keep_as_best(self._store, metric.name, model, self._marked)
        self._marked = model if isinstance(model, int) else model.version
        if changed:
            self._log("kept_best", version=self._marked, **{metric.name: number})


def _stored_best(
    store: Store, metric: EvaluationMetric, gone: _Ranges
) -> tuple[_Best | None, int | None]:
    """The best of the evaluated versions that are stored, and the one that is marked as best.

    Versions that were rolled back (``gone``) are not the best of anything.
    """
    judged = [
        _Best(version, metric.value(found[metric.name]))
        for version, found in store.evaluations(_ALL)
        if isinstance(found.get(metric.name), int | float)
    ]
    judged = [each for each in judged if each.value == each.value]  # no NaN
    judged.sort(key=lambda each: (-each.value, each.version))
    best, marked = None, None
    with store.reading() as connection:
        for each in judged:  # most are thinned out; what is gone is one look into an index
            row = connection.execute(select(_M.kept).where(_M.version == each.version)).first()
            if row is not None:
                best = best or (None if is_withdrawn(gone, each.version) else each)
                if f"best {metric.name}" in reasons(row.kept):
                    marked = each.version
                if best is not None and marked is not None:
                    break
    return best, marked


def keep_as_best(store: Store, name: str, model: PublishedModel | int, before: int | None) -> bool:
    """Keep a version for ever as the best, and the one before no longer for this reason.

    A model is stored again if it was thinned out while it was evaluated, unless the run was
    restored meanwhile and gives its number to another one. Returns whether anything changed.
    """
    reason, version = f"best {name}", model if isinstance(model, int) else model.version
    with store.writing() as connection:
        row = connection.execute(select(_M.kept).where(_M.version == version)).one_or_none()
        if row is not None:
            changed = reason not in reasons(row.kept)
            if changed:
                _set_kept(connection, version, reasons(row.kept) | {reason})
        elif isinstance(model, int) or not _is_of_this_run(connection, model):
            return False
        else:
            facts = sealed(f"model {version}", model.body, version=version)
            connection.execute(store.insert(t.models), {**facts, "kept": reason})
            changed = True
        if before is not None and before != version:
            row = connection.execute(select(_M.kept).where(_M.version == before)).one_or_none()
            if row is not None and reason in reasons(row.kept):
                _set_kept(connection, before, reasons(row.kept) - {reason})
    store.versions.forget()
    return changed


def _is_of_this_run(connection: Connection, model: PublishedModel) -> bool:
    run = find_run(connection)
    same = epoch_of(read_epochs(connection), model.version) == model.epoch
    return run is not None and model.version <= run.version and same


def reasons(kept: str | None) -> set[str]:
    """Why a version is kept for ever."""
    return set() if kept is None else set(kept.split(", "))


def _set_kept(connection: Connection, version: int, why: set[str]) -> None:
    kept = ", ".join(sorted(why)) or None
    connection.execute(update(t.models).where(_M.version == version).values(kept=kept))
