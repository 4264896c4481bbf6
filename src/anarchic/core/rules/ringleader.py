"""Ringleader ASGD: rounds in which every worker leads one step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from anarchic.core.rules.means import NEXT, NOW, MeansRule, MeansState
from anarchic.core.types import Update, Vector


@dataclass
class RingleaderState(MeansState):
    """Two tables, and which workers have led a step in this round."""

    began: int = -1  # the version in which all were heard; -1: not yet
    yet: int = 0  # workers that have not led a step since


@final
@dataclass(frozen=True)
class Ringleader(MeansRule):
    """Asynchronous SGD for workers with different data: one step for each of M workers, in rounds.

        x_{k+1} = x_k - eta * (1/M) * sum_{i in [M]} (1/b_i) * sum_{j <= b_i} eta_L * G_{i,j}

    Phase 1 of a round gathers updates, without a step, until every worker has one in the table. It
    ends with the first step. In phase 2 each of the other workers brings its next update, which
    joins its mean (b_i grows by 1) and makes a step. So a round has M steps. Further updates of
    workers that have led their step begin the table of the next round. Every arrival makes a
    version; those without a step keep the model. With one worker it is SGD.
    Symbols: ``server_lr`` is eta (the paper's gamma), ``population`` is M (the paper's n).
    Reference: Maranjyan, Richtarik, "Ringleader ASGD: The First Asynchronous SGD with Optimal Time
    Complexity under Data Heterogeneity", ICLR 2026, arXiv:2509.22860, Algorithm 1. Known from a
    program and a summary, which agree; the paper was not read. Departs from it in: the mean is over
    the workers in the table; the local rate is in the means; workers may take several local steps;
    without ``population`` a round waits for the workers heard so far, not for M; a worker that is
    silent for long may be forgotten (``expire_after``); versions without a new model; server step.
    """

    def begin(self, params: Vector) -> RingleaderState:
        return RingleaderState(params, **self._first(params))

    def fold(self, state: Any, update: Update) -> None:
        self._expire(state)
        if state.began < 0:
            self._join(state, update)
            if self._all_heard(state):
                state.began, state.yet, state.due = state.version, state.heard - 1, True
                state.since_next = state.version + 1
        elif self._is_yet_to_lead(state, update.worker):
            self._join(state, update)
            state.yet -= 1
            state.due = True
        else:
            self._join(state, update, NEXT)

    def next_params(self, state: Any) -> Vector:
        params = self._step(state) if state.due else state.params
        state.due = False
        if state.began >= 0 and not state.yet:
            state.began = -1
            self._end_round(state)
        return params

    def forget(self, state: Any, worker: str) -> bool:
        state.yet -= self._is_yet_to_lead(state, worker)
        return super().forget(state, worker)

    def _is_yet_to_lead(self, state: Any, worker: str) -> bool:
        """Whether its row is from phase 1, which the last finisher has ended with its own step."""
        waits = state.began >= 0 and self._is_in(state, worker, NOW)
        return waits and self._table(state, NOW).heard_at(worker) < state.began
