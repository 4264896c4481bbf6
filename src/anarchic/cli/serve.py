"""``anarchic serve``: the live server."""

from __future__ import annotations

import os
import socket
import ssl
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from anarchic.cli.help import examples, option
from anarchic.cli.values import parse_options
from anarchic.core.rules import RULES
from anarchic.core.steps import STEPS
from anarchic.errors import ConfigError, RunError
from anarchic.server.settings import (
    LIVE_RULES,
    Limits,
    RuleSettings,
    ServerSettings,
    check_memory,
)
from anarchic.server.store import HISTORY

if TYPE_CHECKING:
    from anarchic.server.listen import Address
    from anarchic.server.service import Service
    from anarchic.server.store import Store

EPILOG = examples(
    "anarchic init --model logistic --out model.safetensors",
    "anarchic token add ann --store run.db > ann.token",
    "anarchic serve --init model.safetensors --store run.db",
    "anarchic serve --store run.db  # goes on where it was",
)
_RUN, _NET, _LIMITS = "Run", "Network and security", "Limits"
_FIXED = "Fixed when the run begins"
HOST, PORT = "127.0.0.1", 8780


def serve(
    store: Annotated[
        str,
        option(
            "Where the run is kept: a file (SQLite), or postgresql://... for several servers.",
            metavar="PATH|URL",
            rich_help_panel=_RUN,
        ),
    ],
    init: Annotated[
        Path | None,
        option(
            "First model, for a store without a run: `anarchic init` writes one.",
            "go on with the run in the store",
            metavar="FILE",
            rich_help_panel=_RUN,
        ),
    ] = None,
    step_after_s: Annotated[
        float | None,
        option(
            "Step with fewer than m updates once the oldest has waited so many seconds.",
            "wait for m",
            metavar="SECONDS",
            rich_help_panel=_RUN,
        ),
    ] = None,
    history: Annotated[
        int, option("Versions that can be pulled.", HISTORY, rich_help_panel=_RUN)
    ] = HISTORY,
    keep_payloads: Annotated[
        bool | None,
        option(
            "Keep every update, for `anarchic replay`.",
            "as the run has done so far; a new one does not",
            flag="--keep-payloads/--no-keep-payloads",
            rich_help_panel=_RUN,
        ),
    ] = None,
    evaluate: Annotated[
        str | None,
        option(
            "Evaluate new versions with this function of a snapshot, in a process of its own.",
            "versions are not evaluated",
            metavar="MODULE:NAME",
            rich_help_panel=_RUN,
        ),
    ] = None,
    rule: Annotated[
        str | None,
        option(
            f"How updates become steps: {', '.join(LIVE_RULES)}.",
            RuleSettings.rule,
            metavar="NAME",
            rich_help_panel=_FIXED,
        ),
    ] = None,
    m: Annotated[
        int | None, option("Updates a step, m.", RuleSettings.m, rich_help_panel=_FIXED)
    ] = None,
    server_lr: Annotated[
        float | None,
        option("Server learning rate, eta.", RuleSettings.server_lr, rich_help_panel=_FIXED),
    ] = None,
    server_opt: Annotated[
        str | None,
        option(
            f"How a mean becomes a step: {', '.join(STEPS)}.",
            RuleSettings.server_opt,
            metavar="NAME",
            rich_help_panel=_FIXED,
        ),
    ] = None,
    server_option: Annotated[
        list[str] | None,
        option(
            "A setting of the server step, such as epsilon=1e-5 of adam; may be repeated.",
            "the step's own",
            metavar="NAME=VALUE",
            rich_help_panel=_FIXED,
        ),
    ] = None,
    rule_option: Annotated[
        list[str] | None,
        option(
            "Another setting of the rule, such as power=1 of fedbuff; may be repeated.",
            "the rule's own",
            metavar="NAME=VALUE",
            rich_help_panel=_FIXED,
        ),
    ] = None,
    staleness_power: Annotated[
        float | None,
        option(
            "Weigh an update by (1 + tau) ** -P, tau its staleness.",
            "all alike",
            metavar="P",
            rich_help_panel=_FIXED,
        ),
    ] = None,
    clip: Annotated[
        float | None,
        option(
            "Shorten updates whose eta_L * ||G|| (fedbuff: K times that) is larger.",
            "no bound",
            metavar="C",
            rich_help_panel=_FIXED,
        ),
    ] = None,
    expire_after: Annotated[
        int | None,
        option(
            "afa-cs: forget workers that were silent for so many versions.",
            "none is forgotten",
            metavar="VERSIONS",
            rich_help_panel=_FIXED,
        ),
    ] = None,
    cap: Annotated[
        int | None,
        option(
            "afa-cs: remember at most so many workers; a newcomer takes the place of the longest "
            "silent. Needed with --open-enrolment.",
            "no limit",
            metavar="WORKERS",
            rich_help_panel=_FIXED,
        ),
    ] = None,
    local_rule: Annotated[
        str | None,
        option(
            "Local rule that workers may run besides those that share nothing: scaffold shares its "
            "control, which then travels beside the model. Needs --workers.",
            RuleSettings.local_rule,
            metavar="NAME",
            rich_help_panel=_FIXED,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        option(
            "scaffold: how many workers there are, M.",
            "not needed",
            metavar="WORKERS",
            min=1,
            rich_help_panel=_FIXED,
        ),
    ] = None,
    host: Annotated[
        str,
        option(
            "Address to listen on; one that others can reach needs TLS, or --insecure.",
            HOST,
            rich_help_panel=_NET,
        ),
    ] = HOST,
    port: Annotated[
        int,
        option("Port to listen on.", PORT, min=1, max=65535, metavar="PORT", rich_help_panel=_NET),
    ] = PORT,
    open_enrolment: Annotated[
        bool,
        option(
            "Take updates without tokens, under whatever name a worker gives itself.",
            flag="--open-enrolment",
            rich_help_panel=_NET,
        ),
    ] = False,
    public_model: Annotated[
        bool,
        option(
            "Anybody may pull the model, without a token.",
            flag="--public-model",
            rich_help_panel=_NET,
        ),
    ] = False,
    tls_cert: Annotated[
        Path | None,
        option(
            "The server's certificate (PEM, with its chain); needs --tls-key.",
            "plain HTTP",
            metavar="FILE",
            rich_help_panel=_NET,
        ),
    ] = None,
    tls_key: Annotated[
        Path | None,
        option(
            "Private key of the certificate (PEM).",
            "plain HTTP",
            metavar="FILE",
            rich_help_panel=_NET,
        ),
    ] = None,
    client_ca: Annotated[
        Path | None,
        option(
            "Workers must show a certificate that this authority signed (PEM).",
            "none is asked for",
            metavar="FILE",
            rich_help_panel=_NET,
        ),
    ] = None,
    insecure: Annotated[
        bool,
        option(
            "Listen on a public address without TLS all the same.",
            flag="--insecure",
            rich_help_panel=_NET,
        ),
    ] = False,
    per_worker: Annotated[
        int | None,
        option(
            "Updates of one worker that may wait for a step.",
            "half of m rounded up, all of it while nobody else comes",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    max_staleness: Annotated[
        int,
        option(
            "Refuse updates whose base version is more than so many versions old, tau.",
            Limits.max_staleness,
            metavar="VERSIONS",
            rich_help_panel=_LIMITS,
        ),
    ] = Limits.max_staleness,
    max_norm: Annotated[
        float | None,
        option(
            "Refuse updates with a larger eta_L * ||G|| (fedbuff: K times that).",
            "no limit",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    updates_per_minute: Annotated[
        float,
        option(
            "Updates that one worker may send a minute.",
            f"{Limits.updates_per_minute:g}",
            rich_help_panel=_LIMITS,
        ),
    ] = Limits.updates_per_minute,
    least_rate: Annotated[
        float,
        option(
            "Hang up on senders and readers of fewer bytes a second.",
            f"{Limits.least_rate:g}",
            metavar="BYTES",
            rich_help_panel=_LIMITS,
        ),
    ] = Limits.least_rate,
) -> None:
    """Collect updates from workers who answer to nobody, and step every m of them.

    Started again on the same store, the run goes on where it was.
    What was fixed when it began need not be given again.
    Log lines are JSON, on stderr.
    """
    from anarchic.server.evaluate import Evaluator
    from anarchic.server.listen import Address
    from anarchic.server.log import JsonLog
    from anarchic.server.runs import check_alone, open_run
    from anarchic.server.service import Service
    from anarchic.server.sql import open_store

    rules = {
        "rule": rule,
        "m": m,
        "server_lr": server_lr,
        "server_opt": server_opt,
        "server_options": parse_options(
            "--server-option", server_option or [], STEPS.get(server_opt or RuleSettings.server_opt)
        ),
        "rule_options": parse_options(
            "--rule-option", rule_option or [], RULES.get(rule or RuleSettings.rule)
        ),
        "staleness_power": staleness_power,
        "clip": clip,
        "expire_after": expire_after,
        "cap": cap,
        "local_rule": local_rule,
        "workers": workers,
    }
    address = Address(
        host=host,
        port=port,
        tls_cert=tls_cert,
        tls_key=tls_key,
        client_ca=client_ca,
        insecure=insecure,
    )
    settings = ServerSettings(
        limits=Limits(
            per_worker=per_worker,
            max_staleness=max_staleness,
            max_norm=max_norm,
            updates_per_minute=updates_per_minute,
            least_rate=least_rate,
        ),
        open_enrolment=open_enrolment,
        public_model=public_model,
        step_after_s=step_after_s,
    )
    given = {name: value for name, value in rules.items() if value not in (None, {})}
    log = JsonLog()
    keeps = _keeps_payloads(store) if keep_payloads is None else keep_payloads
    opened = open_store(store, keep_payloads=keeps, history=history)
    try:
        check_alone(opened)
        _check_enrolment(opened, settings, given)
        _check_free(host, port)
        open_run(opened, given, init)
        if evaluate is not None and "" not in sys.path:
            sys.path.insert(0, "")  # a module of one's own lies where the server is started
        evaluator = Evaluator(evaluate, opened, log) if evaluate is not None else None
        service = Service(opened, settings, log, evaluator)
        log("listening", host=host, port=port, tls=tls_cert is not None)
        _listen(service, address)
    finally:
        opened.close()


def _keeps_payloads(where: str) -> bool:
    """Whether the store's run has kept what it folded.

    Then it goes on so: a server that is started again without the flag would drop the first model
    and end all replays, which nobody can undo.
    """
    from anarchic.server.sql import open_store

    store = open_store(where)
    try:
        first = next(iter(store.trace()), None)
        return first is not None and first.order == 0 and store.body(first.seq) is not None
    finally:
        store.close()


def _check_enrolment(store: Store, settings: ServerSettings, given: Mapping[str, Any]) -> None:
    """Before a run is begun: what it was begun with could not be corrected afterwards."""
    if not (settings.open_enrolment or store.accounts()):
        raise ConfigError(
            "Nobody may push: add workers with 'anarchic token add NAME --store ...', or say "
            "--open-enrolment."
        )
    if settings.open_enrolment and store.run() is None:
        check_memory(RuleSettings(**given), settings)


def _check_free(host: str, port: int) -> None:
    """Refuse an address that is taken, or not ours, before anything is begun."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        if os.name == "posix":  # elsewhere it would take the port from whoever has it
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ConfigError(
                f"Cannot listen on {host}, port {port}: {error.strerror}. Choose another --port or "
                "--host, or stop the program that listens there."
            ) from error


def _listen(service: Service, address: Address) -> None:
    from anarchic.server.listen import serve as listen

    try:
        listen(service, address)
    except ssl.SSLError as error:
        papers = [str(p) for p in (address.tls_cert, address.tls_key, address.client_ca) if p]
        raise ConfigError(
            f"TLS cannot be had with {', '.join(papers)}: {error.reason or error}. Give PEM files, "
            "and the key that belongs to the certificate."
        ) from error
    except SystemExit as error:  # uvicorn's way to say that it could not start
        raise RunError("The server did not start: the log above says why.") from error
