"""Numbers of a run, sent to TensorBoard, MLflow or Weights & Biases.

Each needs its library, which is imported when the callback is made, so that a missing one is
named before training.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, final

from anarchic.callbacks.callback import Callback, Numbers, RunInfo, VersionInfo
from anarchic.core.options import says_options
from anarchic.errors import ConfigError

NOT_LOGGED = ("round",)  # it is the step


class _Logger(Callback):
    """Logs evaluations; live, also the loss that workers report with a version."""

    def version(self, at: VersionInfo) -> None:
        self.evaluation(at)

    def evaluation(self, at: VersionInfo) -> None:
        numbers = {
            name: float(value)
            for name, value in at.metrics.items()
            if value is not None and name not in NOT_LOGGED
        }
        if numbers:
            self._log(numbers, at.version)

    def _log(self, numbers: Mapping[str, float], step: int) -> None:
        raise NotImplementedError


@says_options
@final
class TensorBoard(_Logger):
    """Scalars and settings for ``tensorboard --logdir DIR``; needs tensorboard and PyTorch.

    ``log_dir`` is by default ``tensorboard`` in the run's directory, or ``runs/NAME``.
    """

    def __init__(self, log_dir: str | Path | None = None) -> None:
        self._asked = log_dir
        self._library = _library("torch.utils.tensorboard", "tensorboard")
        self._writer: Any = None

    def begin(self, run: RunInfo) -> None:
        own = Path("runs") / run.name if run.directory is None else run.directory / "tensorboard"
        self._writer = self._library.SummaryWriter(str(self._asked or own))
        self._writer.add_text("settings", f"```\n{_shown(run.settings)}\n```")

    def _log(self, numbers: Mapping[str, float], step: int) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def end(self, summary: Mapping[str, Any]) -> None:
        self._writer.close()


@says_options
@final
class MLflow(_Logger):
    """Metrics and settings as a run of MLflow, by its client: nothing global is set.

    ``tracking_uri`` is by default MLflow's own (its variable ``MLFLOW_TRACKING_URI``).
    """

    def __init__(
        self,
        experiment: str = "anarchic",
        *,
        run_name: str | None = None,
        tracking_uri: str | None = None,
    ) -> None:
        self._library = _library("mlflow", "mlflow")
        self._experiment, self._run_name, self._uri = experiment, run_name, tracking_uri
        self._client: Any = None
        self.run_id: str | None = None

    def begin(self, run: RunInfo) -> None:
        self._client = client = self._library.MlflowClient(tracking_uri=self._uri)
        there = client.get_experiment_by_name(self._experiment)
        place = client.create_experiment(self._experiment) if there is None else there.experiment_id
        name = self._run_name or run.name
        self.run_id = client.create_run(place, run_name=name).info.run_id
        entities = self._library.entities
        params = [entities.Param(n, str(v)[:500]) for n, v in _flat(run.settings).items()]
        for first in range(0, len(params), 100):  # as many as it takes at once
            client.log_batch(self.run_id, params=params[first : first + 100])

    def _log(self, numbers: Mapping[str, float], step: int) -> None:
        now, metric = int(time.time() * 1000), self._library.entities.Metric
        self._client.log_batch(
            self.run_id, metrics=[metric(n, v, now, step) for n, v in numbers.items()]
        )

    def end(self, summary: Mapping[str, Any]) -> None:
        self._client.set_terminated(self.run_id)


@final
class WandB(_Logger):
    """Metrics and settings as a run of Weights & Biases; ``init`` goes to ``wandb.init``.

    ``WandB(mode="offline")`` sends nothing anywhere; ``wandb sync`` does later.
    """

    def __init__(self, project: str = "anarchic", **init: Any) -> None:
        self._library = _library("wandb", "wandb")
        self._init = {"project": project, **init}
        self._run: Any = None

    def begin(self, run: RunInfo) -> None:
        settings = {"name": run.name, "config": json.loads(_shown(run.settings))}
        self._run = self._library.init(**{**settings, "reinit": "create_new", **self._init})

    def _log(self, numbers: Mapping[str, float], step: int) -> None:
        self._run.log(dict(numbers), step=step)

    def end(self, summary: Mapping[str, Any]) -> None:
        self._run.summary.update({n: v for n, v in summary.items() if isinstance(v, int | float)})
        self._run.finish()


def _library(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"{package} cannot be imported ({error}): pip install {package}."
        ) from error


def _shown(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, indent=2, default=str)


def _flat(settings: Numbers | Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Settings in settings as ``outer.inner``."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{before}{name}.")
        else:
            found[f"{before}{name}"] = value
    return found
