"""FedNova: workers that take more local steps do not pull the model towards themselves."""

from __future__ import annotations

from dataclasses import dataclass
from math import expm1, log1p
from typing import Any, final

from anarchic.core.rule import SteppingRule
from anarchic.core.rules.buffer import BufferedRule, BufferState, samples_of
from anarchic.core.steps import stepped
from anarchic.core.types import Update, Updates, Vector
from anarchic.errors import ConfigError, MalformedUpdate


@dataclass(slots=True)
class FedNovaState(BufferState):
    """A buffer that knows how many steps its updates stand for."""

    effective: float = 0.0  # sum of p_i * a_i, before the division by the sum of p_i


@final
@dataclass(frozen=True)
class FedNova(BufferedRule):
    """Normalised averaging.

        x_{t+1} = x_t - eta * tau_eff * sum_i p_i * D_i / a_i,   tau_eff = sum_i p_i * a_i

    where D_i = K_i * eta_L_i * G_i is the displacement of worker i and a_i what its steps add up
    to: K_i for SGD, (K - r (1 - r^K) / (1 - r)) / (1 - r) for local momentum r, and
    (1 - (1 - eta_L mu)^K) / (eta_L mu) for a proximal term mu. p_i is 1/m, or n_i / sum_j n_j
    where ``by_samples`` is set. With tau_eff = 1 and SGD it is ``AfaCd``.
    Symbols: ``m`` is the number of updates, ``server_lr`` is eta, ``momentum`` is r and ``mu`` is
    mu, as the workers' local rule has them.
    Reference: Wang, Liu, Liang, Joshi, Poor, "Tackling the Objective Inconsistency Problem in
    Heterogeneous Federated Optimization", NeurIPS 2020, arXiv:2007.07481, Theorem 1 and Section 4.
    Known from the authors' program. Departs from it in: late updates are taken as if they were
    fresh; the plain mean is the default; eta may differ from 1; tau_eff is sum_i p_i * a_i for
    ``mu`` too, where the authors' program takes sum_i p_i * K_i; an update with eta_L * mu >= 1 is
    refused, as its a_i may be negative.
    """

    by_samples: bool = False
    momentum: float = 0.0
    mu: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (0 <= self.momentum < 1 and 0 <= self.mu < float("inf")):
            raise ConfigError(
                "FedNova needs 0 <= momentum < 1 and a finite mu >= 0, got "
                f"momentum={self.momentum}, mu={self.mu}."
            )
        if self.momentum and self.mu:
            raise ConfigError(
                "FedNova knows what local steps add up to with momentum or with a proximal term, "
                f"not with both, got momentum={self.momentum}, mu={self.mu}."
            )

    def steps_add_up_to(self, local_lr: float, local_steps: int) -> float:
        """a_i."""
        if self.momentum:
            r = self.momentum
            return (local_steps - r * (1 - r**local_steps) / (1 - r)) / (1 - r)
        pull = self._pull(local_lr)
        # 1 - (1 - pull)^K, which as it stands would be 0 for a tiny pull.
        return -expm1(local_steps * log1p(-pull)) / pull if pull else float(local_steps)

    def _pull(self, local_lr: float) -> float:
        """eta_L * mu."""
        pull = local_lr * self.mu
        if pull >= 1:
            raise MalformedUpdate(
                f"FedNova with mu={self.mu:g} got an update with local_lr={local_lr:g}, and their "
                "product must be below 1",
                f"lower the worker's local_lr below {1 / self.mu:g}",
            )
        return pull

    def scale(self, local_lr: float, local_steps: int) -> float:
        return local_lr * local_steps / self.steps_add_up_to(local_lr, local_steps)

    def mass(self, samples: int) -> float:
        return samples_of("FedNova", samples) if self.by_samples else 1.0

    def begin(self, params: Vector) -> FedNovaState:
        first = super().begin(params)
        return FedNovaState(first.params, 0, first.total, 0.0, 0, first.moments)

    def fold(self, state: Any, update: Update) -> None:
        steps = self.steps_add_up_to(float(update.local_lr), int(update.local_steps))
        weighed = self.mass(update.samples) * steps
        super().fold(state, update)
        state.effective += weighed

    def receive_many(self, state: Any, block: Updates) -> Any:
        for rate, samples in zip(block.local_lrs.tolist(), block.samples.tolist(), strict=True):
            self._pull(rate)  # refused before any is folded
            self.mass(samples)
        return SteppingRule.receive_many(self, state, block)  # which counts the steps of each

    def next_params(self, state: Any) -> Vector:
        # total / mass is the mean of D_i / a_i, effective / mass is tau_eff.
        vectors, by = (state.params, state.total, state.moments), state.mass**2 / state.effective
        state.mass = state.effective = 0.0
        return stepped(*vectors, by, self.step, self.server_lr, clear=True)
