"""Serving a run: what ``anarchic serve`` does, for Python callers too."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import ssl
import traceback
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import uvicorn

from anarchic.core.validation import check_kind
from anarchic.errors import ConfigError, RunError
from anarchic.server.app import make_app
from anarchic.server.evaluate import Evaluator
from anarchic.server.monitoring import JsonLog, Log
from anarchic.server.protocol import BoundedProtocol
from anarchic.server.runs import check_alone, check_enrolment, open_run
from anarchic.server.service import Service
from anarchic.server.settings import (
    Address,
    RuleSettings,
    RunSettings,
    ServerSettings,
    given_rules,
)
from anarchic.server.store import open_store

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
    store = open_store(run.store, keep_payloads=run.keep_payloads, history=run.history)
    with closing(store):
        check_alone(store)
        check_enrolment(store, settings, given)
        address.check_free()
        open_run(store, given, run.init)
        evaluator = None if run.evaluate is None else Evaluator(run.evaluate, store, log)
        service = Service(store, settings, log, evaluator)
        log("listening", host=address.host, port=address.port, tls=address.tls_cert is not None)
        listen(service, address)


class _Server(uvicorn.Server):
    """Ends the streams of events before it waits for connections to close."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn has no setting for the time that a TLS handshake may take, a minute."""
        loop: Any = asyncio.get_running_loop()  # of whatever kind: it takes attributes
        if self.config.is_ssl:
            limit_s = self._service.settings.limits.header_s
            loop.create_server = partial(loop.create_server, ssl_handshake_timeout=limit_s)
        try:
            await super().startup(sockets)
        finally:
            vars(loop).pop("create_server", None)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.published.close()
        await super().shutdown(sockets)


class _ToLog(logging.Handler):
    """Writes uvicorn's messages as lines of our log."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        facts: dict[str, Any] = {"level": record.levelname, "message": record.getMessage().strip()}
        if record.exc_info is not None and record.exc_info[1] is not None:
            facts["trace"] = "".join(traceback.format_exception(record.exc_info[1]))
        self._log("http", **facts)


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
    limits = replace(limits, connections=connections_within(limits.connections))
    config = uvicorn.Config(
        make_app(service),
        host=address.host,
        port=address.port,
        http=partial(BoundedProtocol, limits=limits),  # type: ignore[arg-type]  # called, no more
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        date_header=False,
        # Reached only where ``BoundedProtocol`` found no connection that it could close.
        limit_concurrency=limits.connections + OTHER_FILES // 2,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=20,
        ssl_certfile=address.tls_cert,
        ssl_keyfile=str(address.tls_key) if address.tls_key else None,
        ssl_ca_certs=str(address.client_ca) if address.client_ca else None,
        ssl_cert_reqs=ssl.CERT_REQUIRED if address.client_ca else ssl.CERT_NONE,
    )
    logger, handler = logging.getLogger("uvicorn.error"), _ToLog(service.log)
    logger.addHandler(handler)
    # uvicorn handles the signal, and afterwards sends it again to the handler before it. That
    # would end the process before its store is closed.
    former = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        _Server(config, service).run()
    except ssl.SSLError as error:
        files = ", ".join(map(str, address.tls_files))
        raise ConfigError(
            f"TLS cannot be set up with {files}: {error.reason or error}. Give PEM files, and the "
            "key that belongs to the certificate."
        ) from error
    except SystemExit as error:  # how uvicorn says that it could not start
        raise RunError("The server did not start: the log above says why.") from error
    finally:
        signal.signal(signal.SIGTERM, former)
        logger.removeHandler(handler)
