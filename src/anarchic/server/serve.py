"""Serving a run: what ``anarchic serve`` does, for Python callers too."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import uvicorn
from starlette.applications import Starlette

from anarchic.core import registry
from anarchic.core.inspection import concerns
from anarchic.core.validation import check_kind
from anarchic.errors import ConfigError, RunError
from anarchic.server.accounts import accounts
from anarchic.server.app import make_admin_app, make_app
from anarchic.server.callbacks import Callbacks
from anarchic.server.connections import CLOSING, Connections, Listener
from anarchic.server.database import exists
from anarchic.server.evaluate import check_judge
from anarchic.server.log import JsonLog, Log, catching
from anarchic.server.many import Runs
from anarchic.server.optional_parts import optional_parts
from anarchic.server.origin import admin_origins_of, origins_of
from anarchic.server.picture import Theory
from anarchic.server.places import places_at
from anarchic.server.protocol import BoundedProtocol
from anarchic.server.proxies import Proxies
from anarchic.server.runs import (
    FirstModel,
    check_alone,
    check_begin,
    check_enrolment,
    check_same,
    open_kept,
    open_run,
)
from anarchic.server.runs_app import make_runs_app
from anarchic.server.service import Service
from anarchic.server.settings import (
    Address,
    RuleSettings,
    RunSettings,
    ServerSettings,
    given_rules,
)
from anarchic.server.tls import Certificate, check_tls, log_handshakes

OTHER_FILES = 128  # that the process has open beside connections: the store, the log
RUNS_FILES = 2_048  # that several runs have open: about four each
ADMIN_CONNECTIONS = 32  # of operators, probes and Prometheus
ADMIN_STOP_S = 2  # seconds that their requests may still take when all else has stopped


def run(
    run: RunSettings,
    *,
    rules: RuleSettings | Mapping[str, Any] | None = None,
    settings: ServerSettings | None = None,
    address: Address | None = None,
    log: Log | None = None,
    theory: Theory | None = None,
) -> None:
    """Serve a run until the process is told to stop, by SIGTERM or Ctrl-C.

    A store without a run gets one, which begins with the model ``run.init``. ``rules`` are the
    settings of its rule: all of them as a record, or some as a mapping, with the defaults for the
    rest. A run that is there already must have been begun with the settings that are given.
    ``theory`` says what theorems say of its arrivals, for the live page: ``anarchic.theory.panel``.
    """
    settings, address = settings or ServerSettings(), address or Address()
    check_kind("run", run, RunSettings)
    check_kind("settings", settings, ServerSettings)
    log = log or JsonLog(level=settings.log_level, form=settings.log_format)
    check_kind("address", address, Address)
    given = given_rules(rules)
    if holds_several(run):
        serve_several(run, given, settings, address, log, theory)
        return
    if run.evaluate is not None:
        registry.load(run.evaluate)
    callbacks = None if run.callback is None else Callbacks(run.callback, log)
    check_tls(address, log)
    first, is_new = None, not exists(run.store)
    if is_new:  # a start that is refused leaves no store behind
        check_enrolment(settings, tokens=False)
        first = _check_new(run, given, settings, address)
    store, run = open_kept(run)
    with closing(store):
        stored = store.run()
        if stored is not None:  # a refusal comes before anything is written, such as a new epoch
            check_same(store, stored, given, run.init)
        elif not is_new:
            first = _check_new(run, given, settings, address)
        check_enrolment(settings, tokens=bool(accounts(store)))
        check_alone(store, log=log)
        address.check_free()
        if stored is None:
            stored = open_run(store, given, run.init)
            for concern in [] if first is None else concerns(first.layout, str(run.init)):
                log("model_warning", level="warning", message=concern)
        parts = optional_parts(
            store, stored, run, settings, log, callbacks=callbacks, theory=theory
        )
        listen(Service(store, settings, log, parts, max_versions=run.max_versions), address)


def _check_new(
    run: RunSettings, rules: Mapping[str, Any], settings: ServerSettings, address: Address
) -> FirstModel:
    """Before a run is begun."""
    first = check_begin(rules, run.init, settings)
    address.check_free()
    check_judge(run, first)
    return first


def holds_several(run: RunSettings) -> bool:
    """Whether the store is one of several runs: a directory, or a database with ``runs``."""
    return run.runs or ("://" not in str(run.store) and Path(run.store).is_dir())


def serve_several(
    run: RunSettings, rules: Mapping[str, Any], settings: ServerSettings, address: Address,
    log: Log, theory: Theory | None = None,
) -> None:  # fmt: skip
    """Serve every run of a directory or database, and those that are created meanwhile."""
    own = {"init": run.init, "evaluate": run.evaluate, "model": run.model, **rules}
    own["callback"] = run.callback
    for name in [name for name, value in own.items() if value is not None]:
        where = str(run.store) if "://" not in str(run.store) else "the database"
        raise ConfigError(
            f"{name} belongs to one run, and {where} holds several: begin each with 'anarchic run "
            "create NAME --store ...' and these options, or serve one of them by its own store."
        )
    places = places_at(run.store)
    check_tls(address, log)
    places.names()  # a mistyped address fails here
    address.check_free()
    workers = partial(make_app, origins=origins_of(address, settings), brief=address.brief)
    operators = None if address.admin is None else partial(make_admin_app, **_admin_terms(address))
    listen(Runs(places, run, settings, log, workers, operators, theory=theory), address)


class _Listening(uvicorn.Server):
    """Counts connections as they are accepted."""

    def __init__(self, config: uvicorn.Config, service: Service | Runs, listener: Listener) -> None:
        super().__init__(config)
        self._service, self._listener = service, listener

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

    async def open(self) -> None:
        """Listen in the event loop of another server, which goes on running."""
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        await self.startup()


class _Server(_Listening):
    """Ends the streams of events before it stops; operators are answered until it has."""

    def __init__(
        self, config: uvicorn.Config, service: Service | Runs, listener: Listener,
        address: Address | None = None, certificate: Certificate | None = None,
        admin: _Listening | None = None,
    ) -> None:  # fmt: skip
        super().__init__(config, service, listener)
        self._address, self._certificate, self._admin = address, certificate, admin
        self._watching: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._admin is not None:  # first: probes see that the run is being loaded
            await self._admin.open()
        try:
            await super().startup(sockets)
        except BaseException:
            await self._close_admin()
            raise
        contexts = [each.config.ssl for each in (self, self._admin) if each is not None]
        if self._certificate is not None:
            self._watching = asyncio.create_task(self._certificate.watch(*contexts))
        if self._address is not None:
            self._tell(self._address)
            if self._address.admin is not None:
                self._tell(self._address.admin, admin=True)

    def _tell(self, address: Address, **facts: object) -> None:
        where = {"host": address.host, "port": address.port, "tls": address.tls_cert is not None}
        self._service.log("listening", **where, **facts)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._watching is not None:
            self._watching.cancel()
        self._service.close_streams()
        try:
            await super().shutdown(sockets)
        finally:
            await self._close_admin()

    async def _close_admin(self) -> None:
        if self._admin is not None:
            await self._admin.shutdown()


def connections_within(wanted: int, beside: int = 0) -> int:
    """How many connections fit beside other open files into the system's limit on descriptors.

    The other files are those of every server, and as many as ``beside`` says.
    """
    beside += OTHER_FILES
    try:
        import resource
    except ImportError:  # not everywhere; then there is no such limit
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    enough = wanted + beside
    if soft < enough:
        soft = enough if hard == resource.RLIM_INFINITY else min(enough, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, min(wanted, soft - beside))


def listen(service: Service | Runs, address: Address) -> None:
    """Serve until told to stop; then finish what was accepted."""
    limits, admin = service.settings.limits, _admin(service, address)
    beside = 0 if admin is None else ADMIN_CONNECTIONS + CLOSING
    beside += RUNS_FILES if isinstance(service, Runs) else 0
    connections = Connections(connections_within(limits.connections, beside))
    origins = origins_of(address, service.settings)
    if isinstance(service, Runs):
        app = make_runs_app(service, origins, operators=address.brief)
    else:
        app = make_app(service, origins, brief=address.brief)
    config = _config(app, service, address, connections)
    certificate = Certificate(address, service.log, service.certificate_expires)
    listener = Listener(connections, limits.header_s)
    try:
        # uvicorn handles SIGTERM, and afterwards sends it again to the handler before it. That
        # would end the process before its store is closed.
        with (
            _handling("SIGTERM", lambda *_: None),
            _handling("SIGHUP", certificate.ask),
            catching(service.log),
        ):
            _Server(config, service, listener, address, certificate, admin).run()
    except SystemExit as error:  # how uvicorn says that it could not start
        raise RunError("The server did not start: the log above says why.") from error


def _admin(service: Service | Runs, address: Address) -> _Listening | None:
    """The listener for operators. Its connections are its own: workers cannot use them up."""
    if address.admin is None:
        return None
    connections, terms = Connections(ADMIN_CONNECTIONS), _admin_terms(address)
    if isinstance(service, Runs):
        app = make_runs_app(service, terms["origins"], operators=terms["tokens"], admin=True)
    else:
        app = make_admin_app(service, **terms)
    config = _config(app, service, address.admin, connections, lifespan="off")
    config.timeout_graceful_shutdown = ADMIN_STOP_S
    return _Listening(config, service, Listener(connections, service.settings.limits.header_s))


def _admin_terms(address: Address) -> dict[str, Any]:
    """By which names operators are answered, and whether they need tokens."""
    assert address.admin is not None, "asked only where operators are answered apart"
    tokens = address.admin_needs_tokens
    return {"origins": admin_origins_of(address.admin, tokens=tokens), "tokens": tokens}


def _config(
    app: Starlette, service: Service | Runs, address: Address, connections: Connections,
    lifespan: Literal["on", "off"] = "on",
) -> uvicorn.Config:  # fmt: skip
    return uvicorn.Config(
        app,
        host=address.host,
        port=address.port,
        http=partial(  # type: ignore[arg-type]  # called, no more
            BoundedProtocol,
            limits=service.settings.limits,
            all_connections=connections,
            refusals=service.refusals,
            proxies=Proxies(address.trusted_proxy),
            bind_names=address.bind_names,
        ),
        ws="none",
        lifespan=lifespan,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        date_header=True,  # workers compare it with their clock
        timeout_keep_alive=30,
        timeout_graceful_shutdown=20,
        ssl_certfile=address.tls_cert,
        ssl_keyfile=str(address.tls_key) if address.tls_key else None,
        ssl_ca_certs=str(address.client_ca) if address.client_ca else None,
        ssl_cert_reqs=ssl.CERT_REQUIRED if address.client_ca else ssl.CERT_NONE,
    )


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
