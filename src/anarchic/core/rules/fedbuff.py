"""FedBuff: buffered asynchronous aggregation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from anarchic.core.rules.buffer import BufferedRule
from anarchic.errors import ConfigError


@final
@dataclass(frozen=True)
class FedBuff(BufferedRule):
    """A buffer of ``m`` asynchronous updates, late ones counting less.

        x_{t+1} = x_t - eta * (1/m) * sum_i s(tau_i) * Delta_i,   s(tau) = (1 + tau)^-power

    where Delta_i = x_base - x_i = K_i * eta_L_i * G_i is measured from the version that the
    worker pulled. The mean is over the buffer, once: late updates shrink the step.
    Reference: Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation", AISTATS
    2022, arXiv:2106.06639, Algorithm 1 with s(tau) = 1/sqrt(1 + tau). Known from the authors'
    program for the weight's form; the exponent 1/2 and the division by m from programs of others.
    Departs from it in: the power of s is a setting; no differential privacy.
    """

    power: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.power >= 0:
            raise ConfigError(f"FedBuff needs power >= 0, got power={self.power}.")

    def scale(self, local_lr: float, local_steps: int) -> float:
        return local_lr * local_steps

    def coefficient(self, local_lr: float, local_steps: int, staleness: int) -> float:
        return self.scale(local_lr, local_steps) * float((1 + staleness) ** -self.power)
