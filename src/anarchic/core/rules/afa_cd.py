"""AFA-CD: anarchic federated averaging for many devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from anarchic.core.rules.buffer import BufferedRule, Floats
from anarchic.core.types import Integers, Updates


@final
@dataclass(frozen=True)
class AfaCd(BufferedRule):
    """Anarchic federated averaging, cross-device form.

    Every ``m`` updates, whoever sent them, the server steps along their mean:

        x_{t+1} = x_t - eta * (1/m) * sum_i eta_L_i * G_i(x_{t - tau_i})

    Symbols: ``m`` is m, ``server_lr`` is eta, ``Update.local_lr`` is eta_L, ``Update.direction``
    is G_i. A worker with a larger rate weighs more. Memory O(d).
    Reference: Yang, Zhang, Khanduri, Liu, "Anarchic Federated Learning", ICML 2022,
    arXiv:2108.09875, Algorithm 2. Known from the paper's text. Departs from it in: the step carries
    eta_L, as in the proofs and unlike the printed algorithm; each worker may choose its own;
    ``step`` may be a server optimiser other than plain SGD.

    >>> import numpy as np
    >>> from anarchic import Update
    >>> rule = AfaCd(m=2, server_lr=1.0)
    >>> state = rule.init(np.array([10.0]))
    >>> for direction in (2.0, 4.0):
    ...     update = Update("w", 0, local_steps=1, local_lr=0.5, direction=np.array([direction]))
    ...     state = rule.receive(state, update)
    >>> state.version, state.params.tolist()  # 10 - (0.5 * 2 + 0.5 * 4) / 2
    (1, [8.5])
    """

    def scale(self, local_lr: float, local_steps: int) -> float:
        return local_lr

    def coefficients(self, block: Updates, staleness: Integers) -> Floats:
        return block.local_lrs
