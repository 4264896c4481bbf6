"""A server put together: store, rule, board, collector, aggregator."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from anarchic import wire
from anarchic.core.types import Layout, Vector
from anarchic.errors import ConfigError
from anarchic.server.aggregate import Aggregator
from anarchic.server.auth import bearer
from anarchic.server.board import Board, Posted
from anarchic.server.collect import Collector
from anarchic.server.evaluate import Evaluator, shown
from anarchic.server.limits import Places, Pulls
from anarchic.server.log import JsonLog, Log
from anarchic.server.metrics import Metrics
from anarchic.server.settings import RuleSettings, ServerSettings, check_memory, served_rule
from anarchic.server.state import first_snapshot
from anarchic.server.store import Account, Receipt, Run, Store

ACCOUNTS_S = 1.0  # how soon a new or revoked token is noticed
START_S = 30.0


def open_run(store: Store, rules: Mapping[str, Any], init: Path | None) -> Run:
    """Go on with the store's run, or begin one with a first model.

    ``rules`` are the settings that were given; those of a run that goes on must agree with it.
    """
    run = store.run()
    if run is None:
        if init is None:
            raise ConfigError("The store holds no run yet: give a first model with --init.")
        layout, params, _ = wire.load_model(init)
        try:
            return begin(store, RuleSettings(**rules), layout, params)
        except ConfigError:
            run = store.run()  # another replica may have begun it in this moment
            if run is None:
                raise
    differing = [
        f"{name} is {run.settings.get(name)!r} there and {value!r} here"
        for name, value in rules.items()
        if run.settings.get(name) != value
    ]
    if differing:
        raise ConfigError(
            f"The store holds a run with other settings: {'; '.join(differing)}. Leave them out to "
            "go on with it, or choose another store."
        )
    return run


def check_alone(store: Store, patience_s: float = 3.0) -> None:
    """Refuse to be the second server on a store that cannot be shared."""
    if store.shared or store.run() is None:  # a store without a run has nobody who serves it
        return
    until = time.monotonic() + patience_s
    while store.lead() is None:
        if time.monotonic() > until:
            raise ConfigError(
                "Another server has this store open: stop it first, or share the run between "
                "servers with PostgreSQL."
            )
        time.sleep(0.1)
    store.resign()


def begin(store: Store, rules: RuleSettings, layout: Layout, params: Vector) -> Run:
    """Start a run in an empty store."""
    snapshot, state = first_snapshot(served_rule(rules), params)
    settings = {
        **asdict(rules),
        "run": secrets.token_hex(8),
        "names": layout.names,
        "shapes": layout.shapes,
        "dtypes": layout.dtypes,
    }
    body = wire.encode_snapshot(layout, snapshot, settings["run"])
    return store.create(settings, body, state)


def stored_rules(run: Run) -> RuleSettings:
    """The rule with which a run was begun."""
    facts = ("run", *Layout.__dataclass_fields__)
    told = {name: value for name, value in run.settings.items() if name not in facts}
    unknown = told.keys() - RuleSettings.__dataclass_fields__.keys()
    if unknown:
        raise ConfigError(
            f"The run was begun with {', '.join(sorted(unknown))}, which this server does not "
            "know: serve it with the version of anarchic that began it, or a later one."
        )
    return RuleSettings(**told)


def stored_layout(run: Run) -> Layout:
    """The layout of a run's model."""
    return Layout(
        tuple(run.settings["names"]),
        tuple(tuple(shape) for shape in run.settings["shapes"]),
        tuple(run.settings["dtypes"]),
    )


class Service:
    """Everything behind the routes. Methods are called in the event loop."""

    def __init__(
        self, store: Store, settings: ServerSettings | None = None, log: Log | None = None,
        evaluator: Evaluator | None = None,
    ) -> None:  # fmt: skip
        run = store.run()
        if run is None:
            raise ConfigError("The store holds no run yet: begin one with a first model.")
        self.settings = settings or ServerSettings()
        self.log: Log = log or JsonLog()
        self.run: str = run.settings["run"]
        self._store, self._evaluator = store, evaluator
        self.rules, self.layout = stored_rules(run), stored_layout(run)
        check_memory(self.rules, self.settings)
        self.board = Board(self.run)
        self.metrics = Metrics(self.board)
        limits = self.settings.limits
        self.places = Places(limits)
        self.pulls = Pulls(limits.open_pulls if self.settings.open_pull else limits.pulls)
        self.aggregator = Aggregator(
            store,
            served_rule(self.rules),
            self.layout,
            self.board,
            self.log,
            step_after_s=self.settings.step_after_s,
        )
        self.collector = Collector(store, self.layout, self.board, self.aggregator, limits)
        self.stopping = asyncio.Event()
        self._older: WeakValueDictionary[int, Posted] = WeakValueDictionary()
        self._last_read: Posted | None = None
        self._reading = asyncio.Lock()
        self._accounts: dict[str, Account] = {}
        self._accounts_mark: bytes | None = None
        self._accounts_task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self.most_body_bytes = 0
        self.streams = 0  # of events, open now

    async def start(self) -> None:
        """Return when the newest version can be served."""
        loop = asyncio.get_running_loop()
        self.aggregator.on_folded = self._folded
        self.aggregator.on_elsewhere = self.collector.shares.reset
        self.board.listen(lambda: loop.call_soon_threadsafe(self._posted))
        await asyncio.to_thread(self._read_accounts)
        self.aggregator.start()
        until = time.monotonic() + START_S
        while not self.board.has_one:
            if not self.aggregator.alive or time.monotonic() > until:
                raise ConfigError(f"The run cannot be served: {self.aggregator.failure}")
            await asyncio.sleep(0.01)
        self.collector.start()
        self.most_body_bytes = wire.most_body_bytes(self.layout, self.collector.extras)
        self._accounts_task = asyncio.create_task(self._watch_accounts())
        self.log("serving", run=self.run, version=self.board.newest.version)

    async def stop(self) -> None:
        """Finish what was accepted."""
        self.announce_stop()
        if self._accounts_task is not None:
            self._accounts_task.cancel()
        await asyncio.to_thread(self.collector.stop)
        await asyncio.to_thread(self.aggregator.stop)
        if self._evaluator is not None:
            await asyncio.to_thread(self._evaluator.stop)
        self.log("stopped", version=self.board.newest.version)

    def announce_stop(self) -> None:
        """End the streams of events: they would hold up the end for as long as they may."""
        self.stopping.set()
        self._posted()

    def may_pull(self, authorization: str | None, address: str) -> str:
        """Who pulls: a worker or, where anybody may, an address."""
        return address if self.settings.open_pull else bearer(authorization, self._accounts)

    def may_push(self, authorization: str | None) -> str | None:
        """The worker that pushes, or None where the update may name it.

        A worker's pace is looked at before its update: refusing a flood must cost little.
        """
        if self.settings.open_enrolment and authorization is None:
            return None
        worker = bearer(authorization, self._accounts)
        self.collector.pace.take(worker)
        return worker

    async def submit(self, body: bytearray, worker: str | None) -> Receipt:
        """Take an update. Without a token nobody speaks in the name of one who has one."""
        return await self.collector.submit(body, worker, self._accounts)

    async def version(self, number: int) -> Posted | None:
        """A version that is still kept: the newest, or one from the store.

        However many pull an old one, it is in memory once; the one that was read last stays there,
        for whoever fetches it part by part.
        """
        newest = self.board.newest
        if number >= newest.version:
            return newest if number == newest.version else None
        async with self._reading:
            posted = self._older.get(number)
            if posted is None:
                body = await asyncio.to_thread(self._store.model, number)
                if body is None:
                    return None
                posted = self._older[number] = Posted.of(self.run, number, body)
            self._last_read = posted
            return posted

    async def changed(self, seen: int, timeout_s: float) -> bool:
        """Wait until the version is not ``seen`` any more; False after the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.board.newest.version == seen and not self.stopping.is_set():
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def status(self) -> dict[str, Any]:
        """What anybody may know."""
        newest = self.board.newest
        return {
            "run": self.run,
            "version": newest.version,
            "loss": newest.loss,
            "rule": self.rules.rule,
            "m": self.aggregator.m,
            "parameters": self.layout.dim,
            "buffered": self.collector.shares.total(),
            "leads": self.aggregator.leads,
            "updates": dict(self.metrics.counts),
            "evaluation": self._evaluator.latest if self._evaluator is not None else None,
        }

    async def evaluations(self, limit: int) -> list[dict[str, Any]]:
        """Of the newest versions that were evaluated, by whichever replica, the oldest first."""
        found = await asyncio.to_thread(self._store.evaluations, limit)
        return [shown(*evaluation) for evaluation in found]

    def problem(self) -> str | None:
        """Why the server is unwell, if it is."""
        if not self.aggregator.alive:
            return "Updates are accepted but no longer aggregated; see the log."
        if self.aggregator.failure is not None:
            return "The store does not take new versions now; see the log."
        return None

    def _folded(self, workers: Counter[str]) -> None:
        self.collector.shares.folded(workers)
        self.metrics.folded(workers.total())

    def _posted(self) -> None:
        """Wake everybody who waits for a version, and begin waiting anew."""
        self._changed.set()
        self._changed = asyncio.Event()
        if self._evaluator is not None and self.board.has_one:
            self._evaluator.offer(self.board.newest)

    async def _watch_accounts(self) -> None:
        while True:
            await asyncio.sleep(ACCOUNTS_S)
            try:
                await asyncio.to_thread(self._read_accounts)
            except Exception as error:  # whatever it was: revoking must go on
                self.log("store_error", reason=str(error) or repr(error))

    def _read_accounts(self) -> None:
        """Only if any has changed: there may be many, and this is asked every second."""
        mark = self._store.accounts_mark()
        if mark != self._accounts_mark:
            accounts = self._store.accounts()
            self.aggregator.revoke(a.worker for a in accounts.values() if a.revoked)
            self._accounts = accounts
            self._accounts_mark = mark
