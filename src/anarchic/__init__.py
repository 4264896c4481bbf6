"""Anarchic federated learning: the workers decide when, how long and whether they train."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from anarchic import callbacks, data
from anarchic.callbacks import Callback, EarlyStop, KeepBest, MLflow, TensorBoard, WandB
from anarchic.core import local, rules
from anarchic.core.buffers import AverageBuffers
from anarchic.core.checking import check
from anarchic.core.guard import Guard
from anarchic.core.local import *  # noqa: F403
from anarchic.core.local_dyn import Dyn
from anarchic.core.local_mime import MimeLite
from anarchic.core.local_schedules import Cosine, Milestones, Schedule, WarmUp
from anarchic.core.local_wrappers import ClipNorm, Decay
from anarchic.core.rows import WorkerRows
from anarchic.core.rule import Rule, RuleState, State, SteppingRule
from anarchic.core.rules import *  # noqa: F403
from anarchic.core.steps import AdamStep, AmsGradStep, MomentumStep, SgdStep, Step, YogiStep
from anarchic.core.types import Layout, Snapshot, Update, Updates
from anarchic.core.wrappers import Clip, SharedVectors, StalenessDiscount
from anarchic.errors import Stop
from anarchic.participation import (
    ConstantSteps,
    ContinuousTime,
    Epochs,
    Exponential,
    Sampler,
    Timetable,
    UniformSteps,
    Work,
    make_timetable,
)
from anarchic.sim.experiment import Experiment
from anarchic.sim.run import Progress, Run
from anarchic.sim.settings import Settings, build
from anarchic.sim.simulate import simulate, simulate_many
from anarchic.train.backends import Batched, Loop
from anarchic.train.compute import Compute
from anarchic.train.metrics import Metric
from anarchic.train.task import LocalWork, Task, make_task

if TYPE_CHECKING:
    from anarchic import torch as torch
    from anarchic.study.sweeps import sweep
    from anarchic.study.tuning import tune
    from anarchic.train.torch_optimizer import TorchOptimizer
    from anarchic.train.torch_task import TorchTask
    from anarchic.worker import Worker

__version__ = "0.1.0"

__all__ = [
    *local.__all__, *rules.__all__, "AdamStep", "AmsGradStep", "AverageBuffers", "Batched",
    "Callback", "Clip", "ClipNorm", "Compute", "ConstantSteps", "ContinuousTime", "Cosine",
    "Decay", "Dyn", "EarlyStop", "Epochs", "Experiment", "Exponential", "Guard", "KeepBest",
    "Layout", "LocalWork", "Loop", "Metric", "Milestones", "MimeLite", "MLflow", "MomentumStep",
    "Progress", "Rule", "RuleState", "Run", "Sampler", "Schedule", "Settings", "SgdStep",
    "SharedVectors", "Snapshot", "StalenessDiscount", "State", "Step", "SteppingRule", "Stop",
    "Task", "TensorBoard", "Timetable", "TorchOptimizer", "TorchTask", "UniformSteps", "Update",
    "Updates", "WandB", "WarmUp", "Work", "Worker", "WorkerRows", "YogiStep", "build",
    "callbacks", "check", "data", "make_task", "make_timetable", "simulate", "simulate_many",
    "sweep", "tune",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Some names are loaded on first use: they bring an HTTP client, PyTorch, or much code."""
    lazy = {
        "TorchOptimizer": "anarchic.train.torch_optimizer",
        "TorchTask": "anarchic.train.torch_task",
        "Worker": "anarchic.worker",
        "sweep": "anarchic.study.sweeps",
        "tune": "anarchic.study.tuning",
    }
    if name == "torch":
        return import_module("anarchic.torch")
    if name not in lazy:
        raise AttributeError(f"module 'anarchic' has no attribute {name!r}")
    return getattr(import_module(lazy[name]), name)


def __dir__() -> list[str]:
    """What there is, also what is loaded on first use."""
    return sorted([*__all__, "torch", *(name for name in globals() if name.startswith("__"))])
