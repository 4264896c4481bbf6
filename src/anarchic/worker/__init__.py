"""The worker's side of the live system: pull, train and push, as long and whenever you like."""

from anarchic.worker.answers import Answer
from anarchic.worker.channel import Retry
from anarchic.worker.clock import Clock, WallClock
from anarchic.worker.digits import digits_task
from anarchic.worker.policy import (
    Always,
    Both,
    Every,
    Fixed,
    Hours,
    Moment,
    Policy,
    Randomly,
    RandomSteps,
    StepCount,
    TimeBudget,
    When,
)
from anarchic.worker.session import Summary
from anarchic.worker.softmax import SoftmaxTask
from anarchic.worker.spool import Spool
from anarchic.worker.task import FromTask, FunctionTask, LiveTask, load_task
from anarchic.worker.worker import Worker

__all__ = [
    "Always",
    "Answer",
    "Both",
    "Clock",
    "Every",
    "Fixed",
    "FromTask",
    "FunctionTask",
    "Hours",
    "LiveTask",
    "Moment",
    "Policy",
    "RandomSteps",
    "Randomly",
    "Retry",
    "SoftmaxTask",
    "Spool",
    "StepCount",
    "Summary",
    "TimeBudget",
    "WallClock",
    "When",
    "Worker",
    "digits_task",
    "load_task",
]
