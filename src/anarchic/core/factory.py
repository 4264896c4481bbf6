"""Rules from names: one record of settings, and one function for all who run rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import Parameter, signature
from typing import Any

from anarchic.core import registry
from anarchic.core.guard import Guard
from anarchic.core.local import LocalRule
from anarchic.core.rule import Rule
from anarchic.core.validation import check_kinds
from anarchic.core.wrappers import Clip, SharedVectors, StalenessDiscount
from anarchic.errors import ConfigError

UPDATES_PER_STEP = 5  # m, for rules that have it and name no default of their own


@dataclass(frozen=True, kw_only=True)
class RuleSettings:
    """A rule by name, and what is put around it. None: as the rule itself has it."""

    rule: str = "afa-cd"
    m: int | None = None
    server_lr: float | None = 1.0
    server_opt: str | None = "sgd"
    server_options: Mapping[str, Any] = field(default_factory=dict)
    rule_options: Mapping[str, Any] = field(default_factory=dict)
    staleness_power: float | None = None
    clip: float | None = None
    guard: float | None = None  # factor of ``Guard``; 0 or None: no guard, but see ``runs.begin``
    expire_after: int | None = None
    cap: int | None = None  # workers that the rule remembers
    local_rule: str = "sgd"  # that workers may run: what it shares travels beside the model
    workers: int | None = None  # M, by which what comes back of that is divided

    def __post_init__(self) -> None:
        check_kinds(self)


def make_rule(settings: RuleSettings, known: Mapping[str, Any] | None = None) -> Rule[Any]:
    """The rule that the settings name.

    ``known`` is what the runner knows and a rule may want to know, such as the ``population``: a
    rule that has no such field does without. A setting that the rule does not have is refused.
    From outside: guard, shared vectors, clip, discount, so the guard sees updates as they came.
    """
    kind = registry.find("rules", settings.rule)
    has = setting_names(kind)
    own = {name: value for name, value in (known or {}).items() if name in has}
    if "m" in has and signature(kind).parameters["m"].default is Parameter.empty:
        own["m"] = UPDATES_PER_STEP
    given = {name: getattr(settings, name) for name in ("m", "server_lr", "expire_after", "cap")}
    if settings.server_opt is not None or settings.server_options:
        step = registry.find("server_steps", settings.server_opt or "sgd")
        given["step"] = make_part(step, {}, settings.server_options)
    own |= {name: value for name, value in given.items() if value is not None}
    if "step" in own and "step" not in has:
        raise ConfigError(f"The rule {settings.rule} takes no server optimiser: leave it out.")
    rule: Rule[Any] = make_part(kind, own, settings.rule_options)
    _check_members(settings.rule, rule, Rule, "rule: derive it from SteppingRule")
    if settings.staleness_power is not None:
        rule = StalenessDiscount(rule, settings.staleness_power)
    if settings.clip is not None:
        rule = Clip(rule, settings.clip)
    over = shared_over(settings, rule.m)
    if over is not None and (shared := shared_names(settings.local_rule)):
        rule = SharedVectors(rule, names=shared, population=over)
    return Guard(rule, settings.guard) if settings.guard else rule


def make_local_rule(name: str, options: Mapping[str, Any]) -> LocalRule:
    """A local rule with its settings; ``clipnorm+adam`` is one in a wrapper.

    Of several, each takes the settings that it has.
    """
    parts = registry.chain(name)
    kinds = [registry.find("local_rules", part) for part in parts]
    known = {setting for kind in kinds for setting in setting_names(kind)}
    local: Any = None
    for part, kind in zip(reversed(parts), reversed(kinds), strict=True):
        has, inner = setting_names(kind), {} if local is None else {"rule": local}
        if inner and "rule" not in has:
            raise ConfigError(
                f"{part} wraps no other local rule, so that it can only stand last, got {name}."
            )
        own = {s: v for s, v in options.items() if s in has or s not in known}
        local = make_part(kind, inner, own)
        _check_members(part, local, LocalRule, "local rule")
    found: LocalRule = local
    return found


def _check_members(name: str, made: object, protocol: type, what: str) -> None:
    """Refuse what was named, and made, but is something else."""
    needs = [member for member in vars(protocol) if not member.startswith("_")]
    missing = [member for member in needs if not hasattr(made, member)]
    if missing:
        raise ConfigError(f"{name} has no {', '.join(missing)}, so it is no {what}.")


def shared_over(settings: RuleSettings, m: int) -> int | None:
    """By what the server divides the sum of what comes back: M, or m where the local rule wants the
    mean over the updates of a step, as MimeLite does."""
    kind = _innermost(settings.local_rule)
    return m if getattr(kind, "shared_mean_over", "workers") == "step" else settings.workers


def _innermost(local_rule: str) -> Callable[..., Any]:
    """The local rule within its wrappers, which share nothing."""
    found: Callable[..., Any] = registry.find("local_rules", registry.chain(local_rule)[-1])
    return found


def shared_names(local_rule: str) -> tuple[str, ...]:
    """The vectors that workers with this local rule share, as SCAFFOLD its control."""
    kind = _innermost(local_rule)
    shared = getattr(kind, "shares", None)
    return shared if isinstance(shared, tuple) else tuple(make_part(kind, {}, {}).shares)


def make_part(kind: Callable[..., Any], own: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    """A part from its settings and options; one that it does not have is refused."""
    has = setting_names(kind)
    chosen = {**own, **options}
    for name in chosen:
        if name not in has:
            raise ConfigError(
                f"{kind.__name__} has no setting {name!r}; it has {', '.join(has) or 'none'}."
            )
    try:
        signature(kind).bind(**chosen)
    except TypeError as error:
        raise ConfigError(f"{kind.__name__} needs more settings: {error}.") from error
    try:
        return kind(**chosen)
    except (TypeError, ValueError) as error:  # a part of another package may know no ConfigError
        raise ConfigError(f"{kind.__name__} cannot be made of {chosen}: {error}") from error


def setting_names(kind: Callable[..., Any]) -> list[str]:
    """What a part can be told: the fields of a dataclass, the parameters of anything else."""
    return list(signature(kind).parameters)
