"""FedDyn: the server's half, a memory of all displacements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from anarchic.core.arrays import zeros
from anarchic.core.rules.buffer import BufferedRule, BufferState
from anarchic.core.steps import stepped
from anarchic.core.types import Vector
from anarchic.errors import ConfigError


@dataclass(slots=True)
class FedDynState(BufferState):
    """A buffer, and what all displacements so far add up to."""

    memory: Vector = field(default_factory=lambda: np.zeros(0))  # h / alpha


@final
@dataclass(frozen=True)
class FedDyn(BufferedRule):
    """Federated averaging with dynamic regularisation.

        h_{t+1} = h_t + (alpha / M) * sum_i D_i
        x_{t+1} = x_t - eta * ((1/m) * sum_i D_i + h_{t+1} / alpha)

    where D_i = K_i * eta_L_i * G_i is the displacement of worker i. The state keeps h / alpha, in
    which alpha cancels: it is a setting of the workers' local rule, ``Dyn``, alone.
    Symbols: ``m`` is the number of updates, ``server_lr`` is eta, ``population`` is M (None:
    the number of updates of the step).
    Reference: Acar et al., "Federated Learning Based on Dynamic Regularization", ICLR 2021,
    arXiv:2111.04263, Algorithm 1. Known from the authors' program. Departs from it in: late updates
    are taken as if they were fresh; eta may differ from 1.
    """

    population: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.population is not None and self.population < 1:
            raise ConfigError(f"FedDyn needs population >= 1, got population={self.population}.")

    def scale(self, local_lr: float, local_steps: int) -> float:
        return local_lr * local_steps

    def begin(self, params: Vector) -> FedDynState:
        first = super().begin(params)
        memory = zeros(params, double=True)  # so that a million small displacements are not lost
        return FedDynState(first.params, 0, first.total, 0.0, 0, first.moments, memory=memory)

    def next_params(self, state: Any) -> Vector:
        state.memory += state.total / (self.population or state.mass)
        direction = state.total / state.mass + state.memory
        state.total[:], state.mass = 0, 0.0
        vectors = state.params, direction, state.moments
        return stepped(*vectors, 1.0, self.step, self.server_lr, clear=False)
