"""MimeLite: local steps with the server's momentum, which stays as it is for the visit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from anarchic.core.local import Array, Held
from anarchic.errors import ConfigError

__all__ = ["MimeLite"]

MOMENTUM, FIRST = "momentum", "mime_first"


@final
@dataclass(frozen=True)
class MimeLite:
    """x <- x - eta_L * ((1 - beta) * g + beta * v), and at the server, once per step,

        v' = (1 - beta) * (1/m) * sum_i g_i(x_start) + beta * v

    v is pulled with the model and does not change during a visit; the update carries
    (1 - beta) * (g_i(x_start) - v). The server's half is
    ``SharedVectors(rule, names=("momentum",), population=m)`` around any rule.
    Reference: Karimireddy et al., "Mime: Mimicking Centralized Stochastic Algorithms in Federated
    Learning", 2020, arXiv:2008.03606, Algorithm 1 (MimeLite, SGD with momentum). Known from the
    authors' program. Departs from it in: the gradient of the first local step stands for that of
    all the worker's data; a late update corrects the v that it pulled.
    """

    beta: float = 0.9

    keeps: ClassVar[tuple[str, ...]] = ()
    shares: ClassVar[tuple[str, ...]] = (MOMENTUM,)
    shared_mean_over: ClassVar[str] = "step"
    scratch: ClassVar[tuple[str, ...]] = (FIRST,)
    plain: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0 <= self.beta < 1:
            raise ConfigError(f"MimeLite needs 0 <= beta < 1, got beta={self.beta}.")

    def step(self, gradient: Array, x: Array, start: Array, held: Held) -> Array:
        first = (x == start).all(-1)[..., None]
        held[FIRST] = held[FIRST] + first * (gradient - held[FIRST])
        return (1 - self.beta) * gradient + self.beta * held[MOMENTUM]

    def finish(self, mean: Array, held: Held) -> tuple[Held, Held]:
        return {}, {MOMENTUM: (1 - self.beta) * (held[FIRST] - held[MOMENTUM])}
