"""The best evaluation so far: keep its model, or stop when there is none better for long."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any, final

from anarchic import wire
from anarchic.callbacks.callback import Callback, Numbers, RunInfo, VersionInfo
from anarchic.core.options import says_options
from anarchic.core.types import Vector
from anarchic.errors import ConfigError, Stop

LOGGER = logging.getLogger("anarchic.callbacks")
# Without a name, the first of these that an evaluation has; those on validation data come first.
USUAL = ("val_accuracy", "val_loss", "accuracy", "loss")
LOW = ("loss", "error", "distance")  # a metric whose name ends so is better if it is lower


class _Best:
    """The best value of a metric."""

    def __init__(self, metric: str | None, lower: bool | None) -> None:
        self.metric, self._lower, self.value = metric, lower, -inf

    def improves(self, metrics: Numbers, least: float = 0.0) -> bool:
        """Whether it is better than all before, by more than ``least``; then it is the best."""
        value = self._value(metrics)
        if value is None or value <= self.value + least:
            return False
        self.value = value
        return True

    def _value(self, metrics: Numbers) -> float | None:
        if self.metric is None:
            self.metric = next((n for n in USUAL if metrics.get(n) is not None), None)
        if self.metric is None or self.metric not in metrics:
            missing = "accuracy and no loss" if self.metric is None else f"metric {self.metric!r}"
            raise ConfigError(
                f"There is no {missing} in the evaluation, which has "
                f"{', '.join(metrics) or 'nothing'}: name one of them with metric=."
            )
        value = metrics[self.metric]
        lower = self.metric.endswith(LOW) if self._lower is None else self._lower
        return None if value is None else -value if lower else value

    @property
    def shown(self) -> float:
        """The value as it was measured."""
        lower = (self.metric or "").endswith(LOW) if self._lower is None else self._lower
        return -self.value if lower else self.value


@says_options
@final
class KeepBest(Callback):
    """Keep the model with the best evaluation, in ``params`` and in a file.

    The file is ``path``, or else ``best.safetensors`` in the run's directory (live: where the
    server was started). ``metric`` is by default accuracy, or the loss, on validation data where
    there are any. Metrics called ...loss, ...error or ...distance are better if lower; ``lower``
    says so of others.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        metric: str | None = None,
        lower: bool | None = None,
    ) -> None:
        self._asked, self._metric, self._lower = path, metric, lower
        self.path: Path | None = None
        self.at: int | None = None  # version
        self.params: Vector | None = None
        self._best = _Best(metric, lower)

    @property
    def value(self) -> float | None:
        """Of the metric, at the best version."""
        return None if self.at is None else self._best.shown

    def begin(self, run: RunInfo) -> None:
        self._best = _Best(self._metric, self._lower)
        folder = Path() if run.live else run.directory
        self.path = None if folder is None else folder / "best.safetensors"
        if self._asked is not None:
            self.path = Path(self._asked)
        self.at = self.params = None
        for row in run.metrics:
            if self._best.improves(row):
                self.at = int(row["round"] or 0)
        if self.at is not None and self.path is not None and self.path.exists():
            _, params, told = wire.load_model(self.path)
            # A run that was to end earlier may have kept its last version, which this one does not
            # evaluate; one that was cut off may have kept a version that is still to come.
            self.params = params if told.get("version") == str(self.at) else None

    def evaluation(self, at: VersionInfo) -> None:
        if not self._best.improves(at.metrics):
            return
        self.at, self.params = at.version, at.params
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            told = {"version": str(at.version), str(self._best.metric): f"{self._best.shown:.9g}"}
            wire.save_model(self.path, at.run.layout, at.params, **told)

    def end(self, summary: Mapping[str, Any]) -> None:
        if self.at is not None and self.params is None and self.path is not None:
            LOGGER.warning(
                f"The best evaluation was that of version {self.at}, whose model is not in "
                f"{self.path}: it was evaluated before the run was resumed."
            )


@says_options
@final
class EarlyStop(Callback):
    """Stop when ``patience`` evaluations in a row were not better by more than ``least``."""

    def __init__(
        self,
        patience: int = 10,
        *,
        metric: str | None = None,
        least: float = 0.0,
        lower: bool | None = None,
    ) -> None:
        if patience < 1:
            raise ConfigError(f"EarlyStop needs a patience of at least 1, got {patience}.")
        self._patience, self._least = patience, least
        self._metric, self._lower = metric, lower
        self._best, self._since = _Best(metric, lower), 0

    def begin(self, run: RunInfo) -> None:
        self._best, self._since = _Best(self._metric, self._lower), 0
        for row in run.metrics:
            self._see(row)

    def evaluation(self, at: VersionInfo) -> None:
        self._see(at.metrics)
        if self._since >= self._patience:
            best = f"{self._best.metric} {self._best.shown:.4g}"
            raise Stop(f"none of the last {self._since} evaluations was better than {best}")

    def _see(self, metrics: Numbers) -> None:
        self._since = 0 if self._best.improves(metrics, self._least) else self._since + 1
