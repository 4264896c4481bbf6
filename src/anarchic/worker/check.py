"""Look whether a worker could take part, with one local step that is not sent."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from random import Random
from typing import final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from anarchic import wire
from anarchic.core.certificates import validities
from anarchic.core.findings import Doubt, Finding, look
from anarchic.core.names import token_owner
from anarchic.core.reading import parse_json, printable
from anarchic.errors import AnarchicError, ConfigError, WorkerError
from anarchic.participation.work import ConstantSteps
from anarchic.worker.channel import LOCAL, Channel, Token
from anarchic.worker.connection import Retry, RetryableError, refusal
from anarchic.worker.exchange import Reply
from anarchic.worker.foreign import not_ours
from anarchic.worker.policy import WallClock
from anarchic.worker.servers import Servers
from anarchic.worker.settings import WorkSettings, address_of, default_spool
from anarchic.worker.spool import in_use, waiting_in
from anarchic.worker.task import LiveTask, load_task
from anarchic.worker.visit_loop import VisitLoop
from anarchic.worker.worker import Worker, base_of

SOON = timedelta(days=30)
SKEW_S = 30.0  # between the clocks of worker and server
FEW_UPDATES = 8  # for which the spool has room
ONCE = Retry(tries=1)
NOT_ALLOWED = (401, 403)


def check(settings: WorkSettings, task: LiveTask | None = None) -> Iterator[Finding]:
    """What would keep ``anarchic.worker.run`` with the same arguments from taking part.

    Nothing is pushed, and nothing is written.
    """
    with ExitStack() as stack:
        seen = _Worker(settings, task, stack)
        yield look("settings", seen.settings)
        if seen.servers is None:
            return
        for url in seen.servers.all:
            yield from _Server(url, settings, seen).findings()
        yield look("run", seen.run)
        yield look("task", seen.load)
        yield look("model", seen.model)
        yield look("step", seen.step)
        yield look("spool", seen.spool)


@final
class _Server:
    """One server, from the look-up of its name to the model that it gives."""

    def __init__(self, url: httpx.URL, settings: WorkSettings, worker: _Worker) -> None:
        self._url, self._settings, self._worker = url, settings, worker
        self._answered_s = 0.0

    def _route(self, name: str) -> tuple[str, str]:
        return "GET", f"{base_of(self._settings.run)}/{name}"

    def findings(self) -> Iterator[Finding]:
        yield look("proxy", self._proxy)
        yield self._bearable(look("name", self._name))
        clock, rng = WallClock(), Random()
        about = self._worker.token, self._settings.connection()
        channel = Channel(Servers(str(self._url)), *about, clock=clock, rng=rng)
        try:
            began = time.monotonic()
            reply = channel.once(self._route("model"), lambda reply: reply)
            took_s, self._answered_s = time.monotonic() - began, time.time()
        except (RetryableError, WorkerError) as error:
            yield self._bearable(self._unanswered(error))
            return
        else:
            told = f"{self._url} answered after {1000 * took_s:,.0f} ms."
            yield Finding("connect", "ok", told)
            yield look("tls", lambda: self._tls(channel))
            if reply.status_code in (200, *NOT_ALLOWED):
                yield look("token", lambda: self._token(channel, reply))
            yield look("clock", lambda: self._clock(reply))
            if reply.status_code not in NOT_ALLOWED:
                yield look("answer", lambda: self._answer(channel, reply))
        finally:
            channel.close()

    def _bearable(self, finding: Finding) -> Finding:
        """One of several servers may be away: the worker goes to the others. See ``run``."""
        alone = self._worker.servers is None or len(self._worker.servers.all) == 1
        if alone or finding.status != "failed" or finding.check not in ("name", "connect"):
            return finding
        return replace(finding, status="warning")

    def _unanswered(self, error: RetryableError | WorkerError) -> Finding:
        if error.code == "certificate":
            return Finding("tls", "failed", str(error))
        told = f"{self._url}: {error}"
        if error.code == "unreachable":
            told += " Does the server run, and does a firewall let this machine through?"
        return Finding("connect", "failed", told)

    def _through(self) -> str | None:
        """The proxy in use."""
        found = self._settings.proxy
        if found is None and not proxy_bypass(self._url.host):
            found = getproxies().get(self._url.scheme) or getproxies().get("all")
        return found

    def _proxy(self) -> str:
        proxy = self._through()
        if proxy is None:
            return f"{self._url.host} is reached without one."
        where = urlsplit(proxy).netloc.rpartition("@")[2]  # without a password
        if self._url.host in LOCAL:
            raise Doubt(
                f"{self._url.host} is this machine, but the proxy {where} is asked for it: set "
                f"NO_PROXY={self._url.host}."
            )
        return f"{self._url.host} is reached through {where}."

    def _name(self) -> str:
        proxy = self._through()
        host = self._url.host if proxy is None else urlsplit(proxy).hostname or ""
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            raise WorkerError(
                f"{host} has no address ({error.strerror or error}): look for a mistyped name, and "
                "whether this machine has a network and a name server."
            ) from error
        addresses = sorted({str(each[4][0]) for each in found})
        return f"{host} is {', '.join(addresses[:4])}."

    def _tls(self, channel: Channel) -> str:
        if self._url.scheme == "http":
            if self._url.host in LOCAL or self._worker.token is None:
                return "None: plain HTTP."
            raise Doubt("Plain HTTP: the token travels readable. Use https://.")
        now, told = datetime.now(UTC), "The server's certificate is valid"
        for own in self._own():
            if own < now + SOON:
                raise Doubt(
                    f"The certificate {self._settings.client_cert} expires on {own:%Y-%m-%d}: get "
                    "a new one."
                )
        last = channel.certificate().get("notAfter")
        if last is None:
            return f"{told}."
        until = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(last)), UTC)
        if until < now + SOON:
            raise Doubt(f"{told} until {until:%Y-%m-%d} only: ask the operator to renew it.")
        return f"{told} until {until:%Y-%m-%d}."

    def _own(self) -> list[datetime]:
        cert = self._settings.client_cert
        return [] if cert is None else [own.last for own in validities(cert)[:1]]

    def _token(self, channel: Channel, reply: Reply) -> str:
        if reply.status_code in NOT_ALLOWED:
            raise _refused(reply)
        if self._worker.token is None:
            return (
                f"None is needed to pull; where enrolment is open, {self._settings.name} may push."
            )
        about = channel.once(self._route("token"), lambda reply: reply)
        if about.status_code == 404:
            return f"It lets {self._worker.token.worker} pull; the server does not tell its rights."
        if about.status_code != 200:
            raise _refused(about)
        return _rights(about)

    def _clock(self, reply: Reply) -> str:
        try:
            theirs = parsedate_to_datetime(reply.headers.get("Date", ""))
        except (ValueError, TypeError):
            return "The server does not say the time."
        ahead_s = self._answered_s - theirs.timestamp()
        told = f"This machine is {abs(ahead_s):,.0f} s {'ahead' if ahead_s > 0 else 'behind'}"
        if abs(ahead_s) > SKEW_S:
            raise Doubt(f"{told} of the server: set the clock, or ask the operator to.")
        return f"{told}."

    def _state(self, channel: Channel) -> str:
        """Whether the run goes on; "" if the server, or a proxy before it, does not tell."""
        try:
            reply = channel.once(self._route("status"), lambda reply: reply)
            return str(parse_json(reply.content)["state"]) if reply.status_code == 200 else ""
        except (RetryableError, WorkerError, ValueError, KeyError, TypeError):
            return ""

    def _answer(self, channel: Channel, reply: Reply) -> str:
        if reply.status_code != 200:
            raise _refused(reply)
        try:
            _, snapshot, run = wire.decode_snapshot(reply.content)
        except AnarchicError as error:
            raise WorkerError(not_ours(reply), "garbled") from error
        self._worker.runs[str(self._url)] = run
        self._worker.states.add(self._state(channel))
        return f"Run {printable(run)} at version {snapshot.version}, {len(reply.content):,} bytes."


def _refused(reply: Reply) -> WorkerError:
    code, told = refusal(reply)
    return WorkerError(told, code)


def _rights(reply: Reply) -> str:
    try:
        told = parse_json(reply.content)
        rights, end = [str(right) for right in told["rights"]], told["expires_s"]
        worker = printable(str(told["worker"]), most=64)
        until = None if end is None else datetime.fromtimestamp(end, UTC)
    except (ValueError, KeyError, TypeError, OverflowError, OSError):
        raise WorkerError(not_ours(reply), "garbled") from None
    may = f"It lets {worker} {printable(' and '.join(rights), most=60)}"
    if "push" not in rights:
        raise WorkerError(f"{may}, not push: ask the operator for one with the right to.")
    if until is not None and until < datetime.now(UTC) + SOON:
        raise Doubt(f"{may} until {until:%Y-%m-%d %H:%M} UTC only: ask the operator for a new one.")
    return f"{may}." if until is None else f"{may} until {until:%Y-%m-%d}."


@final
class _Worker:
    """The worker's own side, and what is known of it as the checks go on."""

    def __init__(self, settings: WorkSettings, task: LiveTask | None, stack: ExitStack) -> None:
        self._settings, self._task, self._stack = settings, task, stack
        self.servers: Servers | None = None
        self.token: Token | None = None
        self.runs: dict[str, str] = {}  # by server
        self.states: set[str] = set()  # of the run, as servers tell
        self._loop: VisitLoop | None = None
        self._update_bytes = 0

    def settings(self) -> str:
        """Everything that can be wrong before anybody is asked."""
        token = self._settings.token()
        self.token = None if token is None else Token(token)
        self._settings.plan()
        self._settings.connection().tls()
        servers = Servers(self._settings.server)
        owner = self.token.worker if self.token else self._settings.name
        self.servers = servers  # last: now the others may be looked at
        return f"{owner}, {len(servers.all)} server{'s' * (len(servers.all) > 1)}."

    def run(self) -> str:
        assert self.servers is not None
        if not self.runs:
            raise WorkerError("No server gave a model: see above.")
        if len(set(self.runs.values())) > 1:
            told = ", ".join(f"{url} has run {run}" for url, run in self.runs.items())
            raise ConfigError(f"{told}: give servers that share a store.")
        told = f"{', '.join(self.runs)}: run {printable(next(iter(self.runs.values())))}"
        if "ended" in self.states:
            raise WorkerError(
                f"{told}, which the operator has ended: it takes no more updates. Ask for another.",
                "run_ended",
            )
        missing = len(self.servers.all) - len(self.runs)
        doubts = []
        if missing:
            doubts.append(f"{missing} of {len(self.servers.all)} servers gave no model: see above.")
        if "paused" in self.states:
            doubts.append("The operator has paused the run: updates wait until it is resumed.")
        if doubts:
            raise Doubt(" ".join(doubts))
        return f"{told}."

    def load(self) -> str:
        if self._task is None:
            if self._settings.task is None:
                raise ConfigError("What is to be trained? Give --task MODULE:NAME or --flower.")
            self._task = load_task(self._settings.task)
        return f"{self._settings.task or type(self._task).__name__} can be loaded."

    def model(self) -> str:
        if self._task is None or not self.runs:
            raise Doubt("Not looked at: it needs the task and a server's model.")
        worker = Worker(
            list(self.runs),
            run=self._settings.run,
            token=self._settings.token(),
            name=self._settings.name,
            connection=replace(self._settings.connection(), retry=ONCE),
        )
        self._stack.enter_context(worker)
        plan = replace(self._settings.plan(), steps=ConstantSteps(1))
        loop = VisitLoop(worker, self._task, plan)
        loop.prepare(worker.pull())
        self._loop = loop
        layout = self._task.layout
        return f"The task's is the server's: {layout.dim:,} numbers in {len(layout.names)} tensors."

    def step(self) -> str:
        if self._loop is None:
            raise Doubt("Not tried: it needs a task that fits the server's model.")
        visit, outgoing = self._loop.dry_visit(self._loop.worker.pull())
        self._update_bytes = len(outgoing.body)
        loss = "" if visit.loss is None else f", loss {visit.loss:.4g}"
        return (
            f"One local step took {visit.train_s:.2g} s{loss}; its update would have "
            f"{self._update_bytes:,} bytes. It was not sent."
        )

    def spool(self) -> str:
        owner = self._settings.name or token_owner(self._settings.token() or "") or ""
        place = self._settings.spool or default_spool(address_of(self._settings), owner)
        there = next(
            p for p in (Path(place).absolute(), *Path(place).absolute().parents) if p.exists()
        )
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            raise ConfigError(
                f"{there} cannot be written to by this user: change its owner or permissions, or "
                "give another --spool."
            )
        free = shutil.disk_usage(there).free
        fit = free // max(1, self._update_bytes)
        told = f"{place}: {free / 2**30:,.1f} GiB are free"
        if self._update_bytes and fit < FEW_UPDATES:
            raise Doubt(f"{told}, enough for {fit} updates: free some space.")
        if in_use(place):
            raise Doubt(f"{place} is in use by a worker that runs: a second one needs its own.")
        waits = len(waiting_in(place)) if place.is_dir() else 0
        return f"{told}, {waits} updates wait in it."
