"""Malenia SGD: enough gradients at the current model from every worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from anarchic.core.rules.means import NOW, MeansRule, MeansState
from anarchic.core.rules.rennala import check_batch
from anarchic.core.types import Update, Vector


@dataclass
class MaleniaState(MeansState):
    """A table, and how evenly it is filled."""

    inverse: float = 0.0  # sum of 1/b_i


@final
@dataclass(frozen=True)
class Malenia(MeansRule):
    """Minibatch SGD for workers with different data: every worker's mean counts the same.

        x_{k+1} = x_k - eta * (1/M) * sum_{i in [M]} (1/b_i) * sum_{j <= b_i} eta_L * G_{i,j}(x_k)

    as soon as every worker has sent an update (b_i >= 1) and the harmonic mean of the b_i is at
    least S/M. An update that started from an older model counts for nothing. Every arrival makes a
    version; those without a step keep the model, so a worker always starts from x_k. If no worker
    sends twice it is ``AfaCd(m=M)``.
    Symbols: ``batch`` is S, ``server_lr`` is eta (the paper's gamma), ``population`` is M (the
    paper's n).
    Reference: Tyurin, Richtarik, "Optimal Time Complexities of Parallel Stochastic Optimization
    Methods Under a Fixed Computation Model", NeurIPS 2023, arXiv:2305.12387, Malenia SGD. Known
    from a later paper of its first author that restates it. Departs from it in: the mean is over
    the workers in the table; the local rate is in the means; workers may take several local steps;
    without ``population`` a round waits for the workers heard so far, not for M; a worker that is
    silent for long may be forgotten (``expire_after``); versions without a new model; server step.
    """

    batch: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_batch("Malenia", self.batch)

    def begin(self, params: Vector) -> MaleniaState:
        return MaleniaState(params, **self._first(params))

    def fold(self, state: Any, update: Update) -> None:
        self._expire(state)
        if update.base_version < state.since:
            self._get_to_know(state, update.worker)
            return
        sent = self._join(state, update)
        state.inverse += 1 / sent - (1 / (sent - 1) if sent > 1 else 0)
        # M / inverse >= S / M, but for rounding.
        enough = self.batch * state.inverse <= state.heard**2 * (1 + 1e-9)
        state.due = enough and self._all_heard(state)

    def next_params(self, state: Any) -> Vector:
        if not state.due:
            params: Vector = state.params
            return params
        found = self._step(state)
        state.due, state.inverse, state.since_next = False, 0.0, state.version + 1
        self._end_round(state)
        return found

    def forget(self, state: Any, worker: str) -> bool:
        if self._is_in(state, worker, NOW):
            state.inverse -= 1 / float(state.sent[worker][state.round % 2])
        return super().forget(state, worker)
