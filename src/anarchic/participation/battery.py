"""Workers that live on a battery."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from anarchic.errors import ConfigError
from anarchic.participation.arrays import Floats, Ints


@final
@dataclass(frozen=True, slots=True)
class Battery:
    """Local steps cost charge; charge comes back at a rate, up to ``capacity``.

    A worker pays for a visit when it pulls. If it cannot, it takes the local steps that it can pay
    for ("shorten") or none ("skip"); with none it idles again. Everyone starts full.
    """

    capacity: float
    refill_per_s: float
    step_cost: float = 1.0
    short: Literal["shorten", "skip"] = "shorten"

    def __post_init__(self) -> None:
        if not (self.step_cost > 0 and self.refill_per_s > 0):
            raise ConfigError(
                "Battery needs step_cost > 0 and refill_per_s > 0, got "
                f"{self.step_cost} and {self.refill_per_s}."
            )
        if not self.step_cost <= self.capacity < np.inf:
            raise ConfigError(
                f"A battery of capacity {self.capacity} cannot pay for one local step of cost "
                f"{self.step_cost}; raise the capacity (it must be finite)."
            )
        if self.short not in ("shorten", "skip"):
            raise ConfigError(f'Battery.short is "shorten" or "skip", got {self.short!r}.')

    def charged(self, charge: Floats, elapsed_s: Floats) -> Floats:
        """Charge after so much time without paying."""
        return np.minimum(self.capacity, charge + self.refill_per_s * elapsed_s)

    def affordable(self, charge: Floats, steps: Ints) -> Ints:
        """Local steps that are taken, 0 for a visit that is skipped."""
        most = np.floor(charge / self.step_cost)
        if self.short == "skip":
            return np.where(most >= steps, steps, np.int32(0))
        return np.minimum(most, steps).astype(np.int32)
