"""AREA: the mean of the models that all workers ended with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from anarchic.core.arrays import as_like, times
from anarchic.core.rows import WorkerRows
from anarchic.core.rule import SteppingRule
from anarchic.core.rules.history import check_history, keep, kept
from anarchic.core.rules.table import TableRule, TableState
from anarchic.core.steps import stepped
from anarchic.core.types import Update, Updates, Vector


@dataclass(slots=True)
class AreaState(TableState):
    """The table, the first model, and the versions that workers may still hold."""

    first: Vector = field(default_factory=lambda: np.zeros(0))  # x_0
    history: WorkerRows = field(default_factory=lambda: WorkerRows(np.zeros(0)))  # by version


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
    Objectives Under Arbitrary Delays", 2024, arXiv:2405.10123, with eta = 1. Known from a summary;
    the paper was not read. Departs from it in: the server computes y_i from the base version, where
    the paper's workers remember y_i; it keeps the ``history`` newest versions, and of an older one
    x_base is the oldest one kept; eta, expiry, cap and server step.
    """

    m: int = 1
    history: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        check_history("Area", self.history)

    def scale(self, local_lr: float, local_steps: int) -> float:
        return local_lr * local_steps

    def begin(self, params: Vector) -> AreaState:
        return AreaState(**self._first(params), first=params, history=WorkerRows(params))

    def fold(self, state: Any, update: Update) -> None:
        self._check_room(state, [update.worker])
        self._make_room(state, update.worker)
        keep(state.history, state.version, state.params, self.history)
        base = kept(state.history, int(update.base_version))
        scale = self.scale(float(update.local_lr), int(update.local_steps))
        moved = base - state.first - times(update.direction, scale, base)
        self._replace(state, [(update.worker, 1.0, moved)])

    def receive_many(self, state: Any, block: Updates) -> Any:
        self._check_room(state, block.workers)  # before any is folded
        return SteppingRule.receive_many(self, state, block)  # each has a base version of its own

    def next_params(self, state: Any) -> Vector:
        self._expire(state)
        mean = state.first + as_like(state.total / self._workers(state), state.first)
        vectors = state.params, state.params - mean, state.moments
        return stepped(*vectors, 1.0, self.step, self.server_lr, clear=False)
