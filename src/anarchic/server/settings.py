"""What a server is told: its rule, its limits, who may push and pull, where it listens."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from anarchic.core import registry
from anarchic.core.buffers import average_buffers
from anarchic.core.factory import (
    UPDATES_PER_STEP,
    make_rule,
    setting_names,
    shared_names,
    shared_over,
)
from anarchic.core.factory import RuleSettings as RuleSettings
from anarchic.core.rule import Rule
from anarchic.core.types import Layout
from anarchic.core.validation import check_choice, check_kind, check_kinds
from anarchic.errors import ConfigError
from anarchic.server.goals import EvaluationMetric, Target, metric, span_s, target
from anarchic.server.loglines import FORMATS, LEVELS
from anarchic.server.proxies import Proxies

HISTORY = 16  # of the newest versions, all are kept, by default
HISTORY_BYTES = 1 << 30  # of these and of older ones that are thinned


def given_rules(rules: RuleSettings | Mapping[str, Any] | None) -> dict[str, Any]:
    """The settings of a rule that were given; those that there are not are refused."""
    check_kind("rules", rules, RuleSettings | Mapping[str, Any] | None)
    if isinstance(rules, RuleSettings):
        return asdict(rules)
    given, known = dict(rules or {}), RuleSettings.__dataclass_fields__
    for name in given.keys() - known.keys():
        raise ConfigError(f"There is no setting {name!r} of rules; there are {', '.join(known)}.")
    RuleSettings(**given)  # refuses values of the wrong type, before a store is opened
    return given


def served_rule(settings: RuleSettings, layout: Layout | None = None) -> Rule[Any]:
    """The rule of a run. An update that was accepted must count, so not every rule will do.

    Buffers that the ``layout`` names are averaged beside it.
    """
    has = setting_names(registry.find("rules", settings.rule))
    needs = {"m": "m", "server_lr": "server_lr", "server_opt": "step"}
    # A run was begun with 5 for m, which counted for nothing, where a rule has no m.
    usual = {name: getattr(RuleSettings, name) for name in needs} | {"m": UPDATES_PER_STEP}
    unused = {
        name: None
        for name, what in needs.items()
        if what not in has and getattr(settings, name) == usual[name]
    }
    rule = make_rule(replace(settings, **unused))  # type: ignore[arg-type]  # each may be None
    if not rule.takes_late:
        raise ConfigError(
            f"A server cannot run {settings.rule!r}, which refuses late updates; it can run "
            f"{', '.join(served_names())}."
        )
    _check_options(settings, has)
    _check_shared(settings)
    return rule if layout is None else average_buffers(rule, layout)


def waits(rule: Rule[Any]) -> str | None:
    """How a worker that stays away can hold up steps, for rules that know this of themselves."""
    told: str | None = getattr(rule.innermost, "waits", None)
    return told


def served_names() -> list[str]:
    """The installed rules that a server can run; those of other packages are not imported here."""
    own = registry.KINDS["rules"].built_in
    return [n for n in registry.names("rules") if n not in own or registry.load(own[n]).takes_late]


def _check_options(settings: RuleSettings, has: Collection[str]) -> None:
    """What is a setting of its own is no option: there would be two places to look for it."""
    for name in settings.rule_options.keys() & {*RuleSettings.__dataclass_fields__, "step"}:
        raise ConfigError(f"{name} is no option of {settings.rule} but a setting of its own.")
    most, capped = settings.rule_options.get("population"), "cap" in has
    if capped and most is not None and not (settings.cap is not None and settings.cap <= most):
        raise ConfigError(  # nobody can be one worker too many once an update is accepted
            f"A server that divides by a population of {most} remembers no more workers than "
            f"that: add --cap {most}, got cap={settings.cap}."
        )


def _check_shared(settings: RuleSettings) -> None:
    shared = shared_names(settings.local_rule)
    if shared and shared_over(settings, 1) is not None:
        return
    if bool(shared) != (settings.workers is not None):
        what = f"their {', '.join(shared)}" if shared else "nothing"
        remedy = "give" if shared else "leave out"
        raise ConfigError(
            f"Workers with local rule {settings.local_rule} share {what} with the server, got "
            f"workers={settings.workers}: {remedy} the number of workers, M."
        )


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much one worker, or all of them together, may ask of the server."""

    per_worker: int | None = None  # waiting for a step; None: half of m, rounded up; all if alone
    max_staleness: int = 1_000  # versions
    max_norm: float | None = None  # of what the rule takes the mean of: see ``Clip``
    updates_per_minute: float = 6_000.0  # of one worker
    burst: int = 100  # that it may send at once
    bodies: int = 8  # slots for bodies that are read beyond their first piece
    waiting_bodies: int = 256  # that may wait for a slot
    first_piece: int = 1 << 18  # bytes of a body that are read before it needs a slot
    least_rate: float = 65_536.0  # bytes per second, of a body in a slot or of a reader
    first_piece_s: float = 20.0  # seconds in which the first piece must come
    turn_s: float = 30.0  # seconds that a body waits for a slot
    pulls: int = 16  # at the same time, per token
    open_pulls: int = 256  # at the same time, per address, where no token is needed
    versions: int = 16  # that are being sent at the same time
    header_s: float = 10.0  # seconds in which the head of a request must come
    header_bytes: int = 16_384
    connections: int = 4_096
    streams: int = 256  # of events, at the same time

    def __post_init__(self) -> None:
        check_kinds(self)
        for f in fields(self):
            value = getattr(self, f.name)
            if value is not None and not value > 0:
                raise ConfigError(f"The limit {f.name} must be positive, got {value}.")

    def share(self, m: int) -> int:
        """How many updates of one worker may wait for a step of ``m``."""
        return (m + 1) // 2 if self.per_worker is None else self.per_worker

    def shares(self, m: int) -> tuple[int, int]:
        """The same beside others, and for a worker that is alone."""
        return self.share(m), self.per_worker or m


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Who may push and pull, the limits, and whether a timer steps."""

    limits: Limits = field(default_factory=Limits)
    open_enrolment: bool = False  # workers without tokens may push, under names of their own
    public_model: bool = False  # anybody may pull
    join: bool = False  # a page by which anybody with a browser takes part
    step_after_s: float | None = None  # step with what is there if the oldest waited this long
    log_level: str = "info"  # the least important events that are logged: see ``loglines``
    log_format: str = "json"  # or text

    def __post_init__(self) -> None:
        check_kinds(self)
        check_choice("log_level", self.log_level, LEVELS)
        check_choice("log_format", self.log_format, FORMATS)
        if self.step_after_s is not None and not self.step_after_s > 0:
            raise ConfigError(f"step_after_s must be positive, got {self.step_after_s}.")

    @property
    def open_pull(self) -> bool:
        """Whether a model is pulled without a token."""
        return self.public_model or self.open_enrolment


@dataclass(frozen=True, kw_only=True)
class KeepSettings:
    """What is kept of a run, how it is evaluated, and when it ends."""

    history: int = HISTORY  # of the newest versions, all are kept; older ones are thinned
    history_bytes: int = HISTORY_BYTES  # of all of them; the newest are kept whatever they take
    keep_every: int | None = None  # keep every Nth version for ever
    keep_best: str | None = None  # METRIC, METRIC:max or METRIC:min; keep its best version for ever
    target: str | None = None  # METRIC=VALUE; end the run once an evaluation has reached it
    max_versions: int | None = None  # end the run at this version
    compact_after: str | None = None  # such as 90d; delete older rows of the trace, see compact
    evaluate: str | None = None  # MODULE:NAME of a function that evaluates new versions
    model: str | None = None  # MODULE:NAME of the torch module that it is given if it asks for one

    def __post_init__(self) -> None:
        check_kinds(self)
        for name in ("history", "keep_every", "max_versions"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"--{name.replace('_', '-')} must be at least 1, got {value}.")
        if self.history_bytes < 0:
            raise ConfigError(f"--history-bytes must not be negative, got {self.history_bytes}.")
        for option, given in {"--keep-best": self.best, "--target": self.goal}.items():
            if given is not None and self.evaluate is None:
                raise ConfigError(
                    f"{option} needs evaluations: give --evaluate MODULE:NAME too, or leave it out."
                )
        assert self.compact_after_s is None or self.compact_after_s > 0  # read here once

    @property
    def chosen(self) -> dict[str, Any]:
        """Those that are not the defaults."""
        each = ((f, getattr(self, f.name)) for f in fields(KeepSettings))
        return {f.name: value for f, value in each if value != f.default}

    @property
    def compact_after_s(self) -> float | None:
        """The age in seconds at which rows of the trace are deleted."""
        return None if self.compact_after is None else span_s(self.compact_after, "--compact-after")

    @property
    def best(self) -> EvaluationMetric | None:
        """The metric whose best version is kept for ever."""
        return None if self.keep_best is None else metric(self.keep_best, "--keep-best")

    @property
    def goal(self) -> Target | None:
        """What an evaluation must reach to end the run."""
        return None if self.target is None else target(self.target)


@dataclass(frozen=True, kw_only=True)
class RunSettings(KeepSettings):
    """Where a run is kept, how it begins, and what is kept of it."""

    store: str | Path  # a file, or postgresql://...; of several runs a directory
    runs: bool = False  # serve every run in the database; a directory always has several
    init: str | Path | None = None  # the first model; None: go on with the run that is there
    keep_payloads: bool | None = None  # for a replay; None: as the run has done, a new one not
    callback: str | None = None  # names of callbacks, or MODULE:NAME, separated by commas

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.compact_after_s is not None and self.keep_payloads:
            raise ConfigError(
                "--compact-after deletes what --keep-payloads keeps for a replay: leave one out."
            )

    @property
    def keeping(self) -> dict[str, Any]:
        """What is kept of a run, as ``open_store`` takes it."""
        names = ("keep_payloads", "history", "history_bytes", "keep_every")
        return {name: getattr(self, name) for name in names}


def check_memory(rules: RuleSettings, settings: ServerSettings) -> None:
    """Strangers must not be able to fill the memory with rows."""
    if settings.open_enrolment and served_rule(rules).remembers is None:
        capped = "cap" in setting_names(registry.find("rules", rules.rule))
        remedy = "begin the run with --cap N, or give" if capped else "give"
        raise ConfigError(
            f"With open enrolment anybody can invent workers, and {rules.rule} remembers each of "
            f"them: {remedy} the workers tokens."
        )


@dataclass(frozen=True, kw_only=True)
class Address:
    """Address, port and TLS files."""

    host: str = "127.0.0.1"
    port: int = 8780
    host_name: str | None = None  # other names that lead here, separated by commas
    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None  # workers must show a certificate that it signed
    bind_names: bool = False  # which must be for the worker whose token they use
    insecure: bool = False  # listen on a public address without TLS all the same
    trusted_proxy: str | None = None  # addresses of proxies, separated by commas
    admin_port: int | None = None  # on which operators are answered, apart from workers
    admin_host: str = "127.0.0.1"
    admin_tls: bool | None = None  # with the same certificate; None: if others can reach the host
    admin_tokens: bool = False  # operators need tokens there even if others cannot reach it
    public_metrics: bool | None = None  # on ``port`` too; None: if there is no ``admin_port``

    def __post_init__(self) -> None:
        check_kinds(self)
        if not 1 <= self.port <= 65535:
            raise ConfigError(f"A port is a number from 1 to 65535, got --port {self.port}.")
        for name in self.host_names:
            if not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
                raise ConfigError(
                    f"--host-name takes names such as fl.example.org, separated by commas, without "
                    f"scheme and port; got {name!r}."
                )
        Proxies(self.trusted_proxy)  # refuses what is no address
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("TLS needs both a certificate and its key.")
        if self.client_ca is not None and self.tls_cert is None:
            raise ConfigError("Client certificates need TLS: give a certificate and its key too.")
        if self.bind_names and self.client_ca is None and self.trusted_proxy is None:
            raise ConfigError(
                "--bind-names compares workers' certificates: give --client-ca too, or "
                "--trusted-proxy if a proxy verifies them."
            )
        for path in self.tls_files:
            if not path.is_file():
                raise ConfigError(f"There is no file {path}.")
        if not (self.tls_cert or self.insecure or is_loopback(self.host)):
            raise ConfigError(
                f"{self.host} can be reached from elsewhere, and without TLS tokens and updates "
                "travel readable: give a certificate and its key, listen on 127.0.0.1 behind a "
                "proxy, or say --insecure."
            )
        self._check_admin()

    def _check_admin(self) -> None:
        if self.admin_port is None:
            asked = {"--admin-host": self.admin_host != "127.0.0.1", "--admin-tls": self.admin_tls}
            for flag in [
                f for f, on in (asked | {"--admin-tokens": self.admin_tokens}).items() if on
            ]:
                raise ConfigError(f"{flag} is for --admin-port: give that too, or leave it out.")
            return
        if not 1 <= self.admin_port <= 65535 or self.admin_port == self.port:
            raise ConfigError(
                "--admin-port takes a number from 1 to 65535 other than that of --port, got "
                f"{self.admin_port}."
            )
        if self.admin_tls and self.tls_cert is None:
            raise ConfigError("--admin-tls needs a certificate: give --tls-cert and --tls-key too.")
        assert self.admin is not None  # made here once, so that its host is checked

    @property
    def admin(self) -> Address | None:
        """Where operators are answered, if that is apart. They need no client certificate."""
        if self.admin_port is None:
            return None
        tls = not is_loopback(self.admin_host) if self.admin_tls is None else self.admin_tls
        files = (self.tls_cert, self.tls_key) if tls else (None, None)
        return Address(
            host=self.admin_host, port=self.admin_port, host_name=self.host_name,
            tls_cert=files[0], tls_key=files[1], insecure=self.insecure,
        )  # fmt: skip

    @property
    def admin_needs_tokens(self) -> bool:
        """Whether operators need tokens where they are answered apart."""
        return self.admin_tokens or not is_loopback(self.admin_host)

    @property
    def brief(self) -> bool:
        """Whether only operators see metrics and the whole status where workers are answered."""
        return (
            self.admin_port is not None if self.public_metrics is None else not self.public_metrics
        )

    @property
    def host_names(self) -> list[str]:
        """The names that lead here beside the address."""
        return [] if self.host_name is None else [n.strip() for n in self.host_name.split(",")]

    @property
    def tls_files(self) -> list[Path]:
        """Certificate, key and authority, as far as they are given."""
        return [path for path in (self.tls_cert, self.tls_key, self.client_ca) if path is not None]

    def check_free(self) -> None:
        """Refuse an address that is taken, or that is not this machine's."""
        self._check_free("--port or --host")
        if self.admin is not None:
            self.admin._check_free("--admin-port or --admin-host")

    def _check_free(self, flags: str) -> None:
        with socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET) as probe:
            if os.name == "posix":  # elsewhere it would take the port from whoever has it
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self.host, self.port))
            except OSError as error:
                raise ConfigError(
                    f"Cannot listen on {self.host}, port {self.port}: {error.strerror}. Choose "
                    f"another {flags}, or stop the program that listens there."
                ) from error


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
