"""A Lightning trainer as a worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:  # the other name of the same library
    from pytorch_lightning.callbacks import Callback

from anarchic.bridges.trainers import TrainerVisits
from anarchic.worker import Worker

__all__ = ["VisitCallback"]


class VisitCallback(Callback):  # type: ignore[misc]  # it may not be installed
    """Pulls at the beginning of every epoch, and pushes at its end or every ``every_n_steps``.

    The server's model is the ``LightningModule`` unless ``module`` gives a part of it, such as
    ``module=lambda m: m.net``. ``train`` and further options are those of
    ``anarchic.torch.visit``. An exception during training pushes nothing.
    """

    def __init__(
        self,
        worker: Worker | None,
        train: Callable[[str], bool] | None = None,
        *,
        every_n_steps: int | None = None,
        module: Callable[[Any], nn.Module] = lambda whole: whole,
        **options: Any,
    ) -> None:
        self._visits = TrainerVisits(worker, train, every_n_steps=every_n_steps, **options)
        self._module = module

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._visits.begin(self._module(pl_module), trainer.train_dataloader)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if loss is not None:
            self._visits.loss(loss)
        self._visits.step(self._module(pl_module), trainer.train_dataloader)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._visits.end_epoch()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._visits.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._visits.cancel()
