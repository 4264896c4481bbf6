"""One server of a run: its parts put together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from anarchic.callbacks.callback import RunInfo
from anarchic.core.rule import Rule
from anarchic.errors import ConfigError, StoreError
from anarchic.page.stream import Stream
from anarchic.server.access import Access
from anarchic.server.activity import Activity
from anarchic.server.aggregate import Aggregator
from anarchic.server.bodies import Bodies
from anarchic.server.clock import SYSTEM, Clock
from anarchic.server.collect import Collector, UpdateCheck
from anarchic.server.commands import commands, is_withdrawn
from anarchic.server.evaluate import shown
from anarchic.server.few_threads import FewThreads, work_of
from anarchic.server.fold import Folding
from anarchic.server.keeping import near
from anarchic.server.limits import Shares
from anarchic.server.log import JsonLog, Log, never_raising
from anarchic.server.monitoring import ServerMetrics
from anarchic.server.operate import give
from anarchic.server.optional_parts import OptionalParts
from anarchic.server.overview import listed
from anarchic.server.paths import join_path
from anarchic.server.pending import Pending
from anarchic.server.picture import StorePictures
from anarchic.server.published import PublishedModel, PublishedModels
from anarchic.server.records import SET_ASIDE, FoldedUpdate, Publication
from anarchic.server.refusals import Refusal, RefusalLog
from anarchic.server.runs import stored_layout
from anarchic.server.sending import Copies, Sending, readers
from anarchic.server.settings import Limits, RuleSettings, ServerSettings, check_memory
from anarchic.server.slots import Pool
from anarchic.server.steering import Steering
from anarchic.server.store import Store
from anarchic.server.tokens import revoke
from anarchic.server.version_log import VersionLog
from anarchic.server.visits import RecentRequests, SeenRequest
from anarchic.server.watch import Disk

START_S = 30.0  # how long the first version may take to be served
HANG_S = 5.0  # a transaction that takes longer hangs, beyond the time to write a few models
SLOW_DISK = 20e6  # bytes per second
EVALUATIONS = 1_000  # of which callbacks hear when the server starts again
TICK_S = 2.0  # how often what workers did is written to the store
MORE_S = 0.05  # if there is more to count


class Shared:
    """What the runs of one server share, fairly: memory for bodies and readers, streams, the disk.

    The threads that write and fold are None in a server of one run, which has its own.
    """

    def __init__(
        self, limits: Limits, writing: FewThreads | None = None, folding: FewThreads | None = None
    ) -> None:
        self.writing, self.folding = writing, folding
        self.bodies, self.readers = Bodies(limits), readers()
        self.copies = Copies(self.readers)
        self.streams = Pool(limits.streams, "Too many are listening to events.")


class Service:
    """Makes the parts of a server, starts and stops them, and reports on them."""

    def __init__(
        self, store: Store, settings: ServerSettings | None = None, log: Log | None = None,
        parts: OptionalParts | None = None, *, clock: Clock = SYSTEM, name: str = "",
        shared: Shared | None = None, max_versions: int | None = None,
    ) -> None:  # fmt: skip
        run = store.run()
        if run is None:
            raise ConfigError("The store holds no run yet: begin one with a first model.")
        self.settings = settings or ServerSettings()
        self.log: Log = never_raising(log or JsonLog())
        self.run: str = run.settings["run"]
        self.store, self._clock, self._parts = store, clock, parts or OptionalParts()
        self.layout, self.name = stored_layout(run), name  # "" in a server of one run
        self.steering = Steering(store, run, self._follow_rule, max_versions)
        check_memory(self.steering.rules, self.settings)
        limits, rule = self.settings.limits, self.steering.rule
        self._patience_s = HANG_S + 4 * 4 * self.layout.dim / SLOW_DISK
        shared = shared or Shared(limits)
        self.bodies, self.streams, self.copies = shared.bodies, shared.streams, shared.copies
        pulls = limits.open_pulls if self.settings.open_pull else limits.pulls
        self.sending = Sending(
            pulls, limits.versions, 4 * self.layout.dim, pieces=shared.readers, run=name
        )
        self.most_body_bytes = 0
        self.access = Access(store, self.settings, self.log, clock)
        self.refusals = RefusalLog(self.log, self.access.named, clock.monotonic)
        self.published = PublishedModels(self.run, store, self._offer, self._show_soon)
        self.metrics = ServerMetrics(self.published, clock)
        self._shares = Shares(*limits.shares(rule.m), clock.monotonic)
        folds = work_of(shared.folding, "aggregate")
        self.pending = Pending(store, self.layout, self._shares, folds.wake)
        self.check = UpdateCheck(self.layout, rule, self.published, limits, clock)
        self.collector = Collector(
            store, self.check, self.access, self.pending, self.published, self.steering,
            self.metrics, clock, shared.writing,
        )  # fmt: skip
        folding = Folding(
            rule, self.layout, self.run, self.access, self.log, clock, terms=self.steering.terms
        )
        self.activity = Activity(store, clock, self._parts.notes)
        each = self.settings.log_level == "debug"
        self.versions = VersionLog(self.log, rule.m, clock, each=each)
        self.metrics.show(self.activity)
        self.aggregator = Aggregator(
            store, self.pending, folding, self.published, self.steering,
            metrics=self.metrics, log=self.log, step_after_s=self.settings.step_after_s,
            clock=clock, noted=self.activity.note, told=self._published,
            work=folds,
        )  # fmt: skip
        self._tasks: list[asyncio.Task[None]] = []
        self._disk, self.visits = Disk(store.path), RecentRequests()
        self.pictures = self._pictures()
        self._show()

    def _pictures(self) -> Stream:
        """What the live page shows; it costs nothing while nobody looks."""
        newest = self.published
        join = join_path(self.name) if self.settings.join else None
        pictures = StorePictures(
            self.store, theory=self._parts.theory, visits=self.visits, name=self.name,
            told=lambda: (newest.newest.version, newest.newest.loss),
            here=lambda: {"kind": "server", "leads": self.aggregator.leads, "join": join},
        )  # fmt: skip
        return Stream(pictures.make, failed=self._picture_failed)

    def _picture_failed(self, error: BaseException) -> None:
        self.log("picture_failed", reason=str(error) or repr(error))

    def _show_soon(self) -> None:
        """A command of an operator took effect: who looks at the page waits for it."""
        self.pictures.soon()

    def _show(self) -> None:
        """Let Prometheus ask the parts for what they know."""
        gauge = self.metrics.gauge
        m = "Updates per server step (m)"
        gauge("anarchic_updates_per_step", m, lambda: self.steering.rule.m)
        paused, ended = "1 while operators have paused the run", "1 once they have ended it"
        gauge("anarchic_paused", paused, lambda: self.steering.paused)
        gauge("anarchic_ended", ended, lambda: self.steering.ended)
        gauge("anarchic_buffered", "Accepted updates in no version yet", lambda: self.pending.count)
        gauge("anarchic_leads", "1 if this server leads the run", lambda: self.aggregator.leads)
        well = "1 if /healthz says ok"
        gauge("anarchic_healthy", well, lambda: self.problem() is None)
        answers = "1 if the store answers without errors"
        gauge("anarchic_store_answers", answers, lambda: self._store_problem() is None)
        free, size = "Bytes free on the disk of the store", "Bytes of the store's file"
        gauge("anarchic_store_free_bytes", free, lambda: self._disk.free)
        gauge("anarchic_store_bytes", size, lambda: self._disk.used)
        if (evaluator := self._parts.evaluator) is not None:
            self.metrics.evaluations(lambda: evaluator.latest)

    def _offer(self, model: PublishedModel) -> None:
        for part in (self._parts.evaluator, self._parts.callbacks):
            if part is not None:
                part.offer(model)

    @property
    def rules(self) -> RuleSettings:
        """The settings that hold now."""
        return self.steering.rules

    def _follow_rule(self, rule: Rule[Any]) -> None:
        """An operator has changed the rule's settings."""
        self._shares.limit(*self.settings.limits.shares(rule.m))
        self.check.rule = rule
        self.versions.m = rule.m

    async def start(self) -> None:
        """Return when the newest version can be served."""
        await asyncio.to_thread(self.access.read)
        await asyncio.to_thread(self._begin_activity)
        self.aggregator.start()
        until = time.monotonic() + START_S
        while not self.published.has_one:
            failure = self.aggregator.failure
            unexpected = not (failure is None or isinstance(failure, StoreError))
            if unexpected or not self.aggregator.alive or time.monotonic() > until:
                raise ConfigError(f"The run cannot be served: {failure!s}") from failure
            await asyncio.sleep(0.01)
        self.collector.start()
        self.most_body_bytes = self.check.most_bytes
        own = (self._watch_names(), self._watch_activity())
        watching = (self.access.watch(), self._disk.watch(), *own)
        self._tasks += map(asyncio.create_task, watching)
        if (compactor := self._parts.compactor) is not None:
            compacting = compactor.watch(lambda: self.aggregator.leads)
            self._tasks.append(asyncio.create_task(compacting))
        if (callbacks := self._parts.callbacks) is not None:
            callbacks.start(await asyncio.to_thread(self._about), self.store.model)
        self.steering.tell(self.log, self.run, self.published.newest.version)

    async def stop(self) -> None:
        """Finish what was accepted."""
        self.close_streams()
        for task in self._tasks:
            task.cancel()
        await asyncio.to_thread(self.collector.stop)
        led = self.aggregator.leads
        await asyncio.to_thread(self.aggregator.stop)
        await asyncio.to_thread(self._end_activity, led)
        await self.access.store_used()
        await asyncio.to_thread(self._parts.stop)
        self.log(
            "stopped", version=self.published.newest.version if self.published.has_one else None
        )

    def _published(self, publication: Publication, folded: Sequence[FoldedUpdate]) -> None:
        """A publication is durable: the log and what is counted hear it."""
        aside = sum(version == SET_ASIDE for _, version in publication.folded)
        self.activity.published(folded, len(publication.folded) - aside, aside)
        if publication.version > publication.previous:
            self.versions.published(publication.previous, publication.version, folded)

    def _begin_activity(self) -> None:
        try:
            self.activity.start()
        except StoreError as error:  # what was counted is damaged: that is no reason not to train
            self.log("store_error", reason=str(error))

    async def _watch_activity(self) -> None:
        more = False
        while True:
            await asyncio.sleep(MORE_S if more else TICK_S)
            self.versions.flush()
            more = await asyncio.to_thread(self._count, self.aggregator.epoch)

    def _count(self, epoch: int | None) -> bool:
        try:
            return self.activity.tick(leads=epoch is not None, epoch=epoch)
        except Exception as error:  # of any kind: counting must go on, and training in any case
            self.log("store_error", reason=str(error) or repr(error))
            return False

    def _end_activity(self, led: bool) -> None:
        self.versions.flush()
        try:
            while self.activity.tick(leads=led):
                pass
            if led:
                self.activity.leave()
        except Exception as error:  # what is missing is counted when the next server starts
            self.log("store_error", reason=str(error) or repr(error))

    async def _watch_names(self) -> None:
        """Warn, once, when the store's file gets a second name."""
        while self.store.watch.links < 2:  # looked at with every transaction, one per second
            await asyncio.sleep(1.0)
        links = self.store.watch.links
        told = (
            f"The store's file has {links} names (hard links). This server goes on, but a restart "
            "and 'anarchic token' are refused: find the others with 'find DIRECTORY -samefile "
            "STORE' and remove them."
        )
        self.log("store_has_other_names", links=links, reason=told)

    def pulled(self, puller: str, authorization: str | None, version: int) -> None:
        """Note who pulled, if a token says it; otherwise only an address is known."""
        worker = self.access.shown(authorization) if self.settings.open_pull else puller
        if worker is not None:
            self.visits.note(worker, SeenRequest("pulled", self._clock.time(), version))

    def refused(self, code: str, worker: str | None) -> None:
        """A request was refused; ``worker`` is who sent it, if that is known."""
        self.metrics.refused(code)
        self.activity.refused(code, worker)
        if worker is not None:
            self.visits.note(worker, SeenRequest("refused", self._clock.time(), code))

    async def revoke(self, worker: str) -> None:
        """Let a worker push no more."""
        await asyncio.to_thread(revoke, self.store, worker)

    def certificate_expires(self, seconds: float) -> None:
        self.metrics.certificate_expires(seconds)

    def close_streams(self) -> None:
        """End the streams of events, which would never end by themselves."""
        self.published.close()
        self.pictures.close()

    def _about(self) -> RunInfo:
        """The run, as callbacks hear of it."""
        found = self.store.evaluations(EVALUATIONS)
        rows = [{"round": version, **metrics} for version, metrics in found]
        return RunInfo(self.run, asdict(self.rules), self.layout, metrics=rows, live=True)

    def status(self) -> dict[str, Any]:
        """What anybody may know."""
        newest = self.published.newest
        evaluator = self._parts.evaluator
        found = None if evaluator is None else evaluator.latest
        if found is not None and is_withdrawn(self.steering.withdrawn, found["version"]):
            found = None
        return {
            "run": self.run,
            "version": newest.version,
            "loss": newest.loss,
            "rule": self.rules.rule,
            "state": self.steering.condition,
            "m": self.steering.rule.m,
            "parameters": self.layout.dim,
            "buffered": self.pending.count,
            "leads": self.aggregator.leads,
            "updates": self.activity.totals(),
            "evaluation": found,
        }

    async def not_kept(self, version: int) -> Refusal:
        """The refusal of a version that does not exist, or was thinned out."""
        told = f"Version {version} does not exist or is no longer kept."
        kept = []
        if version < self.published.newest.version:
            kept = await asyncio.to_thread(near, self.store, version)
        if not kept:
            return Refusal(404, "not_found", told, "Pull /v1/model instead.")
        told = f"{told} Kept next to it: {' and '.join(map(str, kept))}."
        return Refusal(404, "not_found", told, "Pull one of these, or /v1/model.")

    async def workers(self, sort: str, first: int, limit: int) -> dict[str, Any]:
        """What each worker did, by the store, which all servers of the run write."""
        return await asyncio.to_thread(listed, self.store, sort=sort, first=first, limit=limit)

    async def evaluations(self, limit: int) -> list[dict[str, Any]]:
        """Of the newest versions that were evaluated, by any server of the run; oldest first."""
        found = await asyncio.to_thread(self.store.evaluations, limit)
        return [shown(*evaluation) for evaluation in found]

    async def commands(self, most: int) -> list[dict[str, Any]]:
        """The newest commands of operators, the oldest first, and what became of each."""
        found = await asyncio.to_thread(commands, self.store)
        return [command.told() for command in found[-most:]]

    async def command(self, kind: str, arguments: Mapping[str, Any], *, by: str) -> dict[str, Any]:
        """Write a command for whoever leads; refused if it could not be applied now."""
        given = await asyncio.to_thread(
            give, self.store, kind, arguments, by=by, now_s=self._clock.time()
        )
        return given.told()

    def problem(self) -> str | None:
        """Why the server is unwell, if it is. Asks nobody who might not answer."""
        if (problem := self._store_problem()) is not None:
            return problem
        if self.collector.failure is not None:
            return "The store takes no updates now; see the log."
        if not self.aggregator.alive:
            return "Updates are accepted but no longer aggregated; see the log."
        if isinstance(self.aggregator.failure, StoreError):
            return "The store does not take new versions now; see the log."
        if self.aggregator.failure is not None:
            return "Aggregating fails and is tried again; see the log."
        if self.aggregator.diverged:
            return "The last step was not finite: updates were set aside, as the log says."
        return None

    def _store_problem(self) -> str | None:
        waited_s = self.store.watch.waited_s()
        if waited_s > self._patience_s:
            return f"The store has not answered for {waited_s:.0f} s; see the log."
        if self.store.watch.failure is not None:
            return "The store cannot be read or written now; see the log."
        return None

    def unready(self) -> str | None:
        """Why requests should go to another server, if they should. Asks nobody either.

        One that takes no updates now still serves the model, as the others can do no better.
        """
        if self.published.closed:
            return "The server is stopping."
        if not self.published.has_one:
            return "The server has no version to serve yet."
        if not self.aggregator.alive:
            return "The server neither leads nor follows the run any longer; see the log."
        return self._store_problem()
