"""FedDyn's half of the worker: a linear term that makes the local optima agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from anarchic.core.arrays import dtype_of, like_that
from anarchic.core.local import Array, Held, LocalRule, VisitStart
from anarchic.errors import ConfigError

__all__ = ["Dyn"]

KEPT, STEPS = "dyn_gradient", "dyn_steps"


@final
@dataclass(frozen=True)
class Dyn:
    """x <- x - eta_L * (g - h_i + alpha * (x - x_start)), and afterwards

        h_i' = h_i + alpha * D_i,    D_i = K * eta_L * G_i = x_start - x_end

    h_i stays with the worker; nothing is shared. The server's half is the rule ``FedDyn``.
    Reference: Acar et al., "Federated Learning Based on Dynamic Regularization", ICLR 2021,
    arXiv:2111.04263, Algorithm 1. Known from the authors' program. Departs from it in: the local
    objective is followed by SGD for as many steps as the worker likes, not solved to an accuracy;
    alpha is the same for all workers, where their program divides it by the share of the data; no
    gradient is clipped.
    """

    alpha: float = 0.1

    keeps: ClassVar[tuple[str, ...]] = (KEPT,)
    shares: ClassVar[tuple[str, ...]] = ()
    scratch: ClassVar[tuple[str, ...]] = (STEPS,)
    plain: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0 < self.alpha < float("inf"):
            raise ConfigError(f"Dyn needs a positive, finite alpha, got alpha={self.alpha}.")

    def begin(self, start: VisitStart) -> LocalRule:
        return _DynVisit(self, start)

    def step(self, gradient: Array, x: Array, start: Array, held: Held) -> Array:
        held[STEPS] = held[STEPS] + 1  # the same number everywhere: lanes may differ
        return gradient - held[KEPT] + self.alpha * (x - start)

    def finish(self, mean: Array, held: Held) -> tuple[Held, Held]:
        raise ConfigError("Dyn must be told the rate: call its begin before the first step.")


@final
class _DynVisit:
    """``Dyn`` in one visit: it knows eta_L, which makes a displacement of the mean direction."""

    keeps, shares, scratch, plain = Dyn.keeps, Dyn.shares, Dyn.scratch, False

    def __init__(self, dyn: Dyn, start: VisitStart) -> None:
        self._dyn, self._lr = dyn, np.asarray(start.lr, np.float64)
        self.step = dyn.step

    def finish(self, mean: Array, held: Held) -> tuple[Held, Held]:
        lr, steps = self._lr, held[STEPS]
        rate = float(lr) if lr.ndim == 0 else like_that(lr.astype(dtype_of(mean)), mean)
        return {KEPT: held[KEPT] + self._dyn.alpha * (rate * (steps * mean))}, {}
