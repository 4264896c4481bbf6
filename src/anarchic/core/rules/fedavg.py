"""FedAvg: synchronous federated averaging, the baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

from anarchic.core.rules.buffer import BufferedRule, samples_of


@final
@dataclass(frozen=True)
class FedAvg(BufferedRule):
    """Federated averaging in synchronous rounds of ``m`` workers.

        x_{t+1} = x_t - eta * sum_i w_i * (x_t - x_i),   x_t - x_i = K_i * eta_L_i * G_i

    where x_i is the model that worker i ended with and w_i = 1/m, or n_i / sum_j n_j where
    ``by_samples`` is set. With eta = 1 the new model is the mean of the workers' models. At
    constant K it equals ``AfaCd`` with ``server_lr = K``.
    An update that does not start from the current version is refused: in a synchronous round
    there is none.
    Reference: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized
    Data", AISTATS 2017, arXiv:1602.05629, Algorithm 1. Known from common use; the paper was not
    read for it. Departs from it in: the plain mean is the default (the paper's weights are
    ``by_samples``), eta may differ from 1.
    """

    by_samples: bool = False
    takes_late: ClassVar[bool] = False
    synchronous: ClassVar[bool] = True

    def scale(self, local_lr: float, local_steps: int) -> float:
        return local_lr * local_steps

    def mass(self, samples: int) -> float:
        return samples_of("FedAvg", samples) if self.by_samples else 1.0

    def oldest(self, version: Any) -> Any:
        return version
