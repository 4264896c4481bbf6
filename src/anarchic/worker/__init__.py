"""The worker's side of the live system: pull, train and push, as long and whenever you like."""

from anarchic.participation.idle import Exponential, Moment
from anarchic.participation.work import ConstantSteps, UniformSteps
from anarchic.worker.connection import Answer, Connection, Retry
from anarchic.worker.policy import (
    Always,
    Both,
    Every,
    Hours,
    Policy,
    StepCount,
    TimeBudget,
    WallClock,
    When,
    WorkerClock,
)
from anarchic.worker.settings import WorkSettings, run
from anarchic.worker.spool import Spool
from anarchic.worker.task import (
    FromTask,
    FunctionTask,
    LiveTask,
    SoftmaxTask,
    digits_task,
    load_task,
)
from anarchic.worker.token import read_token
from anarchic.worker.visit_loop import Summary, WorkPlan
from anarchic.worker.worker import Worker

__all__ = [
    "Always",
    "Answer",
    "Both",
    "Connection",
    "ConstantSteps",
    "Every",
    "Exponential",
    "FromTask",
    "FunctionTask",
    "Hours",
    "LiveTask",
    "Moment",
    "Policy",
    "Retry",
    "SoftmaxTask",
    "Spool",
    "StepCount",
    "Summary",
    "TimeBudget",
    "UniformSteps",
    "WallClock",
    "When",
    "WorkPlan",
    "WorkSettings",
    "Worker",
    "WorkerClock",
    "digits_task",
    "load_task",
    "read_token",
    "run",
]  # fmt: skip
