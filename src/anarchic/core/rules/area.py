"""AREA: the mean of the models that all workers ended with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import numpy as np

from anarchic.core.arrays import as_like, times
from anarchic.core.rule import SteppingRule
from anarchic.core.rules.table import TableRule, TableState
from anarchic.core.steps import stepped
from anarchic.core.types import Update, Vector
from anarchic.errors import ConfigError


@dataclass(slots=True)
class AreaState(TableState):
    """The table, the first model, and the versions that workers may still hold."""

    first: Vector = field(default_factory=lambda: np.zeros(0))  # x_0
    history: dict[str, Vector] = field(default_factory=dict)  # version -> parameters


@final
@dataclass(frozen=True)
class Area(TableRule):
    """Every ``m`` arrivals, the model becomes the mean of all workers' last end models.

        y_i = x_base - K_i * eta_L_i * G_i for the worker that arrives
        x_{t+1} = x_t - eta * (x_t - (1/M) * sum_{i in [M]} y_i)

    where y_i is x_0 for a worker that was not heard yet, or that was forgotten. How many updates a
    worker sends does not change its weight. The rows hold y_i - x_0.
    Symbols: ``server_lr`` is eta, ``population`` is M (None: the workers heard so far).
    Reference: Iakovidou, Kim, "Asynchronous Federated Stochastic Optimization for Heterogeneous
    Objectives Under Arbitrary Delays", 2024, arXiv:2405.10123, with eta = 1. Departs from it in:
    the server computes y_i from the base version, of which it keeps the ``history`` newest, where
    the paper's workers remember y_i; eta, expiry, cap and server step.
    """

    m: int = 1
    history: int = 100
    takes_late: ClassVar[bool] = False  # not later than ``history`` versions

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.history < 1:
            raise ConfigError(f"Area needs history >= 1 versions, got {self.history}.")

    def scale(self, local_lr: float, local_steps: int) -> float:
        return local_lr * local_steps

    def oldest(self, version: Any) -> Any:
        return np.maximum(0, version - self.history + 1)

    def begin(self, params: Vector) -> AreaState:
        return AreaState(**self._first(params), first=params, history={"0": params})

    def fold(self, state: Any, update: Update) -> None:
        self._check_room(state, [update.worker])
        self._make_room(state, update.worker)
        base = state.history[str(update.base_version)]
        scale = self.scale(float(update.local_lr), int(update.local_steps))
        moved = base - state.first - times(update.direction, scale, base)
        self._replace(state, [(update.worker, 1.0, moved)])

    receive_many = SteppingRule.receive_many  # each update starts from its own base version

    def next_params(self, state: Any) -> Vector:
        self._expire(state)
        mean = state.first + as_like(state.total / self._workers(state), state.first)
        vectors = state.params, state.params - mean, state.moments
        return stepped(*vectors, 1.0, self.step, self.server_lr, clear=False)

    def flush(self, state: Any) -> Any:
        version = state.version
        state = super().flush(state)
        if state.version > version:
            state.history[str(state.version)] = state.params
            state.history.pop(str(state.version - self.history), None)
        return state
