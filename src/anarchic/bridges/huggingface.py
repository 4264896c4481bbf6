"""A Hugging Face ``Trainer`` as a worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback

from anarchic.bridges.trainers import TrainerVisits
from anarchic.worker import Worker

__all__ = ["VisitCallback"]


class VisitCallback(TrainerCallback):  # type: ignore[misc]  # it may not be installed
    """Pulls at the beginning of every epoch, and pushes at its end or every ``every_n_steps``.

    ``train`` and further options are those of ``anarchic.torch.visit``. Of a PEFT model the
    adapters alone travel, if the server's model holds no more. The loss that is sent is the one
    that the trainer logs (``logging_steps``).
    """

    def __init__(
        self,
        worker: Worker | None,
        train: Callable[[str], bool] | None = None,
        *,
        every_n_steps: int | None = None,
        **options: Any,
    ) -> None:
        self._visits = TrainerVisits(worker, train, every_n_steps=every_n_steps, **options)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._visits.cancel()  # what an earlier training that failed has left

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._visits.begin(kwargs["model"], kwargs.get("train_dataloader"))

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any], **kwargs: Any
    ) -> None:
        if "loss" in logs:
            self._visits.loss(float(logs["loss"]))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._visits.step(kwargs["model"], kwargs.get("train_dataloader"))

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._visits.end_epoch()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._visits.end()
