"""Serving a run: what ``anarchic serve`` does, for Python callers too."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import uvicorn

from anarchic.core import registry
from anarchic.core.inspection import concerns
from anarchic.core.validation import check_kind
from anarchic.errors import RunError
from anarchic.server.app import make_app
from anarchic.server.callbacks import Callbacks
from anarchic.server.connections import Connections, Listener
from anarchic.server.database import exists
from anarchic.server.evaluate import Evaluator, judging
from anarchic.server.log import JsonLog, Log, catching
from anarchic.server.origin import origins_of
from anarchic.server.protocol import BoundedProtocol
from anarchic.server.runs import (
    check_alone,
    check_begin,
    check_enrolment,
    check_same,
    open_run,
    stored_layout,
)
from anarchic.server.service import Service
from anarchic.server.settings import (
    Address,
    RuleSettings,
    RunSettings,
    ServerSettings,
    given_rules,
)
from anarchic.server.store import open_store
from anarchic.server.tls import Certificate, check_tls, log_handshakes

OTHER_FILES = 128  # that the process has open beside connections: the store, the log


def run(
    run: RunSettings,
    *,
    rules: RuleSettings | Mapping[str, Any] | None = None,
    settings: ServerSettings | None = None,
    address: Address | None = None,
    log: Log | None = None,
) -> None:
    """Serve a run until the process is told to stop, by SIGTERM or Ctrl-C.

    A store without a run gets one, which begins with the model ``run.init``. ``rules`` are the
    settings of its rule: all of them as a record, or some as a mapping, with the defaults for the
    rest. A run that is there already must have been begun with the settings that are given.
    """
    settings, address, log = settings or ServerSettings(), address or Address(), log or JsonLog()
    check_kind("run", run, RunSettings)
    check_kind("settings", settings, ServerSettings)
    check_kind("address", address, Address)
    given = given_rules(rules)
    if run.evaluate is not None:
        registry.load(run.evaluate)
    callbacks = None if run.callback is None else Callbacks(run.callback, log)
    check_tls(address, log)
    first, is_new = None, not exists(run.store)
    if is_new:  # a start that is refused leaves no store behind
        check_enrolment(settings, tokens=False)
        first = check_begin(given, run.init, settings)
        judging(run, first.about, first.layout)
        address.check_free()
    store = open_store(run.store, keep_payloads=run.keep_payloads, history=run.history)
    with closing(store):
        stored = store.run()
        if stored is not None:  # a refusal comes before anything is written, such as a new epoch
            check_same(store, stored, given, run.init)
        elif not is_new:
            first = check_begin(given, run.init, settings)
            judging(run, first.about, first.layout)
            address.check_free()
        check_enrolment(settings, tokens=bool(store.accounts()))
        check_alone(store)
        address.check_free()
        if stored is None:
            stored = open_run(store, given, run.init)
            for concern in [] if first is None else concerns(first.layout, str(run.init)):
                log("model_warning", level="warning", message=concern)
        judge = judging(run, stored.settings, stored_layout(stored))
        if judge is not None and judge.module and stored.settings.get("local_buffers"):
            told = "The judge's module has the buffers that it was made with: workers keep theirs."
            log("model_warning", level="warning", message=told)
        evaluator = None if judge is None else Evaluator(judge, store, log)
        service = Service(store, settings, log, evaluator, callbacks)
        listen(service, address)


class _Server(uvicorn.Server):
    """Counts connections as they are accepted, and ends the streams of events before it stops."""

    def __init__(
        self, config: uvicorn.Config, service: Service, listener: Listener,
        address: Address | None = None, certificate: Certificate | None = None,
    ) -> None:  # fmt: skip
        super().__init__(config)
        self._service, self._listener = service, listener
        self._address, self._certificate = address, certificate
        self._watching: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn has no setting for who accepts connections."""
        loop: Any = asyncio.get_running_loop()  # of whatever kind: it takes attributes
        if self.config.ssl is not None:
            log_handshakes(self.config.ssl, self._service.log)
        loop.create_server = self._listener.create_server
        try:
            await super().startup(sockets)
        finally:
            vars(loop).pop("create_server", None)
        if self._certificate is not None:
            self._watching = asyncio.create_task(self._certificate.watch(self.config.ssl))
        if self._address is not None:
            where = {"host": self._address.host, "port": self._address.port}
            self._service.log("listening", **where, tls=self.config.ssl is not None)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._watching is not None:
            self._watching.cancel()
        self._service.published.close()
        await super().shutdown(sockets)


def connections_within(wanted: int) -> int:
    """How many connections fit beside other open files into the system's limit on descriptors."""
    try:
        import resource
    except ImportError:  # not everywhere; then there is no such limit
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    enough = wanted + OTHER_FILES
    if soft < enough:
        soft = enough if hard == resource.RLIM_INFINITY else min(enough, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, min(wanted, soft - OTHER_FILES))


def listen(service: Service, address: Address) -> None:
    """Serve until told to stop; then finish what was accepted."""
    limits = service.settings.limits
    connections = Connections(connections_within(limits.connections))
    config = uvicorn.Config(
        make_app(service, origins_of(address, service.settings)),
        host=address.host,
        port=address.port,
        http=partial(  # type: ignore[arg-type]  # called, no more
            BoundedProtocol,
            limits=limits,
            all_connections=connections,
            refusals=service.refusals,
        ),
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        date_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=20,
        ssl_certfile=address.tls_cert,
        ssl_keyfile=str(address.tls_key) if address.tls_key else None,
        ssl_ca_certs=str(address.client_ca) if address.client_ca else None,
        ssl_cert_reqs=ssl.CERT_REQUIRED if address.client_ca else ssl.CERT_NONE,
    )
    certificate = Certificate(address, service.log, service.metrics.certificate_expires)
    listener = Listener(connections, limits.header_s)
    try:
        # uvicorn handles SIGTERM, and afterwards sends it again to the handler before it. That
        # would end the process before its store is closed.
        with (
            _handling("SIGTERM", lambda *_: None),
            _handling("SIGHUP", certificate.ask),
            catching(service.log),
        ):
            _Server(config, service, listener, address, certificate).run()
    except SystemExit as error:  # how uvicorn says that it could not start
        raise RunError("The server did not start: the log above says why.") from error


@contextmanager
def _handling(name: str, handler: Callable[..., None]) -> Iterator[None]:
    """Handle a signal in this way for a while; not every system has each of them."""
    number = getattr(signal, name, None)
    if number is None:
        yield
        return
    former = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, former)
