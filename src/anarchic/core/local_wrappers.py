"""Wrappers around local rules: gradients that are clipped, rates that change."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import final

import numpy as np

from anarchic.core.arrays import as_like, dtype_of, like_that, sqrt
from anarchic.core.local import Array, Held, LocalRule, Sgd, VisitStart, begun, wide
from anarchic.errors import ConfigError

__all__ = ["ClipNorm", "Decay"]


class _Wrapper:
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
class ClipNorm(_Wrapper):
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


@final
@dataclass(frozen=True)
class Decay(_Wrapper):
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
        if not (0 < self.per_step <= 1 and 0 < self.per_version <= 1 and 0 <= self.floor <= 1):
            raise ConfigError(
                f"Decay needs per_step and per_version above 0 and floor from 0, all up to 1, got "
                f"per_step={self.per_step}, per_version={self.per_version}, floor={self.floor}."
            )

    @property
    def plain(self) -> bool:
        return self.per_step == self.per_version == 1 and self.rule.plain

    def begin(self, start: VisitStart) -> LocalRule:
        rule = begun(self.rule, start)
        unchanged = self.per_step == self.per_version == 1
        return rule if unchanged else _Decaying(self, rule, start)

    def step(self, gradient: Array, x: Array, start: Array, held: Held) -> Array:
        raise ConfigError("Decay must be told the version: call its begin before the first step.")


@final
class _Decaying(_Wrapper):
    """``Decay`` in one visit: it counts the steps."""

    def __init__(self, decay: Decay, rule: LocalRule, start: VisitStart) -> None:
        self.rule, self._decay = rule, decay
        self._by_version = decay.per_version ** np.asarray(start.version, np.float64)
        self._steps = 0

    def step(self, gradient: Array, x: Array, start: Array, held: Held) -> Array:
        decay, lanes = self._decay, self._by_version
        factor = np.maximum(decay.floor, lanes * decay.per_step**self._steps)
        self._steps += 1
        direction = self.rule.step(gradient, x, start, held)
        if factor.ndim == 0:
            return float(factor) * direction
        return like_that(factor[: len(x)].astype(dtype_of(x)), x) * direction
