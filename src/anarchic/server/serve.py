"""Serving a run: what ``anarchic serve`` does, for Python callers too."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from typing import Any

from anarchic.errors import ConfigError
from anarchic.server import listen
from anarchic.server.address import Address
from anarchic.server.evaluate import Evaluator
from anarchic.server.log import JsonLog, Log
from anarchic.server.runs import check_alone, open_run
from anarchic.server.service import Service
from anarchic.server.settings import RuleSettings, RunSettings, ServerSettings, check_memory
from anarchic.server.store import Store, open_store


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
    given = asdict(rules) if isinstance(rules, RuleSettings) else dict(rules or {})
    store = open_store(run.store, keep_payloads=run.keep_payloads, history=run.history)
    with closing(store):
        check_alone(store)
        _check_enrolment(store, settings, given)
        address.check_free()
        open_run(store, given, run.init)
        evaluator = None if run.evaluate is None else Evaluator(run.evaluate, store, log)
        service = Service(store, settings, log, evaluator)
        log("listening", host=address.host, port=address.port, tls=address.tls_cert is not None)
        listen.serve(service, address)


def _check_enrolment(store: Store, settings: ServerSettings, given: Mapping[str, Any]) -> None:
    """Before a run is begun: its settings could not be corrected afterwards."""
    if not (settings.open_enrolment or store.accounts()):
        raise ConfigError(
            "Nobody may push: add workers with 'anarchic token add NAME --store ...', or say "
            "--open-enrolment."
        )
    if settings.open_enrolment and store.run() is None:
        check_memory(RuleSettings(**given), settings)
