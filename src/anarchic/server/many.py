"""Several runs on one server: each a service of its own, found while the server runs.

A run that cannot be served is unwell and tried again; the others do not notice. A run whose file is
gone, or was replaced, is closed, and opened again when there is a file.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, final

from prometheus_client import Metric, generate_latest
from starlette.types import ASGIApp

from anarchic.errors import AnarchicError, ConfigError, StoreError
from anarchic.server.accounts import accounts
from anarchic.server.few_threads import FewThreads
from anarchic.server.log import Log, never_raising
from anarchic.server.optional_parts import OptionalParts, optional_parts
from anarchic.server.picture import Theory
from anarchic.server.places import Places, Stamp, is_copy
from anarchic.server.refusals import Refusal, RefusalLog
from anarchic.server.run_turns import RUN, RunThreads, Turns
from anarchic.server.runs import check_alone, open_kept
from anarchic.server.service import Service, Shared
from anarchic.server.settings import RunSettings, ServerSettings
from anarchic.server.sqlite import share_cache
from anarchic.server.store import Store

LOOK_S = 2.0  # how often it looks for new runs
LONGEST_PAUSE_S = 30.0  # between attempts to open a run; each pause is twice the one before
WRITING = 3  # groups that are written at the same time: a disk syncs several at once
OPENING = 8  # runs that are opened at the same time
GONE = "The store of this run is gone."
NOT_OPEN = "The run is being opened."
NOT_BEGUN = "The store holds no run yet: 'anarchic run create' begins one."

HEALTHY = "anarchic_healthy"
OPERATOR = "Send the token of an operator of one of the runs."

MakeApp = Callable[[Service], ASGIApp]


@dataclass(eq=False)
class Hosted:
    """One of the runs, served or not."""

    name: str
    stamp: Stamp | None = None  # of its store when it was opened
    store: Store | None = None
    service: Service | None = None  # while it is served
    app: ASGIApp | None = None  # for workers
    admin: ASGIApp | None = None  # for operators, where they are answered apart
    failure: str | None = NOT_OPEN  # why it is not served
    again_s: float = 0.0  # when to try again
    pause_s: float = 1.0

    def problem(self) -> str | None:
        """Why it is unwell, if it is; details are in the log."""
        if self.service is not None:
            return self.service.problem()
        if self.failure == NOT_BEGUN:  # such as one with tokens alone: nothing is wrong with it
            return None
        return self.failure if self.failure in (GONE, NOT_OPEN) else "See the log."


@final
class Runs:
    """The runs of one server. ``make_app`` makes the application of each, for workers;
    ``make_admin`` that for operators, where they are answered apart."""

    def __init__(
        self, places: Places, run: RunSettings, settings: ServerSettings, log: Log,
        make_app: MakeApp, make_admin: MakeApp | None = None, theory: Theory | None = None,
    ) -> None:  # fmt: skip
        self._theory = theory
        self._places, self._run, self.settings = places, run, settings
        self.log = never_raising(log)
        self._make_app, self._make_admin = make_app, make_admin
        self.refusals = RefusalLog(self.log, lambda authorization: {})
        self.turns = Turns()
        self._threads = FewThreads("collect", WRITING), FewThreads("aggregate")
        self._shared = Shared(settings.limits, *self._threads)
        self.copies = self._shared.copies
        self._hosted: dict[str, Hosted] = {}
        self._ids: dict[str, Hosted] = {}  # by the ids that runs gave themselves
        self._watching: asyncio.Task[None] | None = None
        self._unreadable = False  # where the runs are kept
        self._certificate: float | None = None

    def find(self, name: str) -> Hosted | None:
        """The run of this name or id."""
        return self._hosted.get(name) or self._ids.get(name)

    async def start(self) -> None:
        """Return when every run that is there is served, or known to be unwell."""
        asyncio.get_running_loop().set_default_executor(RunThreads())
        share_cache()
        for thread in self._threads:
            thread.start()
        await self.look()
        self._watching = asyncio.create_task(self._watch())
        self.log("serving_runs", runs=len(self._hosted), unwell=len(self.unwell()))

    async def stop(self) -> None:
        """Finish what was accepted, in all runs."""
        if self._watching is not None:
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching
        await asyncio.gather(*map(self._close, self._hosted.values()))
        await asyncio.to_thread(self._places.close)
        for thread in self._threads:
            thread.close()

    def close_streams(self) -> None:
        for hosted in self._hosted.values():
            if hosted.service is not None:
                hosted.service.close_streams()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self.look()
            except Exception as error:  # of any kind: the runs that are served go on
                self.log("cannot_look_for_runs", reason=str(error) or repr(error))

    async def look(self) -> None:
        """Open runs that are new or may be well again, close those whose store is gone."""
        try:
            names = await asyncio.to_thread(self._places.names)
        except StoreError as error:
            if not self._unreadable:
                self.log("cannot_look_for_runs", reason=str(error))
            self._unreadable = True
            return
        self._unreadable = False
        for name in names:
            self._hosted.setdefault(name, Hosted(name))
        stamps = await asyncio.to_thread(lambda: {n: self._places.stamp(n) for n in names})
        turn = asyncio.Semaphore(OPENING)
        await asyncio.gather(
            *(self._care_for(hosted, stamps.get(hosted.name), turn) for hosted in self._all())
        )

    def _all(self) -> list[Hosted]:
        return [*self._hosted.values()]

    async def _care_for(self, hosted: Hosted, stamp: Stamp | None, turn: asyncio.Semaphore) -> None:
        """``stamp`` is None where the store is gone."""
        known = hosted.stamp.file if hosted.stamp is not None else None
        if hosted.service is not None and (stamp is None or stamp.file != known):
            reason = GONE if stamp is None else "Another file has taken the place of its store."
            self.log("run_closed", run=hosted.name, reason=reason)
            await self._close(hosted)
            hosted.pause_s, hosted.again_s = 1.0, 0.0
        if stamp is None:
            hosted.failure = GONE
        elif hosted.service is None and (
            stamp != hosted.stamp or time.monotonic() >= hosted.again_s
        ):
            hosted.stamp = stamp
            async with turn:
                await asyncio.create_task(self._open(hosted))

    async def _open(self, hosted: Hosted) -> None:
        """Serve a run, or note why it cannot be served. In a task of its own: it sets ``RUN``."""
        RUN.set(hosted.name)
        service = None
        try:
            store, service = await asyncio.to_thread(self._make, hosted.name)
            hosted.store = store
            await service.start()
        except (AnarchicError, OSError) as error:
            try:
                if service is not None:
                    await service.stop()
            finally:
                await self._drop(hosted)
                self._fail(hosted, str(error))
            return
        hosted.pause_s, hosted.failure = 1.0, None
        hosted.service, hosted.app = service, self._make_app(service)
        hosted.admin = None if self._make_admin is None else self._make_admin(service)
        first = self._ids.setdefault(service.run, hosted)
        if first is not hosted:
            self.log("same_run", run=hosted.name, reason=is_copy(first.name))

    def _fail(self, hosted: Hosted, why: str) -> None:
        if why != NOT_BEGUN:
            facts = {"reason": why, "again_in_s": hosted.pause_s}
            self.log("run_unwell", run=hosted.name, **facts)
            hosted.again_s = time.monotonic() + hosted.pause_s
            hosted.pause_s = min(2 * hosted.pause_s, LONGEST_PAUSE_S)
        hosted.failure = why

    def _make(self, name: str) -> tuple[Store, Service]:
        """Open a store that holds a run, and make its service."""
        own = replace(self._run, store=self._places.place(name))
        store, run = open_kept(own, several=True, create=False)
        store.idles, parts = True, OptionalParts()
        try:
            stored = store.run()
            if stored is None:
                raise ConfigError(NOT_BEGUN)
            check_alone(store, apply_s=0.0)  # it is tried again: others must not wait for it
            if not (self.settings.open_enrolment or accounts(store)):
                told = "Nobody may push: add workers with 'anarchic token add'."
                self.log("run_without_tokens", run=name, reason=told)
            log = self._log_of(name)
            parts = optional_parts(store, stored, run, self.settings, log, theory=self._theory)
            return store, Service(
                store, self.settings, log, parts,
                name=name, shared=self._shared, max_versions=run.max_versions,
            )  # fmt: skip
        except BaseException:
            parts.stop()
            store.close()
            raise

    def _log_of(self, name: str) -> Log:
        def log(event: str, **facts: Any) -> None:
            if "run" in facts:  # its id
                facts["id"] = facts["run"]
            self.log(event, **{**facts, "run": name})

        return log

    async def _close(self, hosted: Hosted) -> None:
        service, hosted.service, hosted.app, hosted.admin = hosted.service, None, None, None
        if service is not None:
            if self._ids.get(service.run) is hosted:
                del self._ids[service.run]
            await service.stop()
        await self._drop(hosted)

    async def _drop(self, hosted: Hosted) -> None:
        store, hosted.store = hosted.store, None
        if store is not None:
            await asyncio.to_thread(store.close)

    def unwell(self) -> dict[str, str]:
        """The runs that cannot be served as they should, and why."""
        told = {hosted.name: hosted.problem() for hosted in self._all()}
        return {name: problem for name, problem in sorted(told.items()) if problem is not None}

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether the server is of use, and what is wrong with which run.

        It is as long as one run is well, or there is none: whoever takes it away because of a sick
        run would take the others' too.
        """
        unwell = self.unwell()
        well = len(unwell) < len(self._hosted) or not self._hosted
        status = "unwell" if not well else "partly unwell" if unwell else "ok"
        return well, {"status": status, "runs": len(self._hosted), "unwell": unwell}

    def certificate_expires(self, seconds: float) -> None:
        self._certificate = seconds

    def ready(self) -> tuple[bool, dict[str, Any]]:
        """Whether requests may be sent here: as ``health``, of what each run needs for that."""
        told = {
            h.name: h.failure if h.service is None else h.service.unready() for h in self._all()
        }
        unready = sorted(n for n, why in told.items() if why not in (None, NOT_BEGUN))
        well = len(unready) < len(told) or not told
        return well, {"status": "ready" if well else "not ready", "not_ready": unready}

    def metrics(self, operator: str | None = None, *, every: bool = False) -> bytes:
        """One exposition for all runs, the metrics of each with a label ``run``.

        Of ``every`` run, or of those that know this token as an operator's.
        """
        hosted = [h for h in self._all() if every or _operates(h, operator)]
        if not (hosted or every):
            raise Refusal(401, "unauthorized", "The request carries no valid token.", OPERATOR)
        return generate_latest(_Exposition(hosted, self._certificate))


def _operates(hosted: Hosted, authorization: str | None) -> bool:
    try:
        return bool(hosted.service and hosted.service.access.may_operate(authorization))
    except Refusal:
        return False


@dataclass(frozen=True)
class _Exposition:
    hosted: list[Hosted]
    certificate: float | None

    def collect(self) -> Iterator[Metric]:
        served = [(h.name, h.service.metrics.collect()) for h in self.hosted if h.service]
        found = _labelled(served)
        healthy = found.setdefault(
            HEALTHY, Metric(HEALTHY, "1 if the run's /healthz says ok", "gauge")
        )
        for hosted in self.hosted:
            if hosted.service is None and hosted.problem() is not None:
                healthy.add_sample(HEALTHY, {"run": hosted.name}, 0.0)
        yield from found.values()
        if self.certificate is not None:
            name = "anarchic_certificate_expires_seconds"
            expires = Metric(name, "notAfter, seconds since 1970", "gauge")
            expires.add_sample(name, {}, self.certificate)
            yield expires


def _labelled(each: Iterable[tuple[str, Iterable[Metric]]]) -> dict[str, Metric]:
    """Metrics of several runs, those of one name together, as Prometheus wants them.

    Those of the process are the same for all, and have no label.
    """
    found: dict[str, Metric] = {}
    for run, metrics in each:
        for metric in metrics:
            if metric.name.startswith("process_"):
                found[metric.name] = metric
                continue
            family = found.setdefault(
                metric.name, Metric(metric.name, metric.documentation, metric.type, metric.unit)
            )
            for sample in metric.samples:
                labels = {"run": run, **sample.labels}
                family.add_sample(sample.name, labels, sample.value, sample.timestamp)
    return found
