"""Visits for trainers that own the loop and call back: Lightning, and Hugging Face's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from torch import Tensor, nn

from anarchic.bridges.torch import TorchVisit
from anarchic.core.options import refuse_unknown
from anarchic.errors import ConfigError
from anarchic.worker import Worker

OPTIONS = ("buffers", "per_step", "lr", "samples")  # of anarchic.torch.visit


@final
class TrainerVisits:
    """One visit after another, each an epoch long, or ``every_n_steps`` of the optimiser.

    ``options`` are those of ``anarchic.torch.visit``.
    """

    def __init__(
        self,
        worker: Worker | None,
        train: Callable[[str], bool] | None = None,
        *,
        every_n_steps: int | None = None,
        **options: Any,
    ) -> None:
        if every_n_steps is not None and every_n_steps < 1:
            raise ConfigError(f"A visit takes at least 1 step, got every_n_steps={every_n_steps}.")
        refuse_unknown("VisitCallback", ("train", "every_n_steps", "module", *OPTIONS), options)
        self._worker, self._train, self._options = worker, train, options
        self._every = every_n_steps
        self._visit: TorchVisit | None = None
        self._losses: list[Tensor | float] = []

    def begin(self, model: nn.Module, loader: Any = None) -> None:
        """Pull, unless a visit is under way; ``loader`` tells how many samples there are."""
        if self._visit is None:
            options = {"samples": _length(loader), **self._options}
            self._visit = TorchVisit(self._worker, model, self._train, **options)
            self._visit.__enter__()
            self._visit.release()  # training that fails may leave it behind without a word

    def step(self, model: nn.Module, loader: Any = None) -> None:
        """After a batch: if the visit has its steps, push, and begin the next."""
        if self._every is not None and self._visit and (self._visit.steps or 0) >= self._every:
            self.end()
            self.begin(model, loader)

    def loss(self, loss: Tensor | float) -> None:
        """A loss of training; the mean of those of a visit is sent."""
        self._losses.append(loss.detach() if isinstance(loss, Tensor) else loss)

    def end_epoch(self) -> None:
        if self._every is None:
            self.end()

    def end(self) -> None:
        """Push what the visit has changed, if it took a step."""
        visit, losses = self._visit, self._losses
        self._visit, self._losses = None, []
        if visit is not None and visit.steps:
            visit.loss = float(sum(losses)) / len(losses) if losses else None
            visit.__exit__(None)
        elif visit is not None:
            visit.cancel()

    def cancel(self) -> None:
        """Push nothing of the visit that is under way."""
        if self._visit is not None:
            self._visit.cancel()
        self._visit, self._losses = None, []


def _length(loader: Any) -> int:
    """Of the data behind a loader; 0 where it is a stream."""
    try:
        return len(loader.dataset)
    except (AttributeError, TypeError):
        return 0
