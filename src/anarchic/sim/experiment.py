"""What is simulated, put together from its parts."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from anarchic.core.buffers import average_buffers
from anarchic.core.local import VisitStart, begun
from anarchic.core.options import says_options
from anarchic.core.rule import Rule
from anarchic.core.saving import pack
from anarchic.errors import ConfigError
from anarchic.participation.timetable import Timetable
from anarchic.train.backends import Batched
from anarchic.train.compute import CLASSES, Compute, check_lookahead, computing
from anarchic.train.metrics import Function, Metric, check_metrics
from anarchic.train.task import Backend, DataTask, JudgedTask, LocalWork, Task

LOGGER = logging.getLogger("anarchic.train")
MAX_DRAWS = 1 << 26  # random numbers of one visit, which are drawn together: 512 MiB


@says_options
@dataclass(frozen=True)
class Experiment:
    """A task, a rule, a timetable, and how the workers train: all that a result depends on.

    ``work`` is one setting for all workers or a sequence with one each. ``eval_every`` says after
    how many rounds the model is evaluated (None: about fifty times in all), besides the first and
    the last. ``last10`` has each of the last ten evaluated: the mean of their accuracies is the
    paper's measure. ``eval_samples`` evaluates on that many test samples, drawn once by the seed,
    and on all of them at the end. ``metrics`` are computed beside those of the task (see
    ``Metric``). ``target_accuracy`` ends the run once it is reached. ``lookahead`` is how many
    updates ahead may be computed with those that are due. ``threads`` compute the run (None: as
    many as the process and the task have). ``about`` is for people: it is written to the run
    directory as it is. Around the rule of a task with buffers ``AverageBuffers`` is put.
    """

    task: Task
    rule: Rule[Any]
    timetable: Timetable
    work: LocalWork | Sequence[LocalWork] = field(default_factory=LocalWork)
    seed: int = 0
    backend: Backend = field(default_factory=Batched)
    eval_every: int | None = None
    eval_samples: int | None = None
    last10: bool = False
    metrics: Mapping[str, Metric | Function | str] = field(default_factory=dict)
    target_accuracy: float | None = None
    lookahead: int = 16
    threads: int | None = None
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        table = self.timetable
        table.check()
        if table.before:
            raise ConfigError(
                f"The timetable is the part of another that begins after {table.before} rounds: "
                "give it from the first round on."
            )
        if self.rule.m != table.m:
            raise ConfigError(
                f"The rule steps every {self.rule.m} updates, the timetable was made for "
                f"{table.m}: make it with m={self.rule.m}."
            )
        if table.workers > len(self.task.samples):
            raise ConfigError(
                f"The timetable has {table.workers} workers, but the task has data for only "
                f"{len(self.task.samples)}: make the timetable for these."
            )
        if len(self.works) < table.workers:
            raise ConfigError(
                f"The timetable has {table.workers} workers, but only {len(self.works)} of them "
                "have local work: give one LocalWork for all or one each."
            )
        most = max(work.batch for work in self.works) * int(table.local_steps.max(initial=0))
        if most > MAX_DRAWS:
            raise ConfigError(
                f"A visit of {table.local_steps.max()} local steps draws {most} samples at once, "
                f"at most {MAX_DRAWS} fit into memory: take fewer local steps or smaller batches."
            )
        check_schedule(self.eval_every, self.target_accuracy, self.eval_samples)
        self._check_judged()
        check_lookahead(self.lookahead)
        # Frozen, but nobody has seen it yet: a model with buffers needs a rule that averages them.
        object.__setattr__(self, "rule", average_buffers(self.rule, self.task.layout))
        self._check_extras()
        for work in {work.rule: work for work in self.works}.values():
            begun(work.rule, VisitStart(work.lr, 0, self.task.layout))  # it may refuse the model
        if table.workers < len(self.task.samples):
            samples = int(np.sum(self.task.samples[table.workers :]))
            _say_unused(table.workers, len(self.task.samples), samples)

    def _check_judged(self) -> None:
        asked = {"eval_samples": self.eval_samples, "metrics": self.metrics}
        for name, value in asked.items():
            if value and not isinstance(self.task, JudgedTask):
                raise ConfigError(
                    f"A {type(self.task).__name__} shows no predictions for test samples, got "
                    f"{name}={value!r}: leave it out, or let its evaluate() return more numbers."
                )
        check_metrics(self.metrics)

    def _check_extras(self) -> None:
        """Refuse vectors that only the rule or only the workers know: they would be lost."""
        layout = self.task.layout
        first = self.rule.init(np.zeros(layout.dim if layout.buffers else 1, np.float32))
        pack(first)  # a state that cannot be saved is refused now, not at the first checkpoint
        carried = set(first.extras)
        shared = {name for rule in {work.rule for work in self.works} for name in rule.shares}
        if missing := sorted(shared - carried):
            raise ConfigError(
                f"The workers share {', '.join(missing)}, which the rule does not carry: put "
                "SharedVectors(rule, names, population) around it."
            )
        if idle := sorted(carried - shared):
            raise ConfigError(
                f"The rule carries {', '.join(idle)}, which no worker's local rule shares: give "
                "workers a local rule that does, as Scaffold does, or leave SharedVectors out."
            )

    @property
    def works(self) -> Sequence[LocalWork]:
        """The local work of every worker."""
        if isinstance(self.work, LocalWork):
            return [self.work] * self.timetable.workers
        return self.work

    @property
    def evaluated(self) -> frozenset[int]:
        """The versions that are evaluated."""
        return frozenset([*range(0, self.timetable.rounds, self.interval), *self.at_end])

    @property
    def interval(self) -> int:
        """Rounds from one evaluation to the next."""
        return self.eval_every or max(1, self.timetable.rounds // 50)

    @property
    def at_end(self) -> range:
        """The versions that are evaluated because they are the last, on all test samples."""
        rounds = self.timetable.rounds
        return range(max(0, rounds - 9) if self.last10 else rounds, rounds + 1)

    def judges(self) -> tuple[Task, Task]:
        """The task as it evaluates versions before the end, and at the end."""
        task = self.task
        if not isinstance(task, JudgedTask):
            return task, task
        if self.metrics:
            task = task.judged_by({**task.metrics, **check_metrics(self.metrics)})
        if self.eval_samples is None or self.eval_samples >= task.test_samples:
            return task, task
        rng = np.random.default_rng([self.seed, self.eval_samples])
        some = np.sort(rng.permutation(task.test_samples)[: self.eval_samples])
        return task.tested_on(some), task

    @property
    def open_until(self) -> int:
        """The last version at which a longer run of the same beginning has the same checkpoint.

        After it, that run could have computed updates together that this one does not have.
        """
        table, ahead = self.timetable, max(self.lookahead, self.timetable.m)
        if table.later is None or table.later.min(initial=table.rounds) == table.rounds:
            return table.rounds
        if table.stepped is not None:  # a round may have a single update
            return max(0, table.rounds - (ahead - 1))
        return max(0, table.rounds - -(-(ahead - 1) // table.m))

    @property
    def folded(self) -> int:
        """How many numbers its updates have in all."""
        return len(self.timetable) * self.task.layout.dim

    def computing(self) -> AbstractContextManager[None]:
        """Set the process up to compute it, for as long as the context is open."""
        return computing(self.threads, self.folded)

    def fingerprint(self, elsewhere: Compute | None = None) -> str:
        """Equal for experiments whose runs are equal to the last byte (on the same machine).

        ``elsewhere`` gives that of the same experiment, made of settings, when computed so.
        """
        backend, data = type(self.backend).__name__, self.task.digest()
        if elsewhere is not None:
            assert isinstance(self.task, DataTask)  # settings make no other
            backend = CLASSES[elsewhere.backend]
            data = self.task.digest_on(elsewhere.device_type, elsewhere.precision)
        parts = hashlib.sha256(self.task.init().tobytes())
        same = (self.rule, self.work, self.seed, backend, self.lookahead)
        table = self.timetable.digest()
        parts.update(f"{data} {table} {_first_names(same)} {self.task.layout}".encode())
        return parts.hexdigest()


@cache
def _say_unused(workers: int, parts: int, samples: int) -> None:
    """One line, however many experiments are made of the same task and timetable."""
    LOGGER.warning(
        f"The timetable has {workers} workers and the task has data for {parts}: {parts - workers} "
        f"parts with {samples} training samples are never used."
    )


def _first_names(described: object) -> str:
    """As such parts were described when runs were first recorded, so that those can be resumed."""
    text = repr(described).replace("SharedVectors(", "Carry(")
    return re.sub(r"(\bAfaCs\([^()]*(\([^()]*\)[^()]*)*)\)", r"\1, rows='memory')", text)


def check_schedule(
    eval_every: int | None, target_accuracy: float | None, eval_samples: int | None = None
) -> None:
    """Refuse numbers with which a run could not be evaluated or stopped."""
    if eval_samples is not None and eval_samples < 1:
        raise ConfigError(f"eval_samples must be at least 1 test sample, got {eval_samples}.")
    if eval_every is not None and eval_every < 1:
        raise ConfigError(f"eval_every must be at least 1 round, got {eval_every}.")
    if target_accuracy is not None and not 0 < target_accuracy <= 1:
        raise ConfigError(
            f"target_accuracy is a share of the test samples above 0 and at most 1, got "
            f"{target_accuracy}."
        )
