"""What the theorems speak of, measured in a run: gradients, noise, drift, age, weights, cost.

A run is computed again, which gives the same versions, so that measuring costs nothing while it
trains and can be asked for afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from math import nan
from typing import Any, NamedTuple

import numpy as np

from anarchic.core.arrays import on_host
from anarchic.core.local import VisitStart as Start
from anarchic.core.local import begun, take_local_steps
from anarchic.core.rule import Rule
from anarchic.core.types import Floats, Integers, Update, Updates, Vector
from anarchic.errors import ConfigError
from anarchic.participation.timetable import Timetable
from anarchic.sim.engine import Engine
from anarchic.sim.experiment import Experiment
from anarchic.theory.observed import full_rounds
from anarchic.train.draws import Draws
from anarchic.train.task import ExactTask

PULL_AND_PUSH = 2  # an update brings a vector, and its worker pulled one


@dataclass(frozen=True)
class Measured:
    """One version of a run, x_t, and the m updates that make the next one.

    Of an update with direction G_i from the base version x_b, where g_k are the gradients of its
    samples at the local models y_k, the mean over the updates of the squared norm of

        noise          mean_k (g_k - grad f_i(y_k))
        drift          mean_k grad f_i(y_k) - grad f_i(x_b)
        delay          grad f_i(x_b) - grad f_i(x_t)
        heterogeneity  grad f_i(x_t) - grad f(x_t)

    Of plain SGD the four add up, as vectors, to G_i - grad f(x_t). ``squared_gradient`` is
    ||grad f(x_t)||^2 with f the mean over all workers. Ages are in versions; a row is what AFA-CS
    and its kin keep of a worker. ``bytes`` and ``local_steps`` were spent from the beginning up to
    x_t. ``bytes`` are of the model and the vectors beside it, down and up; where the timetable
    knows refused, stopped and lost visits, these count too. noise, drift and delay are nan where
    workers keep or share vectors.
    """

    round: int
    virtual_s: float | None
    updates: int
    local_steps: int
    bytes: int
    squared_gradient: float
    noise: float
    drift: float
    delay: float
    heterogeneity: float
    staleness_mean: float
    staleness_max: int
    row_age_mean: float
    row_age_max: int
    workers_heard: int


NAMES = tuple(field.name for field in fields(Measured))


def measure(
    experiment: Experiment, *, every: int = 10, watch: Callable[[int], None] | None = None
) -> list[Measured]:
    """Measure every ``every``-th version of an experiment, from the first on.

    It costs the run, and for each version measured M + m (K + 2) gradients over all of a worker's
    samples. ``watch`` is told how many rounds are done.

    >>> from anarchic import AfaCd, Experiment, LocalWork, Sampler, ConstantSteps
    >>> from anarchic.data import random_quadratics
    >>> from anarchic.train.quadratic import QuadraticTask
    >>> task = QuadraticTask(random_quadratics(workers=4, dim=3, noise=0.0))
    >>> table = Sampler(4, 2, ConstantSteps(1)).timetable(0, rounds=20)
    >>> found = measure(Experiment(task, AfaCd(2), table, LocalWork(lr=0.1, batch=1)))
    >>> [(row.round, row.noise, row.drift) for row in found]
    [(0, 0.0, 0.0), (10, 0.0, 0.0)]
    """
    if every < 1:
        raise ConfigError(f"Versions are measured every N >= 1 rounds, got every={every}.")
    if not isinstance(experiment.task, ExactTask):
        raise ConfigError(
            f"{type(experiment.task).__name__} has no exact gradients: give it exact_gradient()."
        )
    return _Measuring(experiment, every).run(watch)


class _Measuring:
    def __init__(self, experiment: Experiment, every: int) -> None:
        self._experiment, self._table = experiment, full_rounds(experiment.timetable)
        self._task: Any = experiment.task
        self._versions = range(0, self._table.rounds, every)
        rows = np.concatenate([self._rows(version) for version in self._versions])
        self._bases = set(self._table.base_version[rows].tolist())  # versions to be kept
        self._kept: dict[int, Vector] = {}
        held = {name for work in experiment.works for name in (*work.rule.keeps, *work.rule.shares)}
        self._stateful = bool(held)

    def run(self, watch: Callable[[int], None] | None) -> list[Measured]:
        engine, found = Engine(self._experiment), []
        last = self._versions[-1]
        with self._experiment.computing():
            for version in range(last + 1):
                if version in self._bases:
                    self._kept[version] = on_host(engine.state.params).copy()
                if version in self._versions:
                    found.append(self._measured(engine))
                if watch is not None:
                    watch(version)
                if version < last:
                    engine.next_version()
        return found

    def _rows(self, version: int) -> Integers:
        m = self._table.m
        return np.arange(version * m, (version + 1) * m)

    def _measured(self, engine: Engine) -> Measured:
        version, table = engine.version, self._table
        rows, now = self._rows(version), on_host(engine.state.params)
        each = np.array([self._exact(now, worker) for worker in range(table.workers)])
        mean = each.mean(axis=0)
        parts = np.array([self._parts(int(row), each) for row in rows])  # (m, noise drift delay)
        apart = each[table.worker[rows]] - mean
        ages, staleness = row_ages(table, version), table.staleness[rows]
        return Measured(
            round=version,
            virtual_s=None if table.version_s is None else _time(table.version_s, version),
            updates=engine.row,
            local_steps=engine.local_steps,
            bytes=(PULL_AND_PUSH * engine.row + _in_vain(table, version)) * _size(engine),
            squared_gradient=float(mean @ mean),
            **dict(zip(("noise", "drift", "delay"), parts.mean(axis=0).tolist(), strict=True)),
            heterogeneity=float((apart**2).sum(axis=1).mean()),
            staleness_mean=float(staleness.mean()),
            staleness_max=int(staleness.max()),
            row_age_mean=float(ages.mean()) if len(ages) else 0.0,
            row_age_max=int(ages.max()) if len(ages) else 0,
            workers_heard=len(ages),
        )

    def _parts(self, row: int, each: Floats) -> tuple[float, float, float]:
        """||noise||^2, ||drift||^2 and ||delay||^2 of one update, by taking its visit again."""
        if self._stateful:
            return nan, nan, nan
        table, task = self._table, self._task
        worker, steps = int(table.worker[row]), int(table.local_steps[row])
        base, work = int(table.base_version[row]), self._experiment.works[worker]
        one = np.array([worker]), np.array([int(table.visit[row])])
        draws = Draws(self._experiment.seed, *one, steps, in_epochs=work.shuffle)
        picks = task.pick(draws, work.batch)
        drawn: list[Floats] = []
        exact: list[Floats] = []

        def gradient(x: Any, k: int) -> Any:
            found = task.gradient(x, worker, {name: pick[0, k] for name, pick in picks.items()})
            drawn.append(self._on_host(found))
            exact.append(self._on_host(task.exact_gradient(x, worker)))
            return found

        start = task.put(task.to_storage(self._kept[base]))
        take_local_steps(
            begun(work.rule, Start(work.lr, base, task.layout)),
            start,
            dict.fromkeys(work.rule.scratch, 0 * start),
            lr=work.lr,
            gradient=gradient,
            more=lambda done: done < steps,
        )
        path, at_base = np.mean(exact, axis=0), exact[0]
        parts = np.mean(drawn, axis=0) - path, path - at_base, at_base - each[worker]
        noise, drift, delay = (float(part @ part) for part in parts)
        return noise, drift, delay

    def _exact(self, params: Vector, worker: int) -> Floats:
        task = self._task
        return self._on_host(task.exact_gradient(task.put(task.to_storage(params)), worker))

    def _on_host(self, array: Any) -> Floats:
        found: Floats = np.asarray(on_host(self._task.get(array)), np.float64)
        return found


def _size(engine: Engine) -> int:
    """Bytes of a model, with the vectors beside it."""
    state = engine.state
    return int(state.params.nbytes) + sum(int(each.nbytes) for each in state.extras.values())


def _in_vain(table: Timetable, version: int) -> int:
    """Models and updates that moved for nothing up to a version, where that is known."""
    return 0 if table.wasted is None else table.wasted.block(0, version).transfers


def _time(version_s: Floats, version: int) -> float:
    return float(version_s[version - 1]) if version else 0.0


def row_ages(table: Timetable, version: int) -> Integers:
    """How old the last update of each worker heard is at ``version``: versions since its base.

    >>> from anarchic import Sampler, ConstantSteps
    >>> row_ages(Sampler(2, 2, ConstantSteps(1)).timetable(0, rounds=4), version=3).tolist()
    [1, 1]
    """
    done = slice(0, version * table.m)
    workers, bases = table.worker[done][::-1], table.base_version[done][::-1]
    _, last = np.unique(workers, return_index=True)
    return np.asarray(version - bases[last], np.int64)


class Weights(NamedTuple):
    """How much each worker moved the model.

    ``by_worker`` is the sum over all steps of the factor by which the worker's directions entered
    them, eta and eta_L included; ``gini`` is 0 where all are equal and near 1 where one has all.
    """

    by_worker: Floats  # (M,)

    @property
    def shares(self) -> Floats:
        total = self.by_worker.sum()
        return np.asarray(self.by_worker / total if total else self.by_worker)

    @property
    def gini(self) -> float:
        return gini(self.by_worker)


def gini(values: Iterable[float]) -> float:
    """The Gini index of numbers that are not negative.

    >>> gini([1, 1, 1, 1]), gini([0, 0, 0, 1])
    (0.0, 0.75)
    """
    ordered = np.sort(np.asarray(list(values), float))
    n, total = len(ordered), ordered.sum()
    if not total:
        return 0.0
    return float(2 * (np.arange(1, n + 1) * ordered).sum() / (n * total) - (n + 1) / n)


def weights_of(experiment: Experiment) -> Weights:
    """Each worker's weight in a run: its rule folds unit vectors, one per worker.

    The model then counts by how much the directions of each worker have moved it, whatever the rule
    does with rates, local steps, staleness and rows. That is exact for rules whose steps are linear
    in the updates, so others are refused.

    >>> from anarchic import AfaCd, Experiment, LocalWork, Sampler, ConstantSteps
    >>> from anarchic.data import random_quadratics
    >>> from anarchic.train.quadratic import QuadraticTask
    >>> task = QuadraticTask(random_quadratics(workers=2, dim=3, noise=0.0))
    >>> table = Sampler(2, 2, ConstantSteps(1)).timetable(0, rounds=4)
    >>> weights_of(Experiment(task, AfaCd(2), table, LocalWork(lr=0.5, batch=1))).by_worker.tolist()
    [1.0, 1.0]
    """
    rule, table = experiment.rule, full_rounds(experiment.timetable)
    _check_linear(rule, table.workers)
    lrs = np.array([work.lr for work in experiment.works])
    state = rule.init(np.zeros(table.workers))
    for version in range(table.rounds):
        rows = slice(version * table.m, (version + 1) * table.m)
        workers = table.worker[rows]
        units = np.zeros((len(workers), table.workers))
        units[np.arange(len(workers)), workers] = 1.0
        numbers = table.base_version[rows], table.local_steps[rows], lrs[workers], units
        samples = experiment.task.samples[workers]
        state = rule.receive_many(state, Updates([str(w) for w in workers], *numbers, samples))
    return Weights(0.0 - np.asarray(state.params))  # -x would make -0.0 of a silent worker's 0


def _check_linear(rule: Rule[Any], workers: int) -> None:
    """Refuse rules whose step depends on how long updates are."""
    if rule.init(np.zeros(2)).extras:
        raise ConfigError("Weights are counted of rules that publish the model alone.")
    directions = np.array([[1.0, 2.0], [3.0, -4.0]])
    moved = [_two_steps(rule, directions * by, workers) / by for by in (1.0, 1e4, 1e-4)]
    if not all(np.allclose(moved[0], other, rtol=1e-6) for other in moved):
        raise ConfigError(
            f"The step of {type(rule.innermost).__name__} is not linear in the updates, so no "
            "worker has a weight of its own: use plain SGD at the server, without clipping or "
            "guard."
        )


def _two_steps(rule: Rule[Any], directions: Floats, workers: int) -> Vector:
    """The model once it has moved twice from 0, by these directions of each worker in turn."""
    state, moves = rule.init(np.zeros(directions.shape[1])), 0
    for number in range(100 * workers + 100 * rule.m):  # some wait for all workers, or for many
        before = np.asarray(state.params)
        direction = directions[number % len(directions)]
        worker = str(number % workers)
        state = rule.receive(state, Update(worker, state.version, 1, 1.0, direction, samples=1))
        moves += not np.array_equal(before, state.params)
        if moves == 2:
            break
    return np.asarray(state.params)
