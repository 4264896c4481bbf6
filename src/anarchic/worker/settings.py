"""A whole worker from texts and numbers, as a command line or a file gives them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final
from urllib.parse import quote

from anarchic.core import registry
from anarchic.core.factory import make_local_rule
from anarchic.core.files import make_private_folder
from anarchic.core.names import token_owner
from anarchic.core.options import says_options
from anarchic.core.validation import check_kind, check_kinds
from anarchic.errors import ConfigError
from anarchic.participation.idle import Exponential
from anarchic.participation.work import ConstantSteps, UniformSteps
from anarchic.worker.connection import Connection
from anarchic.worker.policy import Always, Every, Hours, Policy, StepCount, TimeBudget, When
from anarchic.worker.task import LiveTask, load_task
from anarchic.worker.token import read_token
from anarchic.worker.visit_loop import Summary, WorkPlan
from anarchic.worker.worker import Worker

TOKEN_VARIABLE = "ANARCHIC_TOKEN"


@says_options
@final
@dataclass(frozen=True, kw_only=True)
class WorkSettings:
    """Which server, which task, who the worker is, when it works and how much.

    ``local_steps`` is a number or a range such as ``5-20``, and 10 without a time budget.
    """

    server: str | Sequence[str]  # several: replicas of one run, tried in turn
    run: str | None = None  # of several runs on one server
    task: str | None = None
    token_file: Path | None = None
    name: str | None = None
    spool: Path | None = None
    ca_file: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None
    proxy: str | None = field(default=None, repr=False)  # may hold a password
    timeout_s: float = 30.0
    dtype: str = "F32"
    policy: str = "always"
    local_steps: str | int | None = None
    time_budget_s: float | None = None
    local_lr: float = 0.1
    local_rule: str = "sgd"
    local_options: Mapping[str, Any] = field(default_factory=dict)
    updates: int | None = None

    def __post_init__(self) -> None:
        check_kinds(self)
        if not self.server:
            raise ConfigError(
                f"server must be a text, the address of a server, got {self.server!r}."
            )

    @property
    def first_server(self) -> str:
        """The first address, which names the worker's spool."""
        from anarchic.worker.servers import server_urls  # brings httpx

        return server_urls(self.server)[0]

    def plan(self) -> WorkPlan:
        """When the worker visits the server, and what it computes there."""
        return WorkPlan(
            policy=parse_policy(self.policy),
            steps=parse_steps(self.local_steps, self.time_budget_s),
            local_lr=self.local_lr,
            local_rule=make_local_rule(self.local_rule, self.local_options),
            updates=self.updates,
        )

    def connection(self) -> Connection:
        """How the worker reaches the server."""
        return Connection(
            timeout_s=self.timeout_s,
            dtype=self.dtype,  # type: ignore[arg-type]  # it refuses others
            proxy=self.proxy,
            ca_file=self.ca_file,
            client_cert=self.client_cert,
            client_key=self.client_key,
        )

    def token(self) -> str | None:
        """From the file, or the environment: a command line is there for everybody to read."""
        if self.token_file is not None:
            return read_token(self.token_file)
        if self.name is not None:
            return None
        if not (token := os.environ.get(TOKEN_VARIABLE, "").strip()):
            raise ConfigError(
                f"Who is this? Give --token-file, or set {TOKEN_VARIABLE}, or give --name where "
                "enrolment is open."
            )
        return token


def run(settings: WorkSettings, task: LiveTask | None = None) -> Summary:
    """Be a worker until it ends: ``anarchic work`` without its output.

    A ``task`` that is given takes the place of that in the settings. Without a ``spool`` it is a
    directory for this worker and this server among the user's files.
    """
    check_kind("settings", settings, WorkSettings)
    plan, token = settings.plan(), settings.token()
    if task is None:
        if settings.task is None:
            raise ConfigError(
                "What is to be trained? Give --task MODULE:NAME or --flower MODULE:NAME."
            )
        task = load_task(settings.task)
    owner = settings.name or token_owner(token or "") or ""
    with Worker(
        settings.server,
        run=settings.run,
        token=token if settings.token_file is None else Path(settings.token_file),
        name=settings.name,
        spool=settings.spool or _own_spool(address_of(settings), owner),
        connection=settings.connection(),
    ) as worker:
        return worker.run(task, plan)


def address_of(settings: WorkSettings) -> str:
    """Of the run: a worker may take part in several of one server, each with a spool."""
    server = settings.first_server
    return server if settings.run is None else f"{server.rstrip('/')}/v1/runs/{settings.run}"


def parse_policy(text: str) -> Policy:
    """``every:10`` and the like."""
    kind, _, value = text.partition(":")
    if text == "always":
        return Always()
    if kind == "when" and value:
        return When(registry.load(value))
    try:
        if kind == "every":
            return Every(float(value))
        if kind == "random":
            return Exponential(float(value))
        if kind == "hours":
            from_h, _, until_h = value.partition("-")
            return Hours(float(from_h), float(until_h))
    except ValueError:
        pass
    raise ConfigError(
        f"There is no policy {text!r}; there are always, every:10 (minutes), hours:22-6, "
        "random:300 (mean seconds) and when:module:name."
    )


def parse_steps(text: str | int | None, time_budget_s: float | None) -> StepCount:
    """``10`` or ``5-20``, or a time."""
    if time_budget_s is not None:
        if text is not None:
            raise ConfigError("Give --local-steps or --time-budget-s, not both.")
        return TimeBudget(time_budget_s)
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", str(text or 10))
    if found is None:
        raise ConfigError(f"--local-steps takes a number, or a range such as 5-20; got {text!r}.")
    low, high = int(found[1]), found[2]
    return ConstantSteps(low) if high is None else UniformSteps(low, int(high))


def default_spool(server: str, worker: str) -> Path:
    """A directory for this worker at this server, the same at every start.

    It does not depend on how the address is written: capital letters, the usual port and a slash at
    the end make no difference.
    """
    from anarchic.worker.servers import checked_url  # brings httpx

    lower = str(checked_url(server))  # only then is the port known to be the usual one
    return _spool(str(checked_url(lower)).rstrip("/"), worker)


def _own_spool(server: str, worker: str) -> Path:
    """The default spool; one that has the address as it was written, as earlier, is renamed."""
    spool, earlier = default_spool(server, worker), _spool(server, worker)
    if earlier.is_dir() and not spool.exists():
        make_private_folder(spool.parent)
        earlier.rename(spool)
        spool.chmod(0o700)
    return spool


def _spool(server: str, worker: str) -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    own = quote(worker, safe="@")
    if not own.strip("."):  # "." and ".." are other directories
        own = own.replace(".", "%2E")
    return Path(state) / "anarchic" / "spool" / quote(server, safe="") / own
