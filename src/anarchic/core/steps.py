"""How the mean of the updates becomes a step of the server.

Every rule that averages hands its mean ``Delta_t`` to one of these. ``SgdStep`` is the paper's,
``MomentumStep`` is FedAvgM (Hsu, Qi, Brown, 2019, arXiv:1909.06335), ``AdamStep`` and ``YogiStep``
are FedAdam and FedYogi (Reddi et al., "Adaptive Federated Optimization", ICLR 2021,
arXiv:2003.00295, Algorithm 2; ``epsilon`` is its tau). Departs from them in: the sign, since our
Delta points uphill and is subtracted. As there, there is no bias correction, and second moments
start at ``epsilon ** 2``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol, final

from anarchic.core.arrays import as_like, sign, sqrt, zeros
from anarchic.core.types import Vector
from anarchic.errors import ConfigError
from anarchic.kernels import faster

Moments = dict[str, Vector]  # of the server step, by name


class Step(Protocol):
    """Turns a mean direction into what is subtracted from the parameters.

    Number by number: of a large model it is given a piece at a time.
    """

    def init(self, params: Vector) -> Moments:
        """The moments before the first step."""

    def change(self, mean: Vector, server_lr: float, moments: Moments) -> Vector:
        """What to subtract; brings ``moments`` up to date in place."""


@faster
def stepped(
    params: Vector, total: Vector, moments: Moments, by: float, step: Step, lr: float, clear: bool
) -> Vector:
    """The parameters after a step along ``total / by``: new ones, for the old were published.

    ``clear`` leaves zeros in ``total``.
    """
    mean = as_like(total / by, params)
    if clear:
        total[:] = 0
    found: Vector = params - as_like(step.change(mean, lr, moments), params)
    return found


@final
@dataclass(frozen=True, slots=True)
class SgdStep:
    """x_{t+1} = x_t - eta * Delta_t."""

    def init(self, params: Vector) -> Moments:
        return {}

    def change(self, mean: Vector, server_lr: float, moments: Moments) -> Vector:
        return server_lr * mean


@final
@dataclass(frozen=True, slots=True)
class MomentumStep:
    """v_t = beta * v_{t-1} + Delta_t;  x_{t+1} = x_t - eta * v_t."""

    beta: float = 0.9

    def __post_init__(self) -> None:
        _check_decay("MomentumStep", "beta", self.beta)

    def init(self, params: Vector) -> Moments:
        return {"velocity": zeros(params)}

    def change(self, mean: Vector, server_lr: float, moments: Moments) -> Vector:
        velocity = moments["velocity"]
        velocity *= self.beta
        velocity += mean
        return server_lr * velocity


@dataclass(frozen=True, slots=True)
class _AdaptiveStep(ABC):
    beta1: float = 0.9
    beta2: float = 0.99
    epsilon: float = 1e-3

    def __post_init__(self) -> None:
        step = type(self).__name__
        _check_decay(step, "beta1", self.beta1)
        _check_decay(step, "beta2", self.beta2)
        if not self.epsilon > 0:
            raise ConfigError(f"{step} needs epsilon > 0, got epsilon={self.epsilon}.")

    def init(self, params: Vector) -> Moments:
        return {"first": zeros(params), "second": zeros(params) + self.epsilon**2}

    @abstractmethod
    def _update_second(self, second: Vector, mean: Vector) -> None:
        """Bring the second moments up to date, in place."""

    def change(self, mean: Vector, server_lr: float, moments: Moments) -> Vector:
        first, second = moments["first"], moments["second"]
        self._update_second(second, mean)
        first *= self.beta1
        first += (1 - self.beta1) * mean
        change: Vector = server_lr * first / (sqrt(second) + self.epsilon)
        return change


@final
@dataclass(frozen=True, slots=True)
class AdamStep(_AdaptiveStep):
    """m_t = b1 m + (1 - b1) Delta;  v_t = b2 v + (1 - b2) Delta^2;  step eta m / (sqrt v + eps)."""

    def _update_second(self, second: Vector, mean: Vector) -> None:
        second *= self.beta2
        second += (1 - self.beta2) * mean * mean


@final
@dataclass(frozen=True, slots=True)
class YogiStep(_AdaptiveStep):
    """As ``AdamStep``, with v_t = v - (1 - b2) Delta^2 sign(v - Delta^2)."""

    def _update_second(self, second: Vector, mean: Vector) -> None:
        square = mean * mean
        second -= (1 - self.beta2) * square * sign(second - square)


@final
@dataclass(frozen=True, slots=True)
class AmsGradStep(_AdaptiveStep):
    """As ``AdamStep`` with the largest v so far: step eta m / (sqrt max v + eps).

    Moments start at zero. It is the step of FedAMS and FADAS (Wang, Lin, Chen, ICML 2022,
    arXiv:2205.02719; Wang et al., ICML 2024, arXiv:2407.18365).
    """

    epsilon: float = 1e-8

    def init(self, params: Vector) -> Moments:
        return {name: zeros(params) for name in ("first", "second", "largest")}

    def _update_second(self, second: Vector, mean: Vector) -> None:
        second *= self.beta2
        second += (1 - self.beta2) * mean * mean

    def change(self, mean: Vector, server_lr: float, moments: Moments) -> Vector:
        first, second, largest = (moments[name] for name in ("first", "second", "largest"))
        self._update_second(second, mean)
        first *= self.beta1
        first += (1 - self.beta1) * mean
        larger = second > largest
        largest[larger] = second[larger]
        change: Vector = server_lr * first / (sqrt(largest) + self.epsilon)
        return change


def _check_decay(step: str, name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise ConfigError(f"{step} needs 0 <= {name} < 1, got {name}={value}.")
