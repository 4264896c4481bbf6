"""``anarchic serve``: the live server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anarchic.cli.show import examples
from anarchic.errors import ConfigError

EPILOG = examples(
    "anarchic init --model logistic --out model.safetensors",
    "anarchic token add ann --store run.db > ann.token",
    "anarchic serve --init model.safetensors --store run.db",
    "anarchic serve --store run.db  # goes on where it was",
)
_RUN, _NET, _LIMITS = "Run", "Network and security", "Limits"


def serve(
    store: Annotated[
        str,
        typer.Option(
            help="Where the run is kept: a file (SQLite), or postgresql://... for several servers.",
            metavar="PATH|URL",
            rich_help_panel=_RUN,
        ),
    ],
    init: Annotated[
        Path | None,
        typer.Option(help="First model, for a store without a run.", rich_help_panel=_RUN),
    ] = None,
    rule: Annotated[
        str | None, typer.Option(help="afa-cd, afa-cs or fedbuff.", rich_help_panel=_RUN)
    ] = None,
    m: Annotated[int | None, typer.Option(help="Updates a step, m.", rich_help_panel=_RUN)] = None,
    server_lr: Annotated[
        float | None, typer.Option(help="Server learning rate, eta.", rich_help_panel=_RUN)
    ] = None,
    server_opt: Annotated[
        str | None,
        typer.Option(help="sgd, momentum, adam or yogi.", rich_help_panel=_RUN),
    ] = None,
    staleness_power: Annotated[
        float | None,
        typer.Option(help="Weigh updates by (1 + tau) ** -P.", rich_help_panel=_RUN),
    ] = None,
    clip: Annotated[
        float | None, typer.Option(help="Bound eta_L * ||G||.", rich_help_panel=_RUN)
    ] = None,
    expire_after: Annotated[
        int | None,
        typer.Option(help="afa-cs: forget workers silent so many versions.", rich_help_panel=_RUN),
    ] = None,
    cap: Annotated[
        int | None,
        typer.Option(
            help="afa-cs: remember at most so many workers; a newcomer takes the place of the "
            "longest silent. Needed with --open-enrolment.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    step_after_s: Annotated[
        float | None,
        typer.Option(help="Step with fewer than m after so long.", rich_help_panel=_RUN),
    ] = None,
    history: Annotated[
        int, typer.Option(help="Versions that can be pulled.", min=1, rich_help_panel=_RUN)
    ] = 16,
    keep_payloads: Annotated[
        bool,
        typer.Option(
            "--keep-payloads", help="Keep every update, for replay.", rich_help_panel=_RUN
        ),
    ] = False,
    evaluate: Annotated[
        str | None,
        typer.Option(
            help="Evaluate new versions with this function, in a process of its own.",
            metavar="MODULE:NAME",
            rich_help_panel=_RUN,
        ),
    ] = None,
    host: Annotated[str, typer.Option(rich_help_panel=_NET)] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, rich_help_panel=_NET)] = 8780,
    open_enrolment: Annotated[
        bool,
        typer.Option("--open-enrolment", help="Take updates without tokens.", rich_help_panel=_NET),
    ] = False,
    public_model: Annotated[
        bool,
        typer.Option("--public-model", help="Anybody may pull the model.", rich_help_panel=_NET),
    ] = False,
    tls_cert: Annotated[Path | None, typer.Option(rich_help_panel=_NET)] = None,
    tls_key: Annotated[Path | None, typer.Option(rich_help_panel=_NET)] = None,
    client_ca: Annotated[
        Path | None,
        typer.Option(help="Workers must show a certificate signed by it.", rich_help_panel=_NET),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure", help="A public address without TLS, all the same.", rich_help_panel=_NET
        ),
    ] = False,
    per_worker: Annotated[
        int | None,
        typer.Option(
            help="Updates of one worker that may wait for a step. [dim](default: half of m, all of "
            "it while nobody else comes)[/dim]",
            min=1,
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    max_staleness: Annotated[int, typer.Option(min=1, rich_help_panel=_LIMITS)] = 1_000,
    max_norm: Annotated[float | None, typer.Option(rich_help_panel=_LIMITS)] = None,
    updates_per_minute: Annotated[
        float, typer.Option(help="Of one worker.", rich_help_panel=_LIMITS)
    ] = 6_000.0,
) -> None:
    """Collect updates from workers who answer to nobody, and step every m of them.

    Started again on the same store, the run goes on where it was. Log lines are JSON, on stderr.
    """
    from anarchic.server.evaluate import Evaluator
    from anarchic.server.listen import Address
    from anarchic.server.listen import serve as listen
    from anarchic.server.log import JsonLog
    from anarchic.server.service import Service, check_alone, open_run
    from anarchic.server.settings import Limits, ServerSettings
    from anarchic.server.sql import open_store

    rules = {
        "rule": rule,
        "m": m,
        "server_lr": server_lr,
        "server_opt": server_opt,
        "staleness_power": staleness_power,
        "clip": clip,
        "expire_after": expire_after,
        "cap": cap,
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
        ),
        open_enrolment=open_enrolment,
        public_model=public_model,
        step_after_s=step_after_s,
        history=history,
    )
    log = JsonLog()
    opened = open_store(store, keep_payloads=keep_payloads, history=history)
    try:
        given = {name: value for name, value in rules.items() if value is not None}
        check_alone(opened)
        open_run(opened, given, init)
        if not (open_enrolment or opened.accounts()):
            raise ConfigError(
                "Nobody may push: add workers with 'anarchic token add NAME --store ...', or say "
                "--open-enrolment."
            )
        evaluator = Evaluator(evaluate, opened, log) if evaluate is not None else None
        log("listening", host=host, port=port, tls=tls_cert is not None)
        listen(Service(opened, settings, log, evaluator), address)
    finally:
        opened.close()
