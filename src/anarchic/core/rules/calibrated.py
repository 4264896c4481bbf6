"""CA2FL, FedVARP and FedStale: fresh updates, corrected by what was kept of all workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import numpy as np

from anarchic.core.arrays import copied, zeros
from anarchic.core.rules.table import TableRule, TableState
from anarchic.core.steps import stepped
from anarchic.core.types import Vector
from anarchic.errors import ConfigError


@dataclass(slots=True)
class CalibratedState(TableState):
    """The table, and what it was when the last step was taken."""

    before: Vector = field(default_factory=lambda: np.zeros(0))  # the sum of the rows then
    workers_before: int = 0  # rows then
    fresh: Vector = field(default_factory=lambda: np.zeros(0))  # sum of the updates since then


@dataclass(frozen=True)
class _CalibratedRule(TableRule):
    """Step along beta * h + (1/|S|) * sum over the step's updates of (D_i - beta * h_i).

    D_i = K_i * eta_L_i * G_i is the worker's displacement, h_i the one before it, and h the mean of
    all h_i before the step.
    """

    _beta: ClassVar[float] = 1.0

    @property
    def memory(self) -> float:
        """How much the memory counts."""
        return self._beta

    def scale(self, local_lr: float, local_steps: int) -> float:
        return local_lr * local_steps

    def begin(self, params: Vector) -> CalibratedState:
        first = self._first(params)
        before, fresh = zeros(params, double=True), zeros(params, double=True)
        return CalibratedState(**first, before=before, fresh=fresh)

    def _replace(self, state: Any, updates: Sequence[tuple[str, float, Vector]]) -> None:
        for each in updates:  # one by one: a worker may come twice
            super()._replace(state, [each])
            if self.memory != 1:
                state.fresh += state.rows[each[0]]

    def forget(self, state: Any, worker: str) -> bool:
        """Drop a worker's row; where it reported since the last step, as if it had sent zero."""
        if worker in state.rows and state.rows.heard_at(worker) < state.version:
            state.before -= state.rows[worker]
            state.workers_before = max(0, state.workers_before - 1)
        return super().forget(state, worker)

    def next_params(self, state: Any) -> Vector:
        beta, workers = self.memory, self.population or max(1, state.workers_before)
        direction = state.before * (beta / workers)
        direction += (state.total - state.before) * (beta / state.count)
        if beta != 1:
            direction += state.fresh * ((1 - beta) / state.count)
            state.fresh[:] = 0
        self._expire(state)
        state.before, state.workers_before = copied(state.total), len(state.rows)
        vectors = state.params, direction, state.moments
        return stepped(*vectors, 1.0, self.step, self.server_lr, clear=False)


@final
@dataclass(frozen=True)
class Ca2fl(_CalibratedRule):
    """Cache-aided asynchronous federated learning.

        v_t = h_t + (1/|S_t|) * sum_{i in S_t} (D_i - h_i);   x_{t+1} = x_t - eta * v_t

    where D_i = K_i * eta_L_i * G_i, h_i is what worker i sent before and h_t = (1/M) * sum_i h_i,
    both from before the step; of a worker that reports twice in one step, h_i of its second update
    is its first. Updates are not discounted by their staleness.
    Symbols: ``m`` is |S_t|, ``server_lr`` is eta, ``population`` is M.
    Reference: Wang, Cao, Wu, Chen, Chen, "Tackling the Data Heterogeneity in Asynchronous Federated
    Learning with Cached Update Calibration", ICLR 2024. Known from programs of others, of which two
    agree; the paper was not read. Departs from it in: without ``population`` the mean is over the
    workers heard so far; expiry, cap and server step.
    """


@final
@dataclass(frozen=True)
class FedStale(_CalibratedRule):
    """Synchronous rounds in which the memory of absent workers counts by ``beta``.

        v_t = beta * h_t + (1/|S_t|) * sum_{i in S_t} (D_i - beta * h_i)
        x_{t+1} = x_t - eta * v_t

    ``beta=0`` is ``FedAvg``, ``beta=1`` is ``FedVarp``. Late updates are refused.
    Symbols: ``m`` is |S_t|, ``server_lr`` is eta, ``population`` is M, D_i = K_i * eta_L_i * G_i.
    Reference: Rodio, Neglia, "FedStale", 2024, arXiv:2405.04171. Known from a summary; the paper
    was not read. Departs from it in: all workers take part with the same probability m/M.
    """

    beta: float = 0.5
    takes_late: ClassVar[bool] = False
    synchronous: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.beta <= 1:
            raise ConfigError(f"FedStale needs 0 <= beta <= 1, got beta={self.beta}.")

    @property
    def memory(self) -> float:
        return self.beta

    def oldest(self, version: Any) -> Any:
        return version


@final
@dataclass(frozen=True)
class FedVarp(_CalibratedRule):
    """Federated averaging with reduced variance of partial participation.

    ``Ca2fl`` in synchronous rounds: late updates are refused.
    Reference: Jhunjhunwala, Sharma, Nagarkatti, Joshi, "FedVARP: Tackling the Variance Due to
    Partial Client Participation in Federated Learning", UAI 2022, arXiv:2207.14130, Algorithm 1.
    Known from the paper's text. Departs from it in: rows are displacements, so that steps and rates
    may differ.
    """

    takes_late: ClassVar[bool] = False
    synchronous: ClassVar[bool] = True

    def oldest(self, version: Any) -> Any:
        return version
