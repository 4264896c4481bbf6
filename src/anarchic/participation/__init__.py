"""Participation: which worker reports when, from which version, with how many local steps.

No worker's timing depends on the server, so all of it can be drawn as arrays before training. Where
it does (`Coupling`), an event queue goes through the same draws. The result is a `Timetable`. It
comes from

- the paper's `Sampler` (m of M workers per round, without a clock),
- a process in continuous time, such as `ContinuousTime`, by `make_timetable`, or block by block,
  with the memory of one block, by `timetable_blocks`,
- recorded `Visits` (`read_visits`), by `from_visits`,
- for comparison, `Synchronous` rounds.
"""

from anarchic.participation.availability import Availability, read_availability
from anarchic.participation.continuous_time import ContinuousTime, Dropout
from anarchic.participation.coupling import Coupling
from anarchic.participation.fedscale import read_fedscale, read_speeds
from anarchic.participation.idle import Diurnal, Exponential, Idle, LogNormal, Unequal
from anarchic.participation.make import from_visits, make_timetable, timetable_blocks
from anarchic.participation.presence import Change, present
from anarchic.participation.recorded import read_visits
from anarchic.participation.sampler import Sampler
from anarchic.participation.synchronous import Synchronous
from anarchic.participation.timetable import Stepped, Timetable
from anarchic.participation.visits import Participation, Visits, VisitStream
from anarchic.participation.wasted import Wasted
from anarchic.participation.work import (
    ConstantSteps,
    ConstantTime,
    Epochs,
    ExponentialTime,
    LogNormalTime,
    MeasuredSpeeds,
    SpeedClasses,
    StepPolicy,
    TimeDistribution,
    UniformSteps,
    Work,
    draw_steps,
)

__all__ = [
    "Availability",
    "Change",
    "ConstantSteps",
    "ConstantTime",
    "ContinuousTime",
    "Coupling",
    "Diurnal",
    "Dropout",
    "Epochs",
    "Exponential",
    "ExponentialTime",
    "Idle",
    "LogNormal",
    "LogNormalTime",
    "MeasuredSpeeds",
    "Participation",
    "Sampler",
    "SpeedClasses",
    "StepPolicy",
    "Stepped",
    "Synchronous",
    "TimeDistribution",
    "Timetable",
    "Unequal",
    "UniformSteps",
    "VisitStream",
    "Visits",
    "Wasted",
    "Work",
    "draw_steps",
    "from_visits",
    "make_timetable",
    "present",
    "read_availability",
    "read_fedscale",
    "read_speeds",
    "read_visits",
    "timetable_blocks",
]
