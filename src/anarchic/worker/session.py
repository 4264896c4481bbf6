"""The worker's loop: pull, train, push, and again, for as long as it likes."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, final

import numpy as np

from anarchic.core.local import Held, LocalRule
from anarchic.core.types import Layout, Snapshot, Update, Vector
from anarchic.errors import ConfigError, Diverged, LinkError, NotFinite
from anarchic.worker.answers import Answer, Refused
from anarchic.worker.log import say
from anarchic.worker.policy import Moment, Policy, StepCount

if TYPE_CHECKING:
    from anarchic.worker.task import LiveTask
    from anarchic.worker.worker import Worker

_LONGEST_NAP_S = 60.0  # clocks are set and machines sleep: ask the policy again


@dataclass(frozen=True)
class Habits:
    """When a worker takes part, how hard it works, and how many refusals it takes."""

    policy: Policy
    steps: StepCount
    local_lr: float
    rule: LocalRule
    most_refusals: int

    def __post_init__(self) -> None:
        if not 0 < self.local_lr < float("inf"):
            raise ConfigError(f"A worker needs a rate local_lr > 0, got {self.local_lr}.")


@dataclass
class Summary:
    """What became of a worker's updates. ``resent`` are those that an earlier start had left."""

    accepted: int = 0
    duplicate: int = 0  # the server had it, its answer had been lost
    stale: int = 0  # dropped: its base version was too old
    refused: int = 0
    diverged: int = 0  # not sent: not finite
    spooled: int = 0  # left in the spool for the next start
    lost: int = 0  # left, and there was no spool
    local_steps: int = 0
    version: int = -1  # the newest that it heard of
    resent: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Visit:
    """What the local steps gave."""

    direction: Vector
    local_steps: int
    samples: int
    loss: float | None  # mean over the local steps
    extras: Mapping[str, Vector]
    kept: Mapping[str, Vector]
    took_s: float


def work(worker: Worker, task: LiveTask, habits: Habits, updates: int | None) -> Summary:
    """The life of a worker; see ``Worker.run``."""
    return _Session(worker, task, habits).live(updates)


@final
class _Session:
    def __init__(self, worker: Worker, task: LiveTask, habits: Habits) -> None:
        self.worker, self.task, self.habits = worker, task, habits
        self.forever = replace(worker.retry, tries=None)
        self.summary = Summary()
        self.failures = 0  # refusals in a row
        self.late = 0  # the same of updates that were too old
        self.visits = 0
        self.began_s = self.ended_s = worker.clock.now_s()

    def live(self, updates: int | None) -> Summary:
        summary, worker = self.summary, self.worker
        with _stopped_by_signals(worker):
            try:
                summary.resent = worker.send_spooled(retry=self.forever)
                while not worker.stopping and (updates is None or self._taken() < updates):
                    if self._wait():
                        self._visit()
            except LinkError:
                if not worker.stopping:
                    raise
        if worker.spool is not None:
            summary.spooled = len(worker.spool.waiting())
        return summary

    def _taken(self) -> int:
        return self.summary.accepted + self.summary.duplicate

    def _wait(self) -> bool:
        """Wait until the policy wants a visit; False if the worker is to stop instead."""
        clock, chance = self.worker.clock, self.worker.rng.random()
        while not self.worker.stopping:
            moment = Moment(clock.now_s(), self.began_s, self.ended_s, self.visits, chance)
            delay_s = self.habits.policy.delay_s(moment)
            if delay_s <= 0:
                return True
            clock.sleep(min(delay_s, _LONGEST_NAP_S))
        return False

    def _visit(self) -> None:
        self.began_s = self.worker.clock.now_s()
        snapshot = self.worker.pull(retry=self.forever)
        self.summary.version = snapshot.version
        _check_layout(self.worker.layout, self.task.layout)
        visit = self._train(snapshot)
        self.summary.local_steps += visit.local_steps
        self._hand_over(snapshot, visit)
        self.visits += 1
        self.ended_s = self.worker.clock.now_s()

    def _train(self, snapshot: Snapshot) -> Visit:
        worker, habits = self.worker, self.habits
        clock, chance = worker.clock, worker.rng.random()
        held = _held(habits.rule, snapshot, worker.kept())
        start = snapshot.params
        x, total = start.copy(), np.zeros_like(start)
        losses: list[float] = []
        done, samples, since = 0, 0, clock.elapsed_s()
        # A worker that is told to stop hands back the steps it has done: K is its own choice.
        while done == 0 or (
            not worker.stopping and habits.steps.more(done, clock.elapsed_s() - since, chance)
        ):
            gradient, loss, samples = self._gradient(x)
            direction = habits.rule.step(gradient, x, start, held)
            x = x - habits.local_lr * direction
            total = total + direction
            done += 1
            losses += [] if loss is None else [loss]
        mean = total / done  # G_i
        kept, extras = habits.rule.finish(mean, held)
        loss = float(np.mean(losses)) if losses else None
        return Visit(mean, done, samples, loss, extras, kept, clock.elapsed_s() - since)

    def _gradient(self, x: Vector) -> tuple[Vector, float | None, int]:
        x.flags.writeable = False
        found, loss, samples = self.task.gradient(x)
        gradient: Vector = np.asarray(found, x.dtype)
        if gradient.shape != x.shape:
            raise ConfigError(
                f"The task's gradient has shape {gradient.shape}, its parameters {x.shape}."
            )
        return gradient, None if loss is None else float(loss), int(samples)

    def _hand_over(self, snapshot: Snapshot, visit: Visit) -> None:
        worker, summary = self.worker, self.summary
        update = Update(
            worker.name or "",
            snapshot.version,
            visit.local_steps,
            self.habits.local_lr,
            visit.direction,
            visit.samples,
            visit.extras,
        )
        try:
            if not np.isfinite(visit.direction).all():
                raise NotFinite("The direction is not finite: lower the local rate.")
            finished = worker.finish(update, loss=visit.loss, kept=visit.kept)
        except NotFinite as error:
            summary.diverged += 1
            self._say(visit, snapshot, status="diverged", reason=str(error))
            self._failed(Diverged(str(error)))
            return
        try:
            outcome = worker.deliver(finished, retry=self.forever)
        except LinkError as error:
            waits = worker.spool is not None
            summary.lost += not waits
            status = "spooled" if waits else "lost"
            self._say(visit, snapshot, status=status, id=finished.id, reason=str(error))
            raise
        self._count(outcome, finished.id, snapshot, visit)

    def _count(self, outcome: Answer | Refused, id: str, snapshot: Snapshot, visit: Visit) -> None:
        summary = self.summary
        if isinstance(outcome, Answer):
            self.failures = self.late = 0
            summary.accepted += outcome.status == "accepted"
            summary.duplicate += outcome.status == "duplicate"
            summary.version = outcome.version
            told = {"version": outcome.version, "buffered": outcome.buffered}
            self._say(visit, snapshot, status=outcome.status, id=id, **told)
        elif outcome.out_of_date:
            summary.stale += 1
            self._say(visit, snapshot, status=outcome.code, id=id)
            self.late += 1
            if self.late > 1:  # a cache may hand out an old model: do not turn in circles
                self._pause(self.late)
        else:
            summary.refused += 1
            self._say(visit, snapshot, status=outcome.code, id=id, reason=outcome.message)
            self._failed(LinkError(outcome.message, outcome.code))

    def _failed(self, error: Exception) -> None:
        """Go on, a little later each time, unless nothing but failures came of it."""
        self.failures += 1
        if self.failures >= self.habits.most_refusals:
            raise error
        self._pause(self.failures)

    def _pause(self, failures: int) -> None:
        self.worker.clock.sleep(self.worker.retry.wait_s(failures, 0.0, self.worker.rng))

    def _say(self, visit: Visit, snapshot: Snapshot, **facts: object) -> None:
        good = facts["status"] in ("accepted", "duplicate")
        say(
            "push",
            logging.INFO if good else logging.WARNING,
            worker=self.worker.name,
            **facts,
            base_version=snapshot.version,
            local_steps=visit.local_steps,
            local_lr=self.habits.local_lr,
            loss=visit.loss,
            train_s=visit.took_s,
        )


def _held(rule: LocalRule, snapshot: Snapshot, kept: Mapping[str, Vector]) -> Held:
    """What the rule holds beside the model at the start of a visit."""
    missing = [name for name in rule.shares if name not in snapshot.extras]
    if missing:
        raise ConfigError(
            f"{type(rule).__name__} needs {', '.join(missing)} beside the model, which this "
            "server does not publish: start it for that rule, or use another local rule."
        )
    zero = np.zeros_like(snapshot.params)
    return {
        **{name: snapshot.extras[name] for name in rule.shares},
        **{name: kept.get(name, zero) for name in rule.keeps},
        **dict.fromkeys(rule.scratch, zero),
    }


def _check_layout(server: Layout, task: Layout) -> None:
    if (server.names, server.shapes) == (task.names, task.shapes):
        return
    differ = sorted(
        set(zip(server.names, server.shapes, strict=True))
        ^ set(zip(task.names, task.shapes, strict=True))
    )
    raise ConfigError(
        f"The server trains another model than the task: they differ in "
        f"{', '.join(f'{name} {list(shape)}' for name, shape in differ[:4]) or 'order'}."
    )


@contextmanager
def _stopped_by_signals(worker: Worker) -> Iterator[None]:
    """The first SIGTERM or SIGINT asks the worker to stop; a second one acts as it used to."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def stop(number: int, frame: object) -> None:
        restore()
        worker.stop()

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        restore()
