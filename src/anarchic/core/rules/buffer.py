"""What AFA-CD, FedAvg and FedBuff share: a buffer holding a weighted mean of directions.

The three differ only in the coefficient of an update and in which base versions they take. What
they keep between updates is one vector, whatever the number of workers or of updates per step.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from anarchic.core.arrays import add_scaled, zeros
from anarchic.core.checking import check
from anarchic.core.rule import SteppingRule, versions_met
from anarchic.core.steps import SgdStep, Step, stepped
from anarchic.core.types import EMPTY, Integers, Matrix, Update, Updates, Vector
from anarchic.errors import ConfigError, MalformedUpdate

Floats = NDArray[np.float64]
MOST_M = 2**31 - 1  # no reader of a status or a metric takes a longer number


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
class BufferedRule(SteppingRule[BufferState]):
    """Every ``m`` updates, step along their mean; a rule says how much each of them counts."""

    m: int
    server_lr: float = 1.0
    step: Step = field(default_factory=SgdStep)

    def __post_init__(self) -> None:
        check_settings(type(self).__name__, self.m, self.server_lr)

    @abstractmethod
    def scale(self, local_lr: float, local_steps: int) -> float:
        """See ``Rule``."""

    def coefficient(self, local_lr: float, local_steps: int, staleness: int) -> float:
        """What the direction of an update is multiplied by before the mean is taken."""
        return self.scale(local_lr, local_steps)

    def folded_scale(self, local_lr: float, local_steps: int, staleness: int, norm: float) -> float:
        return self.coefficient(local_lr, local_steps, staleness)

    def coefficients(self, block: Updates, staleness: Integers) -> Floats:
        """The coefficient of every update of a block, to the same bits."""
        columns = (block.local_lrs.tolist(), block.local_steps.tolist(), staleness.tolist())
        return np.fromiter(map(self.coefficient, *columns), np.float64, len(block))

    def mass(self, samples: int) -> float:
        """How much an update weighs in the mean."""
        return 1.0

    def begin(self, params: Vector) -> BufferState:
        return BufferState(params, 0, zeros(params), 0.0, 0, self.step.init(params))

    def fold(self, state: BufferState, update: Update) -> None:
        rate, steps = float(update.local_lr), int(update.local_steps)
        coefficient = self.coefficient(rate, steps, state.version - update.base_version)
        masses = np.array([self.mass(update.samples)])
        self._add(state, update.direction[None], np.array([coefficient]), masses)

    def receive_many(self, state: BufferState, block: Updates) -> BufferState:
        versions = versions_met(self, state, block)
        check(block, params=state.params, version=versions, oldest=self.oldest(versions))
        coefficients = self.coefficients(block, versions - block.base_versions)
        masses = np.fromiter(map(self.mass, block.samples.tolist()), np.float64, len(block))
        done = 0
        while done < len(block):
            rows = slice(done, done + self.remaining(state))
            self._add(state, block.directions[rows], coefficients[rows], masses[rows])
            state.count += len(coefficients[rows])
            done = rows.stop
            if state.count == self.m:
                state = self.flush(state)
        return state

    def _add(
        self, state: BufferState, directions: Matrix, coefficients: Floats, masses: Floats
    ) -> None:
        """Fold updates, no more of them than the next step is waiting for."""
        add_scaled(state.total, directions, masses * coefficients)
        for mass in masses.tolist():
            state.mass += mass

    def next_params(self, state: BufferState) -> Vector:
        vectors, by = (state.params, state.total, state.moments), state.mass
        state.mass = 0.0
        return stepped(*vectors, by, self.step, self.server_lr, clear=True)


def check_settings(rule: str, m: int, server_lr: float) -> None:
    if not 1 <= m <= MOST_M or m % 1:
        raise ConfigError(
            f"{rule} needs a whole number m >= 1 of updates per step, at most {MOST_M}, got m={m}."
        )
    if not 0 < server_lr < float("inf"):
        raise ConfigError(f"{rule} needs a positive, finite server_lr, got {server_lr}.")


def samples_of(rule: str, samples: int) -> float:
    """The weight of an update where updates weigh by their samples."""
    if samples < 1:
        raise MalformedUpdate(
            f"{rule} by samples got an update of {samples} samples: send their number along, or "
            "set by_samples=False."
        )
    return float(samples)
