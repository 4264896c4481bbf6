"""Participation: which worker reports when, from which version, with how many local steps.

No worker's timing depends on the server, so all of it can be drawn as arrays before training.
The result is a `Timetable`. It comes from

- the paper's `Sampler` (m of M workers per round, without a clock),
- a process in continuous time, such as `ContinuousTime`, by `make_timetable`, or block by block,
  with the memory of one block, by `timetable_blocks`,
- recorded `Visits`, by `from_visits`,
- for comparison, `Synchronous` rounds.
"""

from anarchic.participation.availability import Availability, read_availability
from anarchic.participation.continuous_time import ContinuousTime, Dropout
from anarchic.participation.idle import Diurnal, Exponential, Idle, LogNormal
from anarchic.participation.make import from_visits, make_timetable, timetable_blocks
from anarchic.participation.sampler import Sampler
from anarchic.participation.synchronous import Synchronous
from anarchic.participation.timetable import Timetable
from anarchic.participation.visits import Participation, Visits, VisitStream
from anarchic.participation.work import (
    ConstantSteps,
    ConstantTime,
    Epochs,
    ExponentialTime,
    LogNormalTime,
    SpeedClasses,
    StepPolicy,
    TimeDistribution,
    UniformSteps,
    Work,
    draw_steps,
)

__all__ = [
    "Availability",
    "ConstantSteps",
    "ConstantTime",
    "ContinuousTime",
    "Diurnal",
    "Dropout",
    "Epochs",
    "Exponential",
    "ExponentialTime",
    "Idle",
    "LogNormal",
    "LogNormalTime",
    "Participation",
    "Sampler",
    "SpeedClasses",
    "StepPolicy",
    "Synchronous",
    "TimeDistribution",
    "Timetable",
    "UniformSteps",
    "VisitStream",
    "Visits",
    "Work",
    "draw_steps",
    "from_visits",
    "make_timetable",
    "read_availability",
    "timetable_blocks",
]
