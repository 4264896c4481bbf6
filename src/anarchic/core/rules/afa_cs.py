"""AFA-CS: anarchic federated averaging for a few silos, with a memory of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from anarchic.core.rules.table import TableRule


@final
@dataclass(frozen=True)
class AfaCs(TableRule):
    """Anarchic federated averaging, cross-silo form.

    The server remembers the last update of every worker. Every ``m`` new ones it steps along the
    mean of all that it remembers, so a worker that seldom reports counts as much as one that
    often does:

        x_{t+1} = x_t - eta * (1/M) * sum_{i in [M]} eta_L_i * G_i

    Symbols: ``m`` is m, ``server_lr`` is eta, ``population`` is M (None: the workers heard so
    far), the rows are eta_L_i * G_i. An update costs O(d), whatever M is.
    ``expire_after`` forgets a worker that was silent for more than this many versions, ``cap`` the
    one that was silent for the longest, where a newcomer would be one too many: nobody weighs for
    ever after leaving, and the memory is bounded. The sum of the rows is kept in float64; a row a
    trillion times larger than the rest leaves rounding behind even when it is gone, so put ``Clip``
    around the rule where workers are not trusted.
    Reference: Yang, Zhang, Khanduri, Liu, "Anarchic Federated Learning", ICML 2022,
    arXiv:2108.09875, Algorithm 3. Known from the paper's text. Departs from it in: the step carries
    eta_L, as in the proofs; the mean may be over the workers heard so far; expiry, cap and server
    step.
    """
