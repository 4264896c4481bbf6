"""What a server is told: its rule, its limits, who may push and pull."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any

from anarchic.core import registry
from anarchic.core.factory import RuleSettings, make_rule, setting_names, shared_names
from anarchic.core.rule import Rule
from anarchic.errors import ConfigError

__all__ = [
    "Limits",
    "RuleSettings",
    "ServerSettings",
    "check_memory",
    "served_names",
    "served_rule",
]


def served_rule(settings: RuleSettings) -> Rule[Any]:
    """The rule of a run. An update that was accepted must count, so not every rule will do."""
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
    return rule


def served_names() -> list[str]:
    """The installed rules that a server can run."""
    found = []
    for name in registry.names("rules"):
        with suppress(ImportError, ConfigError):  # a package that is broken must not break others
            if getattr(registry.find("rules", name), "takes_late", True):
                found.append(name)
    return found


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
    """What one worker, or all of them together, may do to the server."""

    per_worker: int | None = None  # waiting for a step; None: half of m, rounded up; all if alone
    max_staleness: int = 1_000  # versions
    max_norm: float | None = None  # of what the rule takes the mean of: see ``Clip``
    updates_per_minute: float = 6_000.0  # of one worker
    burst: int = 100  # that it may send at once
    bodies: int = 8  # read at the same time, beyond their first piece
    waiting_bodies: int = 256  # that may queue for their turn
    first_piece: int = 1 << 18  # bytes of a body that are read before it needs a place
    least_rate: float = 65_536.0  # bytes a second of a body that holds a place, or of a reader
    first_piece_s: float = 20.0  # until when the first piece must be there
    turn_s: float = 30.0  # how long a body waits for its place
    pulls: int = 16  # of one token at the same time
    open_pulls: int = 256  # of one address, where no token is needed
    header_s: float = 10.0  # until when a request's head must be there
    header_bytes: int = 16_384
    connections: int = 4_096

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if value is not None and not value > 0:
                raise ConfigError(f"The limit {f.name} must be positive, got {value}.")

    def share(self, m: int) -> int:
        """How many updates of one worker may wait for a step of ``m``."""
        return (m + 1) // 2 if self.per_worker is None else self.per_worker


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """A running server."""

    limits: Limits = field(default_factory=Limits)
    open_enrolment: bool = False  # workers without tokens may push, under names of their own
    public_model: bool = False  # anybody may pull
    step_after_s: float | None = None  # step with what is there if the oldest waited this long

    def __post_init__(self) -> None:
        if self.step_after_s is not None and not self.step_after_s > 0:
            raise ConfigError(f"step_after_s must be positive, got {self.step_after_s}.")

    @property
    def open_pull(self) -> bool:
        """Whether a model is pulled without a token."""
        return self.public_model or self.open_enrolment


def check_memory(rules: RuleSettings, settings: ServerSettings) -> None:
    """Strangers must not be able to fill the memory with rows."""
    if settings.open_enrolment and served_rule(rules).remembers is None:
        raise ConfigError(
            f"With open enrolment anybody can invent workers, and {rules.rule} remembers each of "
            "them: begin the run with --cap N, or give the workers tokens."
        )
