"""FedAsync: every update mixes the worker's model into the server's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

from anarchic.core.arrays import times
from anarchic.core.rule import check_block, start, versions_met, vet
from anarchic.core.types import EMPTY, Update, Updates, Vector
from anarchic.errors import ConfigError


@dataclass(slots=True)
class FedAsyncState:
    """Parameters, version, and the versions that workers may still hold."""

    params: Vector
    version: int
    history: dict[str, Vector]  # version -> parameters, the newest among them
    extras: Mapping[str, Vector] = field(default_factory=lambda: EMPTY)


@final
@dataclass(frozen=True, slots=True)
class FedAsync:
    """Asynchronous federated optimisation: no buffer, one step an update.

        x_{t+1} = (1 - a) * x_t + a * x_i,   a = alpha * s(tau),   s(tau) = (1 + tau)^-power

    where x_i = x_base - K_i * eta_L_i * G_i is the model that the worker ended with, so the state
    keeps the ``history`` newest versions; an update from an older one is refused.
    Symbols: ``mixing`` is alpha, ``power`` is the exponent a of the polynomial discount.
    Reference: Xie, Koyejo, Gupta, "Asynchronous Federated Optimization", 2019,
    arXiv:1903.03934, Algorithm 1. Departs from it in: of its three discounts only the polynomial
    one is here (``power=0`` is the constant one).
    """

    mixing: float = 0.6
    power: float = 0.5
    history: int = 100

    def __post_init__(self) -> None:
        if not 0 < self.mixing <= 1:
            raise ConfigError(f"FedAsync needs 0 < mixing <= 1, got mixing={self.mixing}.")
        if not self.power >= 0:
            raise ConfigError(f"FedAsync needs power >= 0, got power={self.power}.")
        if self.history < 1:
            raise ConfigError(f"FedAsync needs history >= 1 versions, got {self.history}.")

    def init(self, params: Vector) -> FedAsyncState:
        params = start(params)
        return FedAsyncState(params, 0, {"0": params})

    def receive(self, state: FedAsyncState, update: Update) -> FedAsyncState:
        oldest = max(0, state.version - self.history + 1)
        vet(update, params=state.params, version=state.version, oldest=oldest)
        return self._mix(state, update)

    def receive_many(self, state: FedAsyncState, block: Updates) -> FedAsyncState:
        versions = versions_met(state.version, 0, 1, len(block))
        oldest = (versions - self.history + 1).clip(min=0)
        check_block(block, params=state.params, versions=versions, oldest=oldest)
        for row in range(len(block)):
            state = self._mix(state, block.row(row))
        return state

    def _mix(self, state: FedAsyncState, update: Update) -> FedAsyncState:
        staleness = state.version - update.base_version
        weight = self.mixing * float((1 + staleness) ** -self.power)
        base = state.history[str(update.base_version)]
        reach = self.scale(float(update.local_lr), int(update.local_steps))
        theirs = base - times(update.direction, reach, base)
        state.params = times(state.params, 1 - weight, base) + times(theirs, weight, base)
        state.version += 1
        state.history[str(state.version)] = state.params
        state.history.pop(str(state.version - self.history), None)
        return state

    @property
    def m(self) -> int:
        return 1

    def scale(self, local_lr: float, local_steps: int) -> float:
        return local_lr * local_steps

    def remaining(self, state: FedAsyncState) -> int:
        return 1

    def flush(self, state: FedAsyncState) -> FedAsyncState:
        return state
