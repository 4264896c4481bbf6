"""Generalized AsyncSGD: whoever is picked more often weighs less."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, final

from anarchic.core.rule import SteppingRule
from anarchic.core.rules.buffer import BufferedRule
from anarchic.core.types import Update
from anarchic.errors import ConfigError


@final
@dataclass(frozen=True)
class GeneralizedAsyncSgd(BufferedRule):
    """Asynchronous SGD that makes up for workers being picked with unequal probabilities.

        x_{t+1} = x_t - eta / (M * p_j) * eta_L * G_j   for the worker j that arrives

    A worker that ``probabilities`` does not name has p_j = 1/M. With all p_j = 1/M it is
    ``AsyncSgd`` without a limit.
    Symbols: ``server_lr`` is eta; ``probabilities`` are the p_j by the workers' names ("0", "1" and
    so on in the simulator), as a mapping or a text such as "ann:0.5,bob:0.2"; ``population`` is M
    (None: as many as are named).
    Reference: Leconte, Jonckheere, Samsonov, Moulines, "Queuing dynamics of asynchronous Federated
    Learning", AISTATS 2024, Algorithm 1. Known from the paper's text. Departs from it in: who works
    next is up to the participation, not to the rule, which is told the p_j; workers may take
    several local steps, and ``m`` updates may be averaged.
    """

    m: int = 1
    population: int | None = None
    probabilities: Mapping[str, float] | str = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        named = len(self._probabilities)
        if self.population is not None and self.population < max(1, named):
            raise ConfigError(
                f"GeneralizedAsyncSgd needs population >= {max(1, named)}, the number of workers "
                f"that probabilities names, got population={self.population}."
            )

    def scale(self, local_lr: float, local_steps: int) -> float:
        return local_lr

    def weight(self, worker: str) -> float:
        """1 / (M * p_j)."""
        p = self._probabilities.get(worker)
        return 1.0 if p is None else 1 / ((self.population or len(self._probabilities)) * p)

    @cached_property
    def _probabilities(self) -> dict[str, float]:
        given = self.probabilities
        try:
            if isinstance(given, str):
                pairs = (pair.rpartition(":") for pair in given.split(",") if pair.strip())
                found = {name.strip(): float(p) for name, _, p in pairs}
            else:
                found = {name: float(p) for name, p in given.items()}
        except (AttributeError, TypeError, ValueError):
            found = {"": 0.0}
        if not all(name and 0 < p <= 1 for name, p in found.items()) or sum(found.values()) > 1.001:
            raise ConfigError(
                "GeneralizedAsyncSgd needs probabilities above 0 whose sum is at most 1, such as "
                f"ann:0.5,bob:0.2, got {given!r}."
            )
        return found

    def fold(self, state: Any, update: Update) -> None:
        rate = float(update.local_lr) * self.weight(update.worker)
        super().fold(state, replace(update, local_lr=rate))

    receive_many = SteppingRule.receive_many  # the weight of each is its worker's
