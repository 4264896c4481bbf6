"""Asynchronous SGD whose rate depends on the delay of each gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

from anarchic.core.rules.buffer import BufferedRule
from anarchic.core.validation import check_choice
from anarchic.errors import ConfigError

FORMS = ("threshold", "ratio")


@final
@dataclass(frozen=True)
class AsyncSgd(BufferedRule):
    """Asynchronous SGD, each update a step with a rate that falls with its staleness.

        x_{t+1} = x_t - eta * s(tau_t) * eta_L * G,
        s(tau) = 1 if tau <= limit, else 1/tau          (``form="threshold"``)
        s(tau) = limit / max(limit, tau)                (``form="ratio"``)

    Symbols: ``server_lr`` is eta; ``limit`` is tau_C, the number of workers at work at once, in the
    first form, and the number of workers in the second. None: s = 1, plain asynchronous SGD.
    Reference: Koloskova, Stich, Jaggi, "Sharper Convergence Guarantees for Asynchronous SGD", 2022,
    arXiv:2206.08307 (threshold, in the form eta/tau used in practice); Mishchenko, Bach, Even,
    Woodworth, "Asynchronous SGD Beats Minibatch SGD Under Arbitrary Delays", 2022, arXiv:2206.07638
    (ratio). Known from the paper's text (threshold), the authors' program (ratio). Departs from it
    in: workers may take several local steps, and ``m`` updates may be averaged.
    """

    m: int = 1
    limit: int | None = None
    form: Literal["threshold", "ratio"] = "threshold"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("form", self.form, FORMS)
        if self.limit is not None and self.limit < 1:
            raise ConfigError(f"AsyncSgd needs limit >= 1, got limit={self.limit}.")

    def scale(self, local_lr: float, local_steps: int) -> float:
        return local_lr

    def coefficient(self, local_lr: float, local_steps: int, staleness: int) -> float:
        if self.limit is None or staleness <= self.limit:
            return local_lr
        return local_lr * (1.0 if self.form == "threshold" else self.limit) / staleness
