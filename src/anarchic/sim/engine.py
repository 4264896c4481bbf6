"""The updates of a timetable, computed as early as they can be and folded in order.

An update can be computed as soon as its base version exists, so all that can be computed now are
lanes of one batch, also those that are folded some rounds later. A version is dropped when the
last update that starts from it has been computed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from math import isfinite
from typing import Any, TypeVar

import numpy as np

from anarchic.core.arrays import copied, like_that, on_host, places_in, readable, stack, zeros
from anarchic.core.reading import shown
from anarchic.core.saving import Arrays, Numbers, pack, unpack
from anarchic.core.types import Bools, Integers, Matrix, Snapshot, Updates, Vector
from anarchic.errors import Diverged, NotFinite, RunError
from anarchic.participation.timetable import Timetable
from anarchic.sim.experiment import Experiment
from anarchic.train.task import OWN_BUFFERS, Computed, Lanes

CHECK_EVERY = 16  # versions: a GPU has to wait while the host checks one

Name = TypeVar("Name", bound=Hashable)


class Engine:
    """Computes the updates of a timetable and folds them, in order, into the rule's state."""

    def __init__(self, experiment: Experiment) -> None:
        table, works = experiment.timetable, experiment.works
        self._ends = table.ends
        self._works, self._evaluated = works, experiment.evaluated
        self.experiment = experiment
        self.state = experiment.rule.init(experiment.task.to_storage(experiment.task.init()))
        self.row = 0  # the next update to be folded
        self.local_steps = 0  # of all that were
        self._names = [str(worker) for worker in range(table.workers)]
        places, first = experiment.task.layout.buffer_places, self.state.params
        self._places, self._first_buffers = places, first[places_in(first, places)]
        self._own_buffers = bool(getattr(experiment.task, "keeps_buffers", False))
        self._stateful = np.array([bool(work.rule.keeps) or self._own_buffers for work in works])
        self._rates = np.array([work.lr for work in works])
        self._previous = _previous_rows(table) if self._stateful.any() else None
        self._needed = self._count_needed(np.ones(len(table), bool))
        self._computed = np.zeros(len(table), bool)
        self._results: dict[int, tuple[Computed, int]] = {}  # row -> where its result is
        self._asked: Integers = np.zeros(0, np.int64)  # rows that are being computed
        self._snapshots: dict[int, Snapshot] = {}
        self._kept: dict[tuple[str, int], Vector] = {}  # (name, worker) -> vector
        self._publish()

    @property
    def version(self) -> int:
        version: int = self.state.version
        return version

    @property
    def own_buffers(self) -> dict[int, Vector] | None:
        """The buffers that workers keep to themselves, of those that have made a visit."""
        if not self._own_buffers:
            return None
        return {w: vector for (name, w), vector in self._kept.items() if name == OWN_BUFFERS}

    @property
    def described(self) -> str:
        """The version, and the worker whose update made it."""
        if self.row == 0:
            return "Version 0"
        last = self.experiment.timetable.worker[self.row - 1]
        return f"Version {self.version}, made by the update of worker {self._names[last]!r},"

    def next_version(self) -> None:
        """Go on until the rule has taken a step."""
        for diverged in next_versions({"": self}, lambda _: self.compute()).values():
            raise diverged

    def compute(self) -> None:
        """Compute what is ``wanted``, for this engine alone."""
        lanes = self.wanted()
        if lanes is not None:
            self.take(self.experiment.backend.compute(self.experiment.task, lanes))

    def wanted(self) -> Lanes | None:
        """What has to be computed before the next fold, with what can be computed besides."""
        if self.row in self._results:
            return None
        self._asked = self._ready()
        return self._lanes(self._asked)

    def take(self, results: Computed) -> None:
        """Keep the results of the lanes that were ``wanted`` until they are folded."""
        table, rows = self.experiment.timetable, self._asked
        self._results.update({row: (results, lane) for lane, row in enumerate(rows.tolist())})
        self._computed[rows] = True
        for version, lanes in Counter(table.base_version[rows].tolist()).items():
            self._needed[version] -= lanes
            if self._needed[version] == 0:
                del self._snapshots[version]

    def advance(self) -> None:
        """Fold the results that are there, up to the next step of the rule."""
        before, end = self.version, self.row + 1
        stop = self.row + self.experiment.rule.remaining(self.state)
        timed = self.experiment.timetable.stepped is not None
        if timed:
            stop = min(stop, int(self._ends[before]))
        while end in self._results and end < stop:
            end += 1
        self._fold(np.arange(self.row, end))
        if timed and self.row == self._ends[before] and self.version == before:
            self.state = self.experiment.rule.flush(self.state)
        if self.version > before:
            self._publish()
            self._check_finite()

    def _check_finite(self) -> None:
        due = self.version % CHECK_EVERY == 0 or self.version in self._evaluated
        if not due and not readable(self.state.params):
            return  # a later check finds it, too: what is not finite stays so
        if not isfinite(self.state.params @ self.state.params):
            raise Diverged(
                f"{self.described} has parameters that are not finite: lower the local or the "
                "server learning rate."
            )

    def _ready(self) -> Integers:
        """Rows that can be computed now, the next to be folded first."""
        table = self.experiment.timetable
        ahead = max(self.experiment.lookahead, self.experiment.rule.remaining(self.state))
        window = slice(self.row, self.row + ahead)
        ready = (table.base_version[window] <= self.version) & ~self._computed[window]
        if self._previous is not None:
            # What a worker keeps of a visit is known once that visit's update is folded.
            waits = self._stateful[table.worker[window]] & (self._previous[window] >= self.row)
            ready &= ~waits
        return self.row + np.flatnonzero(ready)

    def _lanes(self, rows: Integers) -> Lanes:
        experiment, table = self.experiment, self.experiment.timetable
        worker, bases = table.worker[rows], table.base_version[rows].tolist()
        numbers = worker, table.visit[rows], table.local_steps[rows]
        works = [self._works[w] for w in worker.tolist()]
        place = {version: index for index, version in enumerate(dict.fromkeys(bases))}
        snapshots = [self._snapshots[version] for version in place]
        start = np.array([place[version] for version in bases])
        return Lanes(experiment.seed, *numbers, works, snapshots, start, kept=self._kept_by(worker))

    def _fold(self, rows: Integers) -> None:
        experiment, table = self.experiment, self.experiment.timetable
        worker = table.worker[rows]
        directions, extras, kept = self._collect(rows)
        names = [self._names[w] for w in worker.tolist()]
        numbers = table.base_version[rows], table.local_steps[rows], self._rates[worker]
        samples = experiment.task.samples[worker]
        block = Updates(names, *numbers, directions, samples, extras)
        try:
            self.state = experiment.rule.receive_many(self.state, block)
        except NotFinite as refusal:
            said = f"Training diverged after version {self.version}: {refusal}"
            raise Diverged(said) from refusal
        for name, matrix in kept.items():
            for lane, w in enumerate(worker.tolist()):
                if name in self._works[w].rule.keeps:
                    self._kept[name, w] = copied(matrix[lane])  # not the whole batch
        if self._own_buffers:
            own = directions[:, places_in(directions, self._places)]
            self._kept |= {(OWN_BUFFERS, w): copied(own[i]) for i, w in enumerate(worker.tolist())}
        self.row += len(rows)
        self.local_steps += int(table.local_steps[rows].sum())

    def _collect(self, rows: Integers) -> tuple[Matrix, dict[str, Matrix], dict[str, Matrix]]:
        """The results of some rows; no copy where they are one batch in order."""
        places = [self._results.pop(row) for row in rows.tolist()]
        first = places[0][0]
        lanes: Any = [lane for _, lane in places]
        if any(results is not first for results, _ in places):
            first, lanes = _stacked(places), slice(None)
        elif lanes == list(range(lanes[0], lanes[0] + len(rows))):
            lanes = slice(lanes[0], lanes[0] + len(rows))
        return (
            first.directions[lanes],
            {name: matrix[lanes] for name, matrix in first.extras.items()},
            {name: matrix[lanes] for name, matrix in first.kept.items()},
        )

    def _kept_by(self, workers: Integers) -> dict[str, Matrix]:
        those, zero = workers.tolist(), zeros(self.state.params)
        names = {name for w in those for name in self._works[w].rule.keeps}
        kept = {name: stack([self._kept.get((name, w), zero) for w in those]) for name in names}
        if self._own_buffers:
            first = self._first_buffers
            kept[OWN_BUFFERS] = stack([self._kept.get((OWN_BUFFERS, w), first) for w in those])
        return kept

    def _count_needed(self, rows: Bools) -> Integers:
        """How many of these rows start from each version; one more where later rows may."""
        table = self.experiment.timetable
        needed = np.bincount(table.base_version[rows], minlength=table.rounds + 2)
        if table.later is not None:
            needed[table.later] += 1
        return needed

    def _publish(self) -> None:
        state, version = self.state, self.version
        if self._needed[version]:
            self._snapshots[version] = Snapshot(version, state.params, state.extras)

    def pack(self) -> tuple[Arrays, Numbers]:
        """Everything that a checkpoint needs, results that wait to be folded included."""
        state, numbers = pack(self.state)
        arrays = {f"state.{name}": array for name, array in state.items()}
        for version, snapshot in self._snapshots.items():
            arrays[f"snapshot.{version}.params"] = on_host(snapshot.params)
            for name, vector in snapshot.extras.items():
                arrays[f"snapshot.{version}.{name}"] = on_host(vector)
        for (name, worker), vector in self._kept.items():
            arrays[f"kept.{worker}.{name}"] = on_host(vector)
        waiting = _stacked(list(self._results.values()))
        for kind, group in (("extras", waiting.extras), ("kept", waiting.kept)):
            arrays |= {f"waiting.{kind}.{name}": on_host(m) for name, m in group.items()}
        arrays["waiting.directions"] = on_host(waiting.directions)
        return arrays, {"state": numbers, "row": self.row, "waiting": list(self._results)}

    def unpack(self, arrays: Arrays, numbers: Numbers) -> None:
        """Go back to where ``pack`` was called, in an engine of the same experiment."""
        table = self.experiment.timetable
        self.state = unpack(self.state, _below("state.", arrays), numbers["state"])
        arrays = {name: like_that(array, self.state.params) for name, array in arrays.items()}
        self.row = numbers["row"]
        if type(self.row) is not int or not 0 <= self.row <= len(table):
            raise RunError(f"It stands at row {shown(self.row)} of {len(table)}.")
        self.local_steps = int(table.local_steps[: self.row].sum(dtype=np.int64))
        self._snapshots = {}
        for version, parts in _by_number(_below("snapshot.", arrays)).items():
            self._snapshots[version] = Snapshot(version, parts.pop("params"), parts)
        self._kept = {
            (name, worker): vector
            for worker, vectors in _by_number(_below("kept.", arrays)).items()
            for name, vector in vectors.items()
        }
        extras, kept = (_below(f"waiting.{kind}.", arrays) for kind in ("extras", "kept"))
        waiting = Computed(arrays["waiting.directions"], extras, kept)
        self._results = {row: (waiting, lane) for lane, row in enumerate(numbers["waiting"])}
        self._computed[: self.row] = True
        self._computed[numbers["waiting"]] = True
        self._needed = self._count_needed(~self._computed)
        self._snapshots = {v: s for v, s in self._snapshots.items() if self._needed[v]}


@np.errstate(over="ignore", invalid="ignore")  # an error says so, and more than a warning
def next_versions(
    engines: Mapping[Name, Engine], compute: Callable[[Mapping[Name, Engine]], None]
) -> dict[Name, Diverged]:
    """Bring every engine to its next version; returns the errors of those that diverged.

    ``compute`` has what the engines want computed, and hands each its results.
    """
    behind, errors = dict(engines), {}
    before = {name: engine.version for name, engine in engines.items()}
    while behind:
        compute(behind)
        for name, engine in list(behind.items()):
            try:
                engine.advance()
            except Diverged as error:
                errors[name] = error
            if name in errors or engine.version > before[name]:
                del behind[name]
    return errors


def _stacked(places: list[tuple[Computed, int]]) -> Computed:
    """Single results of several batches as one; zero where one has no such vector."""
    if not places:
        return Computed(np.zeros((0, 0)), {}, {})
    directions = stack([results.directions[lane] for results, lane in places])
    stacked = Computed(directions, {}, {})
    for index, (results, lane) in enumerate(places):
        for into, group in ((stacked.extras, results.extras), (stacked.kept, results.kept)):
            for name, matrix in group.items():
                into.setdefault(name, zeros(directions))[index] = matrix[lane]
    return stacked


def _previous_rows(table: Timetable) -> Integers:
    """For every row the one before it of the same worker, -1 for a first visit."""
    order = np.lexsort((table.visit, table.worker))
    previous = np.full(len(table), -1)
    previous[order[1:]] = np.where(table.visit[order[1:]] > 0, order[:-1], -1)
    return previous


def _below(start: str, arrays: Arrays) -> Arrays:
    return {name[len(start) :]: a for name, a in arrays.items() if name.startswith(start)}


def _by_number(arrays: Arrays) -> dict[int, Arrays]:
    """``{"3.name": array}`` as ``{3: {"name": array}}``."""
    found: dict[int, Arrays] = {}
    for name, array in arrays.items():
        number, rest = name.split(".", 1)
        found.setdefault(int(number), {})[rest] = array
    return found
