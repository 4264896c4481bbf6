"""Anarchic federated learning: the workers decide when, how long and whether they train."""

from typing import TYPE_CHECKING, Any

from anarchic.core import local, rules
from anarchic.core.around import Carry, Clip, StalenessDiscount
from anarchic.core.local import *  # noqa: F403
from anarchic.core.rule import Rule, State
from anarchic.core.rules import *  # noqa: F403
from anarchic.core.steps import AdamStep, MomentumStep, SgdStep, Step, YogiStep
from anarchic.core.types import Layout, Snapshot, Update, Updates
from anarchic.sim.experiment import Experiment
from anarchic.sim.many import simulate_many
from anarchic.sim.run import Progress, Run, simulate
from anarchic.sim.settings import Settings, build
from anarchic.train.task import LocalWork, Task

if TYPE_CHECKING:
    from anarchic.worker import Worker

__version__ = "0.1.0"

__all__ = [
    *local.__all__,
    *rules.__all__,
    "AdamStep",
    "Carry",
    "Clip",
    "Experiment",
    "Layout",
    "LocalWork",
    "MomentumStep",
    "Progress",
    "Rule",
    "Run",
    "Settings",
    "SgdStep",
    "Snapshot",
    "StalenessDiscount",
    "State",
    "Step",
    "Task",
    "Update",
    "Updates",
    "Worker",
    "YogiStep",
    "build",
    "simulate",
    "simulate_many",
]


def __getattr__(name: str) -> Any:
    """``Worker`` is loaded on first use: it brings an HTTP client."""
    if name == "Worker":
        from anarchic.worker import Worker

        return Worker
    raise AttributeError(f"module 'anarchic' has no attribute {name!r}")
