"""The loop of a worker's visits: wait, pull, train, push, and again."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, final

import numpy as np

from anarchic.core.local import (
    Buffers,
    Held,
    LocalResult,
    LocalRule,
    Sgd,
    VisitStart,
    begun,
    take_local_steps,
)
from anarchic.core.options import says_options
from anarchic.core.reading import printable
from anarchic.core.types import Layout, Snapshot, Update, Vector
from anarchic.core.validation import check_kinds
from anarchic.errors import ConfigError, Diverged, NotFinite, WorkerError
from anarchic.participation.idle import Moment
from anarchic.participation.work import ConstantSteps
from anarchic.worker.connection import RUN_ENDED, Answer, Refused
from anarchic.worker.log import log_event
from anarchic.worker.policy import Always, Policy, StepCount

if TYPE_CHECKING:
    from anarchic.worker.spool import OutgoingUpdate
    from anarchic.worker.task import GradientResult, LiveTask
    from anarchic.worker.worker import Worker

_MAX_SLEEP_S = 60.0  # clocks are set and machines sleep: ask the policy again


@says_options
@final
@dataclass(frozen=True)
class WorkPlan:
    """When a worker visits the server, what it computes there, and when it ends.

    It ends once ``updates`` were accepted, or when the operator has ended the run. Updates that the
    server finds too old, or that build on a version that was withdrawn, are dropped;
    ``max_refusals`` others in a row are an error, since something must be wrong.
    """

    policy: Policy = field(default_factory=Always)
    steps: StepCount = field(default_factory=lambda: ConstantSteps(10))
    local_lr: float = 0.1
    local_rule: LocalRule = field(default_factory=Sgd)
    updates: int | None = None  # None: no end
    max_refusals: int = 5

    def __post_init__(self) -> None:
        check_kinds(self)
        if not 0 < self.local_lr < float("inf"):
            raise ConfigError(f"A worker needs a rate local_lr > 0, got {self.local_lr}.")
        if self.updates is not None and self.updates < 1:
            raise ConfigError(f"A worker ends after at least 1 update, got {self.updates}.")


@dataclass
class Summary:
    """What became of a worker's updates; ``resent`` are those that an earlier one left behind."""

    accepted: int = 0
    duplicate: int = 0  # the server had it, its answer had been lost
    stale: int = 0  # dropped: its base version was too old
    refused: int = 0
    diverged: int = 0  # not sent: not finite
    spooled: int = 0  # left in the spool for the next start
    lost: int = 0  # left, and there was no spool
    local_steps: int = 0
    version: int = -1  # the newest known
    run_ended: bool = False  # the operator has ended the run
    resent: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainedVisit:
    """What the local steps from a snapshot gave."""

    snapshot: Snapshot
    result: LocalResult
    samples: int
    loss: float | None  # mean over the local steps
    train_s: float


@final
class VisitLoop:
    """The visits of one worker, one after another, and what became of their updates."""

    def __init__(self, worker: Worker, task: LiveTask, plan: WorkPlan) -> None:
        self.worker, self.task, self.plan = worker, task, plan
        self.forever = replace(worker.connection.retry, tries=None)
        self.summary = Summary()
        self.failures = 0  # refusals in a row
        self.late = 0  # updates in a row that were too old
        self.visits = 0
        self.began_s = self.ended_s = worker.clock.now_s()

    def run(self) -> Summary:
        summary, worker, updates = self.summary, self.worker, self.plan.updates
        with _stopped_by_signals(worker):
            try:
                summary.resent = worker.send_spooled(retry=self.forever)
                summary.run_ended = RUN_ENDED in summary.resent
                while not (worker.stopping or summary.run_ended) and (
                    updates is None or self._taken() < updates
                ):
                    if self._wait():
                        self._visit()
            except WorkerError:
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
            delay_s = self.plan.policy.delay_s(moment)
            if delay_s <= 0:
                return True
            clock.sleep(min(delay_s, _MAX_SLEEP_S))
        return False

    def _visit(self) -> None:
        self.began_s = self.worker.clock.now_s()
        snapshot = self.worker.pull(retry=self.forever)
        self.summary.version = snapshot.version
        if self.worker.run_ended:  # nobody would take what is trained
            self.summary.run_ended = True
            log_event(RUN_ENDED, worker=self.worker.name, version=snapshot.version)
            return
        self.prepare(snapshot)
        visit = self._train(snapshot)
        self.summary.local_steps += visit.result.local_steps
        self._push(visit)
        self.visits += 1
        self.ended_s = self.worker.clock.now_s()

    def prepare(self, snapshot: Snapshot) -> None:
        """Show the task what it starts from; refuse a model that is not the task's."""
        begin = getattr(self.task, "begin", None)
        if begin is not None:
            begin(self.worker.layout, snapshot)
        _check_buffers(self.worker.layout, self.task.layout, snapshot.terms.buffers)
        _check_layout(self.worker.layout, self.task.layout)

    def dry_visit(self, snapshot: Snapshot) -> tuple[TrainedVisit, OutgoingUpdate]:
        """The local steps of a visit, and the update that is not sent."""
        visit = self._train(snapshot)
        if not np.isfinite(visit.result.direction).all():
            raise NotFinite("The direction is not finite: lower the local rate.")
        return visit, self.worker.encode(self._update(visit), loss=visit.loss)

    def _train(self, snapshot: Snapshot) -> TrainedVisit:
        worker, plan = self.worker, self.plan
        visit = VisitStart(plan.local_lr, snapshot.version, self.task.layout)
        rule = begun(plan.local_rule, visit)
        clock, chance = worker.clock, worker.rng.random()
        losses: list[float] = []
        samples, since = 0, clock.elapsed_s()

        def gradient(x: Vector, k: int) -> Vector:
            nonlocal samples
            found, loss, samples = self._gradient(x)
            losses.extend([] if loss is None else [loss])
            return found

        def more(done: int) -> bool:
            # A worker that is told to stop pushes the steps it has done: K is its own choice.
            elapsed_s = clock.elapsed_s() - since
            return not worker.stopping and plan.steps.more(done, elapsed_s, chance)

        kept, places = worker.local_state(), self.task.layout.buffer_places
        getattr(self.task, "restore", lambda kept: None)(kept)
        result = take_local_steps(
            rule,
            snapshot.params,
            _held(rule, snapshot, kept),
            lr=plan.local_lr,
            gradient=gradient,
            more=more,
            buffers=Buffers(places) if len(places) else None,
        )
        result.kept.update(getattr(self.task, "kept", dict)())
        loss = float(np.mean(losses)) if losses else None
        return TrainedVisit(snapshot, result, samples, loss, clock.elapsed_s() - since)

    def _gradient(self, x: Vector) -> GradientResult:
        x.flags.writeable = False
        found, loss, samples = self.task.gradient(x)
        gradient: Vector = np.asarray(found, x.dtype)
        if self.task.layout.buffers:  # they are taken out of it
            gradient = np.array(gradient)
        if gradient.shape != x.shape:
            raise ConfigError(
                f"The task's gradient has shape {gradient.shape}, its parameters {x.shape}."
            )
        return gradient, None if loss is None else float(loss), int(samples)

    def _update(self, visit: TrainedVisit) -> Update:
        result = visit.result
        return Update(
            self.worker.name or "",
            visit.snapshot.version,
            result.local_steps,
            self.plan.local_lr,
            result.direction,
            visit.samples,
            result.sent,
        )

    def _push(self, visit: TrainedVisit) -> None:
        worker, summary, result = self.worker, self.summary, visit.result
        update = self._update(visit)
        try:
            if not np.isfinite(result.direction).all():
                raise NotFinite("The direction is not finite: lower the local rate.")
            outgoing = worker.encode(update, loss=visit.loss, local_state=result.kept)
        except NotFinite as error:
            summary.diverged += 1
            self._log(visit, status="diverged", reason=str(error))
            self._failed(Diverged(str(error)))
            return
        try:
            answer = worker.send(outgoing, retry=self.forever)
        except WorkerError as error:
            waits = worker.spool is not None
            summary.lost += not waits
            status = "spooled" if waits else "lost"
            self._log(visit, status=status, id=outgoing.id, reason=str(error))
            raise
        self._count(answer, outgoing.id, visit)

    def _count(self, answer: Answer | Refused, id: str, visit: TrainedVisit) -> None:
        summary = self.summary
        if isinstance(answer, Answer):
            self.failures = self.late = 0
            summary.accepted += answer.status == "accepted"
            summary.duplicate += answer.status == "duplicate"
            summary.version = answer.version
            told = {"version": answer.version, "buffered": answer.buffered}
            self._log(visit, status=answer.status, id=id, **told)
        elif answer.out_of_date:
            summary.stale += 1
            self._log(visit, status=answer.code, id=id)
            self.late += 1
            if self.late > 1:  # a cache may keep sending an old model: do not repeat at full speed
                self._pause(self.late)
        elif answer.code == RUN_ENDED:
            summary.run_ended = True
            self._log(visit, status=answer.code, id=id)
        else:
            summary.refused += 1
            self._log(visit, status=answer.code, id=id, reason=answer.message)
            self._failed(WorkerError(answer.message, answer.code))

    def _failed(self, error: Exception) -> None:
        """Go on, a little later each time, or raise after too many failures in a row."""
        self.failures += 1
        if self.failures >= self.plan.max_refusals:
            raise error
        self._pause(self.failures)

    def _pause(self, failures: int) -> None:
        self.worker.clock.sleep(self.worker.connection.retry.wait_s(failures, 0.0, self.worker.rng))

    def _log(self, visit: TrainedVisit, **facts: object) -> None:
        good = facts["status"] in ("accepted", "duplicate")
        log_event(
            "push",
            logging.INFO if good else logging.WARNING,
            worker=self.worker.name,
            **facts,
            base_version=visit.snapshot.version,
            local_steps=visit.result.local_steps,
            local_lr=self.plan.local_lr,
            loss=visit.loss,
            train_s=visit.train_s,
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
        **{name: _fitting(kept.get(name), zero) for name in rule.keeps},
        **dict.fromkeys(rule.scratch, zero),
    }


def _fitting(kept: Vector | None, zero: Vector) -> Vector:
    """A vector from the spool, which may hold one of another model."""
    return zero if kept is None or (kept.shape, kept.dtype) != (zero.shape, zero.dtype) else kept


def _check_buffers(server: Layout, task: Layout, policy: str | None) -> None:
    """Refuse a task that takes for parameters what the server averages, or the other way round."""
    differ = sorted({*server.buffers} ^ {*task.buffers})
    if differ:
        kept = ", since each worker keeps its own" if policy == "local" else ""
        names = printable(", ".join(differ[:3]), most=200)
        raise ConfigError(
            f"The server averages {len(server.buffers)} buffers{kept}, the task has "
            f"{len(task.buffers)}. They differ in {names}: make the task with the policy of the "
            "run, or begin a run with a model of `anarchic init --buffers average` or of --task."
        )


def _check_layout(server: Layout, task: Layout) -> None:
    if (server.names, server.shapes) != (task.names, task.shapes):
        one, other = (set(zip(x.names, x.shapes, strict=True)) for x in (server, task))
        differ = ", ".join(
            f"{printable(name, most=60)} {list(shape)}" for name, shape in sorted(one ^ other)[:4]
        )
        raise ConfigError(
            f"The server trains another model than the task: they differ in {differ or 'order'}."
        )


@contextmanager
def _stopped_by_signals(worker: Worker) -> Iterator[None]:
    """The first SIGTERM or SIGINT stops the worker; a second one acts as without it."""
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
