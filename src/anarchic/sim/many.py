"""Several runs at once: those that can, share the lanes of one batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from anarchic.core.arrays import zeros
from anarchic.core.types import Matrix
from anarchic.errors import Diverged
from anarchic.sim.engine import Walk
from anarchic.sim.experiment import Experiment
from anarchic.sim.run import Journey, Progress, Run, finished, open_record
from anarchic.sim.settings import Settings, build
from anarchic.train.task import Computed, Lanes, Task


def simulate_many(
    runs: Mapping[str, Settings | Experiment],
    *,
    out: Path | None = None,
    resume: bool = False,
    checkpoint_every: int | None = None,
    stop_after_s: float | None = None,
    watch: Callable[[str, Progress], None] | None = None,
) -> dict[str, Run]:
    """Train all of them and record each in ``out/name``; every run is as it would be alone.

    Runs of one model on one data set are lanes of one batch, which is what a GPU wants. With
    ``resume`` runs whose directory exists go on, the others start. ``stop_after_s`` writes
    checkpoints after so many seconds and returns only the runs that are finished by then. A run
    that diverges ends there (``summary["stopped_at"]`` says so) and the others go on.
    """
    deadline = None if stop_after_s is None else time.monotonic() + stop_after_s
    ended: dict[str, Run] = {}
    journeys: dict[str, Journey] = {}
    for name, what in runs.items():
        experiment = build(what) if isinstance(what, Settings) else what
        record = None
        if out is not None:
            known = resume and (out / name / "settings.json").exists()
            record = open_record(experiment, out / name, known)
            if record.finished:
                ended[name] = finished(experiment, record)
                continue
        journeys[name] = Journey(Walk(experiment), record, checkpoint_every, _watcher(name, watch))
    for group in _by_batch_key(journeys):
        ended |= _Convoy({name: journeys.pop(name) for name in group}).go(deadline)
    return {name: ended[name] for name in runs if name in ended}


class _Convoy:
    """Runs of kindred tasks: a round of all of them is one call of the backend."""

    def __init__(self, journeys: dict[str, Journey]) -> None:
        self._journeys = journeys
        tasks = [journey.walk.experiment.task for journey in journeys.values()]
        self._task: Task = tasks[0].joined(tasks[1:]) if len(tasks) > 1 else tasks[0]
        workers = [len(task.samples) for task in tasks]
        self._first = dict(zip(journeys, np.cumsum([0, *workers[:-1]]).tolist(), strict=True))

    def go(self, deadline: float | None) -> dict[str, Run]:
        ended: dict[str, Run] = {}
        for journey in self._journeys.values():
            journey.begin()
        while going := {name: j for name, j in self._journeys.items() if name not in ended}:
            for name, journey in going.items():
                if not journey.more:
                    ended[name] = journey.finish()
            going = {name: j for name, j in going.items() if name not in ended}
            if deadline is not None and time.monotonic() > deadline:
                for journey in going.values():
                    journey.save()
                break
            ended |= self._round(going)
        return ended

    def _round(self, going: dict[str, Journey]) -> dict[str, Run]:
        """Bring each to its next version; returns those that diverged."""
        start = time.perf_counter()
        lost = self._train(going)
        seconds = (time.perf_counter() - start) / max(1, len(going))  # shared alike
        for journey in going.values():
            journey.train_seconds += seconds
        lost |= self._evaluate({n: j for n, j in going.items() if n not in lost and j.due})
        for name, journey in going.items():
            if name not in lost:
                journey.after_round()
        return {name: journey.finish() for name, journey in lost.items()}

    def _train(self, going: dict[str, Journey]) -> dict[str, Journey]:
        lost, behind = {}, dict(going)
        while behind:
            self._compute(behind)
            for name, journey in list(behind.items()):
                before = journey.walk.version
                if not _survives(journey, journey.walk.advance):
                    lost[name] = journey
                if name in lost or journey.walk.version > before:
                    del behind[name]
        return lost

    def _evaluate(self, due: dict[str, Journey]) -> dict[str, Journey]:
        found = self._task.evaluate_all([journey.walk.state.params for journey in due.values()])
        return {
            name: journey
            for (name, journey), metrics in zip(due.items(), found, strict=True)
            if not _survives(journey, partial(journey.note, metrics))
        }

    def _compute(self, journeys: dict[str, Journey]) -> None:
        asked = {name: journey.walk.wanted() for name, journey in journeys.items()}
        wanted = {name: lanes for name, lanes in asked.items() if lanes is not None}
        if not wanted:
            return
        backend = next(iter(journeys.values())).walk.experiment.backend
        with np.errstate(over="ignore", invalid="ignore"):  # a divergence says more
            results = backend.compute(
                self._task, _side_by_side(wanted, [self._first[name] for name in wanted])
            )
        first = 0
        for name, lanes in wanted.items():
            journeys[name].walk.take(_part(results, lanes, first))
            first += len(lanes)


def _survives(journey: Journey, step: Callable[[], None]) -> bool:
    try:
        step()
    except Diverged:
        journey.stopped = "diverged"
    return journey.stopped != "diverged"


def _watcher(
    name: str, watch: Callable[[str, Progress], None] | None
) -> Callable[[Progress], None]:
    return lambda progress: None if watch is None else watch(name, progress)


def _by_batch_key(journeys: Mapping[str, Journey]) -> list[list[str]]:
    """Names of runs that can share a batch."""
    groups: dict[Hashable, list[str]] = {}
    for name, journey in journeys.items():
        experiment = journey.walk.experiment
        groups.setdefault((experiment.task.batch_key, type(experiment.backend)), []).append(name)
    return list(groups.values())


def _side_by_side(wanted: Mapping[str, Lanes], firsts: Sequence[int]) -> Lanes:
    """Lanes of several runs as one, for a joint task where their workers begin at ``firsts``."""
    parts = list(wanted.values())
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


def _kept(parts: list[Lanes]) -> dict[str, Matrix]:
    """What the lanes remember, zero where a run's local rule has no such vector."""
    names = {name for lanes in parts for name in lanes.kept}
    like, count = parts[0].snapshots[0].params, sum(map(len, parts))
    joint = {name: zeros(like, (count, len(like))) for name in names}
    first = 0
    for lanes in parts:
        for name, matrix in lanes.kept.items():
            joint[name][first : first + len(lanes)] = matrix
        first += len(lanes)
    return joint


def _part(results: Computed, lanes: Lanes, first: int) -> Computed:
    """What belongs to one run: its rows, and the vectors that its own local rules know."""
    rows = slice(first, first + len(lanes))
    rules = {work.rule for work in lanes.work}
    return Computed(
        results.directions[rows],
        {name: results.extras[name][rows] for rule in rules for name in rule.shares},
        {name: results.kept[name][rows] for rule in rules for name in rule.keeps},
    )
