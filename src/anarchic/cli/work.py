"""``anarchic work``: be a worker."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping

import typer

from anarchic.cli.help import examples
from anarchic.cli.records import Given, Option, takes
from anarchic.cli.values import parse_options
from anarchic.core import registry
from anarchic.worker.settings import TOKEN_VARIABLE, WorkSettings

EPILOG = examples(
    "anarchic serve --init model.safetensors --store run.db --m 1 --open-enrolment  # elsewhere",
    "anarchic work --server https://example.org --task my_tasks:task --token-file ann.token "
    "--policy hours:22-6 --time-budget-s 60",
    "anarchic work --server http://127.0.0.1:8780 --task digits:3/8 --name ann --updates 20",
)
_NEEDED, _CONNECTION, _WORK = "Options", "Connection", "When, and how much"
OPTIONS: Mapping[str, Option] = {
    "server": Option(
        _NEEDED, "Where the server is, such as http://127.0.0.1:8780 or https://example.org.", "URL"
    ),
    "task": Option(
        _NEEDED,
        "What to train: a task, or a function without arguments that returns one; or digits:3/8, "
        "the third of eight parts of the digits that come with the package.",
        "MODULE:NAME",
    ),
    "token_file": Option(
        _CONNECTION,
        "File that holds the worker's token.",
        "FILE",
        f"the variable {TOKEN_VARIABLE}",
    ),
    "name": Option(
        _CONNECTION,
        "The worker's name, where the server takes updates without tokens.",
        None,
        "the name in the token",
    ),
    "spool": Option(
        _CONNECTION,
        "Directory in which updates wait until the server has them; one for each worker.",
        "DIR",
        "one in the user's state directory",
    ),
    "ca_file": Option(
        _CONNECTION,
        "Certificate of the authority that signed the server's (PEM).",
        "FILE",
        "the system's",
    ),
    "client_cert": Option(
        _CONNECTION, "Own certificate (PEM), for a server with --client-ca.", "FILE", "none"
    ),
    "client_key": Option(
        _CONNECTION,
        "Private key of the own certificate (PEM).",
        "FILE",
        "in the file of the certificate",
    ),
    "proxy": Option(_CONNECTION, "Proxy to go through.", "URL", "HTTPS_PROXY and the like"),
    "timeout_s": Option(
        _CONNECTION, "Seconds of silence after which a request is tried again.", "SECONDS"
    ),
    "dtype": Option(
        _CONNECTION, "How directions travel: F32, or F16 or BF16 in half the bytes.", "NAME"
    ),
    "policy": Option(
        _WORK,
        "When to take part: always, every:MINUTES, hours:FROM-UNTIL of the day, random:SECONDS "
        "of mean idle time, or when:MODULE:NAME returns true.",
        "POLICY",
    ),
    "local_steps": Option(
        _WORK, "Local steps per visit (K), or a range to draw it from.", "K|LOW-HIGH", "10"
    ),
    "time_budget_s": Option(
        _WORK,
        "Instead, as many local steps per visit as fit into this many seconds.",
        "SECONDS",
        "--local-steps counts",
    ),
    "local_lr": Option(_WORK, "Local learning rate (eta_L)."),
    "local_rule": Option(
        _WORK,
        f"What a local step does: {', '.join(registry.names('local_rules'))}, or MODULE:NAME.",
        "NAME",
    ),
    "local_options": Option(
        _WORK,
        "A setting of the local rule, such as mu=0.1 of prox; may be repeated.",
        "NAME=VALUE",
        "the rule's own",
        flag="--local-option",
    ),
    "updates": Option(_WORK, "Stop once N updates were accepted.", "N", "go on"),
}


@takes(OPTIONS, WorkSettings)
def work(given: Given) -> None:
    """Pull the model, train on your own data, push the update, and again.

    It outlasts any absence of the server, and stops cleanly on Ctrl-C or SIGTERM.
    Finished updates are sent, or wait in the spool for the next start.
    One JSON line per update on stderr.
    """
    from anarchic import worker

    options = given.pop("local_options", [])
    kind = registry.find("local_rules", given.get("local_rule", "sgd"))
    settings = WorkSettings(**given, local_options=parse_options("--local-option", options, kind))
    _log_to_stderr()
    summary = worker.run(settings)
    typer.echo(
        f"{summary.accepted + summary.duplicate} updates accepted, {summary.stale} too old, "
        f"{summary.refused} refused, {summary.diverged} diverged, {summary.spooled} left in the "
        f"spool; {summary.local_steps} local steps."
    )


def _log_to_stderr() -> None:
    logger = logging.getLogger("anarchic.worker")
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
