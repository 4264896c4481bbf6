"""FedAsync: every update mixes the worker's model into the server's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, final

from anarchic.core.arrays import times
from anarchic.core.rows import WorkerRows
from anarchic.core.rule import SteppingRule
from anarchic.core.rules.history import check_history, keep, kept
from anarchic.core.types import EMPTY, Update, Vector
from anarchic.core.validation import check_choice
from anarchic.errors import ConfigError


@dataclass(slots=True)
class FedAsyncState:
    """Parameters, version, and the versions that workers may still hold."""

    params: Vector
    version: int
    history: WorkerRows  # version -> parameters, but for the newest
    extras: Mapping[str, Vector] = field(default_factory=lambda: EMPTY)


@final
@dataclass(frozen=True, slots=True)
class FedAsync(SteppingRule[FedAsyncState]):
    """Asynchronous federated optimisation: no buffer, one step per update.

        x_{t+1} = (1 - a) * x_t + a * x_i,   a = alpha * s(tau)
        s(tau) = (1 + tau)^-power                           (``discount="polynomial"``)
        s(tau) = 1 if tau <= b, else 1 / (a (tau - b) + 1)  (``discount="hinge"``)

    where x_i = x_base - K_i * eta_L_i * G_i is the model that the worker ended with, so the state
    keeps the ``history`` newest versions.
    Symbols: ``mixing`` is alpha, ``power`` is the exponent a of the polynomial discount,
    ``hinge_slope`` and ``hinge_start`` are a and b of the hinge. tau of a fresh update is 0.
    Reference: Xie, Koyejo, Gupta, "Asynchronous Federated Optimization", 2019, arXiv:1903.03934,
    Algorithm 1; ``power=0`` is its constant discount. Known from programs of others, which agree;
    what the paper counts from is from memory. Departs from it in: the paper counts from 1, so that
    a fresh update has staleness 1; the proximal term is the worker's (``Prox``); of an update from
    an older version than those kept, x_base is the oldest one kept.
    """

    mixing: float = 0.6
    power: float = 0.5
    history: int = 100
    discount: Literal["polynomial", "hinge"] = "polynomial"
    hinge_slope: float = 10.0
    hinge_start: int = 4

    def __post_init__(self) -> None:
        if not 0 < self.mixing <= 1:
            raise ConfigError(f"FedAsync needs 0 < mixing <= 1, got mixing={self.mixing}.")
        if not self.power >= 0:
            raise ConfigError(f"FedAsync needs power >= 0, got power={self.power}.")
        check_history("FedAsync", self.history)
        check_choice("discount", self.discount, ("polynomial", "hinge"))
        if not (self.hinge_slope > 0 and self.hinge_start >= 0):
            raise ConfigError(
                "FedAsync needs hinge_slope > 0 and hinge_start >= 0, got "
                f"hinge_slope={self.hinge_slope}, hinge_start={self.hinge_start}."
            )

    def begin(self, params: Vector) -> FedAsyncState:
        return FedAsyncState(params, 0, WorkerRows(params))

    def fold(self, state: FedAsyncState, update: Update) -> None:
        staleness = state.version - update.base_version
        weight = self.mixing * self.discounted(staleness)
        keep(state.history, state.version, state.params, self.history)
        base = kept(state.history, int(update.base_version))
        scale = self.scale(float(update.local_lr), int(update.local_steps))
        theirs = base - times(update.direction, scale, base)
        state.params = times(state.params, 1 - weight, base) + times(theirs, weight, base)
        state.version += 1

    def discounted(self, staleness: int) -> float:
        """s(tau)."""
        if self.discount == "polynomial":
            return float((1 + staleness) ** -self.power)
        late = max(0, staleness - self.hinge_start)
        return 1 / (self.hinge_slope * late + 1)

    # A fold is a step: nothing ever waits for one.

    def next_params(self, state: FedAsyncState) -> Vector:
        return state.params

    def _take(self, state: FedAsyncState, update: Update) -> FedAsyncState:
        self.fold(state, update)
        return state

    def remaining(self, state: FedAsyncState) -> int:
        return 1

    def flush(self, state: FedAsyncState) -> FedAsyncState:
        return state

    @property
    def m(self) -> int:
        return 1

    # What it keeps is of versions, not of workers.

    @property
    def remembers(self) -> int:
        return 0

    def forget(self, state: FedAsyncState, worker: str) -> bool:
        return False

    def scale(self, local_lr: float, local_steps: int) -> float:
        return local_lr * local_steps
