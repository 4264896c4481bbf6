"""What AFA-CD, FedAvg and FedBuff share: a buffer holding a weighted mean of directions.

The three differ only in the coefficient of an update and in which base versions they take. What
they keep between updates is one vector, whatever the number of workers or of updates a step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from anarchic.core.arrays import minus, times, zeros
from anarchic.core.rule import check, check_block, start, versions_met
from anarchic.core.steps import SgdStep, Step
from anarchic.core.types import EMPTY, Integers, Update, Updates, Vector
from anarchic.errors import ConfigError


@dataclass(slots=True)
class BufferState:
    """Parameters, version, and the sum of what has arrived since the last step."""

    params: Vector
    version: int
    total: Vector  # sum of coefficient * direction
    mass: float  # what the sum is divided by at a step
    count: int  # updates since the last step
    moments: dict[str, Vector]  # of the server step
    extras: Mapping[str, Vector] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True)
class BufferedRule(ABC):
    """Every ``m`` updates, step along their mean; a rule says how much each of them counts."""

    m: int
    server_lr: float = 1.0
    step: Step = field(default_factory=SgdStep)

    def __post_init__(self) -> None:
        check_settings(type(self).__name__, self.m, self.server_lr)

    @abstractmethod
    def coefficient(self, local_lr: float, local_steps: int, staleness: int) -> float:
        """What the direction of an update is multiplied by before the mean is taken."""

    def mass(self, samples: int) -> float:
        """How much an update weighs in the mean."""
        return 1.0

    def oldest(self, version: Integers) -> Integers:
        """The oldest base version that is taken at ``version``."""
        return np.zeros_like(version)

    def init(self, params: Vector) -> BufferState:
        params = start(params)
        return BufferState(params, 0, zeros(params), 0.0, 0, self.step.init(params))

    def receive(self, state: BufferState, update: Update) -> BufferState:
        oldest = int(self.oldest(np.array(state.version)))
        check(update, params=state.params, version=state.version, oldest=oldest)
        staleness = state.version - update.base_version
        rate, steps = float(update.local_lr), int(update.local_steps)
        coefficient = self.coefficient(rate, steps, staleness)
        return self._add(state, update.direction, coefficient, self.mass(update.samples))

    def receive_many(self, state: BufferState, block: Updates) -> BufferState:
        versions = versions_met(state.version, state.count, self.m, len(block))
        check_block(block, params=state.params, versions=versions, oldest=self.oldest(versions))
        staleness = versions - block.base_versions
        columns = (block.local_lrs.tolist(), block.local_steps.tolist(), staleness.tolist())
        coefficients = list(map(self.coefficient, *columns))
        masses = list(map(self.mass, block.samples.tolist()))
        # One row after another: a matrix product would be another sum, to the last bit.
        for direction, coefficient, mass in zip(
            block.directions, coefficients, masses, strict=True
        ):
            state = self._add(state, direction, coefficient, mass)
        return state

    def _add(
        self, state: BufferState, direction: Vector, coefficient: float, mass: float
    ) -> BufferState:
        state.total += times(direction, mass * coefficient, state.total)
        state.mass += mass
        state.count += 1
        return self.flush(state) if state.count == self.m else state

    def due(self, state: BufferState) -> int:
        return self.m - state.count

    def flush(self, state: BufferState) -> BufferState:
        if state.count == 0:
            return state
        mean = state.total
        mean /= state.mass
        # New parameters, not new values in the old ones: those were published.
        change = self.step.change(mean, self.server_lr, state.moments)
        state.params = minus(state.params, change)
        state.version += 1
        state.total[:] = 0
        state.mass, state.count = 0.0, 0
        return state


def check_settings(rule: str, m: int, server_lr: float) -> None:
    if not m >= 1 or m % 1:
        raise ConfigError(f"{rule} needs a whole number m >= 1 of updates per step, got m={m}.")
    if not 0 < server_lr < float("inf"):
        raise ConfigError(f"{rule} needs a positive, finite server_lr, got {server_lr}.")
