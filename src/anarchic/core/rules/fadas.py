"""FADAS: buffered asynchronous updates and an adaptive server step that knows the delay."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, final

from anarchic.core.rule import SteppingRule
from anarchic.core.rules.buffer import BufferedRule, BufferState
from anarchic.core.steps import AmsGradStep, Step, stepped
from anarchic.core.types import Update, Vector
from anarchic.core.validation import check_choice
from anarchic.errors import ConfigError

FORMS = ("paper", "code")


@dataclass(slots=True)
class FadasState(BufferState):
    """A buffer that knows its largest staleness."""

    largest_staleness: int = 0


@final
@dataclass(frozen=True)
class Fadas(BufferedRule):
    """Federated adaptive asynchronous optimisation.

        Delta_t = (1/m) * sum_i K_i * eta_L_i * G_i;   x_{t+1} = x_t - eta_t * AMSGrad(Delta_t)

    ``threshold`` is tau_c: if the largest staleness tau of a buffer exceeds it, the rate eta_t is
    min(eta, 1/tau) as the paper prints it (``form="paper"``), or eta/tau as the authors' program
    has it (``form="code"``, which also corrects the bias of the moments). None: eta_t = eta.
    Symbols: ``m`` is the size of the buffer, ``server_lr`` is eta.
    Reference: Wang, Wang, Lu, Chen, "FADAS: Towards Federated Adaptive Asynchronous Optimization",
    ICML 2024, arXiv:2407.18365, Algorithms 1 and 2. Known from the authors' program; the paper's
    own formula from a summary. Departs from it in: the correction of the bias does not touch
    epsilon.
    """

    step: Step = field(init=False, repr=False, default_factory=AmsGradStep)
    threshold: int | None = None
    form: Literal["paper", "code"] = "paper"
    beta1: float = 0.9
    beta2: float = 0.99
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "step", AmsGradStep(self.beta1, self.beta2, self.epsilon))
        check_choice("form", self.form, FORMS)
        if self.threshold is not None and self.threshold < 0:
            raise ConfigError(f"Fadas needs threshold >= 0, got threshold={self.threshold}.")

    def scale(self, local_lr: float, local_steps: int) -> float:
        return local_lr * local_steps

    def begin(self, params: Vector) -> FadasState:
        first = super().begin(params)
        return FadasState(first.params, 0, first.total, 0.0, 0, first.moments)

    def fold(self, state: Any, update: Update) -> None:
        staleness = state.version - int(update.base_version)
        state.largest_staleness = max(state.largest_staleness, staleness)
        super().fold(state, update)

    # One by one, since each may be the latest of its buffer.
    receive_many = SteppingRule.receive_many

    def rate(self, staleness: int, version: int) -> float:
        """eta_t of the step from ``version``, for the largest staleness in the buffer."""
        rate = self.server_lr
        if self.threshold is not None and staleness > self.threshold:
            rate = min(rate, 1 / staleness) if self.form == "paper" else rate / staleness
        if self.form == "code":
            step = version + 1
            rate *= (1 - self.beta2**step) ** 0.5 / (1 - self.beta1**step)
        return rate

    def next_params(self, state: Any) -> Vector:
        rate = self.rate(state.largest_staleness, state.version)
        vectors, by = (state.params, state.total, state.moments), state.mass
        state.mass, state.largest_staleness = 0.0, 0
        return stepped(*vectors, by, self.step, rate, clear=True)
