"""The loop over rounds, for one run or for several that share a batch."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from anarchic.core.arrays import zeros
from anarchic.core.types import Matrix
from anarchic.errors import Diverged
from anarchic.sim.engine import Engine, next_versions
from anarchic.sim.run import ActiveRun, Run
from anarchic.train.compute import computing
from anarchic.train.task import Computed, Lanes, Task


class RunGroup:
    """Trains runs round by round, the updates of all of them in one batch; often it is one run.

    A run that diverges raises its error, or with ``go_on`` is recorded as it is and the others go
    on.
    """

    def __init__(self, runs: Mapping[str, ActiveRun], *, go_on: bool = False) -> None:
        self._runs, self._go_on = dict(runs), go_on
        experiments = [run.engine.experiment for run in runs.values()]
        tasks = [experiment.task for experiment in experiments]
        self._task: Task = tasks[0].joined(tasks[1:]) if len(tasks) > 1 else tasks[0]
        self._backend, self._threads = experiments[0].backend, experiments[0].threads
        self._folded = max(experiment.folded for experiment in experiments)
        workers = [len(task.samples) for task in tasks]
        self._first = dict(zip(runs, np.cumsum([0, *workers[:-1]]).tolist(), strict=True))

    def train(self, deadline: float | None = None) -> dict[str, Run]:
        """Go on until all runs have ended, or until the deadline; returns those that have ended."""
        with computing(self._threads, self._folded):
            return self._rounds(deadline)

    def _rounds(self, deadline: float | None) -> dict[str, Run]:
        going, ended = dict(self._runs), {}
        for run in going.values():
            run.begin()
        while True:
            for name in [name for name, run in going.items() if not run.more]:
                ended[name] = going.pop(name).finish()
            if not going:
                return ended
            if deadline is not None and time.monotonic() > deadline:
                _save(going.values())
                return ended
            for name in self._round(going):
                ended[name] = going.pop(name).finish()

    def _round(self, going: Mapping[str, ActiveRun]) -> list[str]:
        """Bring each run to its next version; returns those that diverged."""
        start = time.perf_counter()
        lost = next_versions({name: run.engine for name, run in going.items()}, self._compute)
        seconds = (time.perf_counter() - start) / len(going)  # shared alike
        for run in going.values():
            run.train_seconds += seconds
        for name, run in going.items():
            if name not in lost:
                run.stepped()
        lost |= self._evaluate({n: run for n, run in going.items() if n not in lost and run.due})
        for name, error in lost.items():
            if not self._go_on:
                raise Diverged(f"{error} {going[name].last_checkpoint}") from error
            going[name].diverged, going[name].reason = True, str(error)
        try:
            for name, run in going.items():
                if name not in lost:
                    run.after_round()
        except KeyboardInterrupt:  # between two rounds, so that nothing is half done
            _save(run for name, run in going.items() if name not in lost)
            raise
        return list(lost)

    def _compute(self, engines: Mapping[str, Engine]) -> None:
        if len(self._runs) == 1:
            for engine in engines.values():
                engine.compute()
            return
        asked = {name: engine.wanted() for name, engine in engines.items()}
        wanted = {name: lanes for name, lanes in asked.items() if lanes is not None}
        if not wanted:
            return
        joint = join(list(wanted.values()), [self._first[name] for name in wanted])
        results, first = self._backend.compute(self._task, joint), 0
        for name, lanes in wanted.items():
            engines[name].take(part_of(results, lanes, first))
            first += len(lanes)

    def _evaluate(self, due: Mapping[str, ActiveRun]) -> dict[str, Diverged]:
        lost: dict[str, Diverged] = {}
        if not due:
            return lost
        alike = [name for name, run in due.items() if run.judged_alike]
        vectors = [due[name].engine.state.params for name in alike]
        found = dict(zip(alike, self._task.evaluate_all(vectors), strict=True)) if alike else {}
        for name, run in due.items():
            try:
                run.note(found.get(name) or run.judge.evaluate(run.engine.state.params))
            except Diverged as error:
                lost[name] = error
        return lost


def _save(runs: Iterable[ActiveRun]) -> None:
    for run in runs:
        run.save()


def join(parts: Sequence[Lanes], firsts: Sequence[int]) -> Lanes:
    """Lanes of several runs as one, for a joint task where their workers begin at ``firsts``."""
    snapshots = [snapshot for lanes in parts for snapshot in lanes.snapshots]
    begin = np.cumsum([0, *(len(lanes.snapshots) for lanes in parts[:-1])]).tolist()
    seeds = [np.broadcast_to(np.asarray(lanes.seed, np.int64), len(lanes)) for lanes in parts]
    return Lanes(
        np.concatenate(seeds),
        np.concatenate([lanes.worker + first for lanes, first in zip(parts, firsts, strict=True)]),
        np.concatenate([lanes.visit for lanes in parts]),
        np.concatenate([lanes.local_steps for lanes in parts]),
        [work for lanes in parts for work in lanes.work],
        snapshots,
        np.concatenate([lanes.snapshot + at for lanes, at in zip(parts, begin, strict=True)]),
        _kept(parts),
    )


def _kept(parts: Sequence[Lanes]) -> dict[str, Matrix]:
    """The vectors that the lanes' workers keep, zero where a run's local rule keeps none."""
    like, count = parts[0].snapshots[0].params, sum(map(len, parts))
    widths = {name: matrix.shape[1] for lanes in parts for name, matrix in lanes.kept.items()}
    joint = {name: zeros(like, (count, width)) for name, width in widths.items()}
    first = 0
    for lanes in parts:
        for name, matrix in lanes.kept.items():
            joint[name][first : first + len(lanes)] = matrix
        first += len(lanes)
    return joint


def part_of(results: Computed, lanes: Lanes, first: int) -> Computed:
    """The results of one run: its rows, and the vectors that its own local rules know."""
    rows = slice(first, first + len(lanes))
    rules = {work.rule for work in lanes.work}
    return Computed(
        results.directions[rows],
        {name: results.extras[name][rows] for rule in rules for name in rule.shares},
        {name: results.kept[name][rows] for rule in rules for name in rule.keeps},
    )
