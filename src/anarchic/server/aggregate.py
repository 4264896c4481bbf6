"""Leading a run: the one server that leads folds what was accepted and publishes versions.

A version is made durable, together with the order of folding, before anybody sees it. While more
updates wait than a step needs, the next step is taken first: a version that would be replaced at
once need not be written.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from typing import Any

from anarchic.errors import Deposed, Diverged, StoreCorrupt, StoreError
from anarchic.server.clock import SYSTEM, Clock
from anarchic.server.commands import Command, is_withdrawn
from anarchic.server.few_threads import OwnThread, RunWork
from anarchic.server.fold import Folding
from anarchic.server.log import Log
from anarchic.server.monitoring import ServerMetrics
from anarchic.server.operate import apply_waiting
from anarchic.server.pending import Pending
from anarchic.server.published import PublishedModel, PublishedModels
from anarchic.server.records import SET_ASIDE, FoldedUpdate, Publication
from anarchic.server.set_aside import Blame, Suspects
from anarchic.server.steering import Steering
from anarchic.server.store import Store
from anarchic.wire import Decoded

MOST_UNPUBLISHED_S = 0.25  # steps may pass unpublished for this long while updates are waiting
STEER_S = 0.5  # how often it looks for commands of operators
SHARE_S = 0.005  # for which one of several runs folds before the others have their turn
# How often it looks for what other servers of the run accepted: while they do, and while not.
OTHERS_S, OTHERS_RARELY_S = 0.05, 0.5
FOLLOW_S = 0.5  # how long a follower waits before it asks again whether it may lead
RETRY_S = 0.5
DIVERGED_S = 30.0  # how long a step that was undone is told, if no version is published before
LONGEST_PAUSE_S = 30.0  # after errors that nobody expected, each pause is twice the one before

Told = Callable[[Publication, Sequence[FoldedUpdate]], object]  # hears what is durable


class Aggregator:
    """Leads the run, or follows the server that does, turn by turn."""

    def __init__(
        self,
        store: Store,
        pending: Pending,
        folding: Folding,
        published: PublishedModels,
        steering: Steering,
        *,
        metrics: ServerMetrics,
        log: Log,
        step_after_s: float | None = None,
        clock: Clock = SYSTEM,
        noted: Callable[[Sequence[FoldedUpdate]], object] = lambda folded: None,
        told: Told = lambda publication, folded: None,
        work: RunWork | OwnThread | None = None,
    ) -> None:
        self._noted, self._told = noted, told  # before it is durable, and after
        self._store, self._pending, self._folding = store, pending, folding
        self._published, self._steering = published, steering
        self._metrics, self._log = metrics, log
        self._step_after_s, self._clock = step_after_s, clock
        # When a version was published, or a step undone and no version was published since.
        self._published_s = self._diverged_s = -inf
        # When it last asked whether it may lead, and for commands; before when it takes no turn.
        self._asked_s = self._looked_s = self._again_s = -inf
        # When it last looked for updates of other servers, when it looks again, how many it found.
        self._searched_s, self._search_again_s, self._found = -inf, OTHERS_S, 0
        self._epoch: int | None = None
        self._unpublished: tuple[Publication, PublishedModel] | None = None  # not durable yet
        self._untold: dict[str, Any] | None = None  # what it sets aside, told once it is durable
        self._blame = Blame(pending, folding)
        self._stopping, self._ended = threading.Event(), False
        self._work = work or OwnThread("aggregate")
        store.hear(self._hear)
        self._pause_s = RETRY_S  # after the next error that nobody expected
        self.failure: BaseException | None = None  # why it does not aggregate now

    def start(self) -> None:
        self._work.start(self._piece)

    def stop(self, timeout_s: float = 30.0) -> None:
        """Fold what makes whole steps, publish it, and resign."""
        self._stopping.set()
        self._pending.stop()
        self._work.finish(timeout_s)

    def _hear(self) -> None:
        if self._epoch is None:  # whoever leads is told by ``pending``
            self._work.wake()

    def _piece(self) -> float | None:
        """Turns until nothing waits, or others have their turn; see ``RunWork``."""
        until = time.monotonic() + SHARE_S
        if (rest_s := self._again_s - time.monotonic()) > 0 and not self._stopping.is_set():
            return rest_s
        while not (self._stopping.is_set() or self._ended):
            busy = self._is_busy()
            try:
                pause_s = self.turn(0.0)
            except BaseException as error:  # whatever a rule of somebody else's may raise
                self._ended = True  # if even this fails
                pause_s, self._ended = self._fail(error), False
            if pause_s:
                self._again_s = time.monotonic() + pause_s
                return pause_s
            if not busy and not self._is_busy():
                return FOLLOW_S if self._epoch is None else self._wait_s()
            if time.monotonic() > until:
                return 0.0
        self.finish()
        self._ended = True
        return None

    def _is_busy(self) -> bool:
        """Whether the next turn has something to do for sure."""
        waits = self._pending.waits and not self._steering.paused
        looks = self._looked_s == -inf  # what it has applied holds once it was read
        return self._epoch is not None and (waits or looks or self._unpublished is not None)

    @property
    def epoch(self) -> int | None:
        """In which it leads."""
        return self._epoch

    @property
    def leads(self) -> bool:
        return self._epoch is not None

    @property
    def alive(self) -> bool:
        """Whether it still takes turns."""
        return not self._ended

    @property
    def diverged(self) -> bool:
        """Whether the last step was not finite.

        Not for ever: if workers are sent elsewhere because of it, no update brings the next step.
        """
        return self._clock.monotonic() - self._diverged_s < DIVERGED_S

    def turn(self, wait_s: float = inf) -> float:
        """Do the next piece of work, having waited for it for ``wait_s`` at most.

        Returns how long to pause before the next turn, which is 0 unless something failed.
        """
        try:
            if self._epoch is None:
                self._follow(wait_s)
            else:
                self._lead(self._epoch, wait_s)
        except Deposed as error:
            self._step_down("deposed", str(error))
        except StoreCorrupt as error:
            self.failure, self._ended = error, True
            self._step_down("store_corrupt", str(error))
        except StoreError as error:
            self.failure = error
            if self._unpublished is None:
                self._step_down("store_error", str(error))
            else:  # it is tried again
                self._log("cannot_publish", reason=str(error))
            return RETRY_S
        except Exception as error:
            return self._fail(error)
        return 0.0

    def _fail(self, error: BaseException) -> float:
        """Nobody expected this: updates stay durable, another server may lead; then try again."""
        self.failure, self._epoch = error, None
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, LONGEST_PAUSE_S)
        trace = "".join(traceback.format_exception(error))
        self._step_down("aggregator_failed", repr(error), trace=trace, again_in_s=pause_s)
        return pause_s

    def _follow(self, wait_s: float) -> None:
        """Show what the leader publishes, and take its place when it is gone."""
        self.catch_up()
        epoch, now = None, self._clock.monotonic()
        if now - self._asked_s >= FOLLOW_S:  # not after every push: it takes a session
            self._asked_s = now
            epoch = self._store.lead()
            if epoch is None or isinstance(self.failure, StoreError):
                self._succeeded()  # the store answers again, or another leads
        if epoch is None:
            self._store.wait(min(FOLLOW_S, wait_s))
            return
        self._recover()
        self._epoch = epoch
        self._log("leads", epoch=epoch, version=self._folding.version)

    def catch_up(self) -> None:
        """Show the newest version of the store, whoever published it."""
        run = self._store.run()
        self._read_commands()
        self._pending.recount()  # first: whoever sees the version may push again
        if run is not None:
            self._published.follow(run.version, again=isinstance(self.failure, StoreError))

    def _recover(self) -> None:
        """Go back to the newest published version; what was folded since then is folded again."""
        found = self._store.standing()
        epoch, first = found.epochs[-1][1], found.run.folded
        self._steering.read()
        self._folding.follow(self._steering.rule, self._steering.terms)
        self._folding.load(found.model, found.state, found.rows, epoch=epoch, first=first)
        self._pending.begin(self._folding.extras)
        self._published.go_on_from(found.run.version, found.model, found.epochs)

    def _lead(self, epoch: int, wait_s: float) -> None:
        if self._unpublished is not None:
            self._publish(*self._unpublished)
            return
        if self._read_commands():
            self._steer(epoch)
            return
        if self._steering.must_end(self._folding.version):  # it was there before this server
            self._step(epoch)
            return
        if self._steering.paused:
            self._stopping.wait(min(STEER_S, wait_s))
        else:
            queued = self._pending.next(min(self._wait_s(), wait_s))
            if queued is not None:
                self._fold(epoch, *queued)
                return
        self._succeeded()  # everything that waited is folded
        if self._store.shared:
            self._look_at_others()
        if self._steering.paused:
            return
        if aside := self._folding.passed_over:
            self._go_back(aside)
            self._step(epoch)
        elif self._is_due():
            self._folding.flush()
            self._step(epoch)

    def _look_at_others(self) -> None:
        """Other servers accept updates too; less often while they do not, for it takes queries."""
        now = self._clock.monotonic()
        if now - self._searched_s < self._search_again_s:
            return
        before, self._found, self._searched_s = self._found, self._pending.found, now
        less_s = min(2 * self._search_again_s, OTHERS_RARELY_S)
        self._search_again_s = OTHERS_S if self._found > before else less_s
        if not self._store.still_leads():
            raise Deposed("The connection that held the lead is gone.")
        self._pending.search()

    def _read_commands(self) -> bool:
        """Whether commands wait; looked at now and then, for it takes a query."""
        now = self._clock.monotonic()
        if now - self._looked_s < STEER_S:
            return False
        self._looked_s = now
        settled, waits = self._steering.settled, self._steering.read()
        if self._steering.settled != settled:
            self._published.touch()
        return waits

    def _steer(self, epoch: int) -> None:
        """Apply what operators asked for. Updates that no version holds are folded again."""
        told: list[Command] = []
        self._looked_s = -inf
        try:
            now_s, tell = self._clock.time, told.append
            self._epoch = apply_waiting(self._store, epoch, now_s=now_s, tell=tell)
        finally:
            for command in told:
                self._log("command", **command.told())
        if any(command.kind in ("set", "rollback") for command in told):
            self._pending.pause()  # until what waits is read again, from the oldest on
            self._recover()

    def _fold(self, epoch: int, seq: int, decoded: Decoded) -> None:
        self._metrics.folds(self._folding.version - decoded.update.base_version)
        version, withdrawn = self._folding.version, self._steering.withdrawn
        if self._steering.is_last(version) or is_withdrawn(withdrawn, decoded.update.base_version):
            # On its way while the run ended or was rolled back, perhaps through another server.
            self._folding.pass_over(seq, decoded.update.worker)
        elif self._folds(epoch, seq, decoded) and not self._may_publish_later():
            self._step(epoch)

    def _folds(self, epoch: int, seq: int, decoded: Decoded) -> bool:
        """Whether the update made a step. One on which the rule fails again and again goes."""
        try:
            return self._folding.fold(seq, decoded)
        except (StoreError, MemoryError, OSError):  # not the update's fault
            raise
        except Exception as error:
            if not self._blame.failed(seq):
                raise
            self._set_aside(self._blame.after_failure(seq, decoded.update, error))
            self._step(epoch)
            return False

    def _wait_s(self) -> float:
        own_s = STEER_S if self._step_after_s is None else min(0.05, self._step_after_s)
        return min(own_s, self._search_again_s) if self._store.shared else own_s

    def _is_due(self) -> bool:
        """Whether to step with fewer updates than m. After the end nobody else will come."""
        if self._steering.ended:
            return self._folding.remaining < self._steering.rule.m
        after_s = self._step_after_s
        return after_s is not None and self._folding.waited_s() >= after_s

    def _may_publish_later(self) -> bool:
        """Whether the next step is waiting already, and the last publication was just now."""
        enough = self._pending.queued >= self._folding.remaining
        just_now = self._clock.monotonic() - self._published_s < MOST_UNPUBLISHED_S
        return enough and just_now and not self._steering.is_last(self._folding.version)

    def _step(self, epoch: int) -> None:
        version = self._published.newest.version
        try:
            made, model = self._folding.publication(epoch, version)
        except Diverged as error:
            self._diverged_s = self._clock.monotonic()
            self._set_aside(self._blame.longest(str(error)))
            made, model = self._folding.publication(epoch, version)
        self._unpublished = self._steering.ending(made, self._clock.time()), model
        self._publish(*self._unpublished)

    def _set_aside(self, found: Suspects) -> None:
        """Go back to the last version without these; the others since then are folded again."""
        self._go_back([*self._folding.passed_over, *found.keys])
        self._untold = found.told(self._folding.version)

    def _go_back(self, aside: list[tuple[int, str]]) -> None:
        """To the last version; the next publication says that no version holds these updates."""
        self._pending.pause()  # until what waits is read again, from the oldest on
        self._recover()
        self._folding.set_aside(aside)

    def _publish(self, publication: Publication, model: PublishedModel) -> None:
        """Durable first, visible then. While the store fails, every turn tries it again."""
        self._noted(self._folding.told)
        begun_s = self._clock.monotonic()
        self._store.publish(publication)
        self._metrics.published(self._clock.monotonic() - begun_s)
        self._unpublished = None
        if publication.also is not None:  # whoever sees the last version is told of the end
            self._looked_s = -inf
            self._read_commands()
            self._log("max_versions_reached", version=publication.version)
        if self._untold is not None:
            self._log("set_aside", **self._untold)
            self._untold = None
        self._succeeded()
        clipped, told, folded = self._folding.clipped, self._folding.told, self._folding.published()
        self._pending.published(folded)  # first: whoever sees the version may push again
        aside = sum(version == SET_ASIDE for _, version in publication.folded)
        self._metrics.set_aside(aside)
        if publication.version == publication.previous:
            self._told(publication, told)
            return
        self._published_s, self._diverged_s = self._clock.monotonic(), -inf
        self._blame.published()
        self._metrics.folded(len(folded) - aside, clipped)
        self._published.post(model)
        self._told(publication, told)

    def _succeeded(self) -> None:
        self.failure, self._pause_s = None, RETRY_S

    def _step_down(self, event: str, reason: str, **facts: object) -> None:
        self._epoch = self._unpublished = self._untold = None  # first: it must not go on leading
        self._pending.pause()
        with suppress(Exception):
            self._store.resign()
        self._log(event, reason=reason, **facts)

    def finish(self) -> None:
        """On shutdown: what makes whole steps is folded; the rest stays, durable, for next time."""
        epoch, self._epoch = self._epoch, None
        if epoch is None:
            return
        try:
            if self._unpublished is not None:
                self._publish(*self._unpublished)
            while not self._steering.paused and (queued := self._pending.next(0.0)) is not None:
                self._fold(epoch, *queued)
        except Exception as error:  # of any kind: it is folded after the next start
            self._log(
                "store_error" if isinstance(error, StoreError) else "aggregator_failed",
                reason=str(error) or repr(error),
            )
        finally:
            self._store.resign()
