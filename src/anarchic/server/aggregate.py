"""Leading a run: the one server that leads folds what was accepted and publishes versions.

A version is made durable, together with the order of folding, before anybody sees it. While more
updates wait than a step needs, the next step is taken first: a version that would be replaced at
once need not be written.
"""

from __future__ import annotations

import threading
import time
import traceback
from contextlib import suppress

from anarchic.errors import Deposed, StoreCorrupt, StoreError
from anarchic.server.fold import Folding
from anarchic.server.monitoring import Log, ServerMetrics
from anarchic.server.pending import Pending
from anarchic.server.published import PublishedModels
from anarchic.server.records import Publication
from anarchic.server.store import Store

MOST_UNPUBLISHED_S = 0.25  # steps may pass unpublished for this long while updates are waiting
FOLLOW_S = 0.5  # how long a follower waits before it asks again whether it may lead
RETRY_S = 0.5


class Aggregator:
    """A thread that leads the run, or follows the server that does."""

    def __init__(
        self,
        store: Store,
        pending: Pending,
        folding: Folding,
        published: PublishedModels,
        *,
        metrics: ServerMetrics,
        log: Log,
        step_after_s: float | None = None,
    ) -> None:
        self._store, self._pending, self._folding = store, pending, folding
        self._published, self._metrics, self._log = published, metrics, log
        self._step_after_s = step_after_s
        self._published_s = 0.0
        self._asked_s = float("-inf")  # when it last asked whether it may lead
        self._epoch: int | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="aggregate", daemon=True)
        self.failure: Exception | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 30.0) -> None:
        """Fold what makes whole steps, publish it, and resign."""
        self._stopping = True
        self._pending.stop()
        self._thread.join(timeout_s)

    @property
    def leads(self) -> bool:
        return self._epoch is not None

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping:
            try:
                if self._epoch is None:
                    self._follow()
                else:
                    self._lead(self._epoch)
            except Deposed as error:
                self._step_down("deposed", str(error))
            except StoreCorrupt as error:
                self.failure = error
                self._step_down("store_corrupt", str(error))
                return
            except StoreError as error:
                self.failure = error
                self._step_down("store_error", str(error))
                time.sleep(RETRY_S)
            except Exception as error:  # a bug: updates stay durable, another server may succeed
                self.failure = error
                self._step_down("aggregator_failed", repr(error), trace=traceback.format_exc())
                return
        if self._epoch is not None:
            self._finish(self._epoch)

    def _follow(self) -> None:
        """Show what the leader publishes, and take its place when it is gone."""
        self.catch_up()
        epoch = None
        if time.monotonic() - self._asked_s >= FOLLOW_S:  # not after every push: it takes a session
            self._asked_s = time.monotonic()
            epoch = self._store.lead()
        if epoch is None:
            self._store.wait(FOLLOW_S)
            return
        self._recover()
        self._epoch = epoch
        self.failure = None
        self._log("leads", epoch=epoch, version=self._folding.version)

    def catch_up(self) -> None:
        """Show the newest version of the store, whoever published it."""
        run = self._store.run()
        self._pending.recount()  # first: whoever sees the version may push again
        if run is None:
            return
        if not self._published.has_one or run.version > self._published.newest.version:
            model = self._published.read(run.version)
            if model is not None:
                self._published.post(model)

    def _recover(self) -> None:
        """Go back to the newest published version; what was folded since then is folded again."""
        run = self._store.run()
        model = None if run is None else self._published.read(run.version)
        if model is None:
            raise StoreCorrupt("The store has no model of its newest version: restore it.")
        self._folding.load(model.body, *self._store.state())
        self._pending.begin(self._folding.extras)
        self._published.post(model)

    def _lead(self, epoch: int) -> None:
        queued = self._pending.next(self._wait_s())
        if queued is not None:
            if self._folding.fold(*queued) and not self._may_publish_later():
                self._publish(epoch)
            return
        if self._store.shared:
            if not self._store.still_leads():
                raise Deposed("The connection that held the lead is gone.")
            self._pending.search()  # other servers accept updates too
        if self._step_after_s is not None and self._folding.waited_s() >= self._step_after_s:
            self._folding.flush()
            self._publish(epoch)

    def _wait_s(self) -> float:
        if self._store.shared:
            return 0.05
        return 1.0 if self._step_after_s is None else min(0.05, self._step_after_s)

    def _may_publish_later(self) -> bool:
        """Whether the next step is waiting already, and the last publication was just now."""
        enough = self._pending.queued >= self._folding.remaining
        return enough and time.monotonic() - self._published_s < MOST_UNPUBLISHED_S

    def _publish(self, epoch: int) -> None:
        """Durable first, visible then."""
        previous = self._published.newest.version
        publication, model = self._folding.publication(epoch, previous)
        self._store_publication(publication)
        clipped, folded = self._folding.clipped, self._folding.published()
        self._published_s = time.monotonic()
        self._pending.published(folded)  # first: whoever sees the version may push again
        self._metrics.folded(len(folded), clipped)
        self._published.post(model)

    def _store_publication(self, publication: Publication) -> None:
        """Try again while the store fails, until the server is told to stop."""
        while True:
            try:
                self._store.publish(publication)
            except (Deposed, StoreCorrupt):
                raise
            except StoreError as error:
                self.failure = error
                self._log("cannot_publish", reason=str(error))
                if self._stopping:
                    raise
                time.sleep(RETRY_S)
            else:
                self.failure = None
                return

    def _step_down(self, event: str, reason: str, **facts: str) -> None:
        self._log(event, reason=reason, **facts)
        self._epoch = None
        self._pending.pause()
        with suppress(StoreError):
            self._store.resign()

    def _finish(self, epoch: int) -> None:
        """On shutdown: what makes whole steps is folded; the rest stays, durable, for next time."""
        try:
            while (queued := self._pending.next(0.0)) is not None:
                if self._folding.fold(*queued) and not self._may_publish_later():
                    self._publish(epoch)
        except StoreError as error:
            self._log("store_error", reason=str(error))
        self._store.resign()
