"""One server of a run: its parts put together."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from typing import Any

from anarchic.callbacks.callback import RunInfo
from anarchic.errors import ConfigError, StoreError
from anarchic.server.access import Access
from anarchic.server.aggregate import Aggregator
from anarchic.server.bodies import Bodies
from anarchic.server.callbacks import Callbacks
from anarchic.server.clock import SYSTEM, Clock
from anarchic.server.collect import Collector, UpdateCheck
from anarchic.server.evaluate import Evaluator, shown
from anarchic.server.fold import Folding
from anarchic.server.limits import Shares
from anarchic.server.log import JsonLog, Log, never_raising
from anarchic.server.monitoring import ServerMetrics
from anarchic.server.pending import Pending
from anarchic.server.published import PublishedModel, PublishedModels
from anarchic.server.refusals import RefusalLog
from anarchic.server.runs import stored_layout, stored_rules, stored_terms
from anarchic.server.sending import Sending
from anarchic.server.settings import ServerSettings, check_memory, served_rule
from anarchic.server.slots import Pool
from anarchic.server.store import Store

START_S = 30.0  # how long the first version may take to be served
HANG_S = 5.0  # a transaction that takes longer hangs, beyond the time to write a few models
SLOW_DISK = 20e6  # bytes per second
EVALUATIONS = 1_000  # of which callbacks hear when the server starts again


class Service:
    """Makes the parts of a server, starts and stops them, and reports on them."""

    def __init__(
        self, store: Store, settings: ServerSettings | None = None, log: Log | None = None,
        evaluator: Evaluator | None = None, callbacks: Callbacks | None = None, *,
        clock: Clock = SYSTEM,
    ) -> None:  # fmt: skip
        run = store.run()
        if run is None:
            raise ConfigError("The store holds no run yet: begin one with a first model.")
        self.settings = settings or ServerSettings()
        self.log: Log = never_raising(log or JsonLog())
        self.run: str = run.settings["run"]
        self._store, self._evaluator, self._callbacks = store, evaluator, callbacks
        self.rules, self.layout = stored_rules(run), stored_layout(run)
        check_memory(self.rules, self.settings)
        limits, rule = self.settings.limits, served_rule(self.rules, self.layout)
        self._m = rule.m
        self._patience_s = HANG_S + 4 * 4 * self.layout.dim / SLOW_DISK
        self.bodies = Bodies(limits)
        pulls = limits.open_pulls if self.settings.open_pull else limits.pulls
        self.sending = Sending(pulls, limits.versions, 4 * self.layout.dim)
        self.streams = Pool(limits.streams, "Too many are listening to events.")
        self.most_body_bytes = 0
        self.access = Access(store, self.settings, self.log, clock)
        self.refusals = RefusalLog(self.log, self.access.named, clock.monotonic)
        if evaluator is not None and callbacks is not None:
            evaluator.told = callbacks.evaluated
        self.published = PublishedModels(self.run, store, self._offer)
        self.metrics = ServerMetrics(self.published)
        share = limits.share(rule.m)
        shares = Shares(share, share if limits.per_worker else rule.m, clock.monotonic)
        self.pending = Pending(store, self.layout, shares)
        self.check = UpdateCheck(self.layout, rule, self.published, limits, clock)
        self.collector = Collector(
            store, self.check, self.access, self.pending, self.published, clock
        )
        self.terms = stored_terms(run, rule)
        folding = Folding(
            rule, self.layout, self.run, self.access, self.log, clock, terms=self.terms
        )
        self.aggregator = Aggregator(
            store, self.pending, folding, self.published,
            metrics=self.metrics, log=self.log, step_after_s=self.settings.step_after_s,
            clock=clock,
        )  # fmt: skip
        self._tasks: list[asyncio.Task[None]] = []

    def _offer(self, model: PublishedModel) -> None:
        for part in (self._evaluator, self._callbacks):
            if part is not None:
                part.offer(model)

    async def start(self) -> None:
        """Return when the newest version can be served."""
        await asyncio.to_thread(self.access.read)
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
        self._tasks += map(asyncio.create_task, (self.access.watch(), self._watch_names()))
        if self._callbacks is not None:
            self._callbacks.start(await asyncio.to_thread(self._about), self._store.model)
        self.log("serving", run=self.run, version=self.published.newest.version)

    async def stop(self) -> None:
        """Finish what was accepted."""
        self.published.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.to_thread(self.collector.stop)
        await asyncio.to_thread(self.aggregator.stop)
        if self._evaluator is not None:
            await asyncio.to_thread(self._evaluator.stop)
        if self._callbacks is not None:
            await asyncio.to_thread(self._callbacks.stop)
        self.log("stopped", version=self.published.newest.version)

    async def _watch_names(self) -> None:
        """Warn, once, when the store's file gets a second name."""
        while self._store.watch.links < 2:  # looked at with every transaction, one per second
            await asyncio.sleep(1.0)
        links = self._store.watch.links
        told = (
            f"The store's file has {links} names (hard links). This server goes on, but a restart "
            "and 'anarchic token' are refused: find the others with 'find DIRECTORY -samefile "
            "STORE' and remove them."
        )
        self.log("store_has_other_names", links=links, reason=told)

    def _about(self) -> RunInfo:
        """The run, as callbacks hear of it."""
        found = self._store.evaluations(EVALUATIONS)
        rows = [{"round": version, **metrics} for version, metrics in found]
        return RunInfo(self.run, asdict(self.rules), self.layout, metrics=rows, live=True)

    def status(self) -> dict[str, Any]:
        """What anybody may know."""
        newest = self.published.newest
        return {
            "run": self.run,
            "version": newest.version,
            "loss": newest.loss,
            "rule": self.rules.rule,
            "m": self._m,
            "parameters": self.layout.dim,
            "buffered": self.pending.count,
            "leads": self.aggregator.leads,
            "updates": dict(self.metrics.counts),
            "evaluation": self._evaluator.latest if self._evaluator is not None else None,
        }

    async def evaluations(self, limit: int) -> list[dict[str, Any]]:
        """Of the newest versions that were evaluated, by any server of the run; oldest first."""
        found = await asyncio.to_thread(self._store.evaluations, limit)
        return [shown(*evaluation) for evaluation in found]

    def problem(self) -> str | None:
        """Why the server is unwell, if it is. Asks nobody who might not answer."""
        waited_s = self._store.watch.waited_s()
        if waited_s > self._patience_s:
            return f"The store has not answered for {waited_s:.0f} s; see the log."
        if self._store.watch.failure is not None:
            return "The store cannot be read or written now; see the log."
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
