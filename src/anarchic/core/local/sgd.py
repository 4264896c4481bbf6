"""Plain stochastic gradient descent, the paper's local rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from anarchic.core.local.rule import Array, Held, Stateless


@final
@dataclass(frozen=True)
class Sgd(Stateless):
    """x <- x - eta_L * g.

    Reference: Yang et al., ICML 2022, arXiv:2108.09875, Algorithm 2, worker code. Departs from
    it in: nothing.
    """

    plain: ClassVar[bool] = True

    def step(self, gradient: Array, x: Array, start: Array, held: Held) -> Array:
        return gradient
