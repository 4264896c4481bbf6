"""SGD with heavy-ball momentum inside a visit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from anarchic.core.local.rule import Array, Held, Stateless
from anarchic.errors import ConfigError


@final
@dataclass(frozen=True)
class Momentum(Stateless):
    """v <- beta * v + g;  x <- x - eta_L * v; v is zero when the worker pulls.

    The update's direction is the mean of the v, that is (x_start - x_end) / (K * eta_L).
    Reference: Polyak, "Some methods of speeding up the convergence of iteration methods", 1964.
    Departs from it in: the gradients are stochastic, the velocity does not outlive a visit.
    """

    beta: float = 0.9
    scratch: ClassVar[tuple[str, ...]] = ("velocity",)

    def __post_init__(self) -> None:
        if not 0 <= self.beta < 1:
            raise ConfigError(f"Momentum needs 0 <= beta < 1, got beta={self.beta}.")

    def step(self, gradient: Array, x: Array, start: Array, held: Held) -> Array:
        held["velocity"] = self.beta * held["velocity"] + gradient
        return held["velocity"]
