"""``anarchic work``: be a worker."""

from __future__ import annotations

import logging
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from anarchic.cli.help import examples, option
from anarchic.cli.values import parse_options
from anarchic.core import registry
from anarchic.core.factory import make_local_rule
from anarchic.core.local import LocalRule
from anarchic.errors import ConfigError

if TYPE_CHECKING:
    from anarchic.worker import Policy, StepCount

EPILOG = examples(
    "anarchic serve --init model.safetensors --store run.db --m 1 --open-enrolment  # elsewhere",
    "anarchic work --server https://example.org --task my_tasks:task --token-file ann.token "
    "--policy hours:22-6 --time-budget-s 60",
    "anarchic work --server http://127.0.0.1:8780 --task digits:3/8 --name ann --updates 20",
)
TOKEN_VARIABLE = "ANARCHIC_TOKEN"
_LINK, _HABITS = "Connection", "When, and how hard"
TIMEOUT_S, LOCAL_LR, LOCAL_STEPS = 30.0, 0.1, 10


def work(
    server: Annotated[
        str,
        option(
            "Where the server is, such as http://127.0.0.1:8780 or https://example.org.",
            metavar="URL",
        ),
    ],
    task: Annotated[
        str,
        option(
            "What to train: a task, or a function without arguments that returns one; or "
            "digits:3/8, the third of eight parts of the digits that come with the package.",
            metavar="MODULE:NAME",
        ),
    ],
    token_file: Annotated[
        Path | None,
        option(
            "File that holds the worker's token.",
            f"the variable {TOKEN_VARIABLE}",
            metavar="FILE",
            rich_help_panel=_LINK,
        ),
    ] = None,
    name: Annotated[
        str | None,
        option(
            "Who this is, where the server takes updates without tokens.",
            "whose token it is",
            rich_help_panel=_LINK,
        ),
    ] = None,
    spool: Annotated[
        Path | None,
        option(
            "Directory in which finished updates wait until the server has them; one for each "
            "worker.",
            "one in the user's state directory",
            metavar="DIR",
            rich_help_panel=_LINK,
        ),
    ] = None,
    ca_file: Annotated[
        Path | None,
        option(
            "Certificate of the authority that signed the server's (PEM).",
            "the system's",
            metavar="FILE",
            rich_help_panel=_LINK,
        ),
    ] = None,
    client_cert: Annotated[
        Path | None,
        option(
            "Own certificate (PEM), for a server with --client-ca.",
            "none is shown",
            metavar="FILE",
            rich_help_panel=_LINK,
        ),
    ] = None,
    client_key: Annotated[
        Path | None,
        option(
            "Private key of the own certificate (PEM).",
            "in the file of the certificate",
            metavar="FILE",
            rich_help_panel=_LINK,
        ),
    ] = None,
    proxy: Annotated[
        str | None,
        option(
            "Proxy to go through.",
            "HTTPS_PROXY and its like",
            metavar="URL",
            rich_help_panel=_LINK,
        ),
    ] = None,
    timeout_s: Annotated[
        float,
        option(
            "Seconds of silence after which a request is tried again.",
            TIMEOUT_S,
            metavar="SECONDS",
            rich_help_panel=_LINK,
        ),
    ] = TIMEOUT_S,
    dtype: Annotated[
        str,
        option(
            "How directions travel: F32, or F16 or BF16 in half the bytes.",
            "F32",
            metavar="NAME",
            rich_help_panel=_LINK,
        ),
    ] = "F32",
    policy: Annotated[
        str,
        option(
            "When to take part: always, every:MINUTES, hours:FROM-UNTIL of the day, random:SECONDS "
            "of idle time in the mean, or when:MODULE:NAME says so.",
            "always",
            metavar="POLICY",
            rich_help_panel=_HABITS,
        ),
    ] = "always",
    local_steps: Annotated[
        str | None,
        option(
            "Local steps a visit, K, or a range to draw it from.",
            LOCAL_STEPS,
            metavar="K|LOW-HIGH",
            rich_help_panel=_HABITS,
        ),
    ] = None,
    time_budget_s: Annotated[
        float | None,
        option(
            "Instead, as many local steps a visit as fit into so many seconds.",
            "--local-steps counts",
            metavar="SECONDS",
            rich_help_panel=_HABITS,
        ),
    ] = None,
    local_lr: Annotated[
        float, option("Local learning rate, eta_L.", LOCAL_LR, rich_help_panel=_HABITS)
    ] = LOCAL_LR,
    local_rule: Annotated[
        str,
        option(
            f"What a local step does: {', '.join(registry.names('local_rules'))}.",
            "sgd",
            metavar="NAME",
            rich_help_panel=_HABITS,
        ),
    ] = "sgd",
    local_option: Annotated[
        list[str] | None,
        option(
            "A setting of the local rule, such as mu=0.1 of prox; may be repeated.",
            "the rule's own",
            metavar="NAME=VALUE",
            rich_help_panel=_HABITS,
        ),
    ] = None,
    updates: Annotated[
        int | None,
        option(
            "Stop once so many updates were accepted.",
            "go on",
            min=1,
            metavar="N",
            rich_help_panel=_HABITS,
        ),
    ] = None,
) -> None:
    """Pull the model, train on your own data, push the update, and again.

    It outlasts any absence of the server, and stops cleanly on Ctrl-C or SIGTERM.
    What it has done is sent, or waits in the spool for the next start.
    One JSON line an update on stderr.
    """
    from anarchic.worker import Worker, load_task

    habits = parse_policy(policy), parse_steps(local_steps, time_budget_s)
    rule = parse_rule(local_rule, local_option or [])
    token = _token(token_file, name)
    _log_to_stderr()
    trained = load_task(task)
    with Worker(
        server,
        token=token,
        name=name,
        spool=spool or default_spool(server, name or (token or "").partition(".")[0]),
        dtype=dtype,  # type: ignore[arg-type]  # it refuses others
        timeout_s=timeout_s,
        proxy=proxy,
        ca_file=ca_file,
        client_cert=client_cert,
        client_key=client_key,
    ) as worker:
        summary = worker.run(
            trained,
            habits[0],
            steps=habits[1],
            local_lr=local_lr,
            local_rule=rule,
            updates=updates,
        )
    typer.echo(
        f"{summary.accepted + summary.duplicate} updates accepted, {summary.stale} too old, "
        f"{summary.refused} refused, {summary.diverged} diverged, {summary.spooled} left in the "
        f"spool; {summary.local_steps} local steps."
    )


def parse_policy(text: str) -> Policy:
    """``every:10`` and its like."""
    from anarchic.worker import Always, Every, Hours, Randomly, When

    kind, _, value = text.partition(":")
    if text == "always":
        return Always()
    if kind == "when" and value:
        return When(registry.load(value))
    try:
        if kind == "every":
            return Every(float(value))
        if kind == "random":
            return Randomly(float(value))
        if kind == "hours":
            from_h, _, until_h = value.partition("-")
            return Hours(float(from_h), float(until_h))
    except ValueError:
        pass
    raise ConfigError(
        f"There is no policy {text!r}; there are always, every:10 (minutes), hours:22-6, "
        "random:300 (seconds in the mean) and when:module:name."
    )


def parse_steps(text: str | None, time_budget_s: float | None) -> StepCount:
    """``10`` or ``5-20``, or a time."""
    from anarchic.worker import Fixed, RandomSteps, TimeBudget

    if time_budget_s is not None:
        if text is not None:
            raise ConfigError("Give --local-steps or --time-budget-s, not both.")
        return TimeBudget(time_budget_s)
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", text or str(LOCAL_STEPS))
    if found is None:
        raise ConfigError(f"--local-steps takes a number, or a range such as 5-20; got {text!r}.")
    return Fixed(int(found[1])) if found[2] is None else RandomSteps(int(found[1]), int(found[2]))


def parse_rule(name: str, options: list[str]) -> LocalRule:
    """A local rule with its settings."""
    kind = registry.find("local_rules", name)
    return make_local_rule(name, parse_options("--local-option", options, kind))


def default_spool(server: str, worker: str) -> Path:
    """A place for this worker at this server, which stays the same from start to start."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "anarchic" / "spool" / quote(server, safe="") / quote(worker, safe="@")


def _token(token_file: Path | None, name: str | None) -> str | None:
    """From a file or the environment: a command line is there for everybody to read."""
    if token_file is not None:
        try:
            return token_file.read_text(encoding="utf-8").strip()
        except UnicodeDecodeError as error:
            raise ConfigError(
                f"{token_file} holds no token but other bytes: give the file that "
                "'anarchic token add' was written to."
            ) from error
    if name is not None:
        return None
    if not (token := os.environ.get(TOKEN_VARIABLE, "").strip()):
        raise ConfigError(
            f"Who is this? Give --token-file, or set {TOKEN_VARIABLE}, or give --name where "
            "enrolment is open."
        )
    return token


def _log_to_stderr() -> None:
    logger = logging.getLogger("anarchic.worker")
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
