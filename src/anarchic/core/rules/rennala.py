"""Rennala SGD: only gradients at the current model count."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from anarchic.core.arrays import times, zeros
from anarchic.core.rule import RuleState, SteppingRule
from anarchic.core.rules.buffer import check_settings
from anarchic.core.steps import SgdStep, Step, stepped
from anarchic.core.types import Update, Vector
from anarchic.errors import ConfigError


@dataclass
class RennalaState(RuleState):
    """What was gathered at the current model."""

    total: Vector = field(default_factory=lambda: np.zeros(0))  # sum of eta_L_i * G_i
    gathered: int = 0  # updates in it
    since: int = 0  # the first version with the current model
    moments: dict[str, Vector] = field(default_factory=dict)  # of the server step


@final
@dataclass(frozen=True)
class Rennala(SteppingRule[RennalaState]):
    """Minibatch SGD whose batch is gathered from whoever is ready.

        x_{k+1} = x_k - eta * (1/S) * sum of the first S updates eta_L_i * G_i(x_k)

    An update that started from an older model counts for nothing. Every arrival makes a version,
    and every S-th that counts makes one with a new model, so a worker always starts from x_k.
    If none is late it is ``AfaCd(m=S)``; ``batch=1`` is Ringmaster with R = 1.
    Symbols: ``batch`` is S, ``server_lr`` is eta (the paper's gamma).
    Reference: Tyurin, Richtarik, "Optimal Time Complexities of Parallel Stochastic Optimization
    Methods Under a Fixed Computation Model", NeurIPS 2023, arXiv:2305.12387, Rennala SGD. Known
    from a later paper of its first author that restates it. Departs from it in: the local rate is
    in the updates; workers may take several local steps; versions without a new model; server step.
    """

    batch: int = 5
    server_lr: float = 1.0
    step: Step = field(default_factory=SgdStep)

    def __post_init__(self) -> None:
        check_settings("Rennala", 1, self.server_lr)
        check_batch("Rennala", self.batch)

    @property
    def m(self) -> int:
        return 1

    def begin(self, params: Vector) -> RennalaState:
        return RennalaState(params, total=zeros(params), moments=self.step.init(params))

    def fold(self, state: RennalaState, update: Update) -> None:
        if update.base_version >= state.since:
            state.total += times(update.direction, float(update.local_lr), state.params)
            state.gathered += 1

    def next_params(self, state: Any) -> Vector:
        if state.gathered < self.batch:
            params: Vector = state.params
            return params
        vectors, by = (state.params, state.total, state.moments), state.gathered
        state.gathered, state.since = 0, state.version + 1
        return stepped(*vectors, by, self.step, self.server_lr, clear=True)


def check_batch(rule: str, batch: int) -> None:
    if batch < 1 or batch % 1:
        raise ConfigError(f"{rule} needs a whole number batch >= 1 of updates, got batch={batch}.")
