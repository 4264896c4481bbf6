"""What a server is told: its rule, its limits, who may push and pull, where it listens."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from anarchic.core import registry
from anarchic.core.buffers import average_buffers
from anarchic.core.factory import RuleSettings as RuleSettings
from anarchic.core.factory import make_rule, setting_names, shared_names
from anarchic.core.rule import Rule
from anarchic.core.types import Layout
from anarchic.core.validation import check_kind, check_kinds
from anarchic.errors import ConfigError

HISTORY = 16  # versions that can be pulled, by default


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
    defaults = {"m": "m", "server_lr": "server_lr", "server_opt": "step"}
    unused = {
        name: None
        for name, needs in defaults.items()
        if needs not in has and getattr(settings, name) == getattr(RuleSettings, name)
    }
    rule = make_rule(replace(settings, **unused))  # type: ignore[arg-type]  # each may be None
    if not rule.takes_late:
        raise ConfigError(
            f"A server cannot run {settings.rule!r}, which refuses late updates; it can run "
            f"{', '.join(served_names())}."
        )
    _check_options(settings)
    _check_shared(settings)
    return rule if layout is None else average_buffers(rule, layout)


def served_names() -> list[str]:
    """The installed rules that a server can run; those of other packages are not imported here."""
    own = registry.KINDS["rules"].built_in
    return [n for n in registry.names("rules") if n not in own or registry.load(own[n]).takes_late]


def _check_options(settings: RuleSettings) -> None:
    """What is a setting of its own is no option: there would be two places to look for it."""
    for name in settings.rule_options.keys() & {*RuleSettings.__dataclass_fields__, "step"}:
        raise ConfigError(f"{name} is no option of {settings.rule} but a setting of its own.")
    most = settings.rule_options.get("population")
    if most is not None and not (settings.cap is not None and settings.cap <= most):
        raise ConfigError(  # nobody can be one worker too many once an update is accepted
            f"A server that divides by a population of {most} remembers no more workers than "
            f"that: add --cap {most}, got cap={settings.cap}."
        )


def _check_shared(settings: RuleSettings) -> None:
    shared = shared_names(settings.local_rule)
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


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Who may push and pull, the limits, and whether a timer steps."""

    limits: Limits = field(default_factory=Limits)
    open_enrolment: bool = False  # workers without tokens may push, under names of their own
    public_model: bool = False  # anybody may pull
    step_after_s: float | None = None  # step with what is there if the oldest waited this long

    def __post_init__(self) -> None:
        check_kinds(self)
        if self.step_after_s is not None and not self.step_after_s > 0:
            raise ConfigError(f"step_after_s must be positive, got {self.step_after_s}.")

    @property
    def open_pull(self) -> bool:
        """Whether a model is pulled without a token."""
        return self.public_model or self.open_enrolment


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Where a run is kept, how it begins, and what is kept of it."""

    store: str | Path  # a file, or postgresql://...
    init: str | Path | None = None  # the first model; None: go on with the run that is there
    history: int = HISTORY  # versions that can be pulled
    keep_payloads: bool | None = None  # for a replay; None: as the run has done, a new one not
    evaluate: str | None = None  # MODULE:NAME of a function that evaluates new versions
    model: str | None = None  # MODULE:NAME of the torch module that it is given if it asks for one
    callback: str | None = None  # names of callbacks, or MODULE:NAME, separated by commas

    def __post_init__(self) -> None:
        check_kinds(self)


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
    insecure: bool = False  # listen on a public address without TLS all the same

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
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("TLS needs both a certificate and its key.")
        if self.client_ca is not None and self.tls_cert is None:
            raise ConfigError("Client certificates need TLS: give a certificate and its key too.")
        for path in self.tls_files:
            if not path.is_file():
                raise ConfigError(f"There is no file {path}.")
        if not (self.tls_cert or self.insecure or _is_loopback(self.host)):
            raise ConfigError(
                f"{self.host} can be reached from elsewhere, and without TLS tokens and updates "
                "travel readable: give a certificate and its key, listen on 127.0.0.1 behind a "
                "proxy, or say --insecure."
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
        with socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET) as probe:
            if os.name == "posix":  # elsewhere it would take the port from whoever has it
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self.host, self.port))
            except OSError as error:
                raise ConfigError(
                    f"Cannot listen on {self.host}, port {self.port}: {error.strerror}. Choose "
                    "another --port or --host, or stop the program that listens there."
                ) from error


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
