"""Schedules of the local rate: warm-up, cosine, milestones, and any function of step and version.

Each is a wrapper around a local rule and multiplies its direction by a factor f(k, t) of the local
step k, from 0 in every visit, and of the version t that the visit pulled. So the rate is
eta_L * f, while the update still carries eta_L, and K * eta_L * G is still the displacement. In
each other they are multiplied: ``WarmUp(100, rule=Cosine(1_000))``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from types import CodeType
from typing import Any, final

import numpy as np

from anarchic.core import registry
from anarchic.core.local import LocalRule, Sgd
from anarchic.core.local_wrappers import Factors, Scheduled
from anarchic.core.reading import shown
from anarchic.errors import ConfigError

__all__ = ["Cosine", "Milestones", "Schedule", "WarmUp"]

PLAIN = bool | int | float | str | None


@final
@dataclass(frozen=True)
class WarmUp(Scheduled):
    """The rate rises in equal steps to eta_L, which it has from version and step n - 1 on:

        f = min(1, (t + 1) / warm_versions) * min(1, (k + 1) / warm_steps)

    Zero leaves its part out. ``warm_steps`` restarts with each visit.
    Reference: Goyal et al., "Accurate, Large Minibatch SGD", 2017, arXiv:1706.02677, section 2.2.
    Departs from it in: the rate starts at 1 / n of eta_L.
    """

    warm_versions: int = 0
    warm_steps: int = 0
    rule: LocalRule = field(default_factory=Sgd)

    def __post_init__(self) -> None:
        _check_whole(self, "warm_versions", "warm_steps")

    @property
    def always_one(self) -> bool:
        return self.warm_versions <= 1 and self.warm_steps <= 1

    def factors(self, version: Factors) -> Callable[[int], Factors]:
        by_version = np.minimum(1.0, (version + 1) / max(1, self.warm_versions))
        return lambda step: by_version * min(1.0, (step + 1) / max(1, self.warm_steps))


@final
@dataclass(frozen=True)
class Cosine(Scheduled):
    """The rate falls along half a cosine, to ``floor`` from version T or step S on:

        f = floor + (1 - floor) * c(t / T) * c(k / S),    c(u) = (1 + cos(pi * min(u, 1))) / 2

    with T ``versions`` and S ``steps``; zero leaves its part out. ``steps`` restarts with each
    visit.
    Reference: Loshchilov, Hutter, "SGDR", ICLR 2017, arXiv:1608.03983, equation 5. Departs from
    it in: no restarts over versions.
    """

    versions: int = 0
    steps: int = 0
    floor: float = 0.0
    rule: LocalRule = field(default_factory=Sgd)

    def __post_init__(self) -> None:
        _check_whole(self, "versions", "steps")
        if not 0 <= self.floor <= 1:
            raise ConfigError(f"Cosine needs a floor from 0 to 1, got floor={self.floor}.")

    @property
    def always_one(self) -> bool:
        return self.versions == self.steps == 0

    def factors(self, version: Factors) -> Callable[[int], Factors]:
        by_version = _half_cosine(version, self.versions)
        part = 1 - self.floor
        return lambda step: self.floor + part * by_version * _half_cosine(step, self.steps)


@final
@dataclass(frozen=True)
class Milestones(Scheduled):
    """The rate is multiplied by ``drop`` at certain versions and local steps:

        f = drop ** (number of at_versions <= t, and of at_steps <= k)

    Both are whole numbers, or a text of them: ``"100, 150"``. Steps restart with each visit.
    Reference: none; ``MultiStepLR`` of PyTorch. Departs from it in: nothing.
    """

    at_versions: str | Sequence[int] = ()
    at_steps: str | Sequence[int] = ()
    drop: float = 0.1
    rule: LocalRule = field(default_factory=Sgd)

    def __post_init__(self) -> None:
        for name in ("at_versions", "at_steps"):
            object.__setattr__(self, name, _whole_numbers(name, getattr(self, name)))
        if not 0 < self.drop < float("inf"):
            raise ConfigError(f"Milestones needs a drop above 0, got drop={self.drop}.")

    @property
    def always_one(self) -> bool:
        return self.drop == 1 or not (self.at_versions or self.at_steps)

    def factors(self, version: Factors) -> Callable[[int], Factors]:
        before, steps = np.sort(self.at_versions), np.sort(self.at_steps)
        passed = np.searchsorted(before, version, side="right")
        return lambda step: (
            self.drop ** (passed + np.searchsorted(steps, step, side="right")).astype(np.float64)
        )


@final
@dataclass(frozen=True)
class Schedule(Scheduled):
    """The rate is eta_L * f(k, t), with any function f = ``factor(step, version)``.

    It gets two whole numbers and returns one from 0 on; ``"my_module:name"`` names one. Recorded
    runs know it by its name and the plain values that it was made with.
    Reference: none. Departs from it in: nothing.
    """

    factor: str | Callable[[int, int], float] = field(repr=False)
    rule: LocalRule = field(default_factory=Sgd)
    described: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.factor, str):
            object.__setattr__(self, "factor", registry.load(self.factor))
        if isinstance(self.factor, type) or not callable(self.factor):
            raise ConfigError(
                "Schedule takes a function of step and version, such as lambda step, version: "
                f"0.99**version, got {shown(self.factor)}."
            )
        object.__setattr__(self, "described", _described(self.factor))
        self.factor_at(0, 0)

    def factor_at(self, step: int, version: int) -> float:
        """The factor, once it has been checked."""
        assert callable(self.factor)
        try:
            found = float(self.factor(step, version))
        except TypeError as error:
            raise ConfigError(
                f"Schedule calls factor(step, version) and takes one number, and {self.described} "
                f"does not fit: {error}."
            ) from error
        if not (isfinite(found) and found >= 0):
            raise ConfigError(
                f"A schedule gives factors from 0 on, and {self.described} gives {found} for local "
                f"step {step} of version {version}."
            )
        return found

    def factors(self, version: Factors) -> Callable[[int], Factors]:
        known, place = np.unique(version, return_inverse=True)
        versions = [int(each) for each in known]

        def factor(step: int) -> Factors:
            found = np.array([self.factor_at(step, each) for each in versions])
            return found[place].reshape(np.shape(version))

        return factor


def _half_cosine(at: Any, length: int) -> Any:
    return 1.0 if length == 0 else (1 + np.cos(np.pi * np.minimum(at / length, 1))) / 2


def _check_whole(schedule: Any, *names: str) -> None:
    for name in names:
        value = getattr(schedule, name)
        if isinstance(value, bool) or value != value or int(value) != value or value < 0:
            raise ConfigError(
                f"{type(schedule).__name__} needs {name} as a whole number from 0 on, got {value}."
            )


def _whole_numbers(name: str, given: str | Sequence[int]) -> tuple[int, ...]:
    parts: Any = given.replace(",", " ").split() if isinstance(given, str) else given
    try:
        found = tuple(int(each) for each in parts)
        if all(float(each) == whole >= 0 for each, whole in zip(parts, found, strict=True)):
            return found
    except (TypeError, ValueError):
        pass
    raise ConfigError(f"Milestones needs {name} as whole numbers from 0 on, got {shown(given)}.")


def _described(function: Any) -> str:
    """A function in words that are the same in every process."""
    if isinstance(function, partial):
        given = *map(_plain, function.args), *sorted(_pairs(function.keywords))
        return f"partial({', '.join((_described(function.func), *given))})"
    name = f"{getattr(function, '__module__', None)}.{_qualified(function)}"
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        return name
    around = [_plain(cell.cell_contents) for cell in function.__closure__ or ()]
    made = [*map(_plain, function.__defaults__ or ()), *_pairs(function.__kwdefaults__), *around]
    if function.__name__ == "<lambda>":  # whose name says nothing
        made += [*code.co_names, *map(_plain, code.co_consts)]
    return f"{name}({', '.join(made)})"


def _qualified(function: Any) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _pairs(named: dict[str, Any] | None) -> list[str]:
    return [f"{name}={_plain(value)}" for name, value in (named or {}).items()]


def _plain(value: Any) -> str:
    if isinstance(value, PLAIN):
        return repr(value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_plain, value))}]"
    return _described(value) if callable(value) else _qualified(type(value))
