"""FedProx: stay near the model that was pulled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from anarchic.core.local.rule import Array, Held, Stateless
from anarchic.errors import ConfigError


@final
@dataclass(frozen=True)
class Prox(Stateless):
    """x <- x - eta_L * (g + mu * (x - x_start)).

    Reference: Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020,
    arXiv:1812.06127, Algorithm 2. Departs from it in: the proximal objective is followed by SGD
    for as many steps as the worker likes, not solved to an accuracy.
    """

    mu: float = 0.1

    def __post_init__(self) -> None:
        if not self.mu >= 0:
            raise ConfigError(f"Prox needs mu >= 0, got mu={self.mu}.")

    def step(self, gradient: Array, x: Array, start: Array, held: Held) -> Array:
        return gradient + self.mu * (x - start)
