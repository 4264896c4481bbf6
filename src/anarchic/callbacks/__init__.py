"""What hears of a run while it goes on: loggers, the best model, early stopping, a progress bar."""

from anarchic.callbacks.best import EarlyStop, KeepBest
from anarchic.callbacks.callback import Callback, RunInfo, VersionInfo
from anarchic.callbacks.loggers import MLflow, TensorBoard, WandB
from anarchic.callbacks.progress import ProgressBar

__all__ = [
    "Callback",
    "EarlyStop",
    "KeepBest",
    "MLflow",
    "ProgressBar",
    "RunInfo",
    "TensorBoard",
    "VersionInfo",
    "WandB",
]
