"""ACED: as ACE, over those workers alone whose last update is not too late."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from anarchic.core.arrays import zeros
from anarchic.core.rows import WorkerRows
from anarchic.core.rule import SteppingRule
from anarchic.core.rules.mifa import WaitingRule, WaitingState
from anarchic.core.types import Update, Updates, Vector
from anarchic.errors import ConfigError


@dataclass(slots=True)
class AcedState(WaitingState):
    """A table that knows from which version each of its rows started."""

    bases: WorkerRows = field(default_factory=lambda: WorkerRows(np.zeros(1)))  # worker -> (1,)
    first_step: int = 0  # the version that the first step started from: until it, all are x_0


@final
@dataclass(frozen=True)
class Aced(WaitingRule):
    """All-client engagement, delay-aware: rows that are too late are left out.

        A_t = {i : t - t_i <= tau_algo}
        x_{t+1} = x_t - eta * (1/|A_t|) * sum_{i in A_t} eta_L_i * G_i

    over the last update of each worker, where t_i is the version that it started from. Where A_t
    is empty the model stays as it is. While all are waited for, nothing is left out; after that
    versions count from the first step. With ``limit=None`` and all workers heard it is ``Ace``.
    Symbols: ``server_lr`` is eta, ``limit`` is tau_algo, ``population`` is M, which is how many
    are waited for.
    Reference: Chang et al., 2025, arXiv:2511.19066, ACED. Known from the authors' program and
    description, which differ in t_i. Departs from it in: t_i is the version that the update started
    from, as the authors describe it, where their program takes the version of the job that the
    worker does now; the local rate is in the rows; workers may take several local steps; ``m``
    updates may be taken before a step; without ``population`` nobody is waited for; expiry, cap and
    server step.
    """

    m: int = 1
    limit: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.limit is not None and self.limit < 0:
            raise ConfigError(f"Aced needs limit >= 0, got limit={self.limit}.")

    def begin(self, params: Vector) -> AcedState:
        waiting = self.wait and self.population is not None
        bases = WorkerRows(zeros(params, (1,), double=True))
        return AcedState(**self._first(params), waiting=waiting, bases=bases)

    def fold(self, state: Any, update: Update) -> None:
        super().fold(state, update)
        base = zeros(state.total, (1,), double=True) + int(update.base_version)
        state.bases.put(update.worker, base, state.version)

    def receive_many(self, state: Any, block: Updates) -> Any:
        self._check_room(state, block.workers)  # before any is folded
        return SteppingRule.receive_many(self, state, block)  # each has a base version of its own

    def forget(self, state: Any, worker: str) -> bool:
        if worker in state.bases:
            state.bases.remove(worker)
        return super().forget(state, worker)

    def next_params(self, state: Any) -> Vector:
        waited = state.waiting
        if not waited:
            self._leave_out_late(state)
            if not len(state.rows):
                params: Vector = state.params
                return params
        found = super().next_params(state)
        if waited and not state.waiting:
            state.first_step = state.version
        return found

    def _leave_out_late(self, state: Any) -> None:
        """For good: what is too late now will not be in time later."""
        if self.limit is None:
            return
        for worker in list(state.bases):
            base = max(int(state.bases[worker][0]), state.first_step)
            if state.version - base > self.limit:
                self.forget(state, worker)

    def _workers(self, state: Any) -> int:
        """|A_t|."""
        return max(1, len(state.rows))
