"""Wrappers around local rules: gradients that are clipped, rates that change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np

from anarchic.core.arrays import as_like, dtype_of, like_that, sqrt
from anarchic.core.local import Array, Held, LocalRule, Sgd, VisitStart, begun, wide
from anarchic.errors import ConfigError

__all__ = ["ClipNorm", "Decay"]

Factors = Any  # a number, or (lanes, 1) of NumPy's


class Wrapping:
    """Holds what the rule within holds."""

    rule: LocalRule

    @property
    def keeps(self) -> tuple[str, ...]:
        return self.rule.keeps

    @property
    def shares(self) -> tuple[str, ...]:
        return self.rule.shares

    @property
    def scratch(self) -> tuple[str, ...]:
        return self.rule.scratch

    @property
    def plain(self) -> bool:
        return False

    def finish(self, mean: Array, held: Held) -> tuple[Held, Held]:
        return self.rule.finish(mean, held)


@final
@dataclass(frozen=True)
class ClipNorm(Wrapping):
    """g becomes g * min(1, max_norm / ||g||) before the rule within sees it.

    The norm is that of the whole gradient of a local step, in float64.
    Reference: Pascanu, Mikolov, Bengio, "On the difficulty of training recurrent neural networks",
    ICML 2013, arXiv:1211.5063, Algorithm 1. Departs from it in: nothing.
    """

    max_norm: float = 1.0
    rule: LocalRule = field(default_factory=Sgd)

    def __post_init__(self) -> None:
        if not self.max_norm > 0:
            raise ConfigError(f"ClipNorm needs max_norm > 0, got max_norm={self.max_norm}.")

    @property
    def plain(self) -> bool:
        return self.max_norm == np.inf and self.rule.plain

    def begin(self, start: VisitStart) -> LocalRule:
        return replace(self, rule=begun(self.rule, start))

    def step(self, gradient: Array, x: Array, start: Array, held: Held) -> Array:
        if self.max_norm < np.inf:
            exact = wide(gradient)  # no square of float32 overflows there
            norm = sqrt((exact * exact).sum(-1)[..., None])
            # Exactly 1 where the norm is within the bound; a norm that is NaN stays NaN.
            gradient = gradient * as_like(self.max_norm / norm.clip(min=self.max_norm), gradient)
        return self.rule.step(gradient, x, start, held)


class Scheduled(Wrapping):
    """The direction of local step k is multiplied by a factor of k and of the version pulled, t."""

    def factors(self, version: Factors) -> Callable[[int], Factors]:
        """The factor by the number of the step, from 0, for versions as they come in a visit."""
        raise NotImplementedError

    def begin(self, start: VisitStart) -> LocalRule:
        rule = begun(self.rule, start)
        if self.always_one:
            return rule
        return _Following(self.factors(np.asarray(start.version, np.float64)), rule)

    @property
    def always_one(self) -> bool:
        """Whether the factor never differs from 1."""
        return False

    @property
    def plain(self) -> bool:
        return self.always_one and self.rule.plain

    def step(self, gradient: Array, x: Array, start: Array, held: Held) -> Array:
        raise ConfigError(
            f"{type(self).__name__} must be told the version: call its begin before the first step."
        )


@final
class _Following(Wrapping):
    """A schedule in one visit: it counts the steps."""

    def __init__(self, factors: Callable[[int], Factors], rule: LocalRule) -> None:
        self.rule, self._factors, self._steps = rule, factors, 0

    def step(self, gradient: Array, x: Array, start: Array, held: Held) -> Array:
        factor = self._factors(self._steps)
        self._steps += 1
        direction = self.rule.step(gradient, x, start, held)
        if np.ndim(factor) == 0:
            return float(factor) * direction
        return like_that(factor[: len(x)].astype(dtype_of(x)), x) * direction


@final
@dataclass(frozen=True)
class Decay(Scheduled):
    """The rate of local step k of a visit that pulled version t is eta_L * f, where

        f = max(floor, per_step^k * per_version^t)

    The direction is multiplied by f, so the update still carries eta_L, and K * eta_L * G is still
    the displacement. ``per_step`` restarts with each visit.
    Reference: none. Departs from it in: nothing.
    """

    per_step: float = 1.0
    per_version: float = 1.0
    floor: float = 0.0
    rule: LocalRule = field(default_factory=Sgd)

    def __post_init__(self) -> None:
        if callable(self.per_step) or callable(self.per_version):
            raise ConfigError(
                "Decay takes numbers; a schedule that is a function of step and version is "
                "Schedule(function)."
            )
        if not (0 < self.per_step <= 1 and 0 < self.per_version <= 1 and 0 <= self.floor <= 1):
            raise ConfigError(
                f"Decay needs per_step and per_version above 0 and floor from 0, all up to 1, got "
                f"per_step={self.per_step}, per_version={self.per_version}, floor={self.floor}."
            )

    @property
    def always_one(self) -> bool:
        return self.per_step == self.per_version == 1

    def factors(self, version: Factors) -> Callable[[int], Factors]:
        by_version = self.per_version**version
        return lambda step: np.maximum(self.floor, by_version * self.per_step**step)
