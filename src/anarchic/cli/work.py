"""``anarchic work``: be a worker."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from anarchic.cli.checked import report
from anarchic.cli.options import Given, chosen, examples, table, takes
from anarchic.cli.sources import Keys, settled
from anarchic.core import registry
from anarchic.core.findings import Finding
from anarchic.errors import ConfigError
from anarchic.worker.settings import TOKEN_VARIABLE, WorkSettings
from anarchic.worker.task import LiveTask

EPILOG = examples(
    "anarchic serve --init model.safetensors --store run.db --m 1 --open-enrolment  # elsewhere",
    "anarchic work --server https://example.org --task my_tasks:task --token-file ann.token "
    "--policy hours:22-6 --time-budget-s 60",
    "anarchic work --server http://127.0.0.1:8780 --task digits:3/8 --name ann --updates 20",
    "anarchic work --server http://127.0.0.1:8780 --flower my_app:client_fn --flower-config "
    "partition-id=0 --name ann",
    "anarchic work --server https://example.org --task my_tasks:task --token-file ann.token "
    "--check  # before you leave it alone",
    "anarchic work --config worker.toml  # `anarchic config example work` writes one",
)
OPTIONS = table(f"""
Settings and check
  config FILE: Read settings from this TOML file. Flags count before ANARCHIC_ variables (such as
    ANARCHIC_SERVER), these before the file. (default: ANARCHIC_CONFIG, otherwise none)
  check: Do not work. Look whether a worker with these settings could take part, with one local step
    that is not sent, print one line per check, and exit with 0 or 1.
  json: As --check, but print JSON.
Options
  server URL: Where the server is, such as http://127.0.0.1:8780 or https://example.org. Several,
    separated by commas or repeated, are replicas of one run, tried in turn.
  run NAME: The run to take part in, on a server of several runs. (default: the server's only one)
  task MODULE:NAME: What to train: a task, or a function without arguments that returns one; or
    digits:3/8, the third of eight parts of the digits that come with the package.
    (default: that of --flower)
  flower MODULE:NAME: Instead, a Flower client as it is: its client_fn, or a ClientApp. Each visit
    is one call of its fit; the options of local steps, rate and rule have no use then.
    (default: that of --task)
  flower_configs: What the Flower client finds in its node_config, run_config and config, such as
    partition-id=0; may be repeated. (default: what pyproject.toml sets for the app)
Connection
  token_file FILE: File that holds the worker's token. (default: the variable {TOKEN_VARIABLE})
  name: The worker's name, where the server takes updates without tokens.
    (default: the name in the token)
  spool DIR: Directory in which updates wait until the server has them; one for each worker.
    (default: one in the user's state directory)
  ca_file FILE: Certificate of the authority that signed the server's (PEM).
    (default: the system's)
  client_cert FILE: Own certificate (PEM), for a server with --client-ca. (default: none)
  client_key FILE: Private key of the own certificate (PEM).
    (default: in the file of the certificate)
  proxy URL: Proxy to go through. (default: HTTPS_PROXY and the like)
  timeout_s SECONDS: Seconds of silence after which a request is tried again. An answer that comes
    slower than 8 KiB per second is given up after these seconds too.
  dtype NAME: How directions travel: F32, or F16 or BF16 in half the bytes.
When, and how much
  policy POLICY: When to take part: always, every:MINUTES, hours:FROM-UNTIL of the day,
    random:SECONDS of mean idle time, or when:MODULE:NAME returns true.
  local_steps K|LOW-HIGH: Local steps per visit (K), or a range to draw it from. (default: 10)
  time_budget_s SECONDS: Instead, as many local steps per visit as fit into this many seconds.
    (default: --local-steps counts)
  local_lr: Local learning rate (eta_L).
  local_rule NAME: What a local step does: {", ".join(registry.names("local_rules"))}, or
    MODULE:NAME; clipnorm and decay wrap another, as in clipnorm+adam.
  local_options: A setting of the local rule, such as mu=0.1 of prox; may be repeated.
    (default: the rule's own)
  updates N: Stop once N updates were accepted. (default: go on)
""")


@dataclass(frozen=True, kw_only=True)
class FlowerSettings:
    """A Flower client in the place of a task."""

    flower: str | None = None
    flower_configs: Mapping[str, Any] = field(default_factory=dict)


RECORDS = (WorkSettings, FlowerSettings)
KEYS = Keys("work", OPTIONS, RECORDS)


@takes(OPTIONS, *RECORDS, elsewhere=True)
def work(given: Given, config: Path | None = None, check: bool = False, json: bool = False) -> None:
    """Pull the model, train on your own data, push the update, and again.

    It outlasts any absence of the server, and stops cleanly on Ctrl-C or SIGTERM.
    Finished updates are sent, or wait in the spool for the next start.
    One JSON line per update on stderr.
    """
    from anarchic import worker

    given = settled(KEYS, given, config)
    if check or json:
        report(_findings(given), as_json=json)
    _log_to_stderr()
    summary = worker.run(*_settings(given))
    if summary.run_ended:
        typer.echo("The run has ended.")
    typer.echo(
        f"{summary.accepted + summary.duplicate} updates accepted, {summary.stale} too old, "
        f"{summary.refused} refused, {summary.diverged} diverged, {summary.spooled} left in the "
        f"spool; {summary.local_steps} local steps."
    )


def _settings(given: Given) -> tuple[WorkSettings, LiveTask | None]:
    """The arguments of ``anarchic.worker.run``."""
    settings = WorkSettings(**chosen(WorkSettings, given))
    if "flower" not in given:
        return settings, None
    from anarchic.bridges import flower

    told = given.get("flower_configs", ())
    pairs = told if isinstance(told, Mapping) else flower.parse_config(told)
    return flower.as_task(settings, given["flower"], pairs)


def _findings(given: Given) -> Iterator[Finding]:
    from anarchic.worker.check import check

    try:
        settings = _settings(given)
    except ConfigError as error:
        yield Finding("settings", "failed", str(error))
        return
    yield from check(*settings)


def _log_to_stderr() -> None:
    logger = logging.getLogger("anarchic.worker")
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
