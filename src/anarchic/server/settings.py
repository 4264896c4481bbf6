"""What a server is told: its rule, its limits, its manners."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from anarchic.core.local import LOCAL_RULES
from anarchic.core.rule import Rule
from anarchic.core.rules import RULES
from anarchic.core.steps import STEPS
from anarchic.core.wrappers import Clip, SharedVectors, StalenessDiscount
from anarchic.errors import ConfigError
from anarchic.server.memory import TrackedRows
from anarchic.server.store import HISTORY

# Rules that fold whatever was accepted, however late: an accepted update must count.
LIVE_RULES = ("afa-cd", "afa-cs", "fedbuff")


@dataclass(frozen=True, kw_only=True)
class RuleSettings:
    """The rule of a run: fixed when the run is created, and stored with it."""

    rule: str = "afa-cd"
    m: int = 5
    server_lr: float = 1.0
    server_opt: str = "sgd"
    server_options: Mapping[str, Any] = field(default_factory=dict)
    rule_options: Mapping[str, Any] = field(default_factory=dict)
    staleness_power: float | None = None
    clip: float | None = None
    expire_after: int | None = None
    cap: int | None = None  # workers that AFA-CS remembers
    local_rule: str = "sgd"  # that workers may run: what it shares travels beside the model
    workers: int | None = None  # M, by which what comes back of that is divided

    def __post_init__(self) -> None:
        if self.rule not in LIVE_RULES:
            raise ConfigError(
                f"A server cannot run {self.rule!r}; it can run {', '.join(LIVE_RULES)}."
            )
        if self.server_opt not in STEPS:
            raise ConfigError(
                f"There is no server optimiser {self.server_opt!r}; there are {', '.join(STEPS)}."
            )
        if self.local_rule not in LOCAL_RULES:
            raise ConfigError(
                f"There is no local rule {self.local_rule!r}; there are {', '.join(LOCAL_RULES)}."
            )
        self.build()

    def build(self) -> Rule[Any]:
        """The rule, its memory of workers kept by the store where it has one."""
        kind = RULES[self.rule]
        names = {f.name for f in fields(kind)}
        step = _with(STEPS[self.server_opt], {}, self.server_options)
        own: dict[str, Any] = {"m": self.m, "server_lr": self.server_lr, "step": step}
        if "rows" in names:
            own["rows"] = TrackedRows
        for name in ("expire_after", "cap"):
            if (value := getattr(self, name)) is not None:
                if name not in names:
                    raise ConfigError(f"{self.rule} remembers nobody: leave {name} out.")
                own[name] = value
        rule: Rule[Any] = _with(kind, own, self.rule_options)
        self._check_population()
        if self.staleness_power is not None:
            rule = StalenessDiscount(rule, self.staleness_power)
        if self.clip is not None:
            rule = Clip(rule, self.clip)
        return self._carrying(rule)

    def _carrying(self, rule: Rule[Any]) -> Rule[Any]:
        """With the vectors that the local rule shares, as SCAFFOLD its control."""
        shared = LOCAL_RULES[self.local_rule]().shares
        if bool(shared) != (self.workers is not None):
            what = f"their {', '.join(shared)}" if shared else "nothing"
            remedy = "give" if shared else "leave out"
            raise ConfigError(
                f"Workers with local rule {self.local_rule} share {what} with the server, got "
                f"workers={self.workers}: {remedy} the number of workers, M."
            )
        return rule if self.workers is None else SharedVectors(rule, shared, self.workers)

    def _check_population(self) -> None:
        """Nobody can be one worker too many once an update is accepted."""
        most = self.rule_options.get("population")
        if most is not None and not (self.cap is not None and self.cap <= most):
            raise ConfigError(
                f"A server that divides by a population of {most} remembers no more workers than "
                f"that: add --cap {most}, got cap={self.cap}."
            )


def _with(kind: Callable[..., Any], own: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    """The part with what it is given in any case, and with options; others are refused.

    What is a setting of its own is no option: there would be two places to look for it.
    """
    settings = {*own, *RuleSettings.__dataclass_fields__}
    has = [f.name for f in fields(kind) if f.name not in settings]  # type: ignore[arg-type]
    for name in options:
        if name not in has:
            raise ConfigError(
                f"{kind.__name__} has no option {name!r} here; it has {', '.join(has) or 'none'}."
            )
    return kind(**own, **options)


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
    header_s: float = 10.0  # seconds in which the head of a request must come
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
    """Who may push and pull, the limits, and whether a timer steps."""

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


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Where a run is kept, how it begins, and what is kept of it."""

    store: str | Path  # a file, or postgresql://...
    init: Path | None = None  # the first model; None: go on with the run that is there
    history: int = HISTORY  # versions that can be pulled
    keep_payloads: bool | None = None  # for a replay; None: as the run has done, a new one not
    evaluate: str | None = None  # MODULE:NAME of a function that evaluates new versions


def check_memory(rules: RuleSettings, settings: ServerSettings) -> None:
    """Strangers must not be able to fill the memory with rows."""
    if settings.open_enrolment and rules.rule == "afa-cs" and rules.cap is None:
        raise ConfigError(
            "With open enrolment anybody can invent workers, and afa-cs remembers each of them: "
            "begin the run with --cap N, or give the workers tokens."
        )
